"""Figures next to rbd-nbd's, in the same guest and the same run. Emulation makes every absolute figure worthless: read the ratios."""
import json
import os
import shutil
import subprocess
import time

from agent import show_timeline, timeline
from checks import check, long, now_us, say, wait_for
from machine import GIB, MIB, devices, processes, read, run
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


# --- speed

class Krbd:
    """The kernel's own client."""

    def __init__(self, lab, image):
        self.lab, self.image = lab, image

    def map(self):
        run(["modprobe", "rbd"])
        self.device = run(["rbd", "device", "map", self.image.spec, "-c", self.lab.conf, "--options", "noudev"]).strip().splitlines()[-1]

    def unmap(self):
        run(["rbd", "device", "unmap", self.device, "-c", self.lab.conf, "--options", "noudev"])


def busy_seconds():
    """CPU time of the whole machine but idling and waiting."""
    fields = [int(field) for field in read("/proc/stat").splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def fio(kind, *target, seconds=6):
    """IOPS, and CPU seconds of the whole machine for a GiB."""
    before = busy_seconds()
    done = subprocess.run(["fio", "--name=x", "--rw=" + kind, "--bs=4k", "--iodepth=16", "--time_based", "--runtime=%d" % seconds, "--ramp_time=2",
                           "--size=256M", "--output-format=json", *target], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, CEPH_CONF=os.environ["CORBD_LAB_CONF"]))
    busy = (busy_seconds() - before) * seconds / (seconds + 2)
    check(done.returncode == 0, "fio %s: %s %s" % (" ".join(target), done.stderr[-300:], done.stdout[:300]))
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read" if "read" in kind else "write"]
    return {"iops": job["iops"], "cpu_s_per_gib": busy / max(job["io_bytes"] / GIB, 1e-9)}


def on_device(device):
    return lambda kind: fio(kind, "--filename=" + device, "--ioengine=libaio", "--direct=1")


@long
def story_speed_compared(lab):
    """4 KiB random reads and writes at queue depth 16 on one image: corbd, rbd-nbd, the kernel's client, and librbd without a device"""
    lab.expect_speed()
    image = lab.image("a")
    lab.admin("rbd", "bench", "--io-type", "write", "--io-size", "1M", "--io-total", "256M", image.spec)
    found = {}

    def measure(name, subject):
        found[name] = {kind: subject(kind) for kind in ("randwrite", "randread")}
    peer = RbdNbd(lab, image)
    peer.map()
    measure("rbd-nbd", on_device(peer.device))
    peer.unmap()
    agent = lab.agent().start()
    volume = agent.volume(image, block=True)
    volume.stage(patience=60)
    measure("corbd", on_device("/dev/nbd%d" % volume.device))
    volume.unstage(patience=30)
    volume.expect_gone()
    kernel = Krbd(lab, image)
    kernel.map()
    measure("krbd", on_device(kernel.device))
    kernel.unmap()
    measure("librbd (fio)", lambda kind: fio(kind, "--ioengine=rbd", "--clientname=" + lab.user, "--pool=" + image.pool, "--rbdname=" + image.name))
    rows = []
    for name, kinds in found.items():
        for kind, figures in kinds.items():
            rows.append(dict(bench="device", subject=name, kind=kind, bytes=4096, depth=16, **figures))
            say("%-12s %-9s 4 KiB QD16: %6.0f IOPS, %5.2f of rbd-nbd; CPU of the machine %6.1f s/GiB" % (
                name, kind, figures["iops"], figures["iops"] / found["rbd-nbd"][kind]["iops"], figures["cpu_s_per_gib"]))
    with open(os.path.join(os.environ["CORBD_OUT"], "device.json"), "w") as file:
        json.dump(rows, file)


SCRIPT = """set -e
device=$(rbd-nbd map {spec} -c {conf} --try-netlink --cookie {name} --reattach-timeout 300 --io-timeout 0)
blkid -p $device || [ $? = 2 ]
mkfs.ext4 -q -m0 -Enodiscard,lazy_itable_init=1,lazy_journal_init=1 $device
mkdir -p {dir}/staged {dir}/target
mount -t ext4 $device {dir}/staged
mount --bind {dir}/staged {dir}/target
"""


def stages_compared(lab, volumes):
    lab.expect_speed()
    agent = lab.agent().start()
    ours, theirs = [], []
    for number in range(volumes):
        volume = agent.volume(lab.image("ours%d" % number))
        volume.stage()
        volume.publish()
        # The time that kubelet would see: the agent's own for the two calls, without the start of the program that makes them.
        calls = [agent.events("csi.call", volume=volume.id, method=method)[0]["ms"] for method in ("NodeStageVolume", "NodePublishVolume")]
        ours.append(sum(calls) / 1000)
        volume.unpublish()
        volume.unstage()
        image = lab.image("peer%d" % number)
        folder = os.path.join(lab.dir, "peer%d" % number)
        script = SCRIPT.format(spec=image.spec, conf=lab.conf, name=image.name, dir=folder)
        begin = time.monotonic()
        run(["sh", "-c", script])
        theirs.append(time.monotonic() - begin)
        run(["umount", folder + "/target"])
        run(["umount", folder + "/staged"])
        index = next(index for index, device in devices().items() if device["backend"] == image.name)
        run(["rbd-nbd", "unmap", "/dev/nbd%d" % index])
        wait_for("the end of rbd-nbd", lambda: not processes("rbd-nbd map " + image.spec), 30)
    our, their = sorted(ours)[volumes // 2], sorted(theirs)[volumes // 2]
    say("stage and publish: corbd %.2f s, the script %.2f s, ratio %.2f (medians of %d)" % (
        our, their, their / our, volumes))


@long
def story_stage_compared(lab):
    """stage and publish of a fresh 1 GiB ext4 volume, beside a script of rbd-nbd map, blkid, mkfs and mount"""
    stages_compared(lab, 3)


@long
def story_stage_20_compared(lab):
    """the same of 20 volumes one after another"""
    stages_compared(lab, 20)


story_stage_20_compared.limit = 900


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
