#!/usr/bin/env python3
"""Serves images by commands, as corbd-bench node does it by a CSI driver: corbd-bench peer [--at-once P] [--block] [--settle S] [--json FILE] --conf CONF --root DIR NAME SPEC... [-- COMMAND]
NAME is a device peer of bench/peers.json. Up: map, and without --block also blkid, mkfs, mount and a bind mount. The command runs while all are up. It finds the targets in
$CORBD_BENCH_TARGETS, and scripts that kill the peer and serve its devices again in $CORBD_BENCH_KILL and $CORBD_BENCH_START. Ctrl-C takes all down."""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import targets  # noqa: E402

LIMIT = 300  # seconds, for each command
MAKE = """blkid -p {device} || [ $? = 2 ]
mkfs.ext4 -q -m0 -Enodiscard,lazy_itable_init=1,lazy_journal_init=1 {device}
mkdir -p {folder}/staged {folder}/target
mount -t ext4 {device} {folder}/staged
mount --bind {folder}/staged {folder}/target
"""
UNMAKE = """umount {folder}/target
umount {folder}/staged
rmdir {folder}/target {folder}/staged {folder}
"""
leaving = threading.Event()


def shell(text):
    """Its stdout. In a session of its own: a Ctrl-C must not end it half done."""
    done = subprocess.run(["sh", "-ec", text], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, start_new_session=True)
    if done.returncode != 0:
        raise RuntimeError("%s: exit code %d: %s" % (text.strip().splitlines()[0], done.returncode, (done.stderr or done.stdout)[-300:].strip()))
    return done.stdout


class Volume:
    def __init__(self, peer, options, spec):
        self.peer, self.block, self.device, self.made = peer, options.block, None, False
        self.names = {"spec": spec, "name": spec.split("/")[-1], "conf": options.conf, "folder": os.path.join(options.root, spec.split("/")[-1])}

    def text(self, template):
        return template.format(**self.names)

    def up(self):
        """Milliseconds; raises what failed."""
        begin = time.monotonic()
        self.device = shell(self.text(self.peer["map"])).split()[-1]
        self.names.update(device=self.device, kernel=os.path.basename(self.device))
        if not self.block:
            self.made = True
            shell(self.text(MAKE))
        return (time.monotonic() - begin) * 1e3

    def target(self):
        return self.device if self.block else self.names["folder"] + "/target"

    def down(self):
        """Milliseconds; None if it was never mapped; raises with the name of what stays."""
        begin = time.monotonic()
        if self.device is None:
            return None
        if self.made:
            try:
                shell(self.text(UNMAKE))
            except RuntimeError:
                shell("umount -l {0}/target {0}/staged 2>/dev/null || :".format(self.names["folder"]))
        try:
            shell(self.text(self.peer["unmap"]))
        except (RuntimeError, subprocess.TimeoutExpired) as failed:
            raise RuntimeError("%s of %s stays: %s" % (self.device, self.names["spec"], failed)) from failed
        return (time.monotonic() - begin) * 1e3


def each(volumes, at_once, work):
    """(seconds, milliseconds of those that worked, texts of those that did not). What had nothing to do counts as neither."""
    begin, took, errors = time.monotonic(), [], []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for future in [pool.submit(work, volume) for volume in volumes]:
            try:
                took.append(future.result())
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as failed:
                errors.append(str(failed))
    return time.monotonic() - begin, sorted(one for one in took if one is not None), errors


def percentiles(took, errors):
    at = lambda part: took[min(len(took) - 1, int(part * len(took)))]
    out = {"calls": len(took) + len(errors), "failed": len(errors)}
    if took:
        out.update(p50_ms=at(0.5), p90_ms=at(0.9), p99_ms=at(0.99), longest_ms=took[-1])
    return dict(out, errors={text: errors.count(text) for text in errors[:5]}) if errors else out


def cost(peer):
    if "processes" not in peer:
        return {"processes": 0, "threads": 0, "rss_kib": 0, "pss_kib": 0, "descriptors": 0}
    bench = os.environ.get("CORBD_BENCH", os.path.join(HERE, "../build/release/corbd-bench"))
    return json.loads(subprocess.run([bench, "cost", "--words", peer["processes"]], check=True, capture_output=True, text=True, timeout=60).stdout)


def run(command, peer, volumes, root):
    environment = dict(os.environ)
    # Their pids are looked up now, so that all are killed at the same moment.
    pids = [shell(volume.text(peer["pid"])).strip() for volume in volumes] if "pid" in peer else []
    for name, lines in (("TARGETS", [volume.target() for volume in volumes]), ("KILL", ["kill -9 " + " ".join(pids) if pids else "false"]),
                        ("START", [volume.text(peer.get("restart", "false")) + " >/dev/null 2>&1 &" for volume in volumes] + ["wait"])):
        environment["CORBD_BENCH_" + name] = os.path.join(root, "bench-" + name.lower())
        with open(environment["CORBD_BENCH_" + name], "w") as file:
            file.write("\n".join(lines) + "\n")
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    while child.poll() is None and not leaving.wait(0.1):
        pass
    if child.poll() is None:
        child.terminate()
    try:
        return child.wait(60)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def main():
    parser = argparse.ArgumentParser(prog="corbd-bench peer", description=__doc__.split("\n")[0])
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--settle", type=float, default=1, help="seconds before a look at the cost")
    parser.add_argument("--conf", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("name")
    parser.add_argument("specs", nargs="+")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:split]), words[split + 1:]
    with open(os.path.join(HERE, "peers.json")) as file:
        peer = json.load(file)["device"][options.name]
    volumes = [Volume(peer, options, spec) for spec in options.specs]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: leaving.set())
    code, before = 0, cost(peer)
    begun = lambda volume: volume.up() if not leaving.is_set() else None
    try:
        # As node does it: the first one alone, and a look when all are still.
        took, times, errors = each(volumes[:1], 1, begun)
        time.sleep(options.settle)
        first = cost(peer)
        more = each(volumes[1:], options.at_once, begun)
        took, times, errors = took + more[0], sorted(times + more[1]), errors + more[2]
        time.sleep(options.settle)
        after, served = cost(peer), len(times)
        if command and not errors and not leaving.is_set():
            code = run(command, peer, volumes, options.root)
    finally:
        down, down_times, down_errors = each(volumes, options.at_once, Volume.down)
        for text in down_errors:
            print("corbd-bench: " + text, file=sys.stderr)
    figures = [dict(kind="stage+publish", **percentiles(times, errors)), dict(kind="unpublish+unstage", **percentiles(down_times, down_errors)),
               dict(kind="up", s=took, done=served), dict(kind="down", s=down, done=len(down_times)),
               dict(kind="cost", when="before", served=0, **before), dict(kind="cost", when="first", served=1, **first),
               dict(kind="cost", when="after", served=served, **after)]
    targets.keep(options.json, [dict(one, bench="node", subject=options.name, volumes=len(volumes), at_once=options.at_once) for one in figures])
    print("%s: %d of %d volumes up in %.2f s (%d failed), down in %.2f s (%d failed); %d processes, %d threads, PSS %d KiB" % (
        options.name, served, len(volumes), took, len(errors), down, len(down_errors), after["processes"], after["threads"], after["pss_kib"]))
    for text in sorted(set(errors))[:5]:
        print("corbd-bench: " + text, file=sys.stderr)
    return 130 if leaving.is_set() else 1 if code or errors or down_errors else 0


if __name__ == "__main__":
    sys.exit(main())
