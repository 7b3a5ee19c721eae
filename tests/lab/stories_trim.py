"""Space that filesystems give back to the cluster: asked for by CSI-Addons, and scheduled."""
import json
import os

from checks import check, long, say, wait_for
from machine import MIB, put, run
from stories_luks import encrypted, mapping, stage
from stories_seen import ask
from writer import Writer


def used(lab, volume):
    """Bytes of the objects of its image."""
    found = json.loads(lab.admin("rbd", "du", "--format", "json", volume.pool + "/" + volume.id))
    return sum(one["used_size"] for one in found["images"])


def fill_and_delete(lab, volume):
    """The used bytes while the filesystem was full of what is deleted then."""
    path = os.path.join(volume.staged_path, "file")
    put(path, "x" * (64 * MIB))
    full = used(lab, volume)
    os.unlink(path)
    os.sync()
    return full


def expect_given_back(lab, volume, full):
    left = used(lab, volume)
    say("%s: %d MiB before, %d MiB after" % (volume.id, full // MIB, left // MIB))
    # This counts objects, and some of them hold other parts of the filesystem too.
    check(full - left >= 32 * MIB, "it gave back %d bytes only" % (full - left))


class Addons:
    """The CSI-Addons socket of an agent that has not started yet."""

    def __init__(self, lab, agent):
        self.agent, self.socket = agent, os.path.join(lab.dir, "addons.sock")
        agent.flags += ["--csi-addons-endpoint", "unix://" + self.socket]

    def reclaim(self, volume):
        self.agent.socket, socket = self.socket, self.agent.socket
        try:
            return self.agent.csi("reclaim", volume_id=volume.id, staging_path=volume.staging)
        finally:
            self.agent.socket = socket


def story_reclaim(lab):
    """space that a filesystem no longer uses is given back to the cluster when CSI-Addons asks"""
    agent = lab.agent()
    addons = Addons(lab, agent)
    agent.start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    full = fill_and_delete(lab, volume)
    answer = addons.reclaim(volume)
    check(answer["code"] == "OK", "reclaim: %s" % answer)
    expect_given_back(lab, volume, full)
    volume.unstage(patience=30)
    volume.expect_gone()


def lets_discards_through(volume):
    return "allow_discards" in run(["dmsetup", "table", os.path.basename(mapping(volume))])


def story_luks_reclaim(lab):
    """an encrypted volume gives space back only with encryptionDiscard, which outlives a death of the agent and an expansion"""
    agent = lab.agent()
    addons = Addons(lab, agent)
    agent.start()
    wrong = encrypted(lab, agent, "w", options=["encryptionDiscard=yes"])
    answer = wrong.try_stage(passphrase_file=wrong.passphrase_file)
    check(answer["code"] == "INVALID_ARGUMENT" and "true or false" in answer["message"], "an unknown word: %s" % answer)
    shut = encrypted(lab, agent, "shut")
    stage(shut)
    check(not lets_discards_through(shut), "discards go through without encryptionDiscard")
    full = fill_and_delete(lab, shut)
    answer = addons.reclaim(shut)
    check(answer["code"] == "UNIMPLEMENTED" and "encryptionDiscard" in answer["message"], "without encryptionDiscard: %s" % answer)
    check(used(lab, shut) >= full, "it gave space back without encryptionDiscard")
    shut.unstage()
    volume = encrypted(lab, agent, "a", options=["encryptionDiscard=true"])
    stage(volume)
    check(lets_discards_through(volume), "no discards go through")
    agent.kill()
    agent.start()
    wait_for("the healing", lambda: agent.events("volume.state", volume=volume.id, new="staged"), 60)
    lab.admin("rbd", "resize", "--no-progress", "-s", "%dB" % (384 * MIB), volume.image.spec)
    volume.expand(384 * MIB, patience=30)
    check(lets_discards_through(volume), "an expansion ended the discards")
    full = fill_and_delete(lab, volume)
    answer = addons.reclaim(volume)
    check(answer["code"] == "OK", "reclaim: %s" % answer)
    expect_given_back(lab, volume, full)
    volume.unstage(patience=30)
    volume.expect_gone()
    agent.stop()


@long
def story_trim_scheduled(lab):
    """--trim-every gives space of every filesystem back, while an application writes and the agent is replaced; raw block and LUKS without discards stay"""
    agent = lab.agent(flags=["--trim-every", "1m"])
    addons = Addons(lab, agent)
    agent.start()
    plain = agent.volume(lab.image("a", size=256 * MIB))
    secret = encrypted(lab, agent, "b", options=["encryptionDiscard=true"])
    shut = encrypted(lab, agent, "c")
    raw = agent.volume(lab.image("d", size=64 * MIB), block=True)
    for volume in (plain, raw):
        volume.stage()
    for volume in (secret, shut):
        stage(volume)
    writer = Writer(lab, os.path.join(plain.staged_path, "data"), size=4 * MIB, threads=0, paced=2).start()
    full = {volume.id: fill_and_delete(lab, volume) for volume in (plain, secret)}
    for volume in (plain, secret):
        agent.wait_event("filesystem.trimmed", timeout=900, volume=volume.id)
        # That one may have come before the file was deleted.
        wait_for("the space", lambda: full[volume.id] - used(lab, volume) >= 32 * MIB, 900)
        expect_given_back(lab, volume, full[volume.id])
    agent.wait_event("filesystem.not_trimmed", timeout=900, volume=shut.id)
    for volume, what in ((plain, "to the end at"), (shut, "encryptionDiscard"), (raw, "raw block")):
        check(what in ask(agent, "volume", volume.id), "corbd volume does not say: " + what)
    check(not agent.events("filesystem.trimmed", volume=raw.id), "a raw block volume was trimmed")
    check(addons.reclaim(plain)["code"] == "OK", "CSI-Addons beside the schedule")
    agent.kill()
    agent.start()
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost([agent.killed_at])
    staged = (plain, secret, shut, raw)
    for volume in staged:
        volume.unstage(patience=60)
    for volume in staged:
        volume.expect_gone()
    agent.stop()


story_trim_scheduled.limit = 1200
