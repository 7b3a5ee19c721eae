"""The other calls in a volume's life: expansion, statistics and conditions."""
import errno
import json
import os
import shutil
import time

from checks import Skip, check, long, say, wait_for
from machine import GIB, MIB, devices, put, read, run
from node import Node
from writer import Writer


def capacity(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def enlarge(lab, image, size):
    lab.admin("rbd", "resize", "--no-progress", "-s", "%dB" % size, image.spec)


def story_expand(lab):
    """a volume under load grows with its image; a repeated expansion does nothing; one beyond the image is refused"""
    agent = lab.agent().start()
    for fstype in ("ext4", "xfs"):
        image = lab.image(fstype, size=512 * MIB)
        volume = agent.volume(image, fstype=fstype)
        volume.stage()
        volume.publish()
        before = capacity(volume.target())
        writer = Writer(lab, os.path.join(volume.target(), "file"), size=16 * MIB).start()
        enlarge(lab, image, GIB)
        begin = time.monotonic()
        check(volume.expand(GIB, patience=30) == GIB, "%s: the answer is not 1 GiB" % fstype)
        say("%s: expanded in %.1f s" % (fstype, time.monotonic() - begin))
        check(devices()[volume.device]["size"] == GIB, "%s: the device has not grown" % fstype)
        after = capacity(volume.target())
        check(after - before > 450 * MIB, "%s: the filesystem has grown from %d to %d bytes only" % (fstype, before, after))
        check(volume.expand(GIB, patience=30) == GIB, "%s: the second answer is not 1 GiB" % fstype)
        grown = agent.events("filesystem.grown", volume=volume.id)
        check(len(grown) == 1, "%s: it was grown %d times" % (fstype, len(grown)))
        answer = volume.try_expand(2 * GIB)
        check(answer["code"] == "OUT_OF_RANGE", "%s: beyond the image: %s" % (fstype, answer))
        writer.stop()
        writer.expect_nothing_lost()
        volume.unpublish(patience=30)
        volume.unstage(patience=30)
        volume.expect_gone()
    answer = volume.try_expand(GIB)
    check(answer["code"] == "NOT_FOUND", "of a volume that is gone: %s" % answer)


def story_expand_block(lab):
    """a raw block volume grows with its image, by whichever of its paths it is named"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    volume.publish()
    for path, size in ((volume.staging, 384 * MIB), (volume.target(), 512 * MIB)):
        enlarge(lab, image, size)
        answer = agent.csi("expand", volume_id=volume.id, target=path, bytes=size)
        check(answer["code"] == "OK" and int(answer["answer"]["capacityBytes"]) == size, "by %s: %s" % (path, answer))
        check(devices()[volume.device]["size"] == size, "the device has not grown")
    usage, abnormal = volume.stats()
    check(usage == {"BYTES": {"total": 512 * MIB, "used": 0, "available": 0}}, "statistics: %s" % usage)
    check(abnormal is None, "abnormal: %s" % abnormal)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


@long
def story_grows_at_stage(lab):
    """a filesystem whose image grew while it was not staged is grown by its next stage, and by one that only reads it is not"""
    agent = lab.agent().start()
    for fstype in ("ext4", "xfs"):
        image = lab.image(fstype, size=512 * MIB)
        volume = agent.volume(image, fstype=fstype)
        volume.stage()
        put(os.path.join(volume.staged_path, "kept"), "kept")
        before = capacity(volume.staged_path)
        volume.unstage(patience=30)
        check(not agent.events("filesystem.grown", volume=volume.id), "%s: a new filesystem was grown" % fstype)
        enlarge(lab, image, GIB)
        reader = agent.volume(image, fstype=fstype, mode="SINGLE_NODE_READER_ONLY")
        reader.stage()
        check(capacity(reader.staged_path) == before, "%s: it grew for a reader" % fstype)
        reader.unstage(patience=30)
        volume.stage()
        check(capacity(volume.staged_path) - before > 450 * MIB, "%s: it did not grow" % fstype)
        check(read(os.path.join(volume.staged_path, "kept")) == "kept", "%s: the file is gone" % fstype)
        volume.unstage(patience=30)
        volume.expect_gone()


class NoWritesToMounted:
    """A node whose kernel refuses to open the device of a mounted filesystem for writing."""

    def __init__(self, lab):
        self.lab = lab

    def grow(self, fstype):
        """Whether the kernel refused that, and by how many bytes the filesystem grew in use and at its next stage."""
        agent = self.lab.agent(fstype).start()
        image = self.lab.image(fstype, size=512 * MIB)
        volume = agent.volume(image, fstype=fstype)
        volume.stage()
        volume.publish()
        try:
            os.close(os.open("/dev/nbd%d" % volume.device, os.O_WRONLY))
            refused = False
        except OSError as error:
            refused = error.errno == errno.EBUSY
        before = capacity(volume.target())
        enlarge(self.lab, image, GIB)
        volume.expand(GIB, patience=30)
        in_use = capacity(volume.target())
        put(os.path.join(volume.target(), "kept"), "kept")
        volume.unpublish()
        volume.unstage(patience=30)
        enlarge(self.lab, image, GIB + 512 * MIB)
        # fsck and the growth of a stage: the filesystem is not mounted yet, and then it is.
        volume.stage()
        check(read(os.path.join(volume.staged_path, "kept")) == "kept", "%s: the file is gone" % fstype)
        at_stage = capacity(volume.staged_path)
        volume.unstage(patience=30)
        volume.expect_gone()
        agent.stop()
        return refused, in_use - before, at_stage - in_use


# [failure:253]
@long
def story_expand_without_writes_to_mounted(lab):
    """where the kernel forbids writes to mounted block devices, ext4, ext3, xfs and btrfs grow in use and at their next stage, and are checked"""
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 8):
        raise Skip("Linux %s does not know bdev_allow_write_mounted" % os.uname().release)
    node = Node(lab, "node-b", NoWritesToMounted, boot="bdev_allow_write_mounted=0")
    has_btrfs = "btrfs" in read("/proc/filesystems").split() and shutil.which("mkfs.btrfs")
    for fstype in ("ext4", "ext3", "xfs") + (("btrfs",) if has_btrfs else ()):
        refused, in_use, at_stage = node.ask("grow", fstype)
        check(refused, "%s: the kernel lets its mounted device be opened for writing" % fstype)
        check(in_use > 450 * MIB and at_stage > 450 * MIB, "%s: it grew by %d bytes in use and %d at its next stage" % (fstype, in_use, at_stage))
    node.end()


# [failure:250][failure:254]
def story_without_fstype(lab):
    """a volume without a type has the filesystem that is there and grows as that; the mount option ro formats nothing"""
    agent = lab.agent().start()
    image = lab.image("a", size=512 * MIB)
    typed = agent.volume(image, fstype="xfs")
    typed.stage()
    typed.unstage(patience=30)
    volume = agent.volume(image)
    volume.stage()
    volume.publish()
    kinds = [line.split()[2] for line in read("/proc/mounts").splitlines() if volume.target() in line]
    check(kinds == ["xfs"], "not xfs: %s" % kinds)
    before = capacity(volume.target())
    enlarge(lab, image, GIB)
    check(volume.expand(GIB, patience=30) == GIB, "the answer is not 1 GiB")
    check(capacity(volume.target()) - before > 450 * MIB, "the filesystem has not grown")
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()
    empty = agent.volume(lab.image("b", size=256 * MIB))
    answer = empty.try_stage(mount_flag="ro")
    check(answer["code"] == "FAILED_PRECONDITION", "an empty image with ro: %s" % answer)
    check(not agent.events("filesystem.made", volume=empty.id), "an empty image was formatted for a mount with ro")
    empty.expect_gone()


# [failure:255][failure:256][failure:257]
def story_changed_options(lab):
    """other mount options wait for the next stage; a pod's folder that is gone, and kubelet's path of before 1.24, keep nothing"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), mode="SINGLE_NODE_SINGLE_WRITER")
    volume.stage()
    for _ in range(2):
        volume.stage(mount_flag="noatime")
    told = agent.events("volume.left_for_next_stage", volume=volume.id)
    check(len(told) == 1, "it was told %d times" % len(told))
    volume.publish()
    run(["umount", volume.target()])
    volume.publish("pod-2")
    answer = volume.try_publish()
    check(answer["code"] == "FAILED_PRECONDITION", "a second pod: %s" % answer)
    volume.unpublish("pod-2")
    volume.unstage(patience=30)
    volume.expect_gone()
    today = volume.staging
    volume.staging = os.path.join(agent.lab.kubelet, "plugins/kubernetes.io/csi/pv/pv-" + volume.id, "globalmount")
    os.makedirs(volume.staging)
    volume.stage()
    volume.staging = today
    volume.stage()
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_stats(lab):
    """a volume's statistics match statvfs, and still come, with the reason, while the cluster does not answer"""
    agent = lab.agent(flags=["--volume-health"]).start()
    volume = agent.volume(lab.image("a", size=512 * MIB))
    answer = volume.try_stats()
    check(answer["code"] == "NOT_FOUND", "before the stage: %s" % answer)
    volume.stage()
    volume.publish()
    put(os.path.join(volume.target(), "file"), "x" * MIB)
    usage, abnormal = volume.stats()
    told = os.statvfs(volume.target())
    check(abnormal is None, "abnormal: %s" % abnormal)
    check(usage["BYTES"] == {"total": told.f_blocks * told.f_frsize, "used": (told.f_blocks - told.f_bfree) * told.f_frsize,
                             "available": told.f_bavail * told.f_frsize}, "bytes: %s" % usage)
    check(usage["INODES"] == {"total": told.f_files, "used": told.f_files - told.f_ffree, "available": told.f_favail}, "inodes: %s" % usage)
    check("healthStatuses" not in volume.begin("health").end()["answer"]["volumeHealth"], "the healthy volume has a health status")
    writer = Writer(lab, os.path.join(volume.target(), "written"), size=16 * MIB).start()
    lab.admin("osd", "stop")
    begin = time.monotonic()
    message = wait_for("an abnormal condition", lambda: volume.stats()[1], 60, 1)
    say("after %.0f s without the cluster: %s" % (time.monotonic() - begin, message))
    health = volume.begin("health").end()["answer"]["volumeHealth"]["healthStatuses"]
    check([one["reason"] for one in health] == ["ClusterUnreachable"], "health: %s" % health)
    storage = agent.csi("storage")["answer"]["backendHealth"]
    check([one["reason"] for one in storage] == ["ClusterUnreachable"], "storage: %s" % storage)
    lab.admin("osd", "cont")
    wait_for("a normal condition", lambda: volume.stats()[1] is None, 60, 1)
    check("backendHealth" not in agent.csi("storage")["answer"], "storage that answers again: %s" % agent.csi("storage"))
    writer.stop()
    writer.expect_nothing_lost()
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_stats_while_healing(lab):
    """statistics of an unserved volume fail at once after its agent's death, and return with its healing"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    volume.publish()
    agent.kill()
    # The key is gone, so the volume waits until a stage brings it.
    for name in os.listdir(os.path.join(lab.dir, "runtime", "keys")):
        os.unlink(os.path.join(lab.dir, "runtime", "keys", name))
    agent.start()
    answer = volume.try_stats()
    check(answer["code"] == "UNAVAILABLE", "without a server and without an answer before: %s" % answer)
    volume.stage(patience=60)
    # After 2 s the caller is told to ask again. A busy machine may need longer.
    wait_for("statistics", lambda: volume.try_stats()["code"] == "OK", 60, 1)
    usage, abnormal = volume.stats()
    check(abnormal is None and usage["BYTES"]["total"] > 0, "after the healing: %s, %s" % (usage, abnormal))
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_turned_read_only(lab):
    """a filesystem that stopped writing after an error is reported abnormal, and is neither grown nor published"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage(mount_flag="errors=remount-ro")
    volume.publish(mount_flag="errors=remount-ro")
    check(volume.stats()[1] is None, "abnormal from the start")
    with open("/sys/fs/ext4/nbd%d/trigger_fs_error" % volume.device, "w") as trigger:
        trigger.write("made by the lab")
    message = wait_for("an abnormal condition", lambda: volume.stats()[1], 30, 1)
    say(message)
    answer = volume.try_expand()
    check(answer["code"] == "FAILED_PRECONDITION", "an expansion: %s" % answer)
    say(answer["message"])
    answer = volume.try_publish("pod-2", mount_flag="errors=remount-ro")
    check(answer["code"] == "FAILED_PRECONDITION" and "turned read-only" in answer["message"], "another publish: %s" % answer)
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.stage(mount_flag="errors=remount-ro")
    volume.publish(mount_flag="errors=remount-ro")
    check(volume.stats()[1] is None, "abnormal still, after the check of a new stage")
    put(os.path.join(volume.target(), "file"), "written")
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()
