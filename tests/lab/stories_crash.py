"""kill -9 and SIGTERM under load."""
import os
import random
import time

from agent import show_timeline, timeline
from checks import check, long, now_us, say
from machine import MIB
from stories_hang import network
from writer import Writer


def restart_under(writer, agent, volume):
    """One kill -9, restart and heal under a writer; when it was killed."""
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    return kill


# [failure:1][rule:6]
def story_kill_block(lab):
    """kill -9 three times under O_DIRECT writes to a raw block volume: no I/O error, no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(40)
    kills = []
    for number in range(3):
        kills.append(restart_under(writer, agent, volume))
        found = writer.stalls(kills)["kills"][-1]
        show_timeline(number + 1, timeline(agent, volume, kills[-1], found))
        check(volume.device is not None, "the device is gone")
    writer.stop()
    found = writer.expect_nothing_lost(kills)
    say("acknowledged %d, longest stall %.2f s" % (found["acked"], found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()


def killed_again_and_again(lab, rounds):
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
    volume.stage()
    writers = [Writer(lab, os.path.join(volume.staged_path, mode), size=16 * MIB, mode=mode, threads=2, paced=1).start()
               for mode in ("direct", "fsync", "mmap")]
    dice = random.Random(rounds)
    kills = []
    for number in range(rounds):
        if number % 2:
            time.sleep(dice.uniform(0.05, 3))
        else:
            for writer in writers:
                writer.wait_more(10)
        kills.append(agent.kill())
        agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    for writer in writers:
        writer.wait_more(30)
        writer.stop()
    # A full unmount and a new mount drop what the kernel may have cached.
    for again in (False, True):
        for writer in writers:
            found = writer.expect_nothing_lost(kills)
            if not again:
                say("%s: acknowledged %d over %d kills, longest stall %.2f s" % (
                    os.path.basename(writer.path), found["acked"], rounds, found["longest_stall_us"] / 1e6))
        volume.unstage(patience=30)
        volume.expect_gone()
        if not again:
            volume.stage()


def story_kill_10(lab):
    """10 rounds of kill -9 under O_DIRECT, buffered and mmap writers on ext4, half of them during healing: no I/O error, no lost write"""
    killed_again_and_again(lab, 10)


# [failure:1]
@long
def story_kill_50(lab):
    """50 rounds of kill -9 under O_DIRECT, buffered and mmap writers on ext4, half of them during healing: no I/O error, no lost write"""
    killed_again_and_again(lab, 50)


story_kill_50.limit = 480


# [failure:48]
def story_term(lab):
    """SIGTERM and a new start under the writer: no I/O error, no lost write, and the lock was kept"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(40)
    terms = []
    for number in range(2):
        terms.append(now_us())
        check(agent.stop() == 0, "SIGTERM: exit code %s" % agent.process.returncode)
        agent.spawn()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(40)
        show_timeline(number + 1, timeline(agent, volume, terms[-1], writer.stalls(terms)["kills"][-1]))
    writer.stop()
    writer.expect_nothing_lost(terms)
    volume.unstage(patience=30)
    volume.expect_gone()


def story_three_volumes_heal(lab):
    """three volumes under load heal together after one kill -9"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image(name, size=256 * MIB), block=True) for name in "abc"]
    for volume in volumes:
        volume.stage()
    writers = [Writer(lab, volume.staged_path, threads=2, paced=2).start() for volume in volumes]
    for writer in writers:
        writer.wait_more(20)
    kill = agent.kill()
    agent.spawn()
    for volume, writer in zip(volumes, writers):
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(20)
    for number, (volume, writer) in enumerate(zip(volumes, writers), 1):
        writer.stop()
        found = writer.expect_nothing_lost([kill])
        show_timeline(number, timeline(agent, volume, kill, found["kills"][0]))
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()


# [failure:13][rule:17]
def story_outage(lab):
    """monitors and OSDs out of reach for 60 s, with a kill -9 meanwhile, cause a stall, but no I/O error and no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(20)
    network(lab, "down")
    time.sleep(5)
    kill = agent.kill()
    agent.spawn()
    time.sleep(55)
    check(agent.csi("probe")["code"] == "OK", "the agent does not answer without its cluster")
    network(lab, "up")
    agent.wait_event("device.reconnected", 90, volume=volume.id)
    writer.wait_more(20)
    writer.stop()
    found = writer.expect_nothing_lost([kill])
    say("longest stall %.1f s" % (found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()
