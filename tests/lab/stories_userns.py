"""Pods in user namespaces, and recursive read-only mounts: the runtime's copies of a published volume."""
import os
import sys

import pod
from checks import check, long, say, wait_for
from machine import MIB, read, run
from stories_handover import hand_over
from stories_seen import volumes_of
from writer import Writer

USER, GROUP = 1000, 2000  # in the container; the group is the pod's fsGroup


def in_pod(volume, name, target, writes):
    """The command that becomes a process of the pod `name`, which has the volume at `target`."""
    return [sys.executable, pod.__file__, volume.target(name), target, "%d:%d" % (USER, GROUP), "write" if writes else "read"]


def own(path, group):
    """What kubelet does for an fsGroup (pkg/volume/volume_linux.go): the group owns and writes, and new files are its own."""
    os.chown(path, -1, group)
    os.chmod(path, os.stat(path).st_mode | 0o2770)


def copied_by_the_runtime(lab, fstypes):
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image(fstype, size=512 * MIB), fstype=fstype) for fstype in fstypes]
    writers, readers = [], []
    for volume in volumes:
        volume.stage()
        volume.publish()
        volume.publish("pod-2")
        own(volume.target(), GROUP)
        places = [os.path.join(lab.dir, volume.id, name) for name in ("journal", "writer", "reader")]
        for place in places:
            os.makedirs(place)
        os.chown(places[0], pod.FIRST + USER, pod.FIRST + GROUP)
        writer = Writer(lab, os.path.join(places[1], "data"), size=16 * MIB, threads=2, paced=2, journal=os.path.join(places[0], "journal"))
        writer.begun_by = in_pod(volume, "pod-1", places[1], True)
        writers.append(writer.start())
        said = os.path.join(places[0], "said")
        readers.append(lab.start(in_pod(volume, "pod-2", places[2], False) + [
            "/bin/sh", "-c", 'test -r "$0/data" && echo read; echo x >"$0/new"; echo "told $?"; exec sleep 600', places[2]], log=said))
        wait_for("the reader's answer", lambda said=said: "told" in read(said), 20)
        check(read(said).startswith("read") and "Read-only file system" in read(said), "the reader: %s" % read(said))
        found = os.stat(os.path.join(volume.target(), "data"))
        check((found.st_uid, found.st_gid) == (USER, GROUP), "on the volume the file is of %d:%d" % (found.st_uid, found.st_gid))
    kill = agent.kill()
    agent.start()
    for volume, writer in zip(volumes, writers):
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(20)
    moment = hand_over(agent, volumes)
    for volume, writer in zip(volumes, writers):
        writer.wait_more(20)
        # A kubelet that restarts repeats its calls.
        volume.stage()
        volume.publish()
        volume.publish("pod-2")
        check(volumes_of(agent)[volume.id]["health"] == "staged", "%s" % volumes_of(agent))
        writer.stop()  # and its mount namespace ends with it
        writer.expect_nothing_lost([kill, moment], path=os.path.join(volume.target(), "data"))
    for volume, reader in zip(volumes, readers):
        volume.unpublish(patience=30)
        # The other pod's copy outlives its unpublish.
        volume.unpublish("pod-2", patience=30)
        check(reader.poll() is None, "the reader has ended")
        answer = volume.try_unstage(timeout=30)
        check(answer["code"] in ("FAILED_PRECONDITION", "ABORTED", "UNAVAILABLE"), "unstage under the pod's copy: %s" % answer)
        run(["dd", "if=/proc/%d/root%s/data" % (reader.pid, os.path.join(lab.dir, volume.id, "reader")), "of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
        say("unstage under the copy: %s: %s" % (answer["code"], answer["message"]))
        reader.kill()
        reader.wait(20)
        volume.unstage(patience=60)
    for volume in volumes:
        volume.expect_gone()
    agent.stop()


# [rule:8]
def story_user_namespace(lab):
    """a pod in a user namespace writes through a kill and a handover, one with a recursive read-only copy keeps the device, and nothing stays busy after both"""
    copied_by_the_runtime(lab, ["ext4"])


@long
def story_user_namespace_xfs_btrfs(lab):
    """the same on xfs and btrfs: the copies of pods in user namespaces live through a kill and a handover, and nothing stays busy"""
    copied_by_the_runtime(lab, ["xfs", "btrfs"])
