"""Snapshots of a mounted volume, made by another client as ceph-csi's provisioner does: with and without a freeze of the filesystem."""
import contextlib
import json
import os
import threading

from checks import check, long, now_us, say, wait_for
from cluster import Image
from machine import MIB
from stories_handover import hand_over
from stories_seen import ask

QUIESCE = ["mapOptions=nbd:quiesce"]
LINE = 16
SLOTS, SLOT = 64, 4096


def line(number):
    return b"%015d\n" % number


class Changes(threading.Thread):
    """Makes one change after another in its files. A change is a number: 1, 2, 3."""

    def __init__(self, *paths):
        super().__init__(daemon=True)
        self.paths = paths
        self.begun, self.done, self.longest_us, self.stopping, self.error = 0, 0, 0, False, None

    def run(self):
        try:
            with contextlib.ExitStack() as opened:
                files = [opened.enter_context(open(path, "wb", buffering=0)) for path in self.paths]
                while not self.stopping:
                    before = now_us()
                    self.begun += 1
                    self.change(self.begun, *files)
                    self.done = self.begun
                    self.longest_us = max(self.longest_us, now_us() - before)
        except OSError as error:
            self.error = error

    def wait_more(self, count):
        goal = self.done + count
        wait_for("%d more changes" % count, lambda: self.error or self.done >= goal, 60)
        check(self.error is None, "the database got an error: %s" % self.error)

    def stop(self):
        self.stopping = True
        self.join(60)
        check(not self.is_alive(), "the database's write does not return")
        check(self.error is None, "the database got an error: %s" % self.error)


class Database(Changes):
    """A log, and a table whose change number n is made when the log has n on stable storage. The table itself is synced at every tenth change only."""

    def __init__(self, folder):
        super().__init__(os.path.join(folder, "log"), os.path.join(folder, "table"))

    def change(self, number, log, table):
        log.write(line(number))
        os.fsync(log.fileno())
        os.pwrite(table.fileno(), line(number) * (SLOT // LINE), number % SLOTS * SLOT)
        if number % 10 == 0:
            os.fsync(table.fileno())


def expect_log(path):
    """The log has whole lines, one after another; how many."""
    with open(path, "rb") as file:
        log = file.read()
    count = len(log) // LINE
    check(log == b"".join(line(number) for number in range(1, count + 1)), "%s has other than whole lines, one after another" % path)
    return count


def expect_state(folder, first, last):
    """The files there are a state that existed, not before change `first` ended and not after `last` began; its number."""
    count = expect_log(os.path.join(folder, "log"))
    with open(os.path.join(folder, "table"), "rb") as file:
        table = file.read()
    slots = [table[at : at + SLOT] for at in range(0, len(table), SLOT)]
    numbers = [int(slot[:LINE] or b"0") if slot.strip(b"\0") else 0 for slot in slots]
    # Of a change that is under way, the table has nothing or all.
    check(all(slot == line(number) * (SLOT // LINE) for slot, number in zip(slots, numbers) if number), "the table has half a change")
    check(max(numbers) in (count - 1, count), "the log has %d changes, the table %d" % (count, max(numbers)))
    expected = {number % SLOTS: number for number in range(max(1, max(numbers) - SLOTS + 1), max(numbers) + 1)}
    check({at: number for at, number in enumerate(numbers) if number} == expected, "the table lacks changes before its last: %s" % numbers)
    check(first <= count <= last, "the snapshot has %d changes; %d had ended before it, and %d had begun after it" % (count, first, last))
    return count


class Snapshots:
    def __init__(self, lab, agent, image, database):
        self.lab, self.agent, self.image, self.database, self.made = lab, agent, image, database, []

    def make(self, name, ok=True):
        """By the admin's client, under the writer; the clone, and the changes between which it was made."""
        first = self.database.done
        code, _, error = self.lab.admin("rbd", "snap", "create", "--no-progress", "%s@%s" % (self.image.spec, name), ok=False, timeout=120)
        last = self.database.begun
        if ok:
            check(code == 0, "the snapshot failed: %s" % error)
        if code != 0:
            return None
        # rbd 16.2 may say so too if the lock's owner died meanwhile.
        if not ok and name not in self.names():
            say("%s: rbd said that it was made, and it is not there" % name)
            return None
        clone = Image(self.lab, "%s-%s" % (self.image.name, name), self.image.pool)
        self.lab.admin("rbd", "clone", "--rbd-default-clone-format", "2", "%s@%s" % (self.image.spec, name), clone.spec)
        self.made.append((name, clone))
        return clone, first, last

    def names(self):
        return [one["name"] for one in json.loads(self.listed())]

    def listed(self):
        return self.lab.admin("rbd", "snap", "ls", "--format", "json", self.image.spec)

    def reader(self, clone):
        return self.agent.volume(clone, mode="MULTI_NODE_READER_ONLY")

    def expect_consistent(self, clone, first, last):
        volume = self.reader(clone)
        volume.stage(patience=30)
        count = expect_state(volume.staged_path, first, last)
        volume.unstage(patience=30)
        return count

    def remove(self):
        for name, clone in self.made:
            clone.remove()
            self.lab.admin("rbd", "snap", "rm", "--no-progress", "%s@%s" % (self.image.spec, name))


def frozen_us(agent, volume):
    """How long each freeze lasted, by the agent's log."""
    begun = [entry["ts_us"] for entry in agent.events("snapshot.frozen", volume=volume.id)]
    ended = [entry["ts_us"] for entry in agent.events("snapshot.thawed", volume=volume.id)]
    return [end - begin for begin, end in zip(begun, ended)]


def begin(lab, attributes):
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, attributes=attributes)
    volume.stage()
    database = Database(volume.staged_path)
    database.start()
    database.wait_more(50)
    return agent, volume, Snapshots(lab, agent, image, database)


def end(volume, snapshots):
    snapshots.database.wait_more(20)
    snapshots.database.stop()
    snapshots.remove()
    volume.unstage(patience=30)
    volume.expect_gone()


def story_snapshots_under_writers(lab):
    """with nbd:quiesce, read-only clones of another client's snapshots under a writer need no journal replay and hold states that existed"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    for number in range(5):
        clone, first, last = snapshots.make("s%d" % number)
        say("snapshot %d: %d changes, between %d and %d" % (number, snapshots.expect_consistent(clone, first, last), first, last))
        snapshots.database.wait_more(20)
    say("freezes of %s ms, longest change %.0f ms" % ([us // 1000 for us in frozen_us(agent, volume)], snapshots.database.longest_us / 1000))
    check(len(frozen_us(agent, volume)) == 5, "not 5 freezes: %s" % frozen_us(agent, volume))
    check(max(frozen_us(agent, volume)) < 5e6, "a freeze lasted longer than its limit")
    check(not agent.events("snapshot.broken"), "a snapshot was broken")
    end(volume, snapshots)


def story_snapshots_without_freeze(lab):
    """without nbd:quiesce, nothing is frozen, and a read-only clone of a snapshot under a writer is refused, because its journal has to be replayed"""
    agent, volume, snapshots = begin(lab, [])
    clone, _, _ = snapshots.make("s0")
    answer = snapshots.reader(clone).try_stage()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "FAILED_PRECONDITION" and "noload" in answer["message"], "the clone is not refused: %s" % answer)
    check(not [entry for entry in agent.lines() if entry.get("msg", "").startswith("snapshot.")], "a freeze without nbd:quiesce")
    snapshots.reader(clone).unstage(patience=30)
    end(volume, snapshots)


def serve_again(agent, volume):
    """A snapshotter may have taken the dead agent's lock. No API server proves here that it wrote nothing, so an operator says so."""
    def look():
        return agent.events("device.reconnected", volume=volume.id) or [entry for entry in agent.lines() if entry.get("code") == "unproven"]
    if "code" in wait_for("the volume to be served, or unproven", look, 90)[0]:
        # The snapshotter has gone by then.
        wait_for("the operator's heal", lambda: "not proven" not in ask(agent, "heal", volume.id, "--without-proof", code=(0, 1)), 90, 2)
    agent.wait_event("device.reconnected", 60, volume=volume.id)


@long
def story_killed_while_frozen(lab):
    """an agent that is killed before a freeze for a snapshot, after it or before the thaw leaves nothing frozen, and the next one's snapshots are consistent"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    for number, point in enumerate(("freeze.before", "freeze.after", "thaw.before")):
        agent.stop()
        agent.start(failpoints=["step.%s=kill" % point])
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        snapshots.database.wait_more(20)
        made = []
        snapshotter = threading.Thread(target=lambda: made.append(snapshots.make("s%d" % number, ok=False)), daemon=True)
        snapshotter.start()
        agent.wait_exit()
        begun = now_us()
        agent.spawn()
        serve_again(agent, volume)
        snapshots.database.wait_more(20)
        say("%s: writers went on after %.1f s" % (point, (now_us() - begun) / 1e6))
        snapshotter.join(150)
        check(made, "rbd snap create does not return")
        say("%s: the snapshot %s" % (point, "was made" if made[0] else "failed"))
        clone, first, last = snapshots.make("t%d" % number)
        snapshots.expect_consistent(clone, first, last)
    end(volume, snapshots)


story_killed_while_frozen.limit = 480


def story_snapshots_over_handovers(lab):
    """a snapshot that comes during a handover ends, with or without success, nothing stays frozen, and the next agent freezes for the next snapshot"""
    agent, volume, snapshots = begin(lab, QUIESCE)
    for number in range(5):
        made = []
        snapshotter = threading.Thread(target=lambda: made.append(snapshots.make("s%d" % number, ok=False)), daemon=True)
        snapshotter.start()
        hand_over(agent, [volume])
        snapshotter.join(150)
        check(made, "rbd snap create does not return")
        say("handover %d: the snapshot %s" % (number, "was made" if made[0] else "failed"))
        snapshots.database.wait_more(20)
        clone, first, last = snapshots.make("t%d" % number)
        snapshots.expect_consistent(clone, first, last)
    end(volume, snapshots)
