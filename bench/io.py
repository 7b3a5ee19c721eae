#!/usr/bin/env python3
"""Measures devices, whoever serves them: corbd-bench io [--points all|quick|fsync|files] [--seconds S] [--rounds N] --subject NAME [--json FILE] [PATH...]
fio on 1, 8 and 32 of them at once: 4 KiB random reads and writes, writes with an fsync after each, 1 MiB in sequence; depth 1, 16 and 64. `files` is for a
filesystem: 16 writers, each with a file of its own and an fsync after each write. CPU is the whole machine's. WHAT THE DEVICES HOLD IS LOST."""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fio  # noqa: E402
import targets  # noqa: E402

SPAN = 64 << 20  # of each device
RANDOM = [(kind, depth, 1) for kind in ("randread", "randwrite") for depth in (1, 16, 64)]
POINTS = {"quick": [("randread", 16, 1), ("randwrite", 16, 1)],
          "all": RANDOM + [("fsync", 1, 1), ("fsync", 16, 1)] + [(kind, 16, 1) for kind in ("read", "write")] +
          [(kind, 16, volumes) for kind in ("randread", "randwrite") for volumes in (8, 32)],
          "fsync": [("fsync", 1, 1), ("fsync", 16, 1)], "files": [("files", 16, 1)]}


def jobs_of(kind, depth, paths):
    """(fio's jobs, the depth of each)."""
    if kind == "files":
        return [["--filename=%s.%d" % (path, writer)] for path in paths for writer in range(depth)], 1
    return [["--filename=" + path] for path in paths], depth


def main():
    parser = argparse.ArgumentParser(prog="corbd-bench io", description=__doc__.split("\n")[0])
    parser.add_argument("--points", choices=sorted(POINTS), default="all")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filled", action="store_true", help="every block was written once; otherwise it is, as what never was is answered without a look at the disk")
    targets.add_to(parser)
    options = parser.parse_args()
    paths, figures = targets.paths(options), []
    points = [point for point in POINTS[options.points] if point[2] <= len(paths)]
    common = ["--ioengine=libaio", "--direct=1", "--size=%d" % SPAN]
    for path in [] if options.filled or options.points == "files" else paths[:max(volumes for _, _, volumes in points)]:
        fio.run([["--filename=" + path]], [*common, "--rw=write", "--bs=1M", "--iodepth=8"])
    print("%-10s %5s %7s %10s %10s %10s %12s" % (options.subject, "depth", "volumes", "IOPS", "p50 us", "p99 us", "CPU s/GiB"))
    for round_number in range(options.rounds):
        for kind, depth, volumes in points:
            begin = fio.busy_seconds()
            jobs, each = jobs_of(kind, depth, paths[:volumes])
            found = fio.timed(jobs, kind, each, options.seconds, common)
            found["cpu_s_per_gib"] = (fio.busy_seconds() - begin) * (1 << 30) / found.pop("io_bytes")
            figures.append(dict(found, bench="io", subject=options.subject, kind=kind, bytes=fio.size_of(kind), depth=depth, volumes=volumes, round=round_number))
            print("%-10s %5d %7d %10.0f %10.0f %10.0f %12.1f" % (kind, depth, volumes, found["iops"], found["p50_us"], found["p99_us"], found["cpu_s_per_gib"]),
                  flush=True)
    targets.keep(options.json, figures)


if __name__ == "__main__":
    main()
