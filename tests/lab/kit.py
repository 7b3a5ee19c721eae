"""Parts for the stories: an agent that can be killed, volumes, the verifying writer, and the lab around them.

Everything lies below one folder of a tmpfs and below the shared results folder. The machine's own kubelet is left alone.
"""
import datetime
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import calls
import control
import netlink

REPO = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("CORBD_LAB_BUILD", os.path.join(REPO, "build", "release"))
CORBD = os.path.join(BUILD, "corbd")
WRITER = os.path.join(BUILD, "corbd-writer")
BASE = "/run/corbd-lab"
DRIVER = "rbd.csi.ceph.com"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FEATURES = "layering,exclusive-lock,object-map,fast-diff"
# Codes after which kubelet simply calls again.
TRANSIENT = ("ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED")


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def long(story):
    """Not in every CI run, which has no time for it: `scripts/test --long`, or by name."""
    story.long = True
    return story


def check(condition, message):
    if not condition:
        raise Failed(message)


def say(text):
    print("# " + text, flush=True)


def now_us():
    return time.time_ns() // 1000


def wait_for(what, condition, timeout=60, pause=0.05):
    """The first true value of condition(); Failed after timeout seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed("%s: not within %g s" % (what, timeout))
        time.sleep(pause)


def read(path, default=""):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return default


def put(path, text):
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def mounts():
    """(target, filesystem type, source, root) of every mount, as the kernel says."""
    found = []
    for line in read("/proc/self/mountinfo").splitlines():
        left, right = line.split(" - ", 1)
        fields, tail = left.split(), right.split()
        found.append((fields[4].replace("\\040", " "), tail[0], tail[1], fields[3]))
    return found


def mounted(target):
    return any(mount[0] == target for mount in mounts())


def devices():
    """index -> {backend, pid, size} of every connected nbd device."""
    found = {}
    for path in glob.glob("/sys/block/nbd*"):
        if os.path.exists(path + "/pid"):
            found[int(os.path.basename(path)[3:])] = {
                "backend": read(path + "/backend"), "pid": read(path + "/pid"), "size": int(read(path + "/size", "0")) * 512}
    return found


def processes(text):
    """pid -> command line of the live processes whose command line contains text."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if text in line:
            found[int(path.split("/")[2])] = line
    return found


def parse_ts(text):
    """Microseconds of an RFC 3339 time in UTC."""
    moment = datetime.datetime.strptime(text.rstrip("Z")[:26], "%Y-%m-%dT%H:%M:%S.%f")
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1e6)


def run(argv, timeout=120, ok=True, **more):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **more)
    if ok and done.returncode != 0:
        raise Failed("%s: exit code %d: %s" % (" ".join(argv), done.returncode, done.stdout[-500:]))
    return done.stdout


class Image:
    def __init__(self, lab, name, pool):
        self.lab, self.name, self.pool = lab, name, pool

    @property
    def spec(self):
        return self.pool + "/" + self.name

    def info(self):
        return json.loads(self.lab.admin("rbd", "info", "--format", "json", self.spec))

    def remove(self):
        self.lab.admin("rbd", "rm", "--no-progress", self.spec)


class Lab:
    """A folder, a cluster, and everything a story started in it."""

    def __init__(self, story):
        self.story = story
        self.dir = os.path.join(BASE, story[:40])
        self.out = os.path.join(os.environ["CORBD_OUT"], "stories", story)
        self.kubelet = os.path.join(self.dir, "kubelet")
        self.started = []
        self.agents = []
        for name in ("MON", "USER", "KEY", "POOL", "CONF"):
            setattr(self, name.lower(), os.environ["CORBD_LAB_" + name])
        os.makedirs(self.out, exist_ok=True)
        os.makedirs(os.path.join(self.dir, "config"), exist_ok=True)
        os.makedirs(self.kubelet, exist_ok=True)
        self.key_file = self.write("key", self.key)
        self.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": [self.mon]}]))

    @property
    def native(self):
        return os.environ.get("CORBD_LAB_WHERE") == "native"

    def expect_speed(self):
        """For what is told beside a peer's speed."""
        if os.environ.get("CORBD_LAB_WHERE") == "uml":
            raise Skip("this is a User Mode Linux: the cost of a system call is unlike any hardware's; --guest qemu compares")

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    def program(self, name, script):
        """A shell script that the story's processes find before the machine's program of that name."""
        os.makedirs(os.path.join(self.dir, "bin"), exist_ok=True)
        os.chmod(self.write("bin/" + name, "#!/bin/sh\n" + script), 0o755)

    def admin(self, *argv, ok=True, timeout=60):
        """rbd, ceph, rados, osd and link, on the machine with the cluster; its stdout."""
        code, out, err = control.call(list(argv), timeout=timeout)
        if ok and code != 0:
            raise Failed("%s: exit code %d: %s" % (" ".join(argv), code, err.strip()[-300:]))
        return out if ok else (code, out, err)

    def image(self, name, size=GIB, features=FEATURES, pool=None):
        # The cleanup knows the lab's devices by this "lab-".
        made = Image(self, "lab-%s-%s" % (self.story[:30].replace("_", "-"), name), pool or self.pool)
        self.admin("rbd", "rm", "--no-progress", made.spec, ok=False)
        self.admin("rbd", "create", "-s", "%dB" % size, "--image-feature", features, made.spec)
        return made

    def agent(self, name="agent", **options):
        made = Agent(self, name, **options)
        self.agents.append(made)
        return made

    def start(self, argv, log=None, **more):
        """A process of this story; ended with it."""
        target = open(log, "ab") if log else subprocess.DEVNULL
        environment = {name: value for name, value in os.environ.items() if name != "CORBD_LAB_KEY"}
        environment["PATH"] = os.path.join(self.dir, "bin") + ":" + environment["PATH"]
        made = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=target, stderr=target, start_new_session=True, env=environment, **more)
        self.started.append(made)
        return made

    # --- after a story

    def clean(self):
        """True if nothing of the story is left: then the next one may run in this kernel."""
        for command in (("osd", "cont"), ("link", "up")):
            self.admin(*command, ok=False)
        for process in self.started:
            if process.poll() is None:
                process.kill()
        for agent in self.agents:
            agent.keep_logs()
        # Disconnect the devices first. A filesystem of a killed agent then ends with I/O errors; otherwise its unmount would wait.
        for index in netlink.lab_devices():
            try:
                netlink.disconnect(index)
            except OSError as error:
                say("clean: nbd%d: %s" % (index, error))
        for target, *_ in sorted(mounts(), reverse=True):
            if target.startswith(self.dir + "/"):
                # Do not wait for ever: a process inside the kernel cannot be ended.
                unmount = subprocess.Popen(["umount", "-l", target], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    unmount.wait(20)
                except subprocess.TimeoutExpired:
                    say("clean: unmounting %s hangs" % target)
        for mapping in glob.glob("/dev/mapper/luks-rbd-lab-*"):
            subprocess.run(["dmsetup", "remove", "--force", mapping], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            left = {pid: line for pid, line in processes(CORBD).items() if pid != os.getpid()}
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            if not left and not netlink.lab_devices():
                shutil.rmtree(self.dir, ignore_errors=True)
                return True
            time.sleep(0.2)
        say("clean: left over: devices %s, processes %s" % (netlink.lab_devices(), left))
        return False

    def diagnose(self):
        for agent in self.agents:
            say("--- %s's log, last lines" % agent.name)
            for line in read(agent.log_file).splitlines()[-60:]:
                say(line[:600])
        say("--- kernel messages")
        lines = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=20).stdout.splitlines()
        # With an io_timeout of 1 s, nbd logs this once a second for every request in flight.
        for line in [line for line in lines if "Possible stuck request" not in line][-30:]:
            say(line)
        say("--- devices %s" % devices())
        for target, fstype, source, root in mounts():
            if target.startswith(BASE) or "nbd" in source or "nbd" in root:
                say("--- mount %s %s %s %s" % (target, fstype, source, root))
        for pid, line in processes("corbd").items():
            stack = read("/proc/%d/stack" % pid).replace("\n", " < ")
            say("--- process %d %s [%s] %s" % (pid, line[:150], read("/proc/%d/wchan" % pid), stack[:400]))


class Agent:
    def __init__(self, lab, name="agent", flags=(), nodeid="node-1"):
        self.lab, self.name, self.nodeid, self.flags = lab, name, nodeid, list(flags)
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
        argv = self.begun_by + [CORBD, "run", "--nodeid", self.nodeid, "--endpoint", self.endpoint, "--drivername", DRIVER,
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


class Volume:
    """One volume of an agent as kubelet sees it; kubelet makes the folders above the paths."""

    def __init__(self, agent, image, block=False, fstype=None, mode=None, cluster_id="lab", user=None, key_file=None, pool=None, name=None, attributes=()):
        self.agent, self.block, self.fstype, self.mode, self.attributes = agent, block, fstype, mode, list(attributes)
        self.id = name or image.name
        self.pool = pool or image.pool
        self.cluster_id, self.user, self.key_file = cluster_id, user or agent.lab.user, key_file or agent.lab.key_file
        csi = os.path.join(agent.lab.kubelet, "plugins", "kubernetes.io", "csi")
        self.staging = os.path.join(csi, "volumeDevices", "staging", "pv-" + self.id) if block else os.path.join(
            csi, DRIVER, "pv-" + self.id, "globalmount")
        os.makedirs(self.staging, exist_ok=True)

    @property
    def capability(self):
        return dict(block=self.block, fstype=self.fstype, mode=self.mode)

    @property
    def staged_path(self):
        return os.path.join(self.staging, self.id)

    def target(self, pod="pod-1"):
        if self.block:
            path = os.path.join(self.agent.lab.kubelet, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-" + self.id, pod)
        else:
            path = os.path.join(self.agent.lab.kubelet, "pods", pod, "volumes/kubernetes.io~csi/pv-" + self.id, "mount")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @property
    def device(self):
        """Index of the nbd device that carries this volume's identifier, or None."""
        found = [index for index, device in devices().items() if device["backend"] == self.id]
        check(len(found) < 2, "two devices carry the identifier %s: %s" % (self.id, found))
        return found[0] if found else None

    def begin(self, method, timeout=120, pod="pod-1", **more):
        """One call for this volume, under way."""
        arguments = {
            "stage": lambda: dict(staging_path=self.staging, cluster_id=self.cluster_id, pool=self.pool, user=self.user, key_file=self.key_file,
                                  attribute=self.attributes, **self.capability),
            "publish": lambda: dict(staging_path=self.staging, target=self.target(pod), cluster_id=self.cluster_id, pool=self.pool,
                                    attribute=self.attributes, **self.capability),
            "unpublish": lambda: dict(target=self.target(pod)),
            "unstage": lambda: dict(staging_path=self.staging),
            "expand": lambda: dict(staging_path=self.staging, target=self.target(pod)),
            "stats": lambda: dict(target=self.target(pod)),
            "health": dict,
        }[method]()
        return self.agent.begin_csi(method, timeout, volume_id=self.id, **arguments, **more)

    def try_stage(self, timeout=120, **more):
        return self.begin("stage", timeout, **more).end()

    def try_publish(self, pod="pod-1", **more):
        return self.begin("publish", pod=pod, **more).end()

    def try_unpublish(self, pod="pod-1", **more):
        return self.begin("unpublish", pod=pod, **more).end()

    def try_unstage(self, timeout=120):
        return self.begin("unstage", timeout).end()

    def try_expand(self, size=None, **more):
        """To `size` bytes, or to what the image has."""
        return self.begin("expand", bytes=size, **more).end()

    def expand(self, size=None, patience=0, **more):
        """The capacity in bytes that the agent answers."""
        return int(self._must("expand", lambda: self.try_expand(size, **more), patience)["answer"]["capacityBytes"])

    def try_stats(self, timeout=20, **more):
        return self.begin("stats", timeout, **more).end()

    def stats(self, **more):
        """unit -> its numbers, and what is abnormal (None while the volume is healthy)."""
        answer = self._must("stats", lambda: self.try_stats(**more))["answer"]
        usage = {one["unit"]: {name: int(one.get(name, 0)) for name in ("total", "used", "available")} for one in answer["usage"]}
        condition = answer["volumeCondition"]
        return usage, condition["message"] if condition.get("abnormal") else None

    def _must(self, what, call, patience=0):
        deadline = time.monotonic() + patience
        while True:
            answer = call()
            if answer["code"] == "OK":
                return answer
            if answer["code"] not in TRANSIENT or time.monotonic() > deadline:
                raise Failed("%s of %s: %s: %s" % (what, self.id, answer["code"], answer["message"]))
            time.sleep(0.5)

    # patience: for so many seconds, repeat the call as kubelet would.
    def stage(self, patience=0, **more):
        return self._must("stage", lambda: self.try_stage(**more), patience)

    def publish(self, pod="pod-1", patience=0, **more):
        return self._must("publish", lambda: self.try_publish(pod, **more), patience)

    def unpublish(self, pod="pod-1", patience=0):
        return self._must("unpublish", lambda: self.try_unpublish(pod), patience)

    def unstage(self, patience=0):
        return self._must("unstage", self.try_unstage, patience)

    def expect_staged(self):
        check(mounted(self.staged_path), "%s is not mounted" % self.staged_path)
        check(self.device is not None, "no device carries %s" % self.id)
        if not self.block:
            with open(os.path.join(self.staged_path, "probe"), "w") as file:
                file.write("x")
                file.flush()
                os.fsync(file.fileno())

    def expect_gone(self):
        check(not mounted(self.staged_path), "%s is still mounted" % self.staged_path)
        check(self.device is None, "nbd%s still carries %s" % (self.device, self.id))
        left = glob.glob(os.path.join(self.agent.state_dir, "volumes", "*.json"))
        check(not left, "records are left: %s" % left)


class Writer:
    def __init__(self, lab, path, size=64 * MIB, mode="direct", threads=4, paced=4, pace_ms=50):
        self.lab, self.path = lab, path
        self.journal = os.path.join(lab.dir, "writer-%d.journal" % len(lab.started))
        self.argv = ["run", "--path", path, "--size", str(size), "--mode", mode, "--journal", self.journal, "--threads", str(threads),
                     "--paced", str(paced), "--pace-ms", str(pace_ms)]
        self.process = None

    def start(self, seconds=0):
        self.process = self.lab.start([WRITER] + self.argv + ["--seconds", str(seconds)], log=os.path.join(self.lab.out, "writer.log"))
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
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
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
