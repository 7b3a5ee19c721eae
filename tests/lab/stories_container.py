"""The agent in a container of runc, made as a Kubernetes runtime makes it from the DaemonSet of deploy/kubernetes; and in one without `privileged`."""
import glob
import json
import os
import re
import subprocess

from agent import Agent
from checks import Skip, check, long, now_us, say
from machine import CORBD, MIB, REPO, mounted, put, read, run
from stories_deploy import NUMBERS, capabilities_of, granted, manifest, of_its_application, send_buffers
from stories_hang import in_mkfs, killed_while_helper_hangs
from stories_krbd import KRBD, expect_unmapped, needs_krbd, only_device
from stories_luks import encrypted, expect_closed, stage
from writer import writes_through_a_kill

CGROUPS = "/sys/fs/cgroup"


class Contained(Agent):
    """Each start is another container, as each start of a pod's container is."""

    def __init__(self, lab):
        super().__init__(lab)
        self.starts = 0
        self.change = None  # changes the container that the manifest describes
        self.runc = ["runc", "--root", os.path.join(lab.dir, "runc")]

    @property
    def id(self):
        return "%s-%d" % (self.name, self.starts)

    def argv(self, failpoints=(), flags=()):
        self.starts += 1
        bundle = os.path.join(self.dir, self.id)
        root = os.path.join(bundle, "root")
        os.makedirs(root)
        # Give it a mount of its own: runc makes the mount that it is on private, and the lab's must stay shared.
        run(["mount", "-t", "tmpfs", "tmpfs", root])
        for name in ("bin", "lib", "lib64", "sbin"):
            os.symlink("usr/" + name, os.path.join(root, name))
        spec = self.spec(root, super().argv(failpoints, flags))
        if self.change:
            self.change(spec)
        put(os.path.join(bundle, "config.json"), json.dumps(spec))
        return self.runc + ["run", "--bundle", bundle, self.id]

    def spec(self, root, argv):
        """As containerd's CRI plugin describes a privileged container with these fields; in the place of an image this machine's own programs."""
        security = manifest()["securityContext"]
        check(security["privileged"] and security["readOnlyRootFilesystem"], "the manifest's container is another")
        rights = ["CAP_" + name for name in granted()]

        def host(path, *options):
            return {"destination": path, "type": "bind", "source": path, "options": ["rbind", *options]}
        return {
            "ociVersion": "1.0.2",
            "process": {"args": argv, "cwd": "/", "user": {"uid": 0, "gid": 0},
                        "env": ["PATH=%s/bin:%s" % (self.lab.dir, os.environ["PATH"])],
                        "capabilities": {"bounding": rights, "effective": rights, "permitted": rights}},
            "root": {"path": root, "readonly": True},
            # The mounts of the checkout and of the lab's folder may lie below /tmp. They come after it.
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
                       host("/dev"), host("/sys"), host("/usr", "ro"), host("/etc", "ro"), host(REPO, "ro"),
                       # The lab's folder stands for kubelet's and for /run/corbd.
                       host(self.lab.dir, "rshared")],
            # hostPID and hostNetwork. A privileged container also has all devices, and no masked or read-only paths.
            "linux": {"namespaces": [{"type": "mount"}, {"type": "ipc"}, {"type": "uts"}], "rootfsPropagation": "rshared",
                      "cgroupsPath": "/corbd-lab/%s-of-%d" % (self.id, os.getpid()), "resources": {"devices": [{"allow": True, "access": "rwm"}]}}}

    @property
    def init(self):
        return json.loads(run(self.runc + ["state", self.id]))["pid"]

    def kill(self):
        """All its processes, as a runtime does without a PID namespace of the container's own, and what is left of it."""
        killed_at = now_us()
        run(self.runc + ["kill", "--all", self.id, "KILL"])
        super().kill()
        gone = subprocess.run(self.runc + ["delete", "--force", self.id], capture_output=True, text=True, timeout=60)
        say("container %s: runc delete: %d %s" % (self.id, gone.returncode, gone.stderr.strip()))
        return killed_at


def needs_runc():
    if subprocess.run(["runc", "--version"], capture_output=True).returncode != 0:
        raise Skip("no runc: scripts/setup installs it")
    if os.path.exists(CGROUPS + "/cgroup.controllers") or os.listdir(CGROUPS):
        return
    if subprocess.run(["mount", "-t", "cgroup2", "cgroup2", CGROUPS], capture_output=True).returncode != 0:
        raise Skip("this kernel has no cgroups for runc")


def contained(lab):
    needs_runc()
    agent = Contained(lab)
    lab.agents.append(agent)
    return agent


def nothing_denied(agent):
    for message in ("agent.io_flusher", "unmount.sync_failed"):
        check(not agent.events(message), "%s: %s" % (message, agent.events(message)))
    denied = [line for line in read(agent.log_file).splitlines() if "not permitted" in line or "ermission denied" in line]
    check(not denied, "the log has: %s" % denied[:3])


def life_of_ext4(lab, agent):
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    of_its_application(volume)
    volume.publish()
    check(max(send_buffers()) >= 4 * MIB, "send buffers: %s" % send_buffers())
    writes_through_a_kill(lab, agent, volume)
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", volume.pool + "/" + volume.id)
    volume.expand(512 * MIB, patience=30)
    usage, _ = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


def life_of_xfs(lab, agent):
    volume = agent.volume(lab.image("b", size=512 * MIB), fstype="xfs")
    volume.stage()
    of_its_application(volume)
    lab.admin("rbd", "resize", "--no-progress", "-s", "768M", volume.pool + "/" + volume.id)
    volume.publish()
    volume.expand(768 * MIB, patience=30)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


def life_of_luks(lab, agent):
    volume = encrypted(lab, agent, "c")
    stage(volume)
    volume.expect_staged()
    of_its_application(volume)
    agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    volume.unstage()
    expect_closed(volume)


def life_of_krbd(lab, agent):
    image = lab.image("d", size=64 * MIB)
    volume = agent.volume(image, attributes=KRBD)
    volume.stage()
    volume.publish()
    only_device(image)
    put(os.path.join(volume.target(), "file"), "text")
    volume.unpublish()
    volume.unstage()
    expect_unmapped(volume, image)


# [rule:16]
def story_capabilities(lab):
    """in a container with the manifest's rights and nothing else the agent stages, heals, grows and unstages ext4, xfs, encrypted and krbd volumes"""
    agent = contained(lab).start()
    check(capabilities_of(agent.init) == {NUMBERS[name] for name in granted()}, "its capabilities: %s" % capabilities_of(agent.init))
    for life in (life_of_ext4, life_of_xfs, life_of_luks):
        life(lab, agent)
        nothing_denied(agent)
    try:
        needs_krbd()
        life_of_krbd(lab, agent)
    except Skip as skip:
        say("krbd: %s" % skip)
    nothing_denied(agent)
    said = run(agent.runc + ["exec", agent.id, CORBD, "doctor", "--kubelet-dir", lab.kubelet], ok=False)
    for line in said.splitlines():
        say(line)
    for fine in ("capabilities", "mount-propagation", "mkfs") + (() if lab.native else ("pid-namespace", "network-namespace")):
        check(re.search("^OK +%s " % fine, said, re.M), "the doctor is not content with %s" % fine)
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)


# [failure:46]
def story_container_killed(lab):
    """after a kill of its whole container during a mkfs, only the mkfs is left, and the next container serves its device"""
    # runc waits 10 s in each try to freeze a process that cannot be frozen.
    killed_while_helper_hangs(lab, contained(lab), "mkfs", in_mkfs, within=60)


# --- what a container without `privileged` lacks, whatever its capabilities

def without_devices(spec):
    """All but those that runc lets every container use."""
    spec["linux"]["resources"]["devices"] = [{"allow": False, "access": "rwm"}]


def without_sys(spec):
    for mount in spec["mounts"]:
        if mount["destination"] == "/sys":
            mount["options"].append("ro")


def without_propagation(spec):
    spec["linux"]["rootfsPropagation"] = "rslave"
    for mount in spec["mounts"]:
        mount["options"] = ["rslave" if option == "rshared" else option for option in mount.get("options", [])]


def refused(agent, image, change):
    """A stage by the agent in such a container ends with an error; in the manifest's it takes away what it left."""
    agent.change = change
    agent.start()
    volume = agent.volume(agent.lab.image(image, size=64 * MIB))
    answer = volume.try_stage()
    agent.stop()
    check(answer["code"] != "OK", "it was staged")
    agent.change = None
    agent.start()
    volume.unstage(patience=60)
    volume.expect_gone()
    agent.stop()
    return "%s: %s" % (answer["code"], answer["message"])


# What such a container lacks depends on the kernel, not on us.
@long
def story_unprivileged(lab):
    """no volume reaches its pod if the container has an unprivileged one's devices, /sys or mount propagation"""
    agent = contained(lab)
    say("with a container's devices: " + refused(agent, "a", without_devices))
    # A number keeps what its last user wrote, and what needs no change is not written.
    for timeout in glob.glob("/sys/block/nbd*/queue/io_timeout"):
        with open(timeout, "w") as file:
            file.write("30000")
    say("with a container's /sys: " + refused(agent, "b", without_sys))
    agent.change = without_propagation
    agent.start()
    volume = agent.volume(lab.image("c", size=64 * MIB))
    volume.stage()
    check(not mounted(volume.staged_path), "the mount reached the host")
    volume.unstage()
    volume.expect_gone()
    agent.stop()


story_capabilities.limit = story_container_killed.limit = story_unprivileged.limit = 480
