"""Keys that the kernel's own client does not know (docs/sources.md#cephx-keys), and users that are removed under running volumes."""
import json
import os
import time

from checks import Skip, check, long, say
from machine import MIB
from stories_handover import blocklisted, expect_silence, hand_over, told_by_nbd
from stories_krbd import KRBD, expect_unmapped, needs_krbd, watchers
from stories_luks import encrypted
from stories_luks import stage as stage_encrypted
from stories_seen import ask
from stories_peer import RbdNbd
from writer import Writer, writes_through_a_kill


# Only a cluster of Ceph 20 makes such keys: tests/lab/debian.
@long
def story_aes256k(lab):
    """a volume whose user has an aes256k key, which this kernel's own client refuses, is served over nbd: staged, healed after kill -9, grown, unstaged"""
    if not lab.key.startswith("Ag"):
        raise Skip("this cluster's keys are of another type: tests/lab/debian forky scripts/lab/stories --kernel 6.12 aes256k")
    needs_krbd()
    image = lab.image("a", size=256 * MIB)
    agent = lab.agent().start()
    by_kernel = agent.volume(image, attributes=KRBD)
    refused = by_kernel.try_stage()
    if refused["code"] == "OK":
        by_kernel.unstage()
        raise Skip("this kernel's client knows such keys: --kernel 6.12 does not")
    say("mounter rbd: %s: %s" % (refused["code"], refused["message"]))
    check(refused["code"] == "FAILED_PRECONDITION" and "aes256k" in refused["message"], "refused for another reason")
    expect_unmapped(by_kernel, image)
    check(not watchers(lab, image), "the image is watched after the refusal")

    volume = agent.volume(image, attributes=("mounter=rbd", "tryOtherMounters=true"))
    volume.stage()
    check(volume.device is not None, "it is not served over nbd")
    volume.publish()
    writes_through_a_kill(lab, agent, volume)
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", image.spec)
    volume.expand(512 * MIB, patience=30)
    usage, abnormal = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    check(abnormal is None, "its condition: %s" % abnormal)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    agent.stop()


def put_back(lab, removed):
    """A user that was removed, as `ceph auth export` wrote it before."""
    with open(os.path.join(lab.out, "removed.keyring"), "w") as file:
        file.write(removed)
    lab.admin("ceph", "auth", "import", "-i", file.name)


def new_user(lab, name, *more):
    """A Ceph user with the rights of a node, and a file with its key."""
    caps = ["mon", "profile rbd", "osd", "profile rbd", "mgr", "profile rbd"]
    lab.admin("ceph", "auth", "get-or-create", "client." + name, *caps, *more)
    return name, lab.write("key." + name, lab.admin("ceph", "auth", "get-key", "client." + name).strip())


# [failure:220]
def story_rotated(lab):
    """the Ceph user of running volumes is replaced twice, as Rook does it: ext4, xfs, LUKS and raw block go on by a client of the new user, nothing in the kernel log, nobody blocklisted; the second time the agent is killed in the middle"""
    agent = lab.agent().start()
    users = [new_user(lab, "rotated.%d" % number) for number in range(3)]
    ext4 = agent.volume(lab.image("ext4", size=256 * MIB))
    xfs = agent.volume(lab.image("xfs", size=512 * MIB), fstype="xfs")
    block = agent.volume(lab.image("block", size=256 * MIB), block=True)
    luks = encrypted(lab, agent, "luks")
    volumes = [(ext4, "fsync"), (xfs, "mmap"), (luks, "direct"), (block, "direct")]

    def stage_as(user):
        for volume, _ in volumes:
            volume.user, volume.key_file = user
            stage_encrypted(volume, patience=30) if volume is luks else volume.stage(patience=30)

    stage_as(users[0])
    writers = [Writer(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data"), size=16 * MIB, mode=mode).start()
               for volume, mode in volumes]
    cut_off, told = blocklisted(lab), told_by_nbd()
    stage_as(users[1])
    for volume, _ in volumes:
        agent.wait_event("client.changed", 30, volume=volume.id, user=users[1][0])
    lab.admin("ceph", "auth", "rm", "client." + users[0][0])
    for writer in writers:
        writer.wait_more(100)
    check(blocklisted(lab) <= cut_off, "the change blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told)
    say("longest stall of a change: %s s" % ", ".join("%.2f" % (writer.stalls()["longest_stall_us"] / 1e6) for writer in writers))

    ext4.user, ext4.key_file = users[2]
    call = ext4.begin("stage")
    agent.wait_event("client.changed", 30, volume=ext4.id, user=users[2][0])
    kill = agent.kill()
    call.end()
    agent.start()
    stage_as(users[2])
    lab.admin("ceph", "auth", "rm", "client." + users[1][0])
    for writer in writers:
        writer.wait_more(50)
        writer.stop()
        writer.expect_nothing_lost([kill])
    for volume, _ in volumes:
        volume.unstage(patience=30)
    agent.stop()


@long
def story_aes_to_aes256k(lab):
    """volumes that are written move from a user with a key of type aes to one with aes256k: no lost write, nothing in the kernel log, and `corbd keys` shows both types"""
    if not lab.key.startswith("Ag"):
        raise Skip("this cluster's keys are of another type: tests/lab/debian forky scripts/lab/stories --kernel 6.12 aes_to_aes256k")
    agent = lab.agent().start()
    # A cluster that was made before has both by itself.
    lab.admin("ceph", "mon", "set", "auth_allowed_ciphers", "aes,aes256k")
    lab.admin("ceph", "config", "set", "mon", "mon_auth_allow_insecure_key", "true")
    users = {kind: new_user(lab, "rotated." + kind, "--key_type", kind) for kind in ("aes", "aes256k")}
    volumes = [agent.volume(lab.image("ext4", size=256 * MIB)), agent.volume(lab.image("block", size=256 * MIB), block=True)]

    def stage_as(kind):
        for volume in volumes:
            volume.user, volume.key_file = users[kind]
            volume.stage(patience=30)

    def types():
        return {key["type"]: len(key["used_by"]) for key in json.loads(ask(agent, "keys", "-o", "json"))["keys"]}

    stage_as("aes")
    check(types() == {"aes": 2}, "before: %s" % types())
    writers = [Writer(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data"), size=16 * MIB).start() for volume in volumes]
    cut_off, told = blocklisted(lab), told_by_nbd()
    stage_as("aes256k")
    for volume in volumes:
        agent.wait_event("client.changed", 30, volume=volume.id, user=users["aes256k"][0])
    check(types() == {"aes256k": 2}, "after: %s" % types())
    ask(agent, "keys", "client." + users["aes"][0])
    lab.admin("ceph", "auth", "rm", "client." + users["aes"][0])
    for writer in writers:
        writer.wait_more(100)
        writer.stop()
    check(blocklisted(lab) <= cut_off, "the change blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told)
    say("longest stall: %s s" % ", ".join("%.2f" % (writer.expect_nothing_lost()["longest_stall_us"] / 1e6) for writer in writers))
    for volume in volumes:
        volume.unstage(patience=30)
    agent.stop()


# An OSD knows three generations of the secrets by which it judges tickets: RotatingSecrets of Ceph's auth/cephx/CephxProtocol.h.
TICKETS = 10
ENDED_AFTER = 4 * TICKETS


# [failure:270]
@long
def story_tickets_end(lab):
    """the Ceph user of running volumes is removed and its tickets end: an OSD that starts again gives its client neither answers nor errors; both volumes go on under the user that their stage brought, nothing lost"""
    lab.second_cluster(TICKETS)
    agent = lab.agent().start()
    busy = agent.volume(lab.image("busy", size=256 * MIB))
    idle = agent.volume(lab.image("idle", size=64 * MIB), block=True)
    for volume in (busy, idle):
        volume.stage()
    writer = Writer(lab, os.path.join(busy.staged_path, "data"), size=16 * MIB).start()

    lab.admin("ceph", "auth", "rm", "client." + lab.user)
    time.sleep(ENDED_AFTER)
    writer.wait_more(20)  # an open connection is not asked again
    lab.admin("osd", "restart")
    time.sleep(20)  # the writes wait
    user, key_file = new_user(lab, lab.user + ".1")
    begin = time.monotonic()
    for volume in (busy, idle):
        volume.user, volume.key_file = user, key_file
        volume.stage(patience=60)
    given_up = agent.wait_event("client.given_up", 180)
    say("given up after %.0f s: %s" % (time.monotonic() - begin, given_up))
    for volume in (busy, idle):
        agent.wait_event("device.reconnected", 60, volume=volume.id)
    say("both are served after %.0f s" % (time.monotonic() - begin))
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost()
    check(lab.admin("ceph", "osd", "blocklist", "ls").strip(), "the client without tickets is not on the blocklist")
    for volume in (busy, idle):
        volume.unstage(patience=30)
    busy.expect_gone()
    begin = time.monotonic()
    agent.stop()
    say("the agent ended in %.1f s, with images that never close" % (time.monotonic() - begin))


# [failure:270]
@long
def story_user_put_back(lab):
    """the Ceph user of a running volume is removed, its tickets end, the OSD starts again, and the user is put back with its key: its client still gets no answers, and the agent gives it up for a new one; a volume that is staged meanwhile does not wait for it; nothing is lost"""
    lab.second_cluster(TICKETS)
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    user = new_user(lab, lab.user + ".back")
    volume.user, volume.key_file = user
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    removed = lab.admin("ceph", "auth", "export", "client." + user[0])
    lab.admin("ceph", "auth", "rm", "client." + user[0])
    time.sleep(ENDED_AFTER)
    lab.admin("osd", "restart")
    time.sleep(20)  # the writes wait
    other = agent.volume(lab.image("b", size=256 * MIB))
    other.user, other.key_file = user
    check(other.try_stage(timeout=20)["code"] != "OK", "a volume was staged without its user")
    put_back(lab, removed)
    begun = time.monotonic()
    other.stage(patience=120)
    say("a new volume was staged %.1f s after the user was back" % (time.monotonic() - begun))
    agent.wait_event("client.given_up", 240, volume=volume.id)
    writer.wait_more(20, timeout=60)
    say("writes went on %.1f s after the user was back" % (time.monotonic() - begun))
    writer.stop()
    writer.expect_nothing_lost()
    for one in (volume, other):
        one.unstage(patience=60)
    for one in (volume, other):
        one.expect_gone()
    agent.stop()


story_user_put_back.limit = 500


# [failure:270]
@long
def story_rotated_compared(lab):
    """a Ceph user is removed and the OSD starts again: a corbd volume that moved to another user goes on; an rbd-nbd device waits, also once the user is back, until another rbd-nbd is attached"""
    lab.second_cluster(TICKETS)
    agent = lab.agent().start()
    users = [new_user(lab, lab.user + ".%d" % number) for number in range(2)]
    volume = agent.volume(lab.image("corbd", size=256 * MIB), block=True)
    volume.user, volume.key_file = users[0]
    volume.stage()
    peer = RbdNbd(lab, lab.image("rbd-nbd", size=256 * MIB))
    peer.map("--id", users[0][0], "--keyfile", users[0][1])
    ours, theirs = (Writer(lab, path, size=16 * MIB).start() for path in (volume.staged_path, peer.device))

    volume.user, volume.key_file = users[1]
    volume.stage(patience=30)
    agent.wait_event("client.changed", 30, volume=volume.id, user=users[1][0])
    ours.wait_more(20)
    say("longest stall of corbd's change of user: %.2f s" % (ours.stalls()["longest_stall_us"] / 1e6))
    removed = lab.admin("ceph", "auth", "export", "client." + users[0][0])
    lab.admin("ceph", "auth", "rm", "client." + users[0][0])
    time.sleep(ENDED_AFTER)
    lab.admin("osd", "restart")
    ours.wait_more(100, timeout=90)
    before = theirs.acked()
    time.sleep(60)
    check(theirs.acked() == before, "rbd-nbd got answers under a user that is gone")
    ours.wait_more(100)

    put_back(lab, removed)
    time.sleep(30)
    say("rbd-nbd's writes in the 30 s after its user came back: %d" % (theirs.acked() - before))
    peer.kill()
    peer.attach("--id", users[0][0], "--keyfile", users[0][1])
    theirs.wait_more(20, timeout=120)
    for writer in (ours, theirs):
        writer.stop()
    say("longest stall, with the OSD's restart: corbd %.1f s, rbd-nbd %.1f s" %
        (ours.expect_nothing_lost()["longest_stall_us"] / 1e6, theirs.verify()["longest_stall_us"] / 1e6))
    peer.unmap()
    volume.unstage(patience=30)
    volume.expect_gone()
    agent.stop()


story_rotated_compared.limit = 420
