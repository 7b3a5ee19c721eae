"""Reads and writes of few blocks by many threads: whatever happens, they can have happened one after another."""
import os
import random

from checks import check, long, say, wait_for
from machine import MIB
from stories_handover import expect_silence, hand_over, told_by_nbd
from stories_keeper import KILLS, kill_child
from stories_keys import new_user
from writer import Order, expect_order, told_order


class Disturbances:
    """An agent with raw block volumes and filesystems in use, and what may happen to them."""

    def __init__(self, lab, agent, volumes, keeper=False):
        self.lab, self.agent, self.volumes, self.keeper = lab, agent, volumes, keeper
        self.user, self.users, self.deaths = volumes[0].user, 0, 0

    def kill(self):
        """With a keeper, the fourth in a row would end the links, and is a handover instead."""
        if self.keeper and self.deaths == KILLS:
            self.hand_over()
            return
        self.deaths += 1
        if self.keeper:
            kill_child(self.agent, self.volumes)
            return
        self.agent.kill()
        self.agent.start()
        for volume in self.volumes:
            self.agent.wait_event("device.reconnected", 60, volume=volume.id)

    def hand_over(self):
        self.deaths = 0
        hand_over(self.agent, self.volumes)

    def rotate(self):
        """All volumes go on by a client of another user, and the previous user is removed, unless it is the lab's own."""
        self.users += 1
        user = new_user(self.lab, "ordered.%d" % self.users)
        for volume in self.volumes:
            volume.user, volume.key_file = user
            wait_for("a client of user %s for %s" % (user[0], volume.id), lambda: self.moves(volume), 60, 5)
        if self.users > 1:
            self.lab.admin("ceph", "auth", "rm", "client." + self.user)
        self.user = user[0]

    def moves(self, volume):
        """A volume one of whose requests waits for the cluster stays with its client until the next stage, or for five minutes (docs/rotating-keys.md)."""
        volume.stage(patience=30)
        changed = self.agent.events("client.changed", volume=volume.id, user=volume.user)
        check(changed or self.agent.events("client.not_changed", volume=volume.id, user=volume.user), "a stage neither changed the client nor said why not")
        return changed


class Disturbed(Disturbances):
    """A raw block volume and a filesystem under their readers and writers."""

    def __init__(self, lab, keeper=False):
        agent = lab.agent(flags=["--keeper"] if keeper else []).start()
        volumes = [agent.volume(lab.image("%s-block" % agent.name, size=64 * MIB), block=True),
                   agent.volume(lab.image("%s-ext4" % agent.name, size=64 * MIB))]
        super().__init__(lab, agent, volumes, keeper)
        for volume in self.volumes:
            volume.stage()
        self.orders = [Order(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data")).start() for volume in self.volumes]
        self.told = told_by_nbd()

    def wait_more(self, count):
        for order in self.orders:
            order.wait_more(count)

    def end(self):
        for order in self.orders:
            order.stop()
        found = [expect_order(order.journal) for order in self.orders]
        for volume in self.volumes:
            volume.unstage(patience=60)
        for volume in self.volumes:
            volume.expect_gone()
        self.agent.stop()
        return found


# [failure:1][failure:150]
def story_ordered(lab):
    """reads and writes of the same blocks by many threads, over kills, handovers and changes of the Ceph user, can have happened one after another"""
    disturbed = Disturbed(lab)
    for happens in (disturbed.kill, disturbed.hand_over, disturbed.rotate, disturbed.kill, disturbed.hand_over, disturbed.rotate):
        happens()
        disturbed.wait_more(200)
    for found in disturbed.end():
        say(told_order(found))


# [failure:152]
def story_ordered_by_keeper(lab):
    """reads and writes of the same blocks by many threads, over three kills and a handover under a keeper, can have happened one after another"""
    disturbed = Disturbed(lab, keeper=True)
    for happens in (disturbed.kill, disturbed.hand_over, disturbed.kill, disturbed.kill):
        happens()
        disturbed.wait_more(200)
    expect_silence(disturbed.told)
    for found in disturbed.end():
        say(told_order(found))


@long
def story_ordered_200(lab):
    """over 100 kills, handovers and changes of the Ceph user without a keeper, and 100 kills and handovers with one, a million reads and writes can have happened one after another"""
    total = 0
    for keeper in (False, True):
        disturbed, seed = Disturbed(lab, keeper), 20261128 + keeper
        chosen = random.Random(seed)
        for _ in range(100):
            chosen.choice((disturbed.kill, disturbed.hand_over) if keeper else (disturbed.kill, disturbed.hand_over, disturbed.rotate))()
            disturbed.wait_more(2500)
        if keeper:
            expect_silence(disturbed.told)
        for found in disturbed.end():
            say(told_order(found))
            total += found["reads"] + found["writes"]
    check(total >= 1000000, "only %d reads and writes" % total)


story_ordered_200.limit = 7200
