"""What an operator sees."""
import json
import os
import subprocess
import time

from checks import check, long, say, wait_for
from machine import CORBD, MIB
from writer import Writer


def ask(agent, *words, code=0):
    """The output of a subcommand that asks the agent. code: one, or several that will do."""
    codes = code if isinstance(code, tuple) else (code,)
    argv = [CORBD, *words, "--runtime-dir", os.path.join(agent.dir, "runtime")]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(done.returncode in codes, "%s: exit code %d, not %s: %s%s" % (" ".join(words), done.returncode, codes, done.stdout, done.stderr))
    return done.stdout + done.stderr


def show(text):
    for line in text.rstrip().splitlines():
        say(line)


def volumes_of(agent):
    return {volume["id"]: volume for volume in json.loads(ask(agent, "volumes", "-o", "json"))["volumes"]}


def story_seen(lab):
    """status, volumes, volume and events show a volume that is staged, loses its agent, and is healed"""
    agent = lab.agent()
    ask(agent, "status", code=3)
    agent.start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    volume.publish()
    raw = agent.volume(lab.image("b", size=64 * MIB), block=True)
    raw.stage()
    events = os.path.join(lab.out, "events")
    lab.start([CORBD, "events", "-f", "--runtime-dir", os.path.join(agent.dir, "runtime")], log=events)
    # This node has no system bus, which is a warning. Everything else is well.
    show(ask(agent, "status", code=(0, 1)))
    judged = {one["name"]: one["verdict"] for one in json.loads(ask(agent, "status", "-o", "json", code=(0, 1)))["components"]}
    check(judged.pop("d-bus") in ("ok", "warning") and set(judged.values()) == {"ok"}, "the status of a healthy node: %s" % judged)
    check(volumes_of(agent)[volume.id]["health"] == "staged", "%s" % volumes_of(agent))
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    agent.kill()
    show(ask(agent, "volumes", code=3))
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(20)
    wait_for("both volumes healed", lambda: {one["health"] for one in volumes_of(agent).values()} == {"staged"}, 30)
    writer.stop()
    writer.expect_nothing_lost()
    show(ask(agent, "volumes"))
    show(ask(agent, "volume", volume.id))
    text = wait_for("the events of the healing", lambda: (lambda seen: "reconnecting -> staged" in seen and seen)(open(events).read()), 20)
    check(volume.id in text, text)
    show(ask(agent, "heal", volume.id))
    check("no-such-volume" in ask(agent, "volume", "no-such-volume", code=1), "an unknown volume is not named")
    volume.unpublish()
    for one in (volume, raw):
        one.unstage()
    volume.expect_gone()


# [failure:52][rule:2b]
@long
def story_given_up_by_hand(lab):
    """`corbd fail` ends the wait for a cluster that is gone: the volume's pods get errors, and its unmounts end"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    volume.publish()
    # The image's operations hang and the link lives. Giving the volume up must not wait for them.
    lab.admin("osd", "stop")
    pod = lab.start(["dd", "if=/dev/zero", "of=" + volume.staged_path, "bs=4096", "count=1", "oflag=direct"])
    time.sleep(2)
    check(pod.poll() is None, "the write does not wait")
    ask(agent, "fail", volume.id, code=1)
    ask(agent, "fail", volume.id, "--yes-really")
    code = pod.wait(60)
    check(code != 0, "a write to a volume that was given up succeeded")
    check(volumes_of(agent)[volume.id]["health"] == "failed", "%s" % volumes_of(agent))
    volume.unpublish(patience=30)
    volume.unstage(patience=60)
    volume.expect_gone()
    lab.admin("osd", "cont")
    volume.stage(patience=60)
    volume.unstage(patience=30)
    volume.expect_gone()
