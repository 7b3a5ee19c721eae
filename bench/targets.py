"""What a bench of devices is given: paths, or those of the corbd-bench node that runs it."""
import json
import os


def add_to(parser):
    parser.add_argument("--subject", required=True, help="whose devices these are")
    parser.add_argument("--json", help="where the figures are added")
    parser.add_argument("paths", nargs="*", help="devices or files; without one, those of $CORBD_BENCH_TARGETS")


def paths(options):
    found = options.paths
    if not found and "CORBD_BENCH_TARGETS" in os.environ:
        with open(os.environ["CORBD_BENCH_TARGETS"]) as file:
            found = file.read().split("\n")[:-1]
    if not found:
        raise SystemExit("corbd-bench: no device: name some, or run it under corbd-bench node")
    # On a filesystem it is a file that is used.
    return [os.path.join(path, "bench") if os.path.isdir(path) else path for path in found]


def keep(path, figures):
    """Adds them to those of the file."""
    if not path:
        return
    before = []
    if os.path.exists(path):
        with open(path) as file:
            before = json.load(file)
    with open(path, "w") as file:
        json.dump(before + figures, file, indent=1)
