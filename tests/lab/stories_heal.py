"""Healing: what cuts a volume off, who comes next, and when it is given up."""
import hashlib
import os
import signal
import time

from checks import check, long, now_us, say, wait_for
from machine import MIB, read, run
from stories_owner import watchers
from stories_peer import RbdNbd
from stories_seen import ask
from writer import Writer


def blocklist(lab, address, seconds=600):
    lab.admin("ceph", "osd", "blocklist", "add", address, str(seconds))


def under_load(lab, image, **options):
    agent = lab.agent().start()
    volume = agent.volume(image, block=True)
    volume.stage()
    return agent, volume, Writer(lab, volume.staged_path, **options).start()


# [failure:15][rule:9]
def story_fenced_by_hand(lab):
    """every volume of a client that the cluster fences comes back on another connection: no I/O error, no lost write"""
    agent = lab.agent().start()
    images = [lab.image(name, size=256 * MIB) for name in "ab"]
    volumes = [agent.volume(image, block=True) for image in images]
    for volume in volumes:
        volume.stage()
    writer = Writer(lab, volumes[0].staged_path).start()
    writer.wait_more(40)
    fenced = []
    for _ in range(2):
        fenced.append(now_us())
        for address in watchers(lab, images[0]):
            blocklist(lab, address)
        before = len(agent.events("device.reconnected"))
        # The volume that nobody writes to is healed too: it has the same client.
        wait_for("both volumes on another connection", lambda: len(agent.events("device.reconnected")) >= before + 2, 60)
        writer.wait_more(40)
    check(agent.running, "the agent ended")
    writer.stop()
    found = writer.expect_nothing_lost(fenced)
    say("longest stall %.2f s" % (found["longest_stall_us"] / 1e6))
    for volume in volumes:
        volume.unstage(patience=30)
    volume.expect_gone()


# [failure:44]
@long
def story_stopped(lab, seconds=45):
    """an agent stopped for 45 s, longer than its watches last, resumes: no I/O error, no lost write, its lock still proven"""
    agent, volume, writer = under_load(lab, lab.image("a", size=256 * MIB))
    writer.wait_more(40)
    stopped = now_us()
    agent.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    agent.process.send_signal(signal.SIGCONT)
    writer.wait_more(40, timeout=60)
    time.sleep(10)
    check(not agent.events("image.cut_off"), "its own lock is taken for a lost one: %s" % agent.events("image.cut_off"))
    writer.wait_more(40)
    writer.stop()
    found = writer.expect_nothing_lost([stopped])
    say("longest stall %.1f s" % (found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_stopped_10_min(lab):
    """an agent stopped for 10 min resumes"""
    story_stopped(lab, 600)


story_stopped_10_min.limit = 800


# --- another client had the image

def md5_of_image(lab, image):
    """As another client reads it, which sets no lock."""
    path = os.path.join(lab.dir, "export")
    run(["rbd", "-c", lab.conf, "export", "--no-progress", image.spec, path])
    with open(path, "rb") as file:
        digest = hashlib.md5(file.read()).hexdigest()
    os.unlink(path)
    return digest


def taken_by_another(lab, image):
    """Another client fences the dead one and has the image."""
    for address in watchers(lab, image):
        blocklist(lab, address)
    wait_for("the dead watcher to go", lambda: not watchers(lab, image), 60, 0.5)
    peer = RbdNbd(lab, image)
    peer.cookie = "lab-another-node"
    peer.map()
    return peer


def never_served(lab, features):
    image = lab.image("a", size=64 * MIB, features=features)
    agent, volume, writer = under_load(lab, image, size=32 * MIB, threads=2, paced=0)
    writer.wait_more(20)
    agent.kill()
    peer = taken_by_another(lab, image)
    run(["dd", "if=/dev/urandom", "of=" + peer.device, "bs=64K", "count=256", "oflag=direct"])
    peer.unmap()
    before = md5_of_image(lab, image)
    agent.spawn()
    wait_for("the word unproven", lambda: agent.events("volume.state", volume=volume.id, new="unproven"), 60)
    time.sleep(15)
    check(not agent.events("device.reconnected"), "it is served, though another client wrote meanwhile")
    check(md5_of_image(lab, image) == before, "what the other client wrote was overwritten")
    answer = volume.try_stage(timeout=20)
    say("stage meanwhile: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "UNAVAILABLE", "stage blesses a volume that is not served")


# [failure:16]
def story_taken_and_released(lab):
    """an image that another client took, wrote and released while the agent was down is never served again by itself"""
    never_served(lab, "layering,exclusive-lock,object-map,fast-diff")


@long
def story_taken_and_released_layering(lab):
    """an image without exclusive-lock that another client used meanwhile is never served again by itself, although no trace shows it"""
    never_served(lab, "layering")


# [failure:16][failure:52][rule:2b]
def story_lost(lab):
    """a volume whose image another client has stays unproven; once given up, its pods get I/O errors, unmounts end, the other's data stays"""
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image)
    volume.stage()
    volume.publish()
    agent.kill()
    peer = taken_by_another(lab, image)
    run(["dd", "if=/dev/zero", "of=" + peer.device, "bs=4096", "count=1", "seek=15000", "oflag=direct"])
    pod = lab.start(["dd", "if=/dev/zero", "of=" + os.path.join(volume.target(), "file"), "bs=4096", "count=1", "oflag=direct"])
    agent.spawn()
    agent.wait_event("volume.state", 60, volume=volume.id, new="unproven")
    time.sleep(75)
    check(not agent.events("volume.failed"), "it was given up, though no VolumeAttachment says that it is another's")
    say(ask(agent, "heal", volume.id, "--without-proof", code=1).strip())
    ask(agent, "fail", volume.id, "--yes-really")
    agent.wait_event("volume.failed", 60, volume=volume.id)
    code = pod.wait(30)
    check(code != 0, "a write to the lost volume succeeded")
    before = md5_of_image(lab, image)
    answer = volume.try_stage(timeout=20)
    check(answer["code"] == "UNAVAILABLE", "stage blesses a volume that was given up")
    volume.unpublish(patience=60)
    volume.unstage(patience=60)
    volume.expect_gone()
    check(md5_of_image(lab, image) == before, "the other client's data was written")
    peer.kill()


story_lost.limit = 360


# --- many

def last_write(writers, killed, limit=200):
    """Seconds from the kill until every writer has written again."""
    begun = [writer.acked() for writer in writers]
    wait_for("a write to every volume", lambda: all(writer.acked() > was + 1 for writer, was in zip(writers, begun)), limit)
    return max(writer.stalls([killed])["kills"][-1]["first_us"] - killed for writer in writers) / 1e6


def together(calls):
    """The answers of calls that are under way at the same time, as many as the machine has cores."""
    under_way, pending = [], list(calls)
    while pending or under_way:
        while pending and len(under_way) < 2:
            under_way.append(pending.pop(0)())
        answer = under_way.pop(0).end()
        check(answer["code"] == "OK", "%s" % answer)


def killed_32(lab, images, rounds):
    agent = lab.agent().start()
    volumes = [agent.volume(image, block=True) for image in images]
    together([lambda volume=volume: volume.begin("stage") for volume in volumes])
    writers = [Writer(lab, volume.staged_path, size=MIB, threads=1, paced=1, pace_ms=250).start() for volume in volumes]
    took, kills = [], []
    for _ in range(rounds):
        kills.append(agent.kill())
        agent.spawn()
        took.append(last_write(writers, kills[-1]))
    for writer in writers:
        writer.stop()
        writer.expect_nothing_lost(kills)
    together([lambda volume=volume: volume.begin("unstage") for volume in volumes])
    volumes[0].expect_gone()
    agent.stop()
    say("corbd: SIGKILL to the last of %d volumes writing again: %s s" % (len(images), ", ".join("%.2f" % one for one in took)))
    return sorted(took)[len(took) // 2]


# [failure:1][failure:24]
@long
def story_kill_32(lab):
    """32 volumes with a writer each are killed twice and all write again: no I/O error, no lost write"""
    killed_32(lab, [lab.image("%02d" % number, size=64 * MIB) for number in range(32)], 2)


story_kill_32.limit = 420


@long
def story_leave_100(lab):
    """SIGTERM with 100 idle volumes: the agent ends, and the next one serves them all"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image("%03d" % number, size=16 * MIB), block=True) for number in range(100)]
    together([lambda volume=volume: volume.begin("stage") for volume in volumes])
    begun = time.monotonic()
    agent.process.terminate()
    check(agent.process.wait(20) == 0, "the agent did not end well")
    say("%d idle volumes: SIGTERM to the end of the process: %.2f s" % (len(volumes), time.monotonic() - begun))
    agent.start()
    wait_for("all volumes healed", lambda: len(agent.events("device.reconnected")) >= len(volumes), 300)
    together([lambda volume=volume: volume.begin("unstage") for volume in volumes])
    volumes[0].expect_gone()


story_leave_100.limit = 900


@long
def story_staged_10_min(lab, seconds=600):
    """ten minutes of stages and unstages with a kill every 20 s leak no descriptors, memory or devices"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image(name, size=64 * MIB), block=True) for name in "abcd"]
    for volume in volumes[:2]:
        volume.stage()
    writers = [Writer(lab, volume.staged_path, size=16 * MIB, threads=2, paced=1).start() for volume in volumes[:2]]
    end = time.monotonic() + seconds
    kills, cost = [], []
    while time.monotonic() < end:
        next_kill = time.monotonic() + 20
        while time.monotonic() < next_kill:
            for volume in volumes[2:]:
                volume.stage(patience=30)
                volume.unstage(patience=30)
        status = dict(line.split(":", 1) for line in read("/proc/%d/status" % agent.process.pid).splitlines())
        cost.append((len(os.listdir("/proc/%d/fd" % agent.process.pid)), int(status["VmRSS"].split()[0]), int(status["Threads"])))
        kills.append(agent.kill())
        agent.start()
    for writer in writers:
        writer.wait_more(20)
        writer.stop()
        writer.expect_nothing_lost(kills)
    for volume in volumes[:2]:
        volume.unstage(patience=30)
    volume.expect_gone()
    say("descriptors, KiB and threads before each kill: %s" % cost)
    check(cost[-1][0] <= cost[1][0] + 2 and cost[-1][2] <= cost[1][2] + 1, "it grows")


story_staged_10_min.limit = 900
