"""Taking over what ceph-csi staged with rbd-nbd."""
import errno
import json
import os

from checks import check, long, now_us, say, wait_for
from machine import MIB, mounted, put, run
from stories_peer import RbdNbd
from stories_seen import ask, show, volumes_of
from writer import Order, Writer, expect_order, told_order


def staged_by_ceph_csi(lab, image, *options):
    """The image mapped, formatted, mounted and noted as ceph-csi's NodeStageVolume leaves it."""
    agent = lab.agent()
    # ceph-csi passes these options on.
    volume = agent.volume(image, attributes=["mapOptions=nbd:" + ",".join(one.removeprefix("--") for one in options)] if options else ())
    peer = RbdNbd(lab, image)
    peer.map(*options)
    run(["mkfs.ext4", "-q", peer.device])
    os.makedirs(volume.staged_path)
    run(["mount", peer.device, volume.staged_path])
    put(os.path.join(volume.staging, "image-meta.json"), json.dumps({
        "Version": 3, "pool": image.pool, "radosNamespace": "", "image": image.name, "unmapOptions": "", "accessType": True,
        "encrypted": False, "device": peer.device, "logDir": "/var/log/ceph", "logFileStrategy": "remove"}))
    return agent, volume, peer


def writers_of(lab, volume):
    """One that verifies its writes, and threads whose order is judged."""
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(50)
    return writer, Order(lab, os.path.join(volume.staged_path, "order"), threads=4).start()


def end(agent, volume, writers, kills=()):
    writer, order = writers
    writer.wait_more(50)
    order.wait_more(100).stop()
    writer.stop()
    say(told_order(expect_order(order.journal)))
    found = writer.expect_nothing_lost(kills)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    check(not os.path.exists(os.path.join(volume.staging, "image-meta.json")), "ceph-csi's stash is left")
    agent.stop()
    return found


def story_adopted_under_writer(lab):
    """a volume that rbd-nbd serves for ceph-csi is left alone, and adopted under its writer when rbd-nbd is killed: no I/O error, no lost write"""
    # Switch off rbd-nbd's cache, which loses acknowledged writes by itself.
    agent, volume, peer = staged_by_ceph_csi(lab, lab.image("a", size=256 * MIB), "--rbd_cache=false")
    writers = writers_of(lab, volume)
    agent.start()
    volume.stage()
    volume.publish()
    check(volumes_of(agent)[volume.id].get("served_by_other"), "it is not seen that rbd-nbd serves it")
    check(peer.process.poll() is None, "rbd-nbd was not left alone")
    kill = now_us()
    peer.kill()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    found = end(agent, volume, writers, [kill])
    say("longest stall %.2f s" % (found["longest_stall_us"] / 1e6))


def flush(device):
    """The error of a flush of the device, or 0."""
    file = os.open(device, os.O_RDONLY)
    try:
        os.fsync(file)
        return 0
    except OSError as failed:
        return failed.errno
    finally:
        os.close(file)


def story_adopted_with_lost_cache(lab):
    """after a kill of an rbd-nbd with a cache each flush of its device fails, also across a kill -9, until `corbd heal --loss-accepted`"""
    agent, volume, peer = staged_by_ceph_csi(lab, lab.image("a", size=256 * MIB))
    agent.start()
    volume.stage()
    check(flush(peer.device) == 0, "a flush of rbd-nbd's fails")
    peer.kill()
    agent.wait_event("device.cache_lost", 60, volume=volume.id)
    check(flush(peer.device) == errno.EIO, "a flush does not tell that the cache is lost")
    agent.kill()
    agent.start()
    check(flush(peer.device) == errno.EIO, "a restart forgets that the cache is lost")
    show(ask(agent, "heal", volume.id, "--loss-accepted"))
    check(flush(peer.device) == 0, "a flush fails although the loss is accepted")
    volume.unstage()
    volume.expect_gone()
    agent.stop()


# [failure:116]
def story_unstaged_for_ceph_csi(lab):
    """an agent without a record unstages a volume that ceph-csi staged with rbd-nbd: rbd-nbd ends, and its lock is free"""
    agent, volume, peer = staged_by_ceph_csi(lab, lab.image("a", size=256 * MIB))
    agent.start()
    volume.unstage()
    volume.expect_gone()
    wait_for("the end of rbd-nbd", lambda: peer.process.poll() is not None, 30)
    check(not os.path.exists(os.path.join(volume.staging, "image-meta.json")), "ceph-csi's stash is left")
    agent.stop()


@long
def story_adopted_late(lab):
    """an rbd-nbd that died before the agent came is fenced once its watch has expired, and its device served under the writer"""
    agent, volume, peer = staged_by_ceph_csi(lab, lab.image("a", size=256 * MIB), "--rbd_cache=false")
    writers = writers_of(lab, volume)
    kill = now_us()
    peer.kill()
    agent.start()
    volume.stage(patience=120)
    found = end(agent, volume, writers, [kill])
    say("longest stall %.2f s" % (found["longest_stall_us"] / 1e6))


@long
def story_adopted_by_hand(lab):
    """`corbd heal --adopt` ends a living rbd-nbd with a cache and serves its device, also across a restart: no I/O error, no lost write"""
    agent, volume, peer = staged_by_ceph_csi(lab, lab.image("a", size=256 * MIB))
    writers = writers_of(lab, volume)
    agent.start()
    volume.stage()
    volume.publish()
    show(ask(agent, "volume", volume.id))
    show(ask(agent, "heal", "--adopt", volume.id))
    wait_for("the end of rbd-nbd", lambda: peer.process.poll() is not None, 10)
    writers[0].wait_more(50)
    check(not volumes_of(agent)[volume.id].get("served_by_other"), "rbd-nbd is said to serve it still")
    check(mounted(volume.staged_path), "its mount is gone")
    kills = [agent.kill()]
    agent.start()
    found = end(agent, volume, writers, kills)
    say("longest stall %.2f s" % (found["longest_stall_us"] / 1e6))
