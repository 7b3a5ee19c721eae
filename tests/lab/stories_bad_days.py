"""What applications meet while a cluster of three monitors and three OSDs is in trouble (thrash.py). docs/bad-days.md has the table."""
import os
import re
import signal
import time

import thrash
from checks import Skip, check, long, now_us, say, wait_for
from machine import MIB, child_of, run
from stories_owner import watchers
from stories_seen import ask, show, volumes_of
from volume import TRANSIENT
from writer import Order, Writer, expect_order, told_order

QUIET = 3  # seconds without an acknowledged write: they wait
# A link that ended and the one that took its place: after a handover under requests that waited, a fence, or a minute without the next agent.
RECONNECTED = re.compile(r"block nbd\d+: (Receive control failed|Attempted send on invalid socket|Dead connection|reconnected socket)")
HUNG = re.compile(r"blocked for more than|hung_task|task:|" + RECONNECTED.pattern)
KERNEL = re.compile(r"nbd|EXT4|XFS|I/O error|JBD2|hung|blocked for more", re.I)


def kernel_said():
    """What the kernel said of devices, filesystems and tasks, but for nbd's note of a request that takes long."""
    return [line for line in run(["dmesg"]).splitlines() if KERNEL.search(line) and "Possible stuck request" not in line]


class BadDay:
    """Writers on volumes of such a cluster, and the troubles that they live through."""

    def __init__(self, lab, kinds=("block", "ext4", "xfs"), tickets=3600, prepare=lambda lab: None, options=()):
        lab.second_cluster(tickets, three=True)
        prepare(lab)
        self.lab, self.moments, self.orders = lab, [], []
        self.agent = lab.agent(flags=["--keeper", "--volume-health"]).start()
        self.volumes, self.images, self.writers = [], [], []
        for kind in kinds:
            block = kind in ("block", "order")
            self.images.append(lab.image(kind, size=(512 if kind == "xfs" else 128) * MIB, options=options))
            volume = self.agent.volume(self.images[-1], block=block, fstype=None if block else kind)
            volume.stage(patience=60)
            self.volumes.append(volume)
            if kind == "order":
                self.orders.append(Order(lab, volume.staged_path).start())
            else:
                self.writers.append(Writer(lab, volume.staged_path if block else os.path.join(volume.staged_path, "data"), size=16 * MIB,
                                           mode="fsync" if kind == "ext4" else "direct", threads=2, paced=2).start())
        self.said = kernel_said()

    def counts(self):
        return [writer.acked() for writer in self.writers] + [order.done() for order in self.orders]

    def wait_quiet(self):
        """Seconds until no write was acknowledged any more."""
        begin, last, since = time.monotonic(), self.counts(), time.monotonic()
        while time.monotonic() - since < QUIET:
            check(time.monotonic() - begin < 90, "writes do not stop")
            time.sleep(0.1)
            now = self.counts()
            if now != last:
                last, since = now, time.monotonic()
        return since - begin

    def wait_flow(self, timeout=180):
        """Seconds until each writer has gone on."""
        begin, before = time.monotonic(), self.counts()
        wait_for("all writers to go on, from %s" % before, lambda: all(now > was for now, was in zip(self.counts(), before)), timeout)
        return time.monotonic() - begin

    # --- what else happens meanwhile

    def kill(self):
        """Without a wait for the next agent, which may need the cluster."""
        child = wait_for("an agent to kill", lambda: child_of(self.agent.process.pid), 60)
        os.kill(child, signal.SIGKILL)
        wait_for("the next agent", lambda: child_of(self.agent.process.pid) not in (0, child), 60)

    def begin_handover(self):
        self.before, self.agent.process = self.agent.process, None
        self.agent.spawn(flags=["--handover"])

    def end_handover(self):
        """The former agent ends once the next one has everything."""
        check(self.before.wait(120) == 0, "the agent that served ended with %s: %s" % (self.before.returncode, self.agent.tail()))
        for volume in self.volumes:
            self.agent.wait_event("device.reconnected", 60, volume=volume.id)

    def hand_over(self):
        self.begin_handover()
        self.end_handover()

    def refused_handover(self):
        """The agent that serves says why, and serves on. The next one ends."""
        self.begin_handover()
        told = wait_for("the refusal of a handover", lambda: self.agent.events("handover.images_not_opened"), 150)[0]
        check("is full" in told["first_refused_here"], "the refusal does not name the full pool: %s" % told)
        wait_for("the next agent's end", lambda: self.agent.process.poll() is not None, 60)
        self.agent.process = self.before

    def restart_osds(self):
        for osd in range(3):
            self.lab.admin("osd", "restart", str(osd))
            time.sleep(5)

    def told(self):
        """What an operator sees."""
        show("\n".join(line for line in ask(self.agent, "status", code=(0, 1, 2, 3)).splitlines() if line.startswith(("cluster", "volumes"))))
        answer = self.volumes[0].begin("health", 20).end()
        say("%s: %s" % (self.volumes[0].id, answer.get("answer") or answer))

    def wait_named(self, cause):
        """Until everything that an operator asks names the full pool: an open of its images has then failed."""
        words = "pool %s is full, and writes to it wait: %s" % (self.lab.pool, cause)
        def health():
            return str(self.volumes[0].begin("health", 20).end())
        begin = time.monotonic()
        wait_for("`corbd status` to say: %s" % words, lambda: words in ask(self.agent, "status", code=(0, 1, 2, 3)), 120, 2)
        wait_for("the volume's health to say: %s" % words, lambda: words in health() and "PoolFull" in health(), 30, 2)
        say("named after %.0f s" % (time.monotonic() - begin))

    # --- a trouble

    def through(self, trouble, meanwhile=None, afterwards=None, lasts=None, named=None):
        say("=== %s%s" % (trouble.name, "" if meanwhile is None else ", and " + meanwhile.__name__))
        self.moments.append(now_us())
        trouble.begin(self.lab)
        waits = trouble.meanwhile == thrash.WAIT
        stopped_after = self.wait_quiet() if waits else None
        before = self.counts()
        if meanwhile:
            meanwhile()
        time.sleep(lasts or trouble.lasts)
        if trouble.meanwhile == thrash.FLOW:
            self.wait_flow()
        if named:
            self.wait_named(named)
        self.told()
        # Requests that were half done may be answered late, but writes do not go on.
        still = [now - was for now, was in zip(self.counts(), before)]
        check(not waits or max(still) < 20, "writes went on: %s" % still)
        trouble.end(self.lab)
        flows_after = self.wait_flow()
        if afterwards:
            afterwards()
        wait_for("every volume staged", lambda: {one["health"] for one in volumes_of(self.agent).values()} == {"staged"}, 120)
        told = "writes stopped after %.1f s, and " % stopped_after if waits else ""
        say("%s: %swrites of all volumes %.1f s after its end" % (trouble.name, told, flows_after))

    def expect_kernel_silence(self, but=None):
        """but: what the kernel may say all the same."""
        new = [line for line in kernel_said() if line not in self.said and not (but and but.search(line))]
        check(not new, "the kernel noticed: %s" % new)

    def end(self, but=None):
        self.expect_kernel_silence(but)
        for writer in self.writers:
            writer.stop()
            found = writer.expect_nothing_lost(self.moments)
            stalls = [(one["first_us"] - one["last_before_us"]) / 1e6 for one in found["kills"]]
            say("%d writes, stalls %s s" % (found["acked"], ", ".join("%.1f" % stall for stall in stalls)))
        for order in self.orders:
            order.stop()
            say(told_order(expect_order(order.journal)))
        for volume in self.volumes:
            volume.unstage(patience=60)
        for volume in self.volumes:
            volume.expect_gone()
        check(self.agent.stop() == 0, "the agent ended with %s" % self.agent.process.returncode)


# [failure:13][failure:14][failure:131]
def story_bad_day(lab):
    """an OSD killed, a monitor killed and a pool's quota reached under writers, the agent killed in the last: no I/O error, no lost write, and writes go on by themselves"""
    day = BadDay(lab, ("ext4", "order"))
    day.through(thrash.killed("osd", [2], thrash.FLOW, 3))
    day.through(thrash.killed("mon", ["x"], thrash.FLOW, 3))
    day.through(thrash.quota_reached(lab.pool, 3), day.kill)
    day.end()


# [failure:131]
@long
def story_bad_day_full(lab):
    """a cluster that is nearfull, backfillfull and full, over kills and handovers: writes wait without an error, the pool is named after a kill, and raw block, ext4 and xfs go on once there is room"""
    day = BadDay(lab, ("block", "ext4", "xfs", "order"))
    day.through(thrash.cluster_is("nearfull"))
    day.through(thrash.cluster_is("backfillfull"))
    day.through(thrash.cluster_is("full"))
    day.through(thrash.cluster_is("full"), day.kill)
    day.through(thrash.cluster_is("full"), day.refused_handover)
    day.hand_over()
    day.expect_kernel_silence()
    day.through(thrash.cluster_is("full"), day.kill, named="OSDs of it are full")
    day.end(RECONNECTED)


# [failure:131]
@long
def story_bad_day_calls(lab):
    """a stage, an unstage and statistics while the cluster is full end in time, and the same calls succeed once there is room"""
    day = BadDay(lab, ("ext4",))
    idle, new = [day.agent.volume(lab.image(name, size=64 * MIB)) for name in ("idle", "new")]
    unused = lab.image("unused", size=64 * MIB)
    idle.stage()
    idle.publish()

    def calls():
        code, _, said = lab.admin("rbd", "rm", "--no-progress", unused.spec, ok=False)
        say("rbd rm: exit code %d: %s" % (code, said[-120:].strip()))
        usage, abnormal = idle.stats()
        say("statistics of an idle volume: %s, %s" % (usage["BYTES"]["total"], abnormal))
        refused = new.try_stage(timeout=20)
        say("stage: %(code)s: %(message)s" % refused)
        check(refused["code"] in TRANSIENT, "the stage did not wait for room: %s" % refused)
        idle.unpublish()
        answer = idle.try_unstage(timeout=20)
        say("unstage of an idle volume: %(code)s: %(message)s" % answer)
        check(answer["code"] in ("OK",) + TRANSIENT, "the unstage: %s" % answer)

    day.through(thrash.cluster_is("full"), calls)
    idle.unstage(patience=60)
    new.stage(patience=60)
    new.expect_staged()
    new.unstage(patience=60)
    # These two come and go meanwhile.
    day.end(re.compile(r"\bnbd[12]\b"))


# [failure:131]
@long
def story_bad_day_quota(lab):
    """a pool whose quota is reached again and again, over kills and handovers, also for minutes: writes wait without an error, the pool is named after a kill, and raw block, ext4 and xfs go on once it is raised"""
    day = BadDay(lab, ("block", "ext4", "xfs", "order"))
    day.through(thrash.quota_reached(lab.pool, 75))
    day.through(thrash.quota_reached(lab.pool), day.refused_handover)
    day.hand_over()
    day.expect_kernel_silence()
    day.through(thrash.quota_reached(lab.pool), day.kill, named="its quota is reached")
    for _ in range(5):
        day.through(thrash.quota_reached(lab.pool, 1))
    day.end(RECONNECTED)


# [failure:14]
@long
def story_bad_day_osds(lab):
    """an OSD out, marked down, killed and stopped, too few OSDs for two minutes, and paused writes, over a kill and a handover: writes may wait, but none fails"""
    day = BadDay(lab, ("block", "ext4", "xfs", "order"))
    day.through(thrash.marked_out(2))
    day.through(thrash.marked_down(0))
    day.through(thrash.killed("osd", [0], thrash.FLOW), day.kill)
    day.through(thrash.stopped("osd", [1], thrash.FLOW))
    day.through(thrash.paused("pause"))
    day.through(thrash.killed("osd", [1, 2], thrash.WAIT, 20), day.kill)
    day.expect_kernel_silence()
    day.through(thrash.killed("osd", [0, 2], thrash.WAIT, 20), day.begin_handover, day.end_handover)
    day.through(thrash.killed("osd", [0, 1], thrash.WAIT, 120))
    day.end(HUNG)


# [failure:13]
@long
def story_bad_day_monitors(lab):
    """each monitor killed, and all but one for a minute, over a kill and a handover: writes go on, but for a killed agent, which needs a quorum"""
    day = BadDay(lab, ("block", "ext4", "xfs", "order"))
    for name in "xyz":
        day.through(thrash.killed("mon", [name], thrash.FLOW))
    day.through(thrash.killed("mon", ["x", "y"], thrash.FLOW, 60))
    day.through(thrash.killed("mon", ["y", "z"], thrash.FLOW), day.begin_handover, day.end_handover)
    day.through(thrash.stopped("mon", ["x", "z"], thrash.FLOW, 20))
    no_quorum = thrash.killed("mon", ["x", "y"], thrash.FLOW, 20)
    no_quorum.meanwhile = None
    day.through(no_quorum, day.kill)
    day.end()


# [failure:5][failure:15]
@long
def story_bad_day_network(lab):
    """a slow and lossy network, one that is gone, and one that is blocklisted as a whole: writes may wait, but none fails, and go on by themselves"""
    if lab.native:
        raise Skip("this machine's network is not ours")
    day = BadDay(lab, ("block", "ext4", "xfs", "order"))
    day.through(thrash.bad_network("delay 50ms 20ms"))
    day.through(thrash.bad_network("delay 10ms loss 5%"), day.kill)
    day.through(thrash.bad_network("delay 20ms 10ms loss 2%"), day.begin_handover, day.end_handover)
    day.through(thrash.cut_off())
    day.expect_kernel_silence()
    address = watchers(lab, day.images[0])[0].split(":")[0]
    day.through(thrash.fenced_range(address + "/32"))
    day.end(RECONNECTED)


# [failure:14][failure:131]
@long
def story_bad_day_pools(lab):
    """images with an erasure-coded data pool, whose placement groups are split and merged, whose OSD is killed and whose quota is reached: no I/O error, no lost write"""
    def erasure_coded(lab):
        lab.admin("ceph", "osd", "erasure-code-profile", "set", "two-of-three", "k=2", "m=1", "crush-failure-domain=osd")
        lab.admin("ceph", "osd", "pool", "create", "coded", "8", "8", "erasure", "two-of-three")
        for name, value in (("allow_ec_overwrites", "true"), ("min_size", "2")):
            lab.admin("ceph", "osd", "pool", "set", "coded", name, value)
        lab.admin("ceph", "osd", "pool", "application", "enable", "coded", "rbd")
    day = BadDay(lab, ("block", "ext4", "xfs", "order"), prepare=erasure_coded, options=("--data-pool", "coded"))
    for pool in ("coded", lab.pool):
        day.through(thrash.pg_num(pool, 16))
        day.through(thrash.pg_num(pool, 8), day.kill)
    day.through(thrash.killed("osd", [2], thrash.FLOW))
    day.through(thrash.quota_reached("coded"), day.kill)
    day.through(thrash.memory_pressure())
    day.expect_kernel_silence()
    day.through(thrash.quota_reached("coded"), day.begin_handover, day.end_handover)
    day.end(RECONNECTED)


# [failure:43]
@long
def story_bad_day_clock(lab):
    """a node whose clock goes ten minutes ahead and back, while its tickets end and OSDs start again: no I/O error, no lost write"""
    if lab.native:
        raise Skip("this machine's clock is not ours")
    day = BadDay(lab, ("block", "ext4", "xfs"), tickets=30)
    for seconds in (600, -600):
        trouble = thrash.clock_off(seconds)
        try:
            day.through(trouble, day.restart_osds)
        except BaseException:
            trouble.end(lab)
            raise
    # The writers note when by that clock.
    day.moments = []
    day.end()


for story in (story_bad_day_full, story_bad_day_calls, story_bad_day_quota, story_bad_day_osds, story_bad_day_monitors, story_bad_day_network,
              story_bad_day_pools, story_bad_day_clock):
    story.limit = 1800
