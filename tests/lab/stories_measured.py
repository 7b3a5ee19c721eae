"""Figures next to rbd-nbd's, in the same guest and the same run. Emulation makes every absolute figure worthless: read the ratios."""
import json
import subprocess

from kit import MIB, Writer, check, now_us, say, show_timeline, timeline
from stories_peer import RbdNbd


def story_recovery_compared(lab):
    """from SIGKILL to the first completed write: against rbd-nbd killed and re-attached in the same way"""
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


def fio(device, kind):
    done = subprocess.run(["fio", "--name=x", "--filename=" + device, "--rw=" + kind, "--bs=4k", "--iodepth=16", "--ioengine=libaio",
                           "--direct=1", "--time_based", "--runtime=8", "--ramp_time=2", "--size=256M", "--output-format=json"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, "fio: %s" % done.stderr[-300:])
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return job["read" if "read" in kind else "write"]["iops"]


def story_speed_compared(lab):
    """4 KiB random reads and writes at queue depth 16, beside rbd-nbd"""
    peer = RbdNbd(lab, lab.image("peer"))
    peer.map()
    theirs = {kind: fio(peer.device, kind) for kind in ("randwrite", "randread")}
    peer.kill()
    agent = lab.agent().start()
    volume = agent.volume(lab.image("ours"), block=True)
    volume.stage()
    ours = {kind: fio("/dev/nbd%d" % volume.device, kind) for kind in ("randwrite", "randread")}
    for kind in ours:
        say("%s 4 KiB QD16: corbd %.0f IOPS, rbd-nbd %.0f IOPS, ratio %.2f" % (kind, ours[kind], theirs[kind], ours[kind] / theirs[kind]))
    volume.unstage(patience=30)
    volume.expect_gone()


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
