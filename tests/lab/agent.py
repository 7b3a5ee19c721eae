"""An agent that can be killed, and its log."""
import datetime
import json
import os
import shutil
import signal
import socket
import subprocess

import calls
from checks import Failed, check, now_us, say, wait_for
from machine import CORBD, read
from volume import DRIVER, Volume


def parse_ts(text):
    """Microseconds of an RFC 3339 time in UTC."""
    moment = datetime.datetime.strptime(text.rstrip("Z")[:26], "%Y-%m-%dT%H:%M:%S.%f")
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1e6)


class Agent:
    def __init__(self, lab, name="agent", flags=(), nodeid="node-1"):
        self.lab, self.name, self.nodeid, self.flags = lab, name, nodeid, list(flags)
        self.program = CORBD
        self.begun_by = []  # a command that becomes the agent
        self.dir = lab.dir
        self.socket = os.path.join(self.dir, name + ".sock")
        self.log_file = os.path.join(self.dir, name + ".log")
        self.process = None
        self.killed_at = None

    @property
    def endpoint(self):
        return "unix://" + self.socket

    @property
    def state_dir(self):
        return os.path.join(self.dir, "state")

    def argv(self, failpoints=(), flags=()):
        argv = self.begun_by + [self.program, "run", "--nodeid", self.nodeid, "--endpoint", self.endpoint, "--drivername", DRIVER,
                "--pluginpath", os.path.join(self.lab.kubelet, "plugins"), "--kubelet-dir", self.lab.kubelet,
                "--state-dir", self.state_dir, "--runtime-dir", os.path.join(self.dir, "runtime"),
                "--config-dir", os.path.join(self.dir, "config"), "--verbose"]
        for point in failpoints:
            argv += ["--failpoint", point]
        return argv + self.flags + list(flags)

    def spawn(self, failpoints=(), flags=()):
        """Starts it and returns at once."""
        check(self.process is None or self.process.poll() is not None, "the agent already runs")
        for name in ("state", "runtime"):
            os.makedirs(os.path.join(self.dir, name), exist_ok=True)
        self.log_read = os.path.getsize(self.log_file) if os.path.exists(self.log_file) else 0
        self.entries = []
        self.spawned_at = now_us()
        self.process = self.lab.start(self.argv(failpoints, flags), log=self.log_file)
        return self

    def start(self, failpoints=(), flags=(), timeout=60):
        self.spawn(failpoints, flags)
        self.wait_ready(timeout)
        return self

    def listens(self):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(self.socket)
                return True
            except OSError:
                return False

    def wait_ready(self, timeout=60):
        def look():
            if self.process.poll() is not None:
                raise Failed("the agent ended with %s: %s" % (self.process.returncode, self.tail()))
            return self.listens()
        wait_for("the agent's socket", look, timeout, 0.02)

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL; returns when, in microseconds."""
        self.killed_at = now_us()
        self.process.send_signal(signal.SIGKILL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            raise Failed("the agent does not die of SIGKILL within 20 s")
        return self.killed_at

    def stop(self, timeout=60):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("the agent does not end within %d s of SIGTERM" % timeout)

    def wait_exit(self, timeout=60):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("the agent does not end within %d s" % timeout)

    # --- its log

    def lines(self):
        """The JSON lines of this start so far, each with ts_us; what is no JSON object is skipped."""
        try:
            with open(self.log_file, "rb") as file:
                file.seek(self.log_read)
                text = file.read()
        except OSError:
            return self.entries
        whole = text[: text.rfind(b"\n") + 1]
        self.log_read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                entry["ts_us"] = parse_ts(entry["ts"])
                self.entries.append(entry)
            except (ValueError, KeyError, TypeError):
                continue
        return self.entries

    def events(self, message, **fields):
        return [entry for entry in self.lines()
                if entry.get("msg") == message and all(entry.get(name) == value for name, value in fields.items())]

    def wait_event(self, message, timeout=60, **fields):
        def look():
            found = self.events(message, **fields)
            if not found and self.process.poll() is not None:
                raise Failed("the agent ended with %s before %s: %s" % (self.process.returncode, message, self.tail()))
            return found
        return wait_for("the agent's log: %s %s" % (message, fields or ""), look, timeout)[0]

    def tail(self, lines=5):
        return " | ".join(read(self.log_file).splitlines()[-lines:])

    def keep_logs(self):
        if os.path.exists(self.log_file):
            shutil.copy(self.log_file, self.lab.out)

    # --- CSI

    def csi(self, method, timeout=120, **options):
        """One CSI call: {"code": ..., "message": ...}."""
        return self.begin_csi(method, timeout, **options).end()

    def begin_csi(self, method, timeout=120, **options):
        """The same, without waiting for its end."""
        return calls.Call(method, self.endpoint, timeout, **options)

    def volume(self, image, block=False, **options):
        return Volume(self, image, block, **options)


def timeline(agent, volume, kill, writes):
    """Milliseconds since the kill of what brought the writes back; None for what the log does not say. writes: verify()'s entry."""
    def at(message, **fields):
        found = agent.events(message, **fields)
        return (found[0]["ts_us"] - kill) / 1000 if found else None
    return {
        "restarted": (agent.spawned_at - kill) / 1000,
        "started": at("agent.started"),
        "fenced": at("cluster.fenced"),
        "opened": at("image.opened", volume=volume.id),
        "proven": at("volume.proven", volume=volume.id),
        "locked": at("image.locked", volume=volume.id),
        "reconnected": at("device.reconnected", volume=volume.id),
        "first write": (writes["first_us"] - kill) / 1000 if writes["first_us"] else None,
        "first new write": (writes["first_new_us"] - kill) / 1000 if writes["first_new_us"] else None,
    }


def show_timeline(number, line):
    say("kill %d: " % number + ", ".join("%s %s" % (name, "-" if ms is None else "%.0f ms" % ms) for name, ms in line.items()))
