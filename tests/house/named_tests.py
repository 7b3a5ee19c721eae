"""The tests of this repository, by the names that documents and cases give them."""
import re

TEXT = r'"(?:[^"\\]|\\.)*"'


def cases(root, folder=""):
    """Of C++, below tests/FOLDER: a long name is several literals, one after another."""
    return {"".join(part[1:-1] for part in re.findall(TEXT, name)).replace('\\"', '"') for path in (root / "tests" / folder).rglob("*.cpp")
            for name in re.findall(rf"TEST_CASE\(\s*({TEXT}(?:\s*{TEXT})*)", path.read_text())}


def stories(root):
    return {name for path in (root / "tests/lab").glob("stories_*.py") for name in re.findall(r"^def story_(\w+)", path.read_text(), re.M)}


def renderings(root):
    """The tests of the chart and of the manifests."""
    return {name for path in (root / "tests/deploy").glob("test_*.py") for name in re.findall(r"^    def test_(\w+)", path.read_text(), re.M)}


def programs(root):
    """What CMake runs as one test, by its whole name."""
    return {name for path in (root / "tests").rglob("CMakeLists.txt") for name in re.findall(r'add_test\(NAME "([^"$]+)"', path.read_text())}
