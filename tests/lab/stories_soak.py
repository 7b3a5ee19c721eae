"""Whatever may happen, in random order, for as long as wanted: scripts/soak."""
import html
import os
import random
import shutil
import time

from checks import Failed, check, now_us, say
from cluster import Image
from machine import MIB, read
from picture import drawn_whole
from stories_heal import blocklist
from stories_order import Disturbed
from stories_owner import watchers
from writer import Writer, told_order

SECONDS = int(os.environ.get("CORBD_SOAK_SECONDS") or 300)
SEED = int(os.environ.get("CORBD_SOAK_SEED") or 1)
QUIET_S = 3.0  # of writing between two disturbances


class Soaked(Disturbed):
    """Also a filesystem of another type under its verifying writer, and troubles of the cluster and by other clients."""

    def __init__(self, lab, chosen):
        super().__init__(lab)
        self.chosen, self.grown, self.snapshots = chosen, 0, 0
        self.images = [Image(lab, volume.id, volume.pool) for volume in self.volumes] + [lab.image("xfs", size=512 * MIB)]
        self.xfs = self.agent.volume(self.images[-1], fstype="xfs")
        self.xfs.stage()
        self.volumes.append(self.xfs)
        self.passing = self.agent.volume(lab.image("passing", size=64 * MIB))
        self.writer = Writer(lab, os.path.join(self.xfs.staged_path, "data"), size=32 * MIB).start()

    # --- the agent

    def kill_twice(self):
        """The second time while it heals."""
        self.agent.kill()
        self.agent.spawn()
        time.sleep(self.chosen.uniform(0.1, 1.5))
        self.kill()

    # --- the cluster

    def stop_osd(self):
        self.lab.admin("osd", "stop")
        time.sleep(self.chosen.uniform(1, 6))
        self.lab.admin("osd", "cont")

    def restart_osd(self):
        self.lab.admin("osd", "restart", timeout=120)

    def restart_monitor(self):
        self.lab.admin("mon", "restart", timeout=120)

    def cut_network(self):
        self.lab.admin("link", "down")
        time.sleep(self.chosen.uniform(1, 6))
        self.lab.admin("link", "up")

    # --- other clients

    def cut_off(self):
        """The client of one volume; others may have the same."""
        found = watchers(self.lab, self.chosen.choice(self.images))
        check(found, "nobody has an image open that is served")
        for address in found:
            blocklist(self.lab, address)

    def snapshot(self):
        self.snapshots += 1
        spec = "%s@soak-%d" % (self.chosen.choice(self.images).spec, self.snapshots)
        self.lab.admin("rbd", "snap", "create", "--no-progress", spec)
        self.lab.admin("rbd", "snap", "rm", "--no-progress", spec)

    # --- kubelet

    def stage_another(self):
        self.passing.stage(patience=30)
        self.passing.unstage(patience=30)

    def grow(self):
        self.grown += 1
        size = (512 + 16 * self.grown) * MIB
        self.lab.admin("rbd", "resize", "--no-progress", "--size", "%dB" % size, self.images[-1].spec)
        self.xfs.expand(size, patience=30)

    def flow(self):
        """Returns once every writer has got more answers."""
        self.wait_more(100)
        self.writer.wait_more(40, 90)

    def cost(self):
        status = dict(line.split(":", 1) for line in read("/proc/%d/status" % self.agent.process.pid).splitlines())
        return {"descriptors": len(os.listdir("/proc/%d/fd" % self.agent.process.pid)), "threads": int(status["Threads"]),
                "MiB": int(status["VmRSS"].split()[0]) // 1024}


KINDS = (Soaked.kill, Soaked.kill_twice, Soaked.hand_over, Soaked.rotate, Soaked.stop_osd, Soaked.restart_osd, Soaked.restart_monitor, Soaked.cut_network,
         Soaked.cut_off, Soaked.snapshot, Soaked.stage_another, Soaked.grow)


def disturb(soaked, chosen, seconds, events):
    """Each kind comes before one comes a second time. Adds what came, when in microseconds, and the seconds until all writers had answers again."""
    left, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(events) < len(KINDS):
        if not left:
            left = chosen.sample(KINDS, len(KINDS))
        kind = left.pop()
        begun, at = time.monotonic(), now_us()
        events.append([kind.__name__.replace("_", " "), at, None])
        kind(soaked)
        soaked.flow()
        events[-1][2] = time.monotonic() - begun
        time.sleep(chosen.uniform(0, QUIET_S))


def age(soaked, chosen):
    """The same disturbances twice, none of which ends an agent: the second time it has at most four descriptors and four threads more."""
    def live():
        for kind in (Soaked.stage_another, Soaked.snapshot, Soaked.restart_monitor, Soaked.grow, Soaked.stage_another):
            kind(soaked)
            soaked.flow()
        return soaked.cost()

    first = live()
    second = live()
    check(second["descriptors"] <= first["descriptors"] + 4 and second["threads"] <= first["threads"] + 4, "the agent grows: %s, then %s" % (first, second))
    return "an agent after the same troubles once and twice: %s, %s" % (first, second)


def page(lab, lines, picture):
    """One page with the figures and the picture."""
    with open(os.path.join(lab.out, "soak.html"), "w") as file:
        file.write("<!doctype html><meta charset=utf-8><title>soak</title><pre>%s</pre>%s" % (html.escape("\n".join(lines)), picture))


# [failure:1][failure:150]
def story_soak(lab):
    """what an agent, a cluster, another client and kubelet may do, in random order: no read or write out of order, no lost write, no I/O error, and nothing grows"""
    chosen = random.Random(SEED)
    soaked, events = Soaked(lab, chosen), []
    lines = ["seed %d, %d s" % (SEED, SECONDS)]
    try:
        disturb(soaked, chosen, SECONDS, events)
        lines.append(age(soaked, chosen))
        soaked.writer.stop()
        found = soaked.writer.verify([at for _, at, _ in events])
        lines.append("%d acknowledged writes on xfs, %d lost, %d I/O errors, longest stall %.2f s" % (
            found["acked"], found["lost"], found["errors"], found["longest_stall_us"] / 1e6))
        check(found["lost"] == 0 and found["errors"] == 0, lines[-1])
        lines += [told_order(order) for order in soaked.end()]
    except Failed:
        for order in soaked.orders:
            shutil.copy(order.journal, lab.out)
        raise
    finally:
        for kind in sorted({name for name, _, _ in events}):
            took = sorted(took for name, _, took in events if name == kind and took is not None)
            if took:
                lines.append("%3d times %-16s until all writers went on: median %.1f s, at most %.1f s" % (len(took), kind, took[len(took) // 2], took[-1]))
        lines += ["%s, after which not all writers went on" % name for name, _, took in events if took is None]
        for line in lines:
            say(line)
        page(lab, lines, drawn_whole(soaked.writer.journal, [(name, at) for name, at, _ in events]))


# The judges read all that was written.
story_soak.limit = 2 * SECONDS + 600
