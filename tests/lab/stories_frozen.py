"""Freezes for snapshots: of groups of images, for mirrors, as long as they are, and under an agent that is killed."""
import errno
import os
import random
import statistics
import subprocess
import threading
import time

from checks import check, long, now_us, say, wait_for
from cluster import FEATURES
from machine import MIB
from picture import entries
from stories_seen import volumes_of
from stories_snapshots import QUIESCE, Changes, begin, end, expect_log, expect_state, frozen_us, line, serve_again
from writer import Writer

WITHOUT_LOCK = "layering"
KILLS = 25


class Chain(Changes):
    """A log on each volume. Change number n is made on a volume when the one before has n on stable storage."""

    def __init__(self, volumes):
        super().__init__(*[os.path.join(volume.staged_path, "log") for volume in volumes])

    def change(self, number, *logs):
        for log in logs:
            log.write(line(number))
            os.fsync(log.fileno())


class Group:
    def __init__(self, lab, images):
        self.lab, self.spec = lab, "%s/%s" % (lab.pool, lab.story[:20].replace("_", "-"))
        lab.admin("rbd", "group", "create", self.spec)
        for image in images:
            lab.admin("rbd", "group", "image", "add", self.spec, image.spec)

    def snapshot(self, name):
        """rbd's exit code: an errno."""
        code, _, error = self.lab.admin("rbd", "group", "snap", "create", "%s@%s" % (self.spec, name), ok=False, timeout=120)
        say("group snapshot %s: %s" % (name, "errno %d %s" % (code, error.strip()[-80:]) if code else "made"))
        return code

    def roll_back(self, name):
        self.lab.admin("rbd", "group", "snap", "rollback", "--no-progress", "%s@%s" % (self.spec, name), timeout=120)

    def remove(self):
        self.lab.admin("rbd", "group", "rm", self.spec)


def staged_three(lab, agent):
    images = [lab.image(name, size=64 * MIB, features=WITHOUT_LOCK) for name in "abc"]
    volumes = [agent.volume(image, attributes=QUIESCE) for image in images]
    stage_all(volumes)
    return images, volumes


def stage_all(volumes):
    for call in [volume.begin("stage") for volume in volumes]:
        answer = call.end()
        check(answer["code"] == "OK", "a stage: %s" % answer)


def story_group_snapshots(lab):
    """a snapshot of a group of three volumes freezes them all first: read-only, they hold a state of their common writer; one refusal refuses all"""
    agent = lab.agent().start()
    images, volumes = staged_three(lab, agent)
    group = Group(lab, images)
    chain = Chain(volumes)
    chain.start()
    chain.wait_more(5)
    # As somebody else's freeze. The chain stands still meanwhile, by that alone.
    subprocess.run(["fsfreeze", "-f", volumes[1].staged_path], check=True)
    check(group.snapshot("refused") == 16, "the snapshot of a group one of whose volumes refuses is not refused with EBUSY")
    subprocess.run(["fsfreeze", "-u", volumes[1].staged_path], check=True)
    chain.wait_more(5)
    first = chain.done
    check(group.snapshot("made") == 0, "the snapshot of the group failed")
    last = chain.begun
    chain.wait_more(5)
    chain.stop()
    say("frozen for %s ms" % [us // 1000 for volume in volumes for us in frozen_us(agent, volume)])
    check(not agent.events("snapshot.broken"), "a snapshot was broken")
    for volume in volumes:
        volume.unstage(patience=30)
    group.roll_back("made")
    readers = [agent.volume(image, mode="MULTI_NODE_READER_ONLY") for image in images]
    stage_all(readers)
    counts = [expect_log(os.path.join(reader.staged_path, "log")) for reader in readers]
    say("the volumes have %s changes; %d had ended before the snapshot, and %d had begun after it" % (counts, first, last))
    check(counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1, "no state of the writer: %s" % counts)
    check(first <= counts[-1] and counts[0] <= last, "not of the snapshot's time: %s" % counts)
    for reader in readers:
        reader.unstage(patience=30)
    group.remove()


def story_raw_block_snapshots(lab):
    """a snapshot of a raw block volume, also of many nodes, holds its requests back until it is made, and no write is lost"""
    agent = lab.agent().start()
    for mode, features in ((None, FEATURES), ("MULTI_NODE_MULTI_WRITER", WITHOUT_LOCK)):
        image = lab.image("shared" if mode else "single", size=64 * MIB, features=features)
        volume = agent.volume(image, block=True, mode=mode, attributes=QUIESCE)
        volume.stage()
        writer = Writer(lab, volume.staged_path, size=32 * MIB).start()
        for number in range(2):
            writer.wait_more(20)
            lab.admin("rbd", "snap", "create", "--no-progress", "%s@s%d" % (image.spec, number))
        writer.wait_more(20)
        writer.stop()
        writer.expect_nothing_lost()
        told = freezes_of(agent, volume)
        say("%s: held back for %s ms; %s" % (volume.id, [us // 1000 for us in frozen_us(agent, volume)], told))
        check((int(told["made"]), int(told["broken"])) == (2, 0), "not two snapshots, and none broken: %s" % told)
        lab.admin("rbd", "snap", "purge", "--no-progress", image.spec)
        volume.unstage(patience=30)


@long
def story_group_snapshots_and_the_lock(lab):
    """librbd refuses a snapshot of a group with EROFS if corbd has the exclusive lock of a member, with a freeze or without one, and nothing stays frozen"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    group = Group(lab, [snapshots.image])
    check(group.snapshot("a") == 30, "the snapshot of a group with a locked image is not refused with EROFS")
    snapshots.database.wait_more(20)
    check(len(frozen_us(agent, volume)) == 1, "it was not frozen and thawed once")
    lab.admin("rbd", "snap", "create", "--no-progress", snapshots.image.spec + "@single")
    check(len(wait_for("the thaw", lambda: frozen_us(agent, volume)[1:])) == 1, "a snapshot of the image alone was not frozen once")
    lab.admin("rbd", "snap", "rm", "--no-progress", snapshots.image.spec + "@single")
    group.remove()
    end(volume, snapshots)


def freezes_of(agent, volume):
    return volumes_of(agent)[volume.id]["freezes"]


@long
def story_freezes_for_mirrors(lab):
    """snapshots for a mirror, also of a schedule, freeze and are counted; the image's quiesce mode `skip`, which Ceph's schedules do not obey, ends that"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    image, mirror = snapshots.image, lambda *words: lab.admin("rbd", "mirror", *words)
    mirror("pool", "enable", image.pool, "image")
    # Without a peer no snapshot is made. Nobody is there.
    peer = mirror("pool", "peer", "add", image.pool, "client.nobody@nowhere").strip()
    try:
        mirror("image", "enable", image.spec, "snapshot")
        mirror("image", "snapshot", image.spec)
        made = int(freezes_of(agent, volume)["made"])
        check(made >= 2, "the snapshots for the mirror froze %d times" % made)
        mirror("snapshot", "schedule", "add", "--pool", image.pool, "--image", image.name, "1m")
        lab.admin("rbd", "config", "image", "set", image.spec, "rbd_default_snapshot_quiesce_mode", "skip")
        wait_for("a freeze for the schedule", lambda: int(freezes_of(agent, volume)["made"]) > made, 150, 2)
        agent.stop()
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        count = lambda: lab.admin("rbd", "snap", "ls", "--all", "--format", "json", image.spec)
        before = count()
        wait_for("another snapshot of the schedule", lambda: count() != before, 150, 2)
        check(not agent.events("snapshot.frozen") and not agent.events("snapshot.thawed"), "it was frozen despite the image's quiesce mode")
    finally:
        mirror("snapshot", "schedule", "remove", "--pool", image.pool, "--image", image.name)
        mirror("image", "disable", "--force", image.spec)
        mirror("pool", "peer", "remove", image.pool, peer)
        mirror("pool", "disable", image.pool)
    end(volume, snapshots)


story_freezes_for_mirrors.limit = 480


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(lab, agent, image, freeze, seconds, bound_us=0):
    """16 writers that sync each write, and a snapshot every two seconds. Returns how long `rbd snap create` took (p99)."""
    volume = agent.volume(image, attributes=["mapOptions=nbd:quiesce=%s" % ("true" if freeze else "false")])
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=64 * MIB, mode="fsync", threads=16, paced=0).start()
    writer.wait_more(200)
    begun, took, refused = now_us(), [], 0
    while now_us() - begun < seconds * 1e6:
        before = now_us()
        code, _, error = lab.admin("rbd", "snap", "create", "--no-progress", "%s@s%d" % (image.spec, len(took)), ok=False, timeout=60)
        lasted = now_us() - before
        # On a slow cluster the dirty pages may not be written within the limit.
        check(code in (0, errno.ETIME), "the snapshot failed: %s" % error)
        took += [lasted] if code == 0 else []
        refused += code != 0
        time.sleep(max(0, 2 - lasted / 1e6))
    ended = now_us()
    writer.stop()
    waits = [ms for ts_us, ms, error in entries(writer.journal) if begun <= ts_us <= ended and error == 0]
    say("%s: %d snapshots under 16 writers: %d writes, median %.0f ms, p99 %.0f ms, longest %.0f ms; rbd snap create: median %.0f ms, p99 %.0f ms" % (
        "with quiesce" if freeze else "without", len(took), len(waits), statistics.median(waits), percentile(waits, 0.99), max(waits),
        statistics.median(took) / 1000, percentile(took, 0.99) / 1000))
    if freeze:
        asked = [entry["ts_us"] for entry in agent.events("snapshot.phase", volume=volume.id, new="freezing")]
        frozen = frozen_us(agent, volume)
        thawed = [entry["ts_us"] for entry in agent.events("snapshot.thawed", volume=volume.id)]
        whole = [end_us - begin_us for begin_us, end_us in zip(asked, thawed)]
        told = freezes_of(agent, volume)
        check(int(told["made"]) == len(took) and int(told["refused"]) == refused, "%d snapshots, %d refused, but %s" % (len(took), refused, told))
        for what, times in (("frozen for the snapshot", frozen), ("from its request to the thaw", whole)):
            say("%s: median %.0f ms, p99 %.0f ms, longest %.0f ms" % (
                what, statistics.median(times) / 1000, percentile(times, 0.99) / 1000, max(times) / 1000))
        say("corbd volume: %s" % told)
        check(percentile(frozen, 0.99) <= bound_us, "the p99 of the freezes is more than %.0f ms" % (bound_us / 1000))
    writer.expect_nothing_lost()
    lab.admin("rbd", "snap", "purge", "--no-progress", image.spec, timeout=120)
    volume.unstage(patience=30)
    return percentile(took, 0.99)


@long
def story_freezes_measured(lab):
    """under 16 writers that sync each write, a freeze lasts at most 1 s (p99), or what a snapshot without one takes here; what the writers wait with both"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    plain = measure(lab, agent, image, False, 60)
    measure(lab, agent, image, True, 60, max(1e6, plain))


class Kills:
    """What became of the snapshots during which the agent was killed."""

    def __init__(self, agent, volume, snapshots):
        self.agent, self.volume, self.snapshots = agent, volume, snapshots
        self.told = {"not made": 0, "consistent": 0, "said to be broken": 0, "of a moment without a client to ask": 0}

    def round(self, name, wait):
        begun, made = now_us(), []
        snapshotter = threading.Thread(target=lambda: made.append(self.snapshots.make(name, ok=False)), daemon=True)
        snapshotter.start()
        time.sleep(wait)
        self.agent.kill()
        answered, broken, told = self.since(begun, "frozen"), self.since(begun, "broken"), self.told_since(begun) + ["killed"]
        self.agent.spawn()
        serve_again(self.agent, self.volume)
        self.snapshots.database.wait_more(5)
        snapshotter.join(150)
        check(made, "rbd snap create does not return")
        self.snapshots.database.wait_more(5)
        wait_for("a thaw", lambda: not freezes_of(self.agent, self.volume)["frozen"], 20)
        told += self.told_since(begun) + [self.snapshots.listed()]
        self.told[self.judge(told, made[0], answered or self.since(begun, "frozen"), broken or self.since(begun, "broken"))] += 1

    def since(self, begun, what):
        return any(entry["ts_us"] >= begun for entry in self.agent.events("snapshot." + what))

    def told_since(self, begun):
        """What this start of the agent told: who made a snapshot, and whether the filesystem was frozen then."""
        seen = [entry for entry in self.agent.lines() if entry.get("ts_us", 0) >= begun]
        return ["%d ms %s %s" % ((entry["ts_us"] - begun) // 1000, entry["msg"], entry.get("new", ""))
                for entry in seen if entry.get("level") != "debug" or "snapshot" in entry["msg"]]

    def judge(self, told, made, answered, broken):
        if made is None:
            return "not made"
        clone, first, last = made
        if broken:
            return "said to be broken"
        reader = self.snapshots.reader(clone)
        answer = reader.try_stage()
        if answer["code"] == "FAILED_PRECONDITION" and "noload" in answer["message"]:
            check(not answered, "a snapshot whose request was answered needs a journal replay, and nobody said that it was broken: " + "; ".join(told))
            reader.unstage(patience=30)
            return "of a moment without a client to ask"
        check(answer["code"] == "OK", "the clone: %s" % answer)
        expect_state(reader.staged_path, first, last)
        reader.unstage(patience=30)
        return "consistent"


@long
def story_kills_while_snapshots_are_made(lab):
    """an agent that is killed again and again while it makes snapshots leaves nothing frozen; each that it answered is consistent or said to be broken"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    kills, moments = Kills(agent, volume, snapshots), random.Random(1)
    for number in range(KILLS):
        kills.round("s%d" % number, moments.uniform(0, 1.5))
        snapshots.remove()
        snapshots.made.clear()
        # One that was made although its maker was told otherwise.
        lab.admin("rbd", "snap", "purge", "--no-progress", snapshots.image.spec)
        say("%d kills: %s" % (number + 1, ", ".join("%d %s" % (count, what) for what, count in kills.told.items())))
    end(volume, snapshots)


story_kills_while_snapshots_are_made.limit = 60 * KILLS
