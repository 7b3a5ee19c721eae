"""The folder, the cluster and the processes of one story.

Everything lies below one folder of a tmpfs and below the shared results folder. The machine's own kubelet is left alone.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import time

import control
import netlink
from agent import Agent
from checks import Failed, Skip, say, wait_for
from cluster import FEATURES, Image
from machine import CORBD, GIB, devices, mounts, processes, read, run

BASE = "/run/corbd-lab"


class Lab:
    """A folder, a cluster, and everything a story started in it."""

    def __init__(self, story):
        self.story = story
        self.dir = os.path.join(BASE, story[:40])
        self.out = os.path.join(os.environ["CORBD_OUT"], "stories", story)
        self.kubelet = os.path.join(self.dir, "kubelet")
        self.started = []
        self.agents = []
        self.second = False
        os.makedirs(self.out, exist_ok=True)
        os.makedirs(os.path.join(self.dir, "config"), exist_ok=True)
        os.makedirs(self.kubelet, exist_ok=True)
        self.use_cluster(os.environ)

    def use_cluster(self, environment):
        for name in ("MON", "USER", "KEY", "POOL", "CONF"):
            setattr(self, name.lower(), environment["CORBD_LAB_" + name])
        self.key_file = self.write("key", self.key)
        self.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": self.mon.split(",")}]))

    def second_cluster(self, tickets, three=False):
        """From here on the story has a cluster of its own, whose tickets end after so many seconds. three: of three monitors and three OSDs."""
        found = self.admin("second", "start", str(tickets), *(["--three"] if three else []), timeout=180)
        self.use_cluster(dict(line.split("=", 1) for line in found.splitlines()))
        self.second = True

    @property
    def native(self):
        return os.environ.get("CORBD_LAB_WHERE") == "native"

    @property
    def tap(self):
        """The machine's end of this guest's network; None where it has none of its own."""
        return os.environ.get("CORBD_LAB_TAP")

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
        """A command of control.py, on the machine with the cluster; its stdout."""
        of_cluster = argv[0] in ("rbd", "ceph", "rados", *control.DAEMONS)
        code, out, err = control.call((["second"] if self.second and of_cluster else []) + list(argv), timeout=timeout)
        if ok and code != 0:
            raise Failed("%s: exit code %d: %s" % (" ".join(argv), code, err.strip()[-300:]))
        return out if ok else (code, out, err)

    def image(self, name, size=GIB, features=FEATURES, pool=None, options=()):
        """options: more words for `rbd create`."""
        # The cleanup knows the lab's devices by this "lab-".
        made = Image(self, "lab-%s-%s" % (self.story[:30].replace("_", "-"), name), pool or self.pool)
        self.admin("rbd", "rm", "--no-progress", made.spec, ok=False)
        self.admin("rbd", "create", "-s", "%dB" % size, "--image-feature", features, *options, made.spec)
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

    def end_agents(self):
        """SIGTERM to every agent of this lab, also to those that another program started."""
        ours = [pid for pid, line in processes(CORBD + " run").items() if self.dir in line]
        for pid in ours:
            os.kill(pid, signal.SIGTERM)
        wait_for("the end of the agents", lambda: not any(self.dir in line for line in processes(CORBD + " run").values()), 60)

    # --- after a story

    def disconnect_devices(self):
        """A filesystem of a killed agent then ends with I/O errors; otherwise its unmount would wait."""
        for index in netlink.lab_devices():
            try:
                netlink.disconnect(index)
            except OSError as error:
                say("clean: nbd%d: %s" % (index, error))

    def forget_write_zeroes(self):
        """The module is loaded anew if an agent with --no-rbd-nbd left numbers that take WRITE_ZEROES, at which a later story's rbd-nbd would stop."""
        if any(read(path, "0") != "0" for path in glob.glob("/sys/block/nbd*/queue/write_zeroes_max_bytes")):
            wait_for("the last user of nbd", lambda: subprocess.run(["rmmod", "nbd"], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, 20, 0.2)
            run(["modprobe", "nbd", "nbds_max=0"])

    def clean(self):
        """True if nothing of the story is left: then the next one may run in this kernel."""
        if self.tap:
            self.admin("tap", self.tap, "up", ok=False)
        for command in (("osd", "cont"), ("link", "up"), ("node", "end")) + ((("second", "stop"),) if self.second else ()):
            self.admin(*command, ok=False, timeout=180)
        for process in self.started:
            if process.poll() is None:
                process.kill()
        for agent in self.agents:
            agent.keep_logs()
        self.disconnect_devices()
        for target, *_ in sorted(mounts(), reverse=True):
            if target.startswith(self.dir + "/"):
                # Do not wait for ever: a process inside the kernel cannot be ended.
                unmount = subprocess.Popen(["umount", "-l", target], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    unmount.wait(20)
                except subprocess.TimeoutExpired:
                    say("clean: unmounting %s hangs" % target)
        for mapping in sorted(glob.glob("/dev/mapper/luks-rbd-lab-*")):  # a volume's own before the one of its integrity
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
                try:
                    self.forget_write_zeroes()
                except Failed as failed:
                    say("clean: %s" % failed)
                    return False
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
