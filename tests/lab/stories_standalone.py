"""A host without Kubernetes: `corbd run --standalone` and `corbd mount`."""
import json
import os

from agent import Agent
from checks import check, say
from machine import CORBD, MIB, run
from writer import Writer

FSID = "lab-standalone"


class Alone(Agent):
    """An agent as deploy/systemd/corbd.service starts it, in folders of the story's."""

    def __init__(self, lab):
        super().__init__(lab, "alone")
        self.conf = lab.write("ceph.conf", "[global]\nfsid = %s\nmon_host = %s\n" % (FSID, lab.mon))
        self.keyring = lab.write("keyring", "[client.%s]\n\tkey = %s\n" % (lab.user, lab.key))
        self.runtime = os.path.join(self.dir, "runtime")
        self.socket = os.path.join(self.runtime, "csi.sock")

    def argv(self, failpoints=(), flags=()):
        return [CORBD, "run", "--standalone", "--runtime-dir", self.runtime, "--state-dir", self.state_dir, "--ceph-conf", self.conf,
                "--config-dir", os.path.join(self.dir, "none"), "--verbose"] + self.flags + list(flags)

    def ask(self, *words):
        return run([CORBD, *words, "--root", os.path.join(self.dir, "mounts"), "--runtime-dir", self.runtime, "--endpoint", self.endpoint],
                   timeout=300)

    def mount(self, image, target):
        return self.ask("mount", image.spec, target, "--wait", "--conf", self.conf, "--user", self.lab.user, "--keyring", self.keyring)

    def states(self):
        return {row["dir"]: row["state"] for row in json.loads(self.ask("mounts", "-o", "json"))}


def story_standalone_mount(lab):
    """corbd mount on a host without Kubernetes: kill -9 of its agent under a writer loses nothing, data is there after unmount and mount"""
    agent = Alone(lab)
    lab.agents.append(agent)
    agent.start()
    image = lab.image("a")
    target = os.path.join(lab.dir, "srv")
    os.makedirs(target)
    say(agent.mount(image, target).strip())
    check(agent.states() == {target: "mounted"}, "corbd mounts shows %s" % agent.states())
    writer = Writer(lab, os.path.join(target, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60)
    writer.wait_more(40)
    writer.stop()
    writer.expect_nothing_lost([kill])
    agent.ask("unmount", target)
    check(os.listdir(target) == [], "the folder is not empty after the unmount: %s" % os.listdir(target))
    check(agent.states() == {}, "something is still claimed: %s" % agent.states())
    agent.mount(image, target)
    writer.expect_nothing_lost([kill])
    agent.ask("unmount", target)
