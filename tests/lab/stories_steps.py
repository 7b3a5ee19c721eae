"""kill -9 at every step of a call, and of a healing."""
import os
import signal
import subprocess
import time

from checks import check, long, say, wait_for
from machine import CORBD, MIB, run
from volume import TRANSIENT
from writer import Writer


def failpoints():
    return run([CORBD, "run", "--list-failpoints"]).split()


RECOVERY = ("fence", "open_image", "lock", "start_session", "kernel_reconfigure")


class Sweep:
    """Starts the agent with every failpoint armed that was not hit yet, until a call gets through or all is quiet."""

    def __init__(self, agent):
        self.agent, self.hit = agent, []

    def spawn(self):
        if self.agent.running:
            self.agent.kill()
        self.agent.spawn(failpoints=[name + "=kill" for name in failpoints() if name not in self.hit])

    def died(self, patience=0.3):
        """Whether a failpoint ended it; which one is then known."""
        try:
            self.agent.process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        check(self.agent.process.returncode == -signal.SIGKILL, "the agent ended with %s: %s" % (self.agent.process.returncode, self.agent.tail()))
        name = self.agent.events("failpoint.hit")[-1]["name"]
        check(name not in self.hit, "%s was not armed" % name)
        self.hit.append(name)
        return True

    def call(self, volume, method):
        """The same call until it is answered, however often the agent dies in it or before it; at how many points it did. The steps by
        which the next start serves the device again are killed in once for all calls."""
        self.hit = [name for name in self.hit if name.split(".")[1] in RECOVERY]
        before = len(self.hit)
        call = None
        while True:
            self.spawn()
            # This call starts beside the agent. If it was not made yet when the agent died, it goes to the next agent.
            call = call or volume.begin(method, wait=True)
            while not call.ended():
                if self.died(0.02):
                    break
            else:
                answer, call = call.end(), None
                if self.died():
                    continue
                check(answer["code"] in TRANSIENT + ("OK",), "after %s: %s" % (", ".join(self.hit), answer))
                if answer["code"] == "OK":
                    return len(self.hit) - before
                continue
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline and not call.ended():
                time.sleep(0.01)
            if call.ended():
                call = None


def killed_everywhere(lab, **options):
    agent = lab.agent()
    sweep = Sweep(agent)
    volume = agent.volume(lab.image("a", size=512 * MIB), **options)
    # A blocklisting is a commit of the monitors, which they gather for a second. This story does not measure that.
    lab.admin("ceph", "config", "set", "mon", "paxos_propose_interval", "0.05")
    points = [sweep.call(volume, "stage")]
    volume.expect_staged()
    for method in ("publish", "unpublish", "unstage"):
        points.append(sweep.call(volume, method))
    volume.expect_gone()
    lab.admin("ceph", "config", "rm", "mon", "paxos_propose_interval")
    say("killed at %d points of stage, %d of publish, %d of unpublish, %d of unstage" % tuple(points))
    check(points[0] >= (18 if volume.block else 26) and points[1] >= 4 and points[2] >= 4 and points[3] >= 10, "too few points were reached: %s" % points)


# [failure:2][failure:3]
@long
def story_kill_everywhere_ext4(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of an ext4 volume: the same call again converges, nothing is left"""
    killed_everywhere(lab)


# [failure:2]
@long
def story_kill_everywhere_xfs(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of an xfs volume: the same call again converges, nothing is left"""
    killed_everywhere(lab, fstype="xfs")


# [failure:2][failure:3]
@long
def story_kill_everywhere_block(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of a block volume: the same call again converges, nothing is left"""
    killed_everywhere(lab, block=True)


def killed_while_healing(lab, **options):
    agent = lab.agent().start()
    sweep = Sweep(agent)
    volume = agent.volume(lab.image("a", size=512 * MIB), **options)
    volume.stage()
    writer = Writer(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data")).start()
    while True:
        sweep.spawn()
        wait_for("a failpoint, or the end of the healing",
                 lambda: agent.process.poll() is not None or agent.events("volume.healed", volume=volume.id), 60)
        # The point may be in the last step, and "healed" comes only after that.
        if not sweep.died():
            break
    agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    writer.stop()
    writer.expect_nothing_lost()
    say("killed at %d points of the healing: %s" % (len(sweep.hit), ", ".join(sweep.hit)))
    check(len(sweep.hit) >= 10, "too few points were reached")
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_kill_while_healing_ext4(lab):
    """kill -9 before and after every step of healing an ext4 volume under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab)


@long
def story_kill_while_healing_xfs(lab):
    """kill -9 before and after every step of healing an xfs volume under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab, fstype="xfs")


@long
def story_kill_while_healing_block(lab):
    """kill -9 before and after every step of healing a block volume under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab, block=True)


for sweep in (story_kill_everywhere_ext4, story_kill_everywhere_xfs, story_kill_everywhere_block):
    sweep.limit = 900
