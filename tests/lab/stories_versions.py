"""The first release and the newest build take over from each other."""
import os

from checks import Skip, check, long, say
from machine import CORBD, child_of, run
from stories_handover import blocklisted, expect_silence, hand_over, told_by_nbd
from stories_keeper import kill_child, staged, told

FIRST = os.environ.get("CORBD_LAB_FIRST", "")


def serves(agent, program):
    """The agent is of that program, as the kernel says."""
    child = child_of(agent.process.pid)
    check(child and os.path.samefile("/proc/%d/exe" % child, program), "the agent is not of %s" % program)


@long
def story_versions_meet(lab):
    """version 0.1.0 and the newest build hand over to each other and back, and a kill in between loses no write and leaves nothing in the kernel log"""
    if not FIRST:
        raise Skip("there is no program of version 0.1.0: %s" % os.environ.get("CORBD_LAB_FIRST_MISSING", "scripts/lab/released says why"))
    say("%s, then %s" % (run([FIRST, "--version"]).strip(), run([CORBD, "--version"]).strip()))
    agent = lab.agent(flags=["--keeper"])
    agent.program = FIRST
    agent.start()
    volumes, writers = staged(lab, agent)
    numbers, cut_off, said, moments = [volume.device for volume in volumes], blocklisted(lab), told_by_nbd(), []

    def goes_over(program):
        agent.program = program
        moments.append(hand_over(agent, volumes))
        serves(agent, program)
        for writer in writers:
            writer.wait_more(20)

    goes_over(CORBD)
    goes_over(FIRST)
    check(blocklisted(lab) <= cut_off, "a handover blocklisted %s" % (blocklisted(lab) - cut_off))
    moments.append(kill_child(agent, volumes))
    serves(agent, FIRST)
    check(not agent.events("nbd.not_resumed"), "a link was not gone on with: %s" % agent.events("nbd.not_resumed"))
    cut_off = blocklisted(lab)
    goes_over(CORBD)
    moments.append(kill_child(agent, volumes))
    serves(agent, CORBD)
    cut_off |= blocklisted(lab)
    goes_over(FIRST)
    goes_over(CORBD)
    check(blocklisted(lab) <= cut_off, "a handover blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(said)
    check([volume.device for volume in volumes] == numbers, "a device has another number")
    stalls = []
    for writer in writers:
        writer.stop()
        stalls.append(writer.expect_nothing_lost(moments)["longest_stall_us"])
    say("five handovers and two kills, longest stall %s s" % told(stalls))
    for volume in volumes:
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()
    check(agent.stop() == 0, "the last agent ended with %s" % agent.process.returncode)


story_versions_meet.limit = 600
