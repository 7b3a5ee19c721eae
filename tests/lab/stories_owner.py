"""Which node owns the image."""
import json
import time

from checks import check, say, wait_for
from machine import MIB, run
from stories_peer import RbdNbd
from stories_seen import ask
from writer import Writer


def watchers(lab, image):
    status = json.loads(lab.admin("rbd", "status", "--format", "json", image.spec))
    return [watcher["address"] for watcher in status.get("watchers", [])]


# [failure:17]
def story_image_recreated(lab):
    """an image deleted and made anew under the same name while the agent was down is not served and not written"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=2, paced=0).start()
    writer.wait_more(20)
    agent.kill()
    for address in watchers(lab, image):
        lab.admin("ceph", "osd", "blocklist", "add", address, "60")
    wait_for("the dead watcher to go", lambda: not watchers(lab, image), 60, 0.5)
    image.remove()
    lab.admin("rbd", "create", "-s", "256M", "--image-feature", "layering,exclusive-lock,object-map,fast-diff", image.spec)
    before = writer.acked()
    agent.spawn()
    ended = wait_for("the agent's verdict", lambda: agent.events("volume.state", volume=volume.id, new="lost"), 60)
    say("the agent says: %s" % {name: value for name, value in ended[0].items() if name not in ("ts", "ts_us", "level")})
    time.sleep(3)
    check(not agent.events("device.reconnected", volume=volume.id), "the new image is served under the old device")
    check(lab.admin("rbd", "diff", image.spec).strip() == "", "the new image was written")
    good = writer.stalls()
    check(good["acked"] <= before, "%d writes were acknowledged with the image gone" % (good["acked"] - before))


# [rule:2a]
def story_unproven(lab):
    """an image without exclusive-lock is not served again by itself after a kill -9, but is on an operator override"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB, features="layering"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(20)
    kills = [agent.kill()]
    agent.spawn()

    def verdict():
        return [entry for entry in agent.lines() if entry.get("volume") == volume.id and entry.get("code") == "unproven"]
    said = wait_for("the verdict unproven", verdict, 60)[0]
    say("the agent says: %s" % {name: value for name, value in said.items() if name not in ("ts", "ts_us", "level")})
    time.sleep(5)
    check(not agent.events("device.reconnected", volume=volume.id), "it is served without proof")
    answer = volume.try_stage(timeout=20)
    check(answer["code"] != "OK", "stage blesses a volume that is not served")
    say("stage meanwhile: %s: %s" % (answer["code"], answer["message"]))
    say(ask(agent, "heal", volume.id, "--without-proof").strip())
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    check(agent.events("admin.heal_without_proof", volume=volume.id), "the override is not in the log")
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost(kills)
    volume.unstage(patience=30)
    volume.expect_gone()


# [failure:16][rule:2a]
def story_other_node_took_it(lab):
    """an image that another node has opened meanwhile is not served again"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=2, paced=0).start()
    writer.wait_more(20)
    agent.kill()
    for address in watchers(lab, image):
        lab.admin("ceph", "osd", "blocklist", "add", address, "600")
    peer = RbdNbd(lab, image)
    peer.cookie = "lab-another-node"
    peer.map()
    run(["dd", "if=/dev/zero", "of=" + peer.device, "bs=4096", "count=1", "seek=60000", "oflag=direct"])
    agent.spawn()
    ended = wait_for("the agent's verdict", lambda: [entry for entry in agent.lines() if entry.get("volume") == volume.id and entry.get(
        "msg") == "volume.heal_failed"], 90)
    say("the agent says: %s" % {name: value for name, value in ended[0].items() if name not in ("ts", "ts_us", "level")})
    time.sleep(3)
    check(not agent.events("device.reconnected", volume=volume.id), "the image is served while another node writes it")
    peer.kill()
