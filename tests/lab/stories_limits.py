"""What limits a volume's I/O: a VolumeAttributesClass of ceph-csi, as its controller leaves it in the image's metadata."""
import os
import time

from checks import Skip, check, long, say
from machine import MIB, put, read, run
from stories_handover import hand_over
from stories_krbd import needs_krbd
from stories_luks import PASSPHRASE
from stories_seen import volumes_of
from writer import Writer

CGROUPS, UID = "/sys/fs/cgroup", "0a1b2c3d-0000-4000-8000-00000000000f"
LIMIT = 100  # writes a second


def pod_cgroup(lab):
    """A folder as kubelet's driver cgroupfs makes it for a pod of the class besteffort."""
    if not os.path.exists(CGROUPS + "/cgroup.controllers"):
        if lab.native:
            raise Skip("this machine has no cgroup v2, and a story mounts none on it")
        run(["mount", "-t", "cgroup2", "cgroup2", CGROUPS])
    if "io" not in read(CGROUPS + "/cgroup.controllers").split():
        raise Skip("this kernel's cgroups have no controller io")
    folder = CGROUPS
    for name in ("kubepods", "besteffort", "pod" + UID):
        put(folder + "/cgroup.subtree_control", "+io")
        folder += "/" + name
        os.makedirs(folder, exist_ok=True)
    if not os.path.exists(folder + "/io.max"):
        raise Skip("this kernel's cgroups have no io.max")
    return folder


def writes_a_second(writer, seconds=5):
    before = writer.acked()
    time.sleep(seconds)
    return (writer.acked() - before) / seconds


def is_limited(lab, kernel_client=False, encrypted=False, limit=LIMIT):
    folder = pod_cgroup(lab)
    attributes = ["csi.storage.k8s.io/pod.uid=" + UID, "csi.storage.k8s.io/pod.name=db-0", "csi.storage.k8s.io/pod.namespace=shop"]
    attributes += ["encrypted=true"] if encrypted else []
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True, attributes=attributes + ["mounter=" + ("rbd" if kernel_client else "rbd-nbd")])
    lab.admin("rbd", "image-meta", "set", image.spec, ".rbd.csi.ceph.com/cgroup_qos_max_write_iops", str(limit))
    volume.stage(passphrase_file=lab.write("passphrase", PASSPHRASE) if encrypted else None)
    volume.publish()
    writer = Writer(lab, volume.target(), threads=8, paced=0).start()
    free = writes_a_second(writer)
    put(folder + "/cgroup.procs", str(writer.process.pid))
    rates = [writes_a_second(writer)]
    kills = []
    if not kernel_client:
        kills.append(agent.kill())
        agent.spawn()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(limit)
        rates.append(writes_a_second(writer))
        kills.append(hand_over(agent, [volume]))
        writer.wait_more(limit)
        rates.append(writes_a_second(writer))
    writer.stop()
    writer.expect_nothing_lost(kills)
    say("writes a second: %.0f without a limit, then with a limit of %d: %s" % (free, limit, ", ".join("%.0f" % rate for rate in rates)))
    check(free > 1.5 * limit, "this guest is too slow for the limit to show")
    check(all(0.8 * limit <= rate <= 1.1 * limit for rate in rates), "the limit does not hold")
    shown = volumes_of(agent)[volume.id]["io_limits"]
    check(len(shown) == 1 and shown[0]["pod"] == "shop/db-0" and int(shown[0]["write_iops"]) == limit, "`corbd volumes` shows %s" % shown)
    volume.unpublish()
    volume.unstage(patience=20)
    agent.stop()


# [failure:212]
def story_io_limit(lab):
    """a pod's writes are as many as its VolumeAttributesClass allows, also after a kill of the agent and after a handover"""
    is_limited(lab)


@long
def story_io_limit_of_kernel_client(lab):
    """a pod's writes to a volume of the kernel client are as many as its VolumeAttributesClass allows"""
    needs_krbd()
    is_limited(lab, kernel_client=True)


@long
def story_io_limit_encrypted(lab):
    """a pod's writes to an encrypted volume are as many as its VolumeAttributesClass allows, also after a kill of the agent and after a handover"""
    # User Mode Linux has one processor for dm-crypt, the writer and the agent.
    is_limited(lab, encrypted=True, limit=LIMIT // 2)


@long
def story_io_limit_without_cgroup(lab):
    """a pod whose cgroup is not found has its volume without a limit, and the log says so"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, attributes=["csi.storage.k8s.io/pod.uid=ffffffff-0000-4000-8000-000000000000"])
    lab.admin("rbd", "image-meta", "set", image.spec, ".rbd.csi.ceph.com/cgroup_qos_max_write_iops", str(LIMIT))
    volume.stage()
    volume.publish()
    agent.wait_event("pod.io_not_limited", 5, volume=volume.id)
    volume.unpublish()
    volume.unstage(patience=20)
    agent.stop()


def story_io_limit_of_librbd(lab):
    """a limit that ceph-csi sets for rbd-nbd's volumes holds for a volume that is in use, and ends when its metadata is removed"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=8, paced=0).start()
    free = writes_a_second(writer)
    lab.admin("rbd", "image-meta", "set", image.spec, "conf_rbd_qos_write_iops_limit", str(LIMIT))
    time.sleep(2)  # what librbd's bucket holds, and the image's refresh
    limited = writes_a_second(writer)
    lab.admin("rbd", "image-meta", "remove", image.spec, "conf_rbd_qos_write_iops_limit")
    time.sleep(2)
    again = writes_a_second(writer)
    writer.stop()
    writer.expect_nothing_lost()
    say("writes a second: %.0f without a limit, %.0f with one of %d, %.0f without it again" % (free, limited, LIMIT, again))
    check(free > 1.5 * LIMIT, "this guest is too slow for the limit to show")
    check(0.8 * LIMIT <= limited <= 1.1 * LIMIT, "the limit does not hold")
    check(again > 1.3 * LIMIT, "the limit stays")
    volume.unstage(patience=20)
    agent.stop()
