"""A node with an enforcing SELinux policy: kubelet mounts with the pod's label (KEP-1710, CSIDriver.spec.seLinuxMount)."""
import os
import shutil
import subprocess

from checks import Skip, check, long
from machine import MIB, REPO, mounted, read, run
from node import Node
from stories_handover import hand_over
from writer import Writer

POLICY = os.path.join(REPO, "tests/lab/selinux.conf")
FILES = "system_u:object_r:container_file_t:s0:%s"
PROCESS = "system_u:system_r:container_t:s0:%s"
OURS, OTHERS = "c1,c2", "c1,c3"


def flag(categories):
    """As kubelet quotes it (pkg/volume/util/selinux.go)."""
    return 'context="%s"' % (FILES % categories)


def in_pod(categories):
    """A command that becomes a process of a pod with these categories."""
    return ["sh", "-c", 'printf %s "$0" >/proc/self/attr/exec && exec "$@"', PROCESS % categories]


def label(path):
    return os.getxattr(path, "security.selinux").rstrip(b"\0").decode()


def may_read(path, categories):
    return subprocess.run(in_pod(categories) + ["head", "-c", "1", path], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def denied():
    return [line for line in run(["dmesg"]).splitlines() if "avc:  denied" in line]


class Enforcing:
    """The second guest. A policy stays until a kernel's end, so the story's own guest gets none."""

    def __init__(self, lab):
        self.lab = lab

    def enforce(self, policy):
        run(["mount", "-t", "selinuxfs", "selinuxfs", "/sys/fs/selinux"])
        with open(policy, "rb") as file:
            text = file.read()
        with open("/sys/fs/selinux/load", "wb", buffering=0) as load:
            load.write(text)
        with open("/sys/fs/selinux/enforce", "w") as switch:
            switch.write("1")
        return read("/sys/fs/selinux/enforce"), read("/proc/self/attr/current").rstrip("\0")

    def live(self, fstype):
        agent = self.lab.agent(fstype).start()
        volume = agent.volume(self.lab.image(fstype, size=512 * MIB), fstype=fstype)
        volume.stage(mount_flag=flag(OURS))
        volume.publish(mount_flag=flag(OURS))
        file = os.path.join(volume.target(), "data")
        writer = Writer(self.lab, file, size=16 * MIB, threads=2, paced=2)
        writer.begun_by = in_pod(OURS)
        writer.start()
        check(read("/proc/%d/attr/current" % writer.process.pid).rstrip("\0") == PROCESS % OURS, "the writer has another label")
        self.expect_label(volume, OURS)
        check(may_read(file, OURS) and not may_read(file, OTHERS), "the other pod reads the volume, or its own does not")
        # A pod with another label came, and kubelet did not see it: the present one keeps its volume, and the other one reads nothing.
        volume.stage(mount_flag=flag(OTHERS))
        check(len(agent.events("volume.left_for_next_stage", volume=volume.id)) == 1, "nobody is told of the other label")
        self.expect_label(volume, OURS)
        kill = agent.kill()
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(20)
        moment = hand_over(agent, [volume])
        writer.wait_more(20)
        volume.stage(mount_flag=flag(OURS))
        self.expect_label(volume, OURS)
        self.stage_elsewhere(volume)
        writer.stop()
        writer.expect_nothing_lost([kill, moment])
        volume.unpublish(patience=30)
        volume.unstage(patience=30)
        volume.expect_gone()
        volume.stage(mount_flag=flag(OTHERS))
        volume.publish(mount_flag=flag(OTHERS))
        self.expect_label(volume, OTHERS)
        check(may_read(file, OTHERS) and not may_read(file, OURS), "after the next stage the label is not the new pod's")
        volume.unpublish(patience=30)
        volume.unstage(patience=30)
        volume.expect_gone()
        agent.stop()
        return denied()

    @staticmethod
    def stage_elsewhere(volume):
        """A kubelet of before 1.24 came back: another staging path, the same filesystem with the same label."""
        before = volume.staging
        volume.staging = before.replace("globalmount", "other/globalmount")
        os.makedirs(volume.staging)
        volume.stage(mount_flag=flag(OURS))
        check(label(volume.staged_path) == FILES % OURS, "at the other path: %s" % label(volume.staged_path))
        volume.unstage(patience=30)
        volume.staging = before
        check(mounted(volume.staged_path), "the first staging path is not mounted any more")

    @staticmethod
    def expect_label(volume, categories):
        for path in (volume.staged_path, volume.target()):
            check(label(path) == FILES % categories, "%s has the label %s" % (path, label(path)))


# [failure:255]
@long
def story_selinux(lab):
    """under an enforcing policy a volume has its pod's label through a kill, a handover and a stage with another label; a pod with another label reads nothing"""
    if not os.path.exists("/sys/fs/selinux"):
        raise Skip("the kernel has no SELinux, or another security module")
    if not shutil.which("checkpolicy"):
        raise Skip("no checkpolicy, which compiles the policy: scripts/setup installs it")
    node = Node(lab, "node-b", Enforcing)
    policy = os.path.join(lab.dir, "policy")
    run(["checkpolicy", "-M", "-U", "allow", "-o", policy, POLICY])
    enforcing, own = node.ask("enforce", node.give(policy))
    check(enforcing == "1" and own == "system_u:system_r:spc_t:s0", "enforcing: %s, own label: %s" % (enforcing, own))
    for fstype in ("ext4", "xfs"):
        lines = node.ask("live", fstype, patience=300)
        check(lines, "the kernel log has no denial, not even of the other pod")
        for line in lines:
            # Those of the other pod. Before 6.18 a pod's writes may send to the link's socket with the pod's label (docs/sources.md#selinux).
            check("tclass=dir" in line or "tclass=file" in line, line)
    node.end()
