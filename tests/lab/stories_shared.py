"""Volumes that several pods or nodes use, and image features: what ceph-csi's own tests ask of mounter rbd-nbd beyond one pod's life."""
import os
import subprocess
import time

from checks import check, long, say
from cluster import FEATURES
from machine import MIB, put, read, run
from writer import Writer


def write_pattern(path, byte, offset):
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes([byte]) * 4096, offset)
        os.fsync(file.fileno())


def rate(path, seconds):
    """4 KiB O_DIRECT writes a second."""
    done = subprocess.run(["timeout", "-s", "INT", str(seconds), "dd", "if=/dev/zero", "of=" + path, "bs=4k", "oflag=direct", "count=1000000"],
                          capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    written = [line for line in done.stderr.splitlines() if "records out" in line]
    return int(written[0].split("+")[0]) / seconds if written else 0


def story_many_writers(lab):
    """two pods and another client use a shared raw block volume at once, and it is healed while the other client has its lock"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume = agent.volume(image, block=True, mode="MULTI_NODE_MULTI_WRITER")
    volume.stage()
    for pod in ("pod-1", "pod-2"):
        volume.publish(pod)
    # rbd bench plays another node: it takes the lock for its writes, and does not keep it.
    bench = ("rbd", "bench", "--io-type", "write", "--io-size", "4K", "--io-total", "1M", "--io-threads", "1", "--io-pattern", "seq", image.spec)
    for round_ in range(2):
        write_pattern(volume.target("pod-1"), 0x11 + round_, 8 * MIB)
        lab.admin(*bench)
        write_pattern(volume.target("pod-2"), 0x21 + round_, 9 * MIB)
    writer = Writer(lab, volume.target("pod-1"), size=4 * MIB).start()
    writer.wait_more(20)
    kill = agent.kill()
    lab.admin(*bench)  # in between; this would end a volume for one node
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(20, timeout=60)
    writer.stop()
    found = writer.verify([kill])
    check(found["errors"] == 0, "%d I/O errors" % found["errors"])
    with open(volume.target("pod-2"), "rb", buffering=0) as file:
        for offset, byte in ((8 * MIB, b"\x12"), (9 * MIB, b"\x22")):
            found = os.pread(file.fileno(), 4096, offset)
            check(found == byte * 4096, "at %d there is %s..., not %s" % (offset, found[:4], byte))
    for pod in ("pod-1", "pod-2"):
        volume.unpublish(pod)
    volume.unstage(patience=20)
    volume.expect_gone()


@long
def story_many_readers(lab):
    """a volume for many readers is read by two pods while another client has it open for reading, after its writer has gone"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    writable = agent.volume(image)
    writable.stage()
    put(os.path.join(writable.staged_path, "hello"), "hello")
    writable.unstage()
    for block in (False, True):
        volume = agent.volume(image, block=block, mode="MULTI_NODE_READER_ONLY")
        volume.stage()
        for pod in ("pod-1", "pod-2"):
            volume.publish(pod)
            if block:
                with open(volume.target(pod), "rb") as file:
                    check(len(file.read(MIB)) == MIB, "the device does not read")
            else:
                check(read(os.path.join(volume.target(pod), "hello")) == "hello", "the file is not there")
        lab.admin("rbd", "diff", image.spec)
        for pod in ("pod-1", "pod-2"):
            volume.unpublish(pod)
        volume.unstage(patience=20)
        volume.expect_gone()


@long
def story_journaling(lab):
    """an image with journaling lives as any other, and is healed after a kill -9 under a writer"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB, features=FEATURES + ",journaling")
    volume = agent.volume(image, attributes=["imageFeatures=layering,exclusive-lock,journaling"])
    volume.stage()
    volume.publish()
    writer = Writer(lab, os.path.join(volume.target(), "file"), size=16 * MIB).start()
    writer.wait_more(20)
    kill = agent.kill()
    agent.start()
    writer.wait_more(20, timeout=90)
    writer.stop()
    writer.expect_nothing_lost([kill])
    volume.unpublish()
    volume.unstage(patience=30)
    volume.expect_gone()


def story_features_change(lab):
    """features that another client switches off and on while the volume is written do not stop it"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, size=16 * MIB).start()
    for change in ("disable", "enable"):
        writer.wait_more(20)
        lab.admin("rbd", "feature", change, image.spec, *(("fast-diff", "object-map") if change == "disable" else ("object-map", "fast-diff")))
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost()
    check("object-map" in image.info()["features"], "the features are not back")
    volume.unstage(patience=20)
    volume.expect_gone()


def story_qos(lab):
    """a limit in the image's metadata holds for the volume, also one that is set while it is staged"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    free = rate(volume.staged_path, 5)
    lab.admin("rbd", "config", "image", "set", image.spec, "rbd_qos_iops_limit", "10")
    time.sleep(1)
    limited = rate(volume.staged_path, 10)
    say("4 KiB writes a second: %.0f, with rbd_qos_iops_limit = 10: %.1f" % (free, limited))
    check(limited <= 25, "the limit does not hold")
    check(free > 2 * limited, "too slow to tell")
    volume.unstage(patience=60)
    volume.stage()
    again = rate(volume.staged_path, 10)
    check(again <= 25, "the limit does not hold after the next stage: %.1f a second" % again)
    lab.admin("rbd", "config", "image", "remove", image.spec, "rbd_qos_iops_limit")
    time.sleep(1)
    run(["dd", "if=/dev/zero", "of=" + volume.staged_path, "bs=4k", "count=64", "oflag=direct"])
    volume.unstage(patience=60)
    volume.expect_gone()


@long
def story_notrim(lab):
    """with notrim the device discards nothing, and what it held stays allocated"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume = agent.volume(image, block=True, attributes=["mapOptions=nbd:notrim"])
    volume.stage()
    run(["dd", "if=/dev/urandom", "of=" + volume.staged_path, "bs=4M", "count=4", "oflag=direct"])
    done = subprocess.run(["blkdiscard", volume.staged_path], capture_output=True, text=True)
    check(done.returncode != 0, "blkdiscard succeeds")
    with open(volume.staged_path, "rb") as file:
        check(file.read(16 * MIB).count(0) < MIB, "the data is gone")
    volume.unstage(patience=20)
    volume.expect_gone()
