"""The lab itself, with rbd-nbd in the agent's place. It shows that the tools measure what they claim."""
import os

from checks import check, long, now_us, say, wait_for
from machine import devices, run
from writer import Writer


class RbdNbd:
    """rbd-nbd as ceph-csi starts it."""

    def __init__(self, lab, image):
        self.lab, self.image, self.cookie = lab, image, image.name
        self.process = None

    def argv(self, action, *more):
        return ["rbd-nbd", action, self.image.spec, "-c", self.lab.conf, "--try-netlink", "--cookie", self.cookie,
                "--reattach-timeout", "300", "--io-timeout", "0", "--foreground", *more]

    def index(self):
        for index, device in devices().items():
            if device["backend"] == self.cookie:
                return index
        return None

    def start(self, action, *more):
        self.process = self.lab.start(self.argv(action, *more), log=os.path.join(self.lab.out, "rbd-nbd.log"))

    def map(self, *more):
        self.start("map", *more)
        index = wait_for("rbd-nbd's device", lambda: self.index() is not None and (self.index(),), 60)[0]
        self.device = "/dev/nbd%d" % index
        wait_for("the device's size", lambda: devices()[index]["size"] > 0, 30)

    def attach(self, *more):
        self.start("attach", "--device", self.device, *more)

    def unmap(self):
        """As a user ends it: everything is written and the lock released."""
        run(["rbd-nbd", "unmap", self.device])
        wait_for("the end of rbd-nbd", lambda: self.process.poll() is not None, 30)

    def kill(self):
        self.process.kill()
        self.process.wait(20)


class Krbd:
    """The kernel's own client."""

    def __init__(self, lab, image):
        self.lab, self.image = lab, image

    def map(self):
        run(["modprobe", "rbd"])
        self.device = run(["rbd", "device", "map", self.image.spec, "-c", self.lab.conf, "--options", "noudev"]).strip().splitlines()[-1]

    def unmap(self):
        run(["rbd", "device", "unmap", self.device, "-c", self.lab.conf, "--options", "noudev"])


@long
def story_peer_writer(lab):
    """the verifying writer and a killed and re-attached rbd-nbd: no I/O error, and a stall that the writer measures"""
    peer = RbdNbd(lab, lab.image("a"))
    peer.map()
    writer = Writer(lab, peer.device).start()
    writer.wait_more(50)
    kill = now_us()
    peer.kill()
    peer.attach()
    wait_for("a write after the kill", lambda: writer.wait_more(50) or True, 120)
    writer.stop()
    found = writer.verify([kill])
    say("rbd-nbd: %s" % found)
    check(found["errors"] == 0, "%d I/O errors" % found["errors"])
    check(found["longest_stall_us"] > 500_000, "a killed server without a stall: the writer does not measure")
