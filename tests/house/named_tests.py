"""The tests of this repository, by the names that documents and cases give them."""
import re

TAG = re.compile(r"\[((?:failure|rule):\w+)\]")
TEXT = r'"(?:[^"\\]|\\.)*"'


def cases(root, folder=""):
    """Of C++, below tests/FOLDER: a long name is several literals, one after another."""
    return {"".join(part[1:-1] for part in re.findall(TEXT, name)).replace('\\"', '"') for path in (root / "tests" / folder).rglob("*.cpp")
            for name in re.findall(rf"TEST_CASE\(\s*({TEXT}(?:\s*{TEXT})*)", path.read_text())}


def tagged(root):
    """Each test with a tag such as [failure:20] or [rule:2a], in the order of its file: (path, name for a page, tags). A case has them behind its name,
    a story in a comment above it, and a fuzzer, the simulator's program or a house test in comments at its beginning."""
    found = []
    for path in sorted((root / "tests").rglob("*.cpp")):
        text = path.read_text()
        for name, tags in re.findall(rf"TEST_CASE\(\s*({TEXT}(?:\s*{TEXT})*),\s*({TEXT})", text):
            found.append((path, '"' + "".join(part[1:-1] for part in re.findall(TEXT, name)).replace('\\"', '"') + '"', TAG.findall(tags)))
    for path in sorted((root / "tests/lab").glob("stories_*.py")):
        found += [(path, f"`{name}`", TAG.findall(tags)) for tags, name in re.findall(r"^# (\[.*)\n(?:@long\n)?def story_(\w+)", path.read_text(), re.M)]
    for path in [*sorted((root / "tests/fuzz").glob("*.cpp")), root / "tests/sim/simulate/main.cpp", *sorted((root / "tests/house").iterdir())]:
        if path.is_file():
            name = {"main": "simulate"}.get(path.stem, path.stem) if path.suffix == ".cpp" else str(path.relative_to(root))
            head = re.match(r"(?:#!.*\n)?((?:(?://|#) \[.*\n)*)", path.read_text())[1]
            found.append((path, f"`{name}`", TAG.findall(head)))
    return [one for one in found if one[2]]


def stories(root):
    return {name for path in (root / "tests/lab").glob("stories_*.py") for name in re.findall(r"^def story_(\w+)", path.read_text(), re.M)}


def renderings(root):
    """The tests of the chart and of the manifests."""
    return {name for path in (root / "tests/deploy").glob("test_*.py") for name in re.findall(r"^    def test_(\w+)", path.read_text(), re.M)}


def programs(root):
    """What CMake runs as one test, by its whole name."""
    return {name for path in (root / "tests").rglob("CMakeLists.txt") for name in re.findall(r'add_test\(NAME "([^"$]+)"', path.read_text())}
