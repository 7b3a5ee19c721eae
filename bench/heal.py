#!/usr/bin/env python3
"""Kills a server of devices under writers, and starts it again: corbd-bench heal --kill COMMAND --start COMMAND --subject NAME [--json FILE] [PATH...]
Each device has a verifying writer (corbd-writer). Says for each how long its first write took after the kill, I/O errors, and acknowledged writes that are lost.
The start command may go on running: it gets a SIGTERM when all is over. WHAT THE DEVICES HOLD IS LOST."""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import targets  # noqa: E402

SIZE = 1 << 20
PACE_MS = 250
ENDED = (0, 1)  # corbd-writer: 1 says that something was lost or failed


class Writer:
    def __init__(self, program, path, folder, number):
        self.program, self.path, self.journal = program, path, os.path.join(folder, "%d.journal" % number)
        self.process = subprocess.Popen([program, "run", "--path", path, "--size", str(SIZE), "--mode", "direct", "--journal", self.journal, "--threads", "1", "--paced",
                                         "1", "--pace-ms", str(PACE_MS), "--seconds", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def wrote(self):
        """How many writes its journal has, 32 bytes each."""
        return os.path.getsize(self.journal) // 32 if os.path.exists(self.journal) else 0

    def look(self, *words):
        done = subprocess.run([self.program, *words, "--journal", self.journal], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if done.returncode not in ENDED:
            raise RuntimeError("corbd-writer: %s" % done.stderr[-300:])
        return json.loads(done.stdout)


def stop(writers):
    """Those whose write does not end are killed, all after the same time."""
    for writer in writers:
        writer.process.send_signal(signal.SIGTERM)
    wait("the writers' end", lambda: all(writer.process.poll() is not None for writer in writers), 30)
    for writer in writers:
        if writer.process.poll() is None:
            writer.process.kill()


def wait(what, condition, limit):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def heal(options, paths, folder):
    writers = [Writer(options.writer, path, folder, number) for number, path in enumerate(paths)]
    started = None
    try:
        if not wait("writers", lambda: all(writer.wrote() >= 8 for writer in writers), 120):
            raise RuntimeError("not every device takes writes: %s" % [writer.path for writer in writers if writer.wrote() < 8][:5])
        killed = time.time_ns() // 1000
        subprocess.run(["sh", "-c", options.kill], stdin=subprocess.DEVNULL, check=True, timeout=60)
        before = [writer.wrote() for writer in writers]
        started = subprocess.Popen(["sh", "-c", options.start], stdin=subprocess.DEVNULL, start_new_session=True)
        # The first entry after the kill may be of a write that was answered before it.
        wait("all", lambda: all(writer.wrote() > was + 1 for writer, was in zip(writers, before)), options.limit)
        back = [writer.wrote() > was + 1 for writer, was in zip(writers, before)]
        stop(writers)
        figures = []
        for writer, ok in zip(writers, back):
            one = writer.look("verify", "--path", writer.path, "--kill", str(killed)) if ok else writer.look("stalls", "--kill", str(killed))
            first = one["kills"][-1]["first_us"]
            figures.append({"back": ok, "s": (first - killed) / 1e6 if ok and first else None, "errors": one["errors"], "lost": one.get("lost", 0) if ok else None})
        return figures
    finally:
        for writer in writers:
            if writer.process.poll() is None:
                writer.process.kill()
        if started is not None and started.poll() is None and not options.keep:
            os.killpg(started.pid, signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(prog="corbd-bench heal", description=__doc__.split("\n")[0])
    parser.add_argument("--kill", required=True)
    parser.add_argument("--start", required=True)
    parser.add_argument("--keep", action="store_true", help="leave what was started alone")
    parser.add_argument("--limit", type=float, default=120, help="seconds until what does not write counts as not healed")
    parser.add_argument("--writer", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/corbd-writer"))
    targets.add_to(parser)
    options = parser.parse_args()
    # So that no writer stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    paths = targets.paths(options)
    with tempfile.TemporaryDirectory(prefix="corbd-bench-") as folder:
        found = heal(options, paths, folder)
    times = sorted(one["s"] for one in found if one["s"] is not None)
    missing, lost, errors = len(found) - len(times), sum(one["lost"] or 0 for one in found), sum(one["errors"] for one in found)
    last = options.limit if missing else times[-1]
    print("%s: %d volumes with a writer: first write after %s s, the last %s%.2f s; %d of them not within %g s; %d I/O errors, %d lost acknowledged writes" % (
        options.subject, len(found), "%.2f" % times[len(times) // 2] if times else "-", "more than " if missing else "", last, missing, options.limit, errors, lost))
    targets.keep(options.json, [{"bench": "heal", "subject": options.subject, "kind": "heal", "volumes": len(found), "s": last, "bound": missing > 0, "p50_s":
                                 times[len(times) // 2] if times else None, "missing": missing, "errors": errors, "lost": lost, "each": found}])
    return 1 if lost or errors or missing else 0


if __name__ == "__main__":
    sys.exit(main())
