"""An image that another client has: who that is, and how it is cut off."""
import json
import os
import subprocess
import time

from checks import check, long, say, wait_for
from machine import MIB, run
from stories_krbd import needs_krbd
from stories_peer import Krbd
from stories_owner import watchers
from stories_seen import ask, show, volumes_of


class Holder:
    """Another client that writes an image and holds its lock, until it is killed."""

    def __init__(self, lab, image):
        self.lab, self.image = lab, image
        argv = ["rbd", "-c", lab.conf, "bench", "--io-type", "write", "--io-size", "4096", "--io-threads", "1", "--io-total", "10G", image.spec]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the other client's lock", lambda: self.lock(), 60)

    def lock(self):
        return json.loads(self.lab.admin("rbd", "lock", "ls", "--format", "json", self.image.spec))

    def kill(self):
        """Its lock and its watch stay for a while."""
        self.process.kill()
        self.process.wait()


def write_once(device):
    run(["dd", "if=/dev/zero", "of=" + device, "bs=4096", "count=1", "oflag=direct", "status=none"])


# [failure:106]
def story_holder_explained(lab):
    """a stage waits for another client of its image and names it; corbd holders shows it, corbd take cuts it off"""
    agent = lab.agent(flags=["--enable-fencing"]).start()
    image = lab.image("held", size=256 * MIB)
    volume = agent.volume(image, block=True)
    holder = Holder(lab, image)
    address = watchers(lab, image)[0]
    begin = time.monotonic()
    refused = volume.try_stage(timeout=12)
    waited = time.monotonic() - begin
    say("refused after %.1f s: %s: %s" % (waited, refused["code"], refused["message"]))
    check(refused["code"] == "UNAVAILABLE" and address in refused["message"], "the refusal does not name the client: %s" % refused)
    check(waited > 3, "the stage did not wait for the other client")
    check("corbd take" in refused["message"], "the refusal says no way out")
    check(watchers(lab, image) == [address], "the agent keeps a watch on an image that it does not serve: %s" % watchers(lab, image))
    found = json.loads(ask(agent, "holders", volume.id, "-o", "json"))
    show(ask(agent, "holders", volume.id))
    check([one["address"] for one in found["holders"]] == [address] and found["holders"][0]["locks"], "corbd holders: %s" % found)
    key = lab.write("admin-key", lab.admin("ceph", "auth", "get-key", "client.admin").strip())
    by_name = ask(agent, "holders", image.spec, "--cluster", "lab", "--user", "admin", "--key-file", key)
    check(address in by_name, "corbd holders POOL/IMAGE: %s" % by_name)
    dry = ask(agent, "take", volume.id, code=1)
    check(address in dry and "nothing was done" in dry, "corbd take without its flag: %s" % dry)
    check(watchers(lab, image) == [address], "corbd take without its flag did something")
    stage = volume.begin("stage", timeout=60)
    time.sleep(2)
    show(ask(agent, "take", volume.id, "--yes-really"))
    answer = stage.end()
    check(answer["code"] == "OK", "the stage after corbd take: %s" % answer)
    check(address in lab.admin("ceph", "osd", "blocklist", "ls"), "the client is not on the blocklist")
    check(holder.process.wait(60) != 0, "the client that was cut off ended well")
    write_once("/dev/nbd%d" % volume.device)
    volume.unstage(patience=30)
    volume.expect_gone()


# [failure:142]
def story_fence_by_hand(lab):
    """corbd fence shows what a fence cuts off, fences and unfences; a fenced node says so, serves nothing, and serves again afterwards"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    key = lab.write("admin-key", lab.admin("ceph", "auth", "get-key", "client.admin").strip())
    user = ["--cluster", "lab", "--user", "admin", "--key-file", key]
    own = watchers(lab, image)[0]
    block = own.rsplit(":", 1)[0] + "/32"
    refused = ask(agent, "fence", "add", block, *user, "--yes-really", code=1)
    check("very agent" in refused, "an agent fences itself without a word: %s" % refused)
    dry = ask(agent, "fence", "add", block, "10.98.0.0/24", *user, code=1)
    show(dry)
    check(image.name in dry and own in dry, "the dry run does not show the volume that it touches")
    ask(agent, "fence", "add", block, *user, "--force", "--yes-really", "--duration", "1h")
    listed = ask(agent, "fence", "ls", *user)
    check(block in listed, "corbd fence ls: %s" % listed)
    device = "/dev/nbd%d" % volume.device
    writes = subprocess.Popen(["dd", "if=/dev/zero", "of=" + device, "bs=4096", "count=1", "oflag=direct", "status=none"])
    try:
        wait_for("the volume's error node_fenced", lambda: (volumes_of(agent)[volume.id]["last_error"] or {}).get("code") == "node_fenced", 60)
        status = ask(agent, "status", code=2)
        show(status)
        check("has fenced this node" in status, "corbd status does not name the fence")
        entries = lab.admin("ceph", "osd", "blocklist", "ls").count("\n")
        time.sleep(15)
        more = lab.admin("ceph", "osd", "blocklist", "ls").count("\n") - entries
        check(more <= 1, "a fenced node adds entries to the blocklist: %d in 15 s" % more)
        ask(agent, "fence", "rm", block, *user, "--yes-really")
        wait_for("the write that waited", lambda: writes.poll() is not None, 120)
        check(writes.returncode == 0, "the write that waited failed: %d" % writes.returncode)
    finally:
        if writes.poll() is None:
            lab.admin("ceph", "osd", "blocklist", "clear", ok=False)
    volume.unstage(patience=60)
    volume.expect_gone()


# [failure:141]
@long
def story_take_over_compared(lab):
    """the time from the proof of a holder's death to the first write here, compared with rbd map without a proof"""
    needs_krbd()
    agent = lab.agent(flags=["--enable-fencing"]).start()
    ours, theirs = lab.image("ours", size=256 * MIB), lab.image("theirs", size=256 * MIB)
    holder = Holder(lab, ours)
    address = watchers(lab, ours)[0]
    holder.kill()
    lab.admin("ceph", "osd", "blocklist", "add", address, "600")
    begin = time.monotonic()
    volume = agent.volume(ours, block=True)
    volume.stage(patience=60)
    write_once("/dev/nbd%d" % volume.device)
    mine = time.monotonic() - begin
    other = Holder(lab, theirs)
    other.kill()
    kernel = Krbd(lab, theirs)
    begin = time.monotonic()
    kernel.map()
    write_once(kernel.device)
    peer = time.monotonic() - begin
    kernel.unmap()
    say("first write after the holder's death: corbd, once it is fenced, %.2f s; rbd map %.2f s; ratio %.1f" % (mine, peer, peer / mine))
    with open(os.path.join(os.environ["CORBD_OUT"], "take_over.json"), "w") as file:
        json.dump({"bench": "take_over", "corbd_s": mine, "rbd_map_s": peer}, file)
    volume.unstage(patience=30)
    volume.expect_gone()
