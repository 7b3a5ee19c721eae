"""The writers that verify what they wrote."""
import json
import os
import shutil
import signal
import subprocess

from checks import Failed, check, say, wait_for
from machine import BUILD, MIB

WRITER = os.path.join(BUILD, "corbd-writer")


class Writer:
    def __init__(self, lab, path, size=64 * MIB, mode="direct", threads=4, paced=4, pace_ms=50, journal=None):
        self.lab, self.path = lab, path
        self.journal = journal or os.path.join(lab.dir, "writer-%d.journal" % len(lab.started))
        self.argv = ["run", "--path", path, "--size", str(size), "--mode", mode, "--journal", self.journal, "--threads", str(threads),
                     "--paced", str(paced), "--pace-ms", str(pace_ms)]
        self.begun_by = []  # a command that becomes the writer
        self.process = None

    def start(self, seconds=0):
        self.process = self.lab.start(self.begun_by + [WRITER] + self.argv + ["--seconds", str(seconds)], log=os.path.join(self.lab.out, "writer.log"))
        wait_for("the first acknowledged write", lambda: self.acked() > 0, 60)
        return self

    def acked(self):
        """How many writes the journal holds so far, failed ones included."""
        return os.path.getsize(self.journal) // 32 if os.path.exists(self.journal) else 0

    def wait_more(self, count, timeout=60):
        goal = self.acked() + count
        wait_for("%d more writes" % count, lambda: self.acked() >= goal, timeout)

    def stop(self, timeout=90):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("the writer does not end")
        check(code in (0, 1), "the writer ended with %d (4: writes that never return)" % code)

    def verify(self, kills=(), path=None):
        return self._look(["verify", "--path", path or self.path], kills)

    def stalls(self, kills=()):
        """As verify, without reading the volume."""
        return self._look(["stalls"], kills)

    def _look(self, argv, kills):
        argv = [WRITER] + argv + ["--journal", self.journal]
        for kill in kills:
            argv += ["--kill", str(kill)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200)
        if done.stderr:
            say(done.stderr.strip()[:2000])
        check(done.returncode in (0, 1), "corbd-writer: exit code %d: %s" % (done.returncode, done.stderr[-300:]))
        return json.loads(done.stdout)

    def expect_nothing_lost(self, kills=(), path=None):
        found = self.verify(kills, path)
        check(found["acked"] > 0, "no write was acknowledged")
        check(found["lost"] == 0, "%d of %d acknowledged writes are lost" % (found["lost"], found["acked"]))
        check(found["errors"] == 0, "%d I/O errors reached the application" % found["errors"])
        return found


class Order:
    """Threads that read and write the same few blocks at random. Each operation is noted, so that their order can be judged."""

    def __init__(self, lab, path, blocks=32, threads=8, first=1):
        self.lab, self.path = lab, path
        self.journal = os.path.join(lab.dir, "order-%d.journal" % len(lab.started))
        self.argv = [WRITER, "order", "--path", path, "--size", str(blocks * 4096), "--threads", str(threads), "--journal", self.journal, "--first", str(first)]
        self.process = None

    def start(self):
        self.process = self.lab.start(self.argv, log=os.path.join(self.lab.out, "order.log"))
        return self.wait_more(100)

    def done(self):
        """How many operations have begun and ended, about."""
        return os.path.getsize(self.journal) // 64 if os.path.exists(self.journal) else 0

    def wait_more(self, count, timeout=90):
        goal = self.done() + count
        wait_for("%d more reads and writes" % count, lambda: self.done() >= goal, timeout)
        return self

    def stop(self, timeout=90):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("the readers and writers do not end")
        check(code == 0, "the readers and writers ended with %d (1: I/O errors, 4: operations that never return)" % code)
        return self


def expect_order(*journals):
    """All operations of these journals, on the same blocks, can have happened one after another. Returns the counts."""
    done = subprocess.run([WRITER, "order-check"] + [word for one in journals for word in ("--journal", one)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=1200)
    if done.stderr:
        say(done.stderr.strip()[:2000])
    check(done.returncode in (0, 1), "corbd-writer: exit code %d: %s" % (done.returncode, done.stderr[-300:]))
    found = json.loads(done.stdout)
    check(found["reads"] > 0 and found["writes"] > 0, "nothing was read or written: %s" % found)
    check(found["violations"] == 0, "%d reads or writes in an impossible order" % found["violations"])
    return found


def told_order(found):
    return "%(reads)d reads and %(writes)d writes in order, %(unknown)d without an answer" % found


class Model:
    """What an image must hold, sector by sector: requests to the image's device change it and are judged by it (corbd-writer model)."""

    def __init__(self, lab, path, size, layout=()):
        self.lab, self.path, self.layout = lab, path, list(layout)
        self.journal = path + ".journal"
        self.process = None
        with open(path, "wb"):
            self.resize(size)

    @property
    def size(self):
        return os.path.getsize(self.path) // 8 * 512

    def resize(self, size):
        """What is cut off is gone, and what is new holds zeroes."""
        os.truncate(self.path, size // 512 * 8)

    def copy(self, path, layout=None):
        """layout: of a clone whose bytes lie in other objects."""
        made = Model(self.lab, path, 0, layout or self.layout)
        shutil.copyfile(self.path, made.path)
        return made

    def start(self, device, seed, first, requests, threads=8):
        """So many requests of that seed; the first has that number, and no other request to the image may have one of theirs."""
        self.goal = self.done() + requests
        self.log = os.path.join(self.lab.out, "model.log")
        self.log_begin = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        argv = [WRITER, "model", "--path", device, "--model", self.path, "--journal", self.journal, "--seed", str(seed), "--first", str(first)]
        self.process = self.lab.start(argv + ["--requests", str(requests), "--threads", str(threads)] + self.layout, log=self.log)

    def done(self):
        """How many requests have ended."""
        return os.path.getsize(self.journal) // 32 if os.path.exists(self.journal) else 0

    def wait_until(self, left, timeout=60):
        """Until at most that many of the requests are left."""
        wait_for("%d requests but %d" % (self.goal, left), lambda: self.done() >= self.goal - left or self.process.poll() is not None, timeout)

    def end(self, timeout=120):
        """Waits for the end of all requests; the counts."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("the requests do not end")
        with open(self.log) as file:
            file.seek(self.log_begin)
            told = file.read().strip()
        check(code == 0, "the requests ended with %d: %s" % (code, told))
        return json.loads(told.splitlines()[-1])

    def expect(self, path):
        """The file holds what the image must hold."""
        argv = [WRITER, "model-check", "--path", path, "--model", self.path]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        check(done.returncode == 0, "corbd-writer: exit code %d: %s%s" % (done.returncode, done.stderr, done.stdout))


def writes_through_kills(agent, volume, writer, times=3):
    """The agent is killed that often under the writer, which then ends; nothing is lost."""
    writer.wait_more(50)
    kills = []
    for _ in range(times):
        kills.append(agent.kill())
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(50)
    writer.stop()
    say("longest stall %.2f s" % (writer.expect_nothing_lost(kills)["longest_stall_us"] / 1e6))


def writes_through_a_kill(lab, agent, volume):
    """A writer on the volume's filesystem goes on after a kill of the agent, and nothing is lost."""
    writes_through_kills(agent, volume, Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start(), times=1)
