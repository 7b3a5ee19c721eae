"""Runs fio, and says what it found."""
import json
import os
import subprocess

# What a point asks fio for. An fsync after each write is what a database does, through the page cache.
FSYNC = ["--rw=randwrite", "--bs=4k", "--fsync=1"]
KINDS = {"randread": ["--rw=randread", "--bs=4k"], "randwrite": ["--rw=randwrite", "--bs=4k"], "fsync": FSYNC, "files": FSYNC,
         "read": ["--rw=read", "--bs=1M"], "write": ["--rw=write", "--bs=1M"]}


def size_of(kind):
    return 1 << 20 if kind in ("read", "write") else 4096


def run(jobs, options, env=None, folder=None, timeout=600):
    """The first group of fio's answer. jobs: the options of each job; all run at once."""
    argv = ["fio", "--output-format=json", "--thread", "--group_reporting", *options]
    for number, job in enumerate(jobs):
        argv += ["--name=job%d" % number, *job]
    done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError("fio: %s%s" % (done.stdout[-500:], done.stderr[-500:]))
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def timed(jobs, kind, depth, seconds, more=(), env=None, folder=None):
    """IOPS, latencies and bytes of `seconds` of this kind of request."""
    if kind == "files":
        more = [*more, "--ioengine=psync", "--direct=0", "--size=2M"]
    group = run(jobs, [*KINDS[kind], "--iodepth=%d" % depth, "--time_based", "--runtime=%g" % seconds, "--randrepeat=0", "--norandommap", *more], env, folder,
                seconds + 300)
    found = group["read" if "read" in kind else "write"]
    if group["error"] or not found["total_ios"]:
        raise RuntimeError("fio had an error %d in %d requests" % (group["error"], found["total_ios"]))
    # The writer waits for its fsync; fio counts that beside the write.
    latency = (group["sync"]["lat_ns"] if kind in ("fsync", "files") else found["clat_ns"])["percentile"]
    return {"iops": found["iops"], "p50_us": latency["50.000000"] / 1e3, "p99_us": latency["99.000000"] / 1e3, "requests": found["total_ios"],
            "io_bytes": found["io_bytes"]}


def busy_seconds():
    """CPU time of the whole machine but idling and waiting."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
