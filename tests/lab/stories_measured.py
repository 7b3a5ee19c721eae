"""Figures next to rbd-nbd's, in the same guest and the same run. Emulation makes every absolute figure worthless: read the ratios."""
import os
import shutil
import socket
import statistics
import time

import netlink

from agent import show_timeline, timeline
from checks import check, long, now_us, say
from machine import MIB, read
from stories_peer import RbdNbd
from writer import Writer


@long
def story_recovery_compared(lab):
    """from SIGKILL to the first completed write: against rbd-nbd killed and re-attached in the same way"""
    lab.expect_speed()
    peer = RbdNbd(lab, lab.image("peer"))
    peer.map()
    writer = Writer(lab, peer.device).start()
    writer.wait_more(50)
    kill = now_us()
    peer.kill()
    peer.attach()
    writer.wait_more(50, timeout=120)
    writer.stop()
    theirs = writer.verify([kill])
    their_ms = (theirs["kills"][0]["first_us"] - kill) / 1000

    agent = lab.agent().start()
    volume = agent.volume(lab.image("ours"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(50)
    kill = agent.kill()
    agent.spawn()
    writer.wait_more(50, timeout=120)
    writer.stop()
    ours = writer.expect_nothing_lost([kill])
    line = timeline(agent, volume, kill, ours["kills"][0])
    show_timeline(1, line)
    our_ms = line["first write"]
    say("SIGKILL to the first completed write: corbd %.0f ms, rbd-nbd %.0f ms, ratio %.1f; lost: %d and %d" % (
        our_ms, their_ms, their_ms / our_ms, ours["lost"], theirs["lost"]))
    check(our_ms < their_ms, "slower than rbd-nbd")
    volume.unstage(patience=30)


# The programs that a stage could start.
TOOLS = ("fsck", "fsck.ext4", "e2fsck", "mkfs.ext4", "mke2fs", "mount", "umount", "blkid", "blockdev", "dumpe2fs", "tune2fs", "resize2fs",
         "cryptsetup", "modprobe", "rbd", "rbd-nbd", "sh", "findmnt", "lsblk", "systemd-run")


def story_processes_of_a_stage(lab):
    """stage and publish of a volume with a filesystem start one process, its checker, and open its image once"""
    started = os.path.join(lab.dir, "started")
    for tool in TOOLS:
        real = shutil.which(tool)
        if real and tool != "sh":
            lab.program(tool, "echo %s >>%s\nexec %s \"$@\"\n" % (tool, started, real))
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    volume.unstage()
    check("mkfs.ext4" in read(started), "the tools are not seen: %s" % read(started))
    os.unlink(started)
    opened = len(agent.events("image.opened", volume=volume.id))
    volume.stage()
    volume.publish()
    check(read(started).split() == ["fsck.ext4"], "it started %s" % read(started).split())
    check(len(agent.events("image.opened", volume=volume.id)) == opened + 1, "the image was opened more than once")
    volume.unpublish()
    volume.unstage()


@long
def story_idle_cost(lab):
    """what three idle volumes cost: threads and memory, beside three rbd-nbd"""
    def cost(pid):
        status = dict(line.split(":", 1) for line in open("/proc/%d/status" % pid).read().splitlines())
        rollup = dict(line.split(":", 1) for line in open("/proc/%d/smaps_rollup" % pid).read().splitlines()[1:])
        return int(status["Threads"]), int(rollup["Pss"].split()[0])
    peers = [RbdNbd(lab, lab.image("peer%d" % number, size=256 * MIB)) for number in range(3)]
    for peer in peers:
        peer.map()
    theirs = [cost(peer.process.pid) for peer in peers]
    for peer in peers:
        peer.kill()
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image("ours%d" % number, size=256 * MIB), block=True) for number in range(3)]
    volumes[0].stage()
    one = cost(agent.process.pid)
    for volume in volumes[1:]:
        volume.stage()
    three = cost(agent.process.pid)
    say("corbd: %d threads and %d KiB for one volume, %d threads and %d KiB for three; rbd-nbd: %d threads and %d KiB for three" % (
        one + three + (sum(t for t, _ in theirs), sum(kib for _, kib in theirs))))
    check(three[0] <= one[0], "volumes cost threads: %d with one, %d with three" % (one[0], three[0]))
    for volume in volumes:
        volume.unstage(patience=30)


@long
def story_driver_cost(lab):
    """what CONNECT, RECONFIGURE of a dead link and DISCONNECT cost for 64 devices, one after another"""
    count, size = 64, 64 * MIB
    names = ["lab-cost-%d" % number for number in range(count)]

    def timed(what, calls):
        each = []
        for call in calls:
            begin = time.monotonic()
            call()
            each.append((time.monotonic() - begin) * 1000)
        say("%s: p50 %.2f ms, most %.2f ms, all %d %.0f ms" % (what, statistics.median(each), max(each), count, sum(each)))

    # Nobody opens a device, so the driver sends no request but its goodbye.
    with netlink.Nbd() as nbd:
        links = [socket.socketpair() for _ in names]
        devices = []
        timed("CONNECT", [lambda n=n: devices.append(nbd.connect(links[n][0], size, names[n])) for n in range(count)])
        for ours, theirs in links:
            ours.close()
            theirs.close()
        links = [socket.socketpair() for _ in names]
        timed("RECONFIGURE", [lambda n=n: nbd.reconfigure(devices[n], links[n][0], names[n]) for n in range(count)])
        timed("DISCONNECT", [lambda n=n: nbd.disconnect(devices[n]) for n in range(count)])
        check(sorted(set(devices)) == sorted(devices), "two volumes got one device: %s" % devices)
        for ours, theirs in links:
            ours.close()
            theirs.close()
