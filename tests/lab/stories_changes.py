"""What may be changed under running volumes, one change after the other under the same writers."""
import json
import os
import shutil
import time

from checks import Skip, check, long, now_us, say
from machine import CORBD, GIB, MIB, NEWER, REPO, run
from stories_handover import blocklisted, expect_silence, hand_over, told_by_nbd
from stories_keys import new_user
from writer import Writer


TICKETS = 20  # seconds after which the clients' tickets end


class Changes:
    """Volumes that are written, and what was changed so far."""

    def __init__(self, lab, agent, volumes):
        self.lab, self.agent, self.volumes, self.made = lab, agent, volumes, []
        self.writers = [Writer(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data"), size=16 * MIB, threads=4, paced=2).start()
                        for volume in volumes]

    def go_on(self, more=30):
        for writer in self.writers:
            writer.wait_more(more, timeout=180)

    def make(self, what, change):
        """The writers write before, meanwhile and after."""
        self.go_on()
        begin = now_us()
        change()
        self.go_on()
        self.made.append((what, begin, now_us()))

    def report(self):
        """The longest time without an acknowledged write of each change, over all writers."""
        begins = [begin for _, begin, _ in self.made]
        for writer in self.writers:
            writer.stop()
        found = [writer.expect_nothing_lost(begins) for writer in self.writers]
        for number, (what, _, _) in enumerate(self.made):
            stall = max(one["kills"][number]["first_us"] - one["kills"][number]["last_before_us"] for one in found)
            say("| %s | %.2f s |" % (what, stall / 1e6))
        say("%d acknowledged writes, 0 lost, longest stall %.2f s" % (sum(one["acked"] for one in found), max(one["longest_stall_us"] for one in found) / 1e6))


@long
def story_changed_under_writers(lab):
    """under the same writers the agent, the Ceph user, manager, monitor, OSD, the monitor's address and config.json are changed: no I/O error, no lost write, nothing in the kernel log, nobody blocklisted; then the user's rights are taken and given back, and no write is lost"""
    lab.second_cluster(TICKETS)
    agent = lab.agent().start()
    ext4, block = agent.volume(lab.image("ext4", size=256 * MIB)), agent.volume(lab.image("block", size=GIB), block=True)
    users = [new_user(lab, "changed.%d" % number) for number in range(2)]

    def stage_as(user):
        for volume in (ext4, block):
            volume.user, volume.key_file = user
            volume.stage(patience=60)

    def next_user():
        stage_as(users[1])
        for volume in (ext4, block):
            agent.wait_event("client.changed", 30, volume=volume.id, user=users[1][0])
        lab.admin("ceph", "auth", "rm", "client." + users[0][0])

    def rights(osd):
        lab.admin("ceph", "auth", "caps", "client." + users[1][0], "mon", "profile rbd", "mgr", "profile rbd", "osd", osd)

    def no_rights():
        # An OSD reads the rights in a client's ticket, when the client connects.
        rights("profile rbd pool=another")
        time.sleep(TICKETS)
        lab.admin("osd", "restart")
        agent.wait_event("client.denied", 60)
        rights("profile rbd")

    def move_monitor():
        lab.admin("mon", "move", timeout=120)
        host, port = lab.mon.rsplit(":", 1)
        lab.mon = "%s:%d" % (host, int(port) + 1)
        lab.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": [lab.mon]}]))

    def bad_config():
        lab.write("config/config.json", "{")
        time.sleep(3)
        lab.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": [lab.mon]}]))

    stage_as(users[0])
    cut_off, told = blocklisted(lab), told_by_nbd()
    changes = Changes(lab, agent, (ext4, block))
    changes.make("the agent: the next one takes over", lambda: hand_over(agent, (ext4, block)))
    changes.make("the Ceph user and key; the old user is removed", next_user)
    for daemon in ("mgr", "mon", "osd"):
        changes.make("%s: killed and started again" % {"mgr": "the manager", "mon": "the only monitor", "osd": "the only OSD"}[daemon],
                     lambda daemon=daemon: lab.admin(daemon, "restart"))
    changes.make("the monitor: another one at another address, config.json follows", move_monitor)
    changes.make("the agent after that: the next one takes over", lambda: hand_over(agent, (ext4, block)))
    changes.make("config.json: malformed for 3 s", bad_config)
    expect_silence(told)
    # The monitors cut off the clients that a killed manager had.
    ours = {one for one in blocklisted(lab) - cut_off if not one.startswith(lab.mon.rsplit(":", 1)[0] + ":")}
    check(not ours, "clients of the node were blocklisted: %s" % ours)
    # The client that was denied is given up, as one that the cluster cut off.
    changes.make("the user's rights are taken, and given back once its client was denied", no_rights)
    changes.report()
    for volume in (ext4, block):
        volume.unstage(patience=30)
    agent.stop()


story_changed_under_writers.limit = 600


def ceph_of(root):
    """The version of librados there."""
    return run(["chroot", root, "dpkg-query", "--show", "--showformat", "${Version}", "librados2"])


class Newer:
    """Debian testing with its own Ceph, for an agent that was built there. As in a container, the folders that it shares with the node are the node's."""

    def __init__(self, lab):
        built = os.path.join(REPO, "build", "debian-forky", "release", "corbd")
        if not os.path.exists(built):
            raise Skip("no %s: `tests/lab/debian forky scripts/test --userland` makes it" % built)
        self.program = os.path.join(lab.dir, "corbd-of-testing")
        shutil.copy(built, self.program)
        for folder in ("/dev", "/proc", "/sys", "/run"):
            run(["mount", "--rbind", folder, NEWER + folder])
        run(["mount", "-t", "tmpfs", "tmpfs", NEWER + "/tmp"])
        os.makedirs(NEWER + lab.dir, exist_ok=True)
        run(["mount", "--rbind", lab.dir, NEWER + lab.dir])

    def start(self, agent, volumes):
        agent.program, agent.begun_by = self.program, ["chroot", NEWER]
        hand_over(agent, volumes)


def back(agent, volumes):
    agent.program, agent.begun_by = CORBD, []
    hand_over(agent, volumes)


# [failure:150]
@long
def story_ceph_changed_under_writers(lab):
    """devices that are written are handed over to an agent with Debian testing's Ceph, back to one with this Debian's, and there again: no I/O error, no lost write, nothing in the kernel log, nobody blocklisted"""
    newer = Newer(lab)
    versions = [ceph_of(root) for root in ("/", NEWER)]
    check(versions[0] != versions[1], "both have Ceph %s" % versions[0])
    agent = lab.agent().start()
    ext4, block = agent.volume(lab.image("a", size=256 * MIB)), agent.volume(lab.image("b", size=256 * MIB), block=True)
    xfs = agent.volume(lab.image("c", size=512 * MIB), fstype="xfs")
    volumes = [ext4, block, xfs]
    for volume in volumes:
        volume.stage()
    changes = Changes(lab, agent, volumes)
    cut_off, told = blocklisted(lab), told_by_nbd()
    changes.make("Ceph %s to %s" % (versions[0], versions[1]), lambda: newer.start(agent, volumes))
    changes.make("Ceph %s to %s" % (versions[1], versions[0]), lambda: back(agent, volumes))
    changes.make("Ceph %s to %s again" % (versions[0], versions[1]), lambda: newer.start(agent, volumes))
    check(blocklisted(lab) <= cut_off, "a handover blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told)
    changes.report()
    for volume in volumes:
        volume.unstage()
    for volume in volumes:
        volume.expect_gone()
    agent.stop()
