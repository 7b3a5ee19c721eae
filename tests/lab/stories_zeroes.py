"""Zeroes that cost no writes: an agent with --no-rbd-nbd, whose devices take WRITE_ZEROES (Linux 6.12 and newer)."""
import os
import statistics
import time

from checks import Skip, check, long, say, wait_for
from machine import CORBD, GIB, MIB, put, read, run
from stories_handover import hand_over
from stories_krbd import needs_krbd
from stories_migrate import host_pids
from stories_peer import Krbd, RbdNbd
from stories_trim import used

FLAG = "--no-rbd-nbd"
LINE = 4096
MKFS = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]


def needs_write_zeroes(lab):
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 12):
        raise Skip("Linux %s has no WRITE_ZEROES for nbd" % os.uname().release)
    if lab.native:
        raise Skip("this kernel is not ours to unload modules from, and a number keeps WRITE_ZEROES until then")


def takes_write_zeroes(index):
    return read("/sys/block/nbd%d/queue/write_zeroes_max_bytes" % index) != "0"


def filled(lab, agent, name, size):
    """A raw block volume without a byte of zero."""
    volume = agent.volume(lab.image(name, size=size), block=True)
    volume.stage()
    source = os.path.join(lab.dir, "x")
    put(source, "x" * size)
    run(["dd", "if=" + source, "of=" + volume.staged_path, "bs=1M", "oflag=direct", "conv=notrunc", "status=none"])
    return volume


def zero(lab, volume, begin, end):
    """BLKZEROOUT of the range, which held no zero. It holds nothing else now, the blocks beside it are as they were, and space came back."""
    before = used(lab, volume)
    run(["blkdiscard", "-z", "-o", str(begin), "-l", str(end - begin), volume.staged_path])
    run(["blockdev", "--flushbufs", volume.staged_path])
    with open(volume.staged_path, "rb") as device:
        device.seek(begin - LINE)
        found = device.read(end - begin + 2 * LINE)
    check(found == b"x" * LINE + b"\0" * (end - begin) + b"x" * LINE, "%s: not only the range from %d to %d is zero" % (volume.id, begin, end))
    return before - used(lab, volume)


def story_zeroes(lab):
    """with --no-rbd-nbd zeroes free space instead of being written, also after a kill and a handover to an agent without the flag; the doctor tells it"""
    needs_write_zeroes(lab)
    agent = lab.agent(flags=[FLAG]).start()
    volume = filled(lab, agent, "a", 28 * MIB)
    check(takes_write_zeroes(volume.device), "the device takes no WRITE_ZEROES")
    # No end lies at the edge of an object, which has 4 MiB.
    freed = [zero(lab, volume, 1 * MIB + 512, 9 * MIB - 512)]
    agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", volume=volume.id)
    freed.append(zero(lab, volume, 10 * MIB + 512, 18 * MIB - 512))
    agent.flags = []
    hand_over(agent, [volume])
    freed.append(zero(lab, volume, 19 * MIB + 512, 27 * MIB - 512))
    say("freed %s MiB of 8 each" % [one // MIB for one in freed])
    check(min(freed) >= 4 * MIB, "zeroes were written: %s bytes came back" % freed)
    run([*MKFS, volume.staged_path])
    run(["e2fsck", "-fn", volume.staged_path])
    plain = agent.volume(lab.image("b", size=4 * MIB), block=True)
    plain.stage()
    check(not takes_write_zeroes(plain.device), "an agent without the flag offers WRITE_ZEROES")
    number = "/dev/nbd%d" % volume.device
    for one in (volume, plain):
        one.unstage(patience=30)
    plain.expect_gone()
    told = run([CORBD, "doctor", "--before-rollback", "--nodeid", "node-1", "--kubelet-dir", lab.kubelet, "--config-dir", os.path.join(agent.dir, "config"),
                "--state-dir", agent.state_dir, "--runtime-dir", os.path.join(agent.dir, "runtime"), *host_pids()], ok=False)
    check("write-zeroes: %s: free" % number in told, "the doctor does not name %s: %s" % (number, told))


@long
def story_zeroes_stop_rbd_nbd(lab):
    """rbd-nbd answers nothing after the first WRITE_ZEROES of a number that an agent with --no-rbd-nbd had, and serves it once the module was loaded anew"""
    needs_write_zeroes(lab)
    agent = lab.agent(flags=[FLAG]).start()
    image = lab.image("a", size=16 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    device = "/dev/nbd%d" % volume.device
    volume.unstage()
    volume.expect_gone()
    peer = RbdNbd(lab, image)
    peer.map()
    check(peer.device == device, "rbd-nbd got %s, not %s" % (peer.device, device))
    said = os.path.join(lab.out, "rbd-nbd.log")
    zeroing = lab.start(["blkdiscard", "-z", device])
    wait_for("rbd-nbd's word", lambda: "invalid request command" in read(said), 60)
    reading = lab.start(["dd", "if=" + device, "of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
    time.sleep(2)
    check(zeroing.poll() is None and reading.poll() is None, "rbd-nbd serves on")
    lab.disconnect_devices()
    check(zeroing.wait(60) != 0 and reading.wait(60) != 0, "requests that nobody answers did not fail")
    peer.kill()
    lab.forget_write_zeroes()
    peer.map()
    run(["blkdiscard", "-z", peer.device])
    peer.unmap()


def took(argv):
    run(["sync"])
    begin = time.monotonic()
    run(argv, timeout=600)
    return time.monotonic() - begin


def measure(devices, source, fill):
    """{what: {subject: seconds}}, of rounds in which all subjects follow each other. Without WRITE_ZEROES 10 GiB would take minutes."""
    works = {
        "BLKZEROOUT of 10 GiB": lambda device: ["blkdiscard", "-z", device],
        "BLKZEROOUT of 256 MiB": lambda device: ["blkdiscard", "-z", "-l", str(256 * MIB), device],
        "BLKZEROOUT of 64 MiB of data": lambda device: ["blkdiscard", "-z", "-l", str(64 * MIB), device],
        "mkfs.ext4 on 10 GiB": lambda device: [*MKFS, device],
        "qemu-img convert of 512 MiB, 32 MiB of it data":
            lambda device: ["qemu-img", "convert", "-n", "-f", "raw", "-O", "host_device", "-t", "none", source, device]}
    found = {what: {name: [] for name in devices} for what in works}
    for _ in range(5):
        for what, argv in works.items():
            for name, device in devices.items():
                if what.endswith("of data"):
                    run(["dd", "if=" + fill, "of=" + device, "bs=1M", "oflag=direct", "conv=notrunc", "status=none"])
                if name != "corbd" or what != "BLKZEROOUT of 10 GiB":
                    found[what][name].append(took(argv(device)))
    return found


@long
def story_zeroes_measured(lab):
    """BLKZEROOUT, mkfs without lazy initialisation and qemu-img convert: corbd without and with --no-rbd-nbd, and the kernel's client"""
    needs_write_zeroes(lab)
    needs_krbd()
    source, fill = (os.path.join(lab.dir, name) for name in ("source", "fill"))
    put(fill, "x" * (64 * MIB))
    with open(source, "wb") as file:
        for part in range(8):
            file.seek(part * 64 * MIB)
            file.write(os.urandom(4 * MIB))
        file.truncate(512 * MIB)
    agent = lab.agent().start()
    volumes = {name: agent.volume(lab.image("ours-%d" % number, size=10 * GIB), block=True) for number, name in enumerate(("corbd", "corbd " + FLAG))}
    first, second = volumes.values()
    first.stage()
    # A device keeps what it was connected with.
    agent.flags = [FLAG]
    hand_over(agent, [first])
    second.stage()
    check([takes_write_zeroes(one.device) for one in (first, second)] == [False, True], "the devices are not as their agents made them")
    kernel = Krbd(lab, lab.image("krbd", size=10 * GIB))
    kernel.map()
    try:
        found = measure({**{name: volume.staged_path for name, volume in volumes.items()}, "krbd": kernel.device}, source, fill)
    finally:
        kernel.unmap()
    for what, subjects in found.items():
        told = ["%s %.2f s (%.2f to %.2f)" % (name, statistics.median(times), min(times), max(times)) for name, times in subjects.items() if times]
        say("%s: %s" % (what, ", ".join(told)))
    for volume in volumes.values():
        volume.unstage(patience=60)
    agent.stop()


story_zeroes_measured.limit = 1500
