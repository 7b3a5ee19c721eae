"""A planned restart: the next agent takes the devices over from the one that serves."""
import json
import os
import signal
import threading
import time

from checks import Failed, check, long, now_us, say, wait_for
from machine import BUILD, CORBD, MIB, read, run
from stories_seen import volumes_of
from writer import Writer

NEXT_PROTOCOL, NEXT_RECORDS = (os.path.join(BUILD, name) for name in ("corbd-next-protocol", "corbd-next-records"))


def blocklisted(lab):
    # A line for people comes after it.
    entries, _ = json.JSONDecoder().raw_decode(lab.admin("ceph", "osd", "blocklist", "ls", "--format", "json").lstrip())
    return {entry["addr"] for entry in entries}


def told_by_nbd():
    """What the kernel's driver said so far, but for its note of a request that takes long."""
    return [line for line in run(["dmesg"]).splitlines() if "nbd" in line and "Possible stuck request" not in line]


def expect_silence(told, now=None):
    """The kernel's driver says nothing that it had not said by then. What was said long ago leaves the ring in which the kernel keeps it."""
    new = [line for line in (told_by_nbd() if now is None else now) if line not in told]
    check(not new, "the kernel noticed: %s" % new)


def hand_over(agent, volumes, failpoints=(), flags=()):
    """The next agent is started beside the one that serves, which ends; when it was started."""
    before, agent.process = agent.process, None
    agent.spawn(failpoints=failpoints, flags=["--handover", *flags])
    check(before.wait(60) == 0, "the agent that served ended with %s: %s" % (before.returncode, agent.tail()))
    for volume in volumes:
        agent.wait_event("device.reconnected", 60, volume=volume.id)
    return agent.spawned_at


def handed_over(lab, rounds):
    agent = lab.agent().start()
    kinds = [("a", True, "direct"), ("b", False, "direct"), ("c", False, "fsync"), ("d", False, "mmap")]
    volumes = [agent.volume(lab.image(name, size=256 * MIB), block=block) for name, block, _ in kinds]
    for volume in volumes:
        volume.stage()
    writers = [Writer(lab, volume.staged_path if block else os.path.join(volume.staged_path, "data"), size=16 * MIB, mode=mode, threads=4, paced=2).start()
               for volume, (_, block, mode) in zip(volumes, kinds)]
    numbers = [volume.device for volume in volumes]
    cut_off, told = blocklisted(lab), told_by_nbd()
    moments = []
    for _ in range(rounds):
        moments.append(hand_over(agent, volumes))
        for writer in writers:
            writer.wait_more(20)
    check(blocklisted(lab) <= cut_off, "a planned restart blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told)
    check([volume.device for volume in volumes] == numbers, "a device has another number")
    stalls = []
    for writer in writers:
        writer.stop()
        stalls.append(writer.expect_nothing_lost(moments)["longest_stall_us"])
    say("%d handovers, longest stall %s s" % (rounds, ", ".join("%.2f" % (stall / 1e6) for stall in stalls)))
    for volume in volumes:
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()
    check(agent.stop() == 0, "the last agent ended with %s" % agent.process.returncode)


# [failure:150]
def story_handover(lab):
    """five handovers under 16 writers on four volumes: no I/O error, no lost write, nothing in the kernel log, no client blocklisted"""
    handed_over(lab, 5)


# [failure:150]
@long
def story_handover_50(lab):
    """50 handovers under 16 writers on four volumes: no I/O error, no lost write, nothing in the kernel log, no client blocklisted"""
    handed_over(lab, 50)


story_handover_50.limit = 900


def told_by_giver(agent):
    """Median and longest of what the agents that handed over said of each device."""
    said = [json.loads(line) for line in read(agent.log_file).splitlines() if '"volume.handed_over"' in line]
    found = {}
    for part in ("ended_ms", "served_ms"):
        all_of_it = sorted(entry[part] for entry in said)
        found[part] = "%d (at most %d)" % (all_of_it[len(all_of_it) // 2], all_of_it[-1])
    return found


@long
def story_handover_32(lab):
    """the longest stall of 32 volumes with a writer each: two handovers, and two restarts by SIGTERM beside them"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image("%02d" % number, size=64 * MIB), block=True) for number in range(32)]
    for volume in volumes:
        volume.stage()
    told = told_by_nbd()
    longest = {}
    for how in ("nothing", "handover", "SIGTERM"):
        writers = [Writer(lab, volume.staged_path, size=8 * MIB, threads=1, paced=1).start() for volume in volumes]
        moments = []
        for _ in range(2):
            if how == "nothing":
                time.sleep(10)
            elif how == "handover":
                moments.append(hand_over(agent, volumes))
            else:
                moments.append(now_us())
                check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)
                agent.spawn()
                for volume in volumes:
                    agent.wait_event("device.reconnected", 120, volume=volume.id)
            for writer in writers:
                writer.wait_more(20, 120)
        if how == "handover":
            expect_silence(told)
        for writer in writers:
            writer.stop()
        found = [writer.expect_nothing_lost(moments) if moments else writer.stalls() for writer in writers]
        stalls = sorted(one["longest_stall_us"] / 1e6 for one in found)
        longest[how] = "%.2f s (median of the volumes %.2f s)" % (stalls[-1], stalls[len(stalls) // 2])
    say("32 volumes, longest stall: %s in two handovers, %s in two restarts by SIGTERM; longest pause of the writes without either %s" % (
        longest["handover"], longest["SIGTERM"], longest["nothing"]))
    given = told_by_giver(agent)
    say("a device stood still, ms: until its image was closed %s, until the next agent served it %s" % (given["ended_ms"], given["served_ms"]))
    for volume in volumes:
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()


story_handover_32.limit = 900


def goes_on(agent, volume, writer):
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(20)


# [failure:150]
def story_handover_cut_short(lab):
    """agents that die before, during or right after a handover, or with the links, leave devices that heal without a lost write"""
    agent = lab.agent().start()
    volume, other = (agent.volume(lab.image(name, size=256 * MIB)) for name in "ab")
    volume.stage()
    other.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    moments = []

    # The agent that serves is stopped before it hears of the next one, and dies under the wait.
    before, agent.process = agent.process, None
    before.send_signal(signal.SIGSTOP)
    agent.spawn(flags=["--handover"])
    moments.append(now_us())
    before.kill()
    before.wait(20)
    goes_on(agent, volume, writer)

    # The next one dies as soon as it has the links.
    before, agent.process = agent.process, None
    agent.spawn(failpoints=["step.open_image.before=kill"], flags=["--handover"])
    moments.append(now_us())
    # It serves nothing any more: whoever starts agents must start one.
    check(before.wait(60) == 1, "the agent that served ended with %s" % before.returncode)
    agent.wait_exit(60)
    agent.spawn()
    goes_on(agent, volume, writer)

    # The agent that serves dies when it has given one of two devices. The next one keeps that, and heals the other.
    agent.stop()
    agent.spawn(failpoints=["handover.given=kill"])
    for one in (volume, other):
        agent.wait_event("device.reconnected", 60, volume=one.id)
    before, agent.process = agent.process, None
    agent.spawn(flags=["--handover"])
    moments.append(now_us())
    check(before.wait(60) == -signal.SIGKILL, "the agent that served ended with %s" % before.returncode)
    for one in (volume, other):
        agent.wait_event("device.reconnected", 60, volume=one.id)
    writer.wait_more(20)

    # A kill right after a handover.
    moments.append(hand_over(agent, [volume, other]))
    moments.append(agent.kill())
    agent.spawn()
    goes_on(agent, volume, writer)
    writer.stop()
    writer.expect_nothing_lost(moments)
    for one in (volume, other):
        one.unstage(patience=30)
    for one in (volume, other):
        one.expect_gone()


def refused(agent, serving, writer, program, why):
    """An agent of that build asks and ends, with nothing moved. The one that serves goes on, and says why."""
    agent.program, agent.process = program, None
    agent.spawn(flags=["--handover"])
    check(agent.wait_exit(60) == 1, "the next agent did not refuse to start: %s" % agent.tail())
    said = [entry for entry in agent.events("agent.refuses") if why in entry["error"]]
    check(said, "the next agent does not say %r: %s" % (why, agent.tail()))
    check(any(why in entry["cause"] for entry in agent.events("handover.refused")), "the agent that serves does not say %r" % why)
    check(not agent.events("agent.hands_over") and not agent.events("device.reconnected"), "something moved: %s" % agent.tail())
    say("refused: %s" % said[0]["error"])
    agent.process = serving
    check(agent.running, "the agent that served ended")
    writer.wait_more(20)


def ends_and_is_healed(agent, volume, writer, program):
    """SIGTERM for the one that serves. The next one takes the path of a crash; when."""
    moment = now_us()
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)
    agent.program = program
    agent.spawn(flags=["--handover"])
    goes_on(agent, volume, writer)
    check(agent.events("incarnation.fenced"), "nobody was fenced: it was no crash's path")
    return moment


# [failure:150]
def story_handover_versions(lab):
    """an incompatible build is refused before any link moves; the serving agent goes on, and after its SIGTERM the next one heals without a loss"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    moments = []
    for next_one in (NEXT_PROTOCOL, CORBD):
        refused(agent, agent.process, writer, next_one, "of the handover, the next one version")
        moments.append(ends_and_is_healed(agent, volume, writer, next_one))

    # Newer records: there is a way on, and none back.
    agent.program = NEXT_RECORDS
    moments.append(hand_over(agent, [volume]))
    writer.wait_more(20)
    refused(agent, agent.process, writer, CORBD, "which the next one does not know")
    moments.append(now_us())
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)
    agent.program = CORBD
    agent.start()
    agent.wait_event("record.newer", 60)
    check(agent.stop() == 0, "the older agent ended with %s" % agent.process.returncode)
    check(not agent.events("device.reconnected"), "an older agent served a volume whose record it cannot read")
    agent.program = NEXT_RECORDS
    agent.spawn()
    goes_on(agent, volume, writer)
    writer.stop()
    writer.expect_nothing_lost(moments)
    volume.unstage(patience=30)
    volume.expect_gone()


class Kubelet(threading.Thread):
    """Calls again and again, and repeats what fails, until the story has seen enough. What it could not repeat is in `failure`."""

    def __init__(self, turn):
        super().__init__(daemon=True)
        self.turn, self.turns, self.failure, self.ends = turn, 0, None, threading.Event()
        self.start()

    def run(self):
        while not self.ends.is_set() and not self.failure:
            try:
                self.turn(self.turns)
                self.turns += 1
            except Failed as error:
                self.failure = str(error)

    def end(self):
        self.ends.set()
        self.join(180)
        check(not self.is_alive() and not self.failure, "%s" % (self.failure or "a call has not ended"))
        check(self.turns > 0, "no call was made")


def story_handover_amid_calls(lab):
    """handovers amid stages, unstages and growth, and with either agent told to end, lose nothing, and the calls succeed when repeated"""
    agent = lab.agent().start()
    written, grown, staged = (agent.volume(lab.image(name, size=256 * MIB)) for name in "abc")
    for volume in (written, grown):
        volume.stage()
    grown.publish()
    writers = [Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB, mode="fsync", threads=2, paced=2).start() for volume in (written, grown)]
    # A controller that changes an image while nobody watches it breaks the dead client's lock. Without an API server nothing else proves the volume ours.
    watched = threading.Lock()

    def stage_and_unstage(_):
        staged.stage(patience=120)
        staged.unstage(patience=120)

    def grow(turn):
        size = (272 + 16 * turn) * MIB
        with watched:
            lab.admin("rbd", "resize", "--no-progress", "-s", "%dM" % (size // MIB), grown.pool + "/" + grown.id)
        check(grown.expand(size, patience=120) >= size, "%s did not grow" % grown.id)

    def replace(told_to_end):
        """Starts the next agent, and tells one of the two to end. Both may: then one more is started."""
        before, agent.process = agent.process, None
        agent.spawn(flags=["--handover"])
        moment, after = agent.spawned_at, agent.process
        if told_to_end:
            {"before": before, "after": after}[told_to_end].send_signal(signal.SIGTERM)
        wait_for("one of the agents to end", lambda: before.poll() is not None or after.poll() is not None, 60, 0.05)
        if after.poll() is not None and before.poll() is None:
            agent.process = before
        elif told_to_end == "after":
            after.wait(60)
            agent.spawn()
        agent.wait_ready()
        for volume in (written, grown):
            wait_for("%s to be served" % volume.id, lambda volume=volume: volumes_of(agent).get(volume.id, {}).get("health") == "staged", 60)
        return moment
    kubelets = [Kubelet(stage_and_unstage), Kubelet(grow)]
    moments = []
    for told_to_end in ("after", None, None, "before", None, None):
        for writer in writers:
            writer.wait_more(20, 120)
        with watched:
            moments.append(replace(told_to_end))
    for kubelet in kubelets:
        kubelet.end()
    for writer in writers:
        writer.wait_more(20, 120)
        writer.stop()
        writer.expect_nothing_lost(moments)
    say("%d stages and %d expansions meanwhile" % tuple(kubelet.turns for kubelet in kubelets))
    grown.unpublish(patience=60)
    for volume in (written, grown):
        volume.unstage(patience=60)
    for volume in (written, grown, staged):
        volume.expect_gone()
    check(agent.stop() == 0, "the last agent ended with %s" % agent.process.returncode)
