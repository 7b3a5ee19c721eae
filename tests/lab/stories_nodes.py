"""Two nodes and one image: the first loses its network and is fenced, the second goes on."""
import hashlib
import os
import shutil
import struct
import subprocess
import time

import calls
from checks import check, long, say, wait_for
from cluster import Image
from machine import BUILD, MIB, run
from node import Node
from stories_kube import ApiServer
from stories_owner import watchers
from stories_seen import ask, show, volumes_of
from volume import DRIVER, Volume
from writer import Order, Writer, expect_order, told_order

CLUSTER = "lab"


class OneNode:
    """A node's agent and its volume. The story uses the second node's by Node.ask."""

    def __init__(self, lab):
        self.lab = lab

    def start(self, nodeid, volume_id, pool, context, flags=()):
        """The node's address."""
        self.addons = "unix://" + os.path.join(self.lab.dir, "addons.sock")
        self.agent = self.lab.agent(flags=["--enable-fencing", "--csi-addons-endpoint", self.addons, *flags], nodeid=nodeid).start()
        self.volume = Volume(self.agent, Image(self.lab, volume_id, pool), cluster_id=CLUSTER, context=context)
        # A user that may serve images may not fence a node.
        self.admin_key = self.lab.write("admin-key", self.lab.admin("ceph", "auth", "get-key", "client.admin").strip())
        return os.environ["CORBD_LAB_ADDRESS"].split("/")[0]

    def stage(self):
        begin = time.monotonic()
        self.volume.stage(timeout=60)
        return time.monotonic() - begin

    def stage_refused(self):
        """Stages as kubelet would for 10 s, or longer if one call takes longer; the last answer."""
        begin = time.monotonic()
        while True:
            answer = self.volume.try_stage(timeout=15)
            check(answer["code"] != "OK", "the volume is staged while another node has it")
            if time.monotonic() - begin > 10:
                return answer
            time.sleep(1)

    def publish(self):
        self.volume.publish(patience=30)

    def end(self):
        self.volume.unpublish(patience=60)
        self.volume.unstage(patience=60)
        self.volume.expect_gone()

    # --- CSI-Addons' FenceController

    def fencing(self, method, cidrs=()):
        """The answer to what the controller of CSI-Addons would ask."""
        answer = calls.Call(method, self.addons, 60, cluster_id=CLUSTER, user="admin", key_file=self.admin_key, cidrs=list(cidrs)).end()
        check(answer["code"] == "OK", "%s %s: %s" % (method, cidrs, answer))
        return answer["answer"]

    def self_check(self, *more, code=0):
        """What `corbd unfence` says of this node."""
        user = ["--cluster", CLUSTER, "--user", "admin", "--key-file", self.admin_key]
        return ask(self.agent, "unfence", "--self-check", *user, *more, code=code)

    def fenced(self):
        return [one["cidr"] for one in self.fencing("fences").get("cidrs", [])]

    # --- the data

    def writer(self, name, threads=4):
        # With fsync an acknowledged write is in the image, with all that the filesystem needs to find it.
        return Writer(self.lab, os.path.join(self.volume.target(), name), size=16 * MIB, mode="fsync", threads=threads, paced=threads)

    def write(self, name):
        """Writes a file for a while; its journal."""
        writer = self.writer(name).start()
        writer.wait_more(50)
        writer.stop()
        writer.expect_nothing_lost()
        return shutil.copy(writer.journal, self.lab.out)

    def order(self, first):
        """Readers and writers of one file, on whichever node it is."""
        return Order(self.lab, os.path.join(self.volume.target(), "order"), first=first)

    def read_and_write(self, first):
        """Runs them for a while, and returns their journal."""
        return shutil.copy(self.order(first).start().wait_more(300).stop().journal, self.lab.out)

    def verify(self, name, journal):
        """What the file holds of the writes that were acknowledged, by a journal of this node or the other."""
        reader = self.writer(name)
        reader.journal = journal
        return reader.verify()

    def freeze(self, frozen):
        """While it is frozen, this node writes nothing to the image, and neither does its filesystem."""
        run(["fsfreeze", "--freeze" if frozen else "--unfreeze", self.volume.staged_path])

    def checksum(self):
        """Of the whole image, past this kernel's cache."""
        return run(["sh", "-c", "dd if=/dev/nbd%d bs=4M iflag=direct status=none | sha256sum" % self.volume.device]).split()[0]


class Attached(OneNode):
    """The same with an API server that knows the node's VolumeAttachment, and the other node."""

    def start(self, nodeid, volume_id, pool, context, flags=()):
        self.api = ApiServer(self.lab)
        name = "csi-" + hashlib.sha256((volume_id + DRIVER + nodeid).encode()).hexdigest()
        self.attachment = "/apis/storage.k8s.io/v1/volumeattachments/" + name
        self.api.objects[self.attachment] = {
            "metadata": {"name": name, "uid": "uid-" + nodeid, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"attacher": DRIVER, "nodeName": nodeid, "source": {"persistentVolumeName": "pv-1"}}, "status": {"attached": True}}
        # Without its own Node, a missing attachment says nothing.
        self.api.objects["/api/v1/nodes/" + nodeid] = {"metadata": {"name": nodeid}, "status": {}}
        return super().start(nodeid, volume_id, pool, context, flags)

    def detach(self):
        self.api.objects.pop(self.attachment)

    def other_node(self, name, address, tainted):
        self.api.objects["/api/v1/nodes/" + name] = {
            "metadata": {"name": name}, "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}] if tainted else []},
            "status": {"addresses": [{"type": "InternalIP", "address": address}],
                       "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}

    def stage_until_tainted(self, name, address):
        """(the first refusal, how long the stage took once the node was tainted)."""
        refused = self.volume.try_stage(timeout=12)
        stage = self.volume.begin("stage", timeout=110)
        time.sleep(3)
        self.other_node(name, address, True)
        begin = time.monotonic()
        answer = stage.end()
        check(answer["code"] == "OK", "the stage once %s is out of service: %s" % (name, answer))
        return refused, time.monotonic() - begin


def provisioned(lab, name):
    """(volume ID, its context) of a new volume as ceph-csi lays it out."""
    endpoint = "unix://" + os.path.join(lab.dir, "controller.sock")
    # The provisioner lives as long as its standard input.
    provisioner = subprocess.Popen([os.path.join(BUILD, "corbd-provisioner"), endpoint], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
    try:
        wait_for("the test provisioner's socket", lambda: os.path.exists(endpoint[len("unix://"):]), 30)
        answer = calls.Call("create", endpoint, 60, name=name, bytes=256 * MIB).end()
    finally:
        provisioner.stdin.close()
        provisioner.wait(20)
    check(answer["code"] == "OK", "no volume: %s" % answer)
    made = answer["answer"]["volume"]
    return made["volumeId"], made["volumeContext"]


def fence(node_b, address, fenced):
    """Fences node A on node B's CSI-Addons socket, or ends that."""
    for _ in range(2):  # A second call changes nothing.
        node_b.ask("fencing", "fence" if fenced else "unfence", [address + "/32"])
    listed = node_b.ask("fenced")
    check((address + "/32" in listed) == fenced, "after %s: %s is listed" % ("fencing" if fenced else "unfencing", listed))


def settled(writer):
    """How many writes there were, once none has ended for two seconds."""
    before = writer.acked()
    time.sleep(2)
    return writer.acked() == before and before


def expect_all(found, acked, whose):
    say("%s: %d of %d acknowledged writes are lost" % (whose, found["lost"], found["acked"]))
    check(found["acked"] >= acked > 0, "%s: the journal has %d acknowledged writes, not %d" % (whose, found["acked"], acked))
    check(found["lost"] == 0, "%s: %d acknowledged writes are lost" % (whose, found["lost"]))


def expect_answered_in_time(a, b, writer):
    """Node-b's image has what node-a acknowledged. Some of that may be late: the cluster stored it before the cut, and answered into the cut network.
    Returns the writer's journal until node-a's device was given up. From then on the device answers only errors, and ext4 tells none to a write with
    O_DIRECT that it had turned into a cached one."""
    given_up = a.agent.wait_event("volume.failed", 20)["ts_us"]
    with open(writer.journal, "rb") as file:
        entries = [entry for entry in struct.iter_unpack("=QQQII", file.read()) if entry[2] < given_up]
    kept = writer.journal + ".until-given-up"
    with open(kept, "wb") as file:
        file.write(b"".join(struct.pack("=QQQII", *entry) for entry in entries))
    check(not any(entry[4] for entry in entries), "a write failed before node-a's device was given up")
    expect_all(b.ask("verify", "a", b.give(kept)), len(entries), "node-a's file on node-b, with what was acknowledged late")
    return kept


# [failure:141][failure:142]
@long
def story_two_nodes(lab):
    """once a node without network is fenced, another serves its volume with all its data, and no late write or old read; the old application gets an error"""
    b = Node(lab, "node-b", OneNode)
    a = OneNode(lab)
    volume_id, context = provisioned(lab, "two-nodes")
    image = Image(lab, "csi-vol-" + volume_id[-36:], context.get("pool", lab.pool))
    address_a = a.start("node-a", volume_id, image.pool, context)
    address_b = b.ask("start", "node-b", volume_id, image.pool, context)
    say("node-a is %s, node-b is %s, the volume is %s" % (address_a, address_b, volume_id))
    a.stage()
    a.publish()
    writer = a.writer("a").start()
    writer.wait_more(100)
    order = a.order(1).start()
    watch = watchers(lab, image)
    check(len(watch) == 1 and watch[0].startswith(address_a + ":"), "the image's watchers: %s" % watch)
    clients = str(a.fencing("fence_clients"))
    check(address_a + "/32" in clients, "node-a's clients do not have its address: %s" % clients)

    lab.admin("tap", lab.tap, "down")
    acked = wait_for("the last write before the cut", lambda: settled(writer), 20)
    # Writes under way may still be stored until node-a is fenced. Answers after the volume was given up prove nothing.
    order.process.kill()
    refused = b.ask("stage_refused")
    say("node-b: %s: %s" % (refused["code"], refused["message"]))
    check(watchers(lab, image) == watch, "node-a's watch ended before node-b's stage did: this machine is too slow for this story")
    check(refused["code"] == "UNAVAILABLE", "node-b's stage: %s" % refused)
    check(address_a in refused["message"], "node-b's stage does not name node-a's address")
    check("node-a" in refused["message"], "node-b's stage does not name node-a")

    fence(b, address_a, True)
    say("node-b staged it within %.1f s once node-a was fenced" % b.ask("stage"))
    b.ask("publish")
    check(writer.acked() == acked, "%d writes of node-a ended without a network" % (writer.acked() - acked))
    expect_all(b.ask("verify", "a", b.give(writer.journal)), acked, "node-a's file on node-b")
    journal_b = b.ask("write", "b")
    order_b = b.ask("read_and_write", 1 << 40)

    b.ask("freeze", True)
    before = b.ask("checksum")
    lab.admin("tap", lab.tap, "up")
    time.sleep(40)
    check(b.ask("checksum") == before, "the image changed after node-a had its network again")
    seen = volumes_of(a.agent)[volume_id]
    say("node-a, fenced: %s: %s" % (seen["health"], seen["last_error"]))
    check("fenced" in str(seen["last_error"]), "node-a does not say that it is fenced")
    say("node-a's application saw %d errors while its node was fenced" % writer.stalls()["errors"])

    fence(b, address_a, False)
    def taken():
        error = volumes_of(a.agent)[volume_id]["last_error"]
        return error and address_b in error["text"] and error
    say("node-a, unfenced: %s" % wait_for("node-a to say who has the image", taken, 120, 1))
    # It gives the image up after a minute. Its next look may be most of another minute later.
    wait_for("an error that reaches node-a's application", lambda: writer.stalls()["errors"] > 0, 240, 1)
    show(ask(a.agent, "volume", volume_id))
    check(b.ask("checksum") == before, "the image changed after node-a was unfenced")
    journal_a = expect_answered_in_time(a, b, writer)
    b.ask("freeze", False)
    writer.stop()
    a.end()
    b.ask("end")
    a.stage()
    a.publish()
    expect_all(a.verify("a", journal_a), acked, "node-a's file")
    expect_all(a.verify("b", journal_b), 50, "node-b's file")
    say("both nodes: " + told_order(expect_order(order.journal, order_b, a.read_and_write(1 << 41))))
    a.end()
    b.end()


story_two_nodes.limit = 600


# [failure:142]
@long
def story_unfenced_clean(lab):
    """a fenced node that comes back stays out while anything of it may write; once its own check is clean it is let in and serves again, without a reboot"""
    b = Node(lab, "node-b", OneNode)
    a = OneNode(lab)
    volume_id, context = provisioned(lab, "unfenced-clean")
    image = Image(lab, "csi-vol-" + volume_id[-36:], context.get("pool", lab.pool))
    address_a = a.start("node-a", volume_id, image.pool, context)
    b.ask("start", "node-b", volume_id, image.pool, context)
    a.stage()
    a.publish()
    check("no fence covers" in a.self_check(), "a node that nobody has fenced is judged")
    # The kernel tells an error of write-back once to each open file: of several threads in one fsync, the others would hear of success.
    writer = a.writer("a", threads=1).start()
    writer.wait_more(100)
    lab.admin("tap", lab.tap, "down")
    acked = wait_for("the last write before the cut", lambda: settled(writer), 20)
    fence(b, address_a, True)
    say("node-b staged it within %.1f s once node-a was fenced" % b.ask("stage"))
    b.ask("publish")
    expect_all(b.ask("verify", "a", b.give(writer.journal)), acked, "node-a's file on node-b")
    journal_b = b.ask("write", "b")
    b.ask("freeze", True)
    before = b.ask("checksum")

    def refused(part):
        """The node is not clean, for that reason."""
        said = a.self_check("--yes-really", code=1)
        show(said)
        check("unclean: %s/32" % address_a in said and part in said, "the check of node-a does not say \"%s\": %s" % (part, said))
    lab.admin("tap", lab.tap, "up")
    wait_for("node-a to notice its fence", lambda: "fenced" in str(volumes_of(a.agent)[volume_id]["last_error"]), 120, 1)
    refused("volume %s at /dev/nbd%d is not given up" % (volume_id, a.volume.device))
    ask(a.agent, "fail", volume_id, "--yes-really")
    wait_for("an error that reaches node-a's application", lambda: writer.stalls()["errors"] > 0, 240, 1)
    journal_a = expect_answered_in_time(a, b, writer)
    refused("is given up, but mounted or published still")
    other = lab.start(["ceph", "-c", lab.conf, "-w"])
    wait_for("another client on node-a", lambda: "ceph, process" in a.self_check(code=1), 60, 1)
    writer.stop()
    a.end()
    refused("has a Ceph client: end it")
    other.kill()
    other.wait(20)
    check(address_a + "/32" in b.ask("fenced"), "a node that was not clean is not fenced any more")

    # What a closed connection left may need a moment.
    said = wait_for("node-a to be clean", lambda: (lambda said: said.startswith("clean: %s/32" % address_a) and said)(a.self_check(code=(0, 1))), 120, 2)
    show(said)
    a.agent.kill()
    a.agent.start()
    check(a.self_check().startswith("clean: %s/32" % address_a), "the next agent does not find node-a clean")
    check(address_a + "/32" in str(a.fencing("fence_clients")), "node-a does not tell CSI-Addons its fenced address")
    fence(b, address_a, False)
    check("no fence covers" in a.self_check(), "node-a is still fenced")
    time.sleep(10)
    check(b.ask("checksum") == before, "the image changed after node-a was unfenced")
    b.ask("freeze", False)
    b.ask("end")
    say("node-a staged it again within %.1f s" % a.stage())
    a.publish()
    expect_all(a.verify("a", journal_a), acked, "node-a's file")
    expect_all(a.verify("b", journal_b), 50, "node-b's file")

    # The node takes its own fence away.
    a.end()
    fence(b, address_a, True)
    wait_for("node-a to be clean again", lambda: a.self_check(code=(0, 1)).startswith("clean: "), 120, 2)
    check("unfenced: %s/32" % address_a in a.self_check("--yes-really"), "node-a does not let itself in")
    a.stage()
    a.end()
    b.end()


story_unfenced_clean.limit = 900


# [failure:141]
@long
def story_out_of_service(lab):
    """after a node is tainted out-of-service, the stage that waits on another node cuts off only that client, and the first node gives up"""
    b = Node(lab, "node-b", Attached)
    a = Attached(lab)
    volume_id, context = provisioned(lab, "out-of-service")
    image = Image(lab, "csi-vol-" + volume_id[-36:], context.get("pool", lab.pool))
    address_a = a.start("node-a", volume_id, image.pool, context)
    b.ask("start", "node-b", volume_id, image.pool, context, flags=["--fence-out-of-service"])
    b.ask("other_node", "node-a", address_a, False)
    a.stage()
    a.publish()
    writer = a.writer("a").start()
    writer.wait_more(100)
    watch = watchers(lab, image)

    lab.admin("tap", lab.tap, "down")
    acked = wait_for("the last write before the cut", lambda: settled(writer), 20)
    refused, seconds = b.ask("stage_until_tainted", "node-a", address_a)
    say("node-b: %s: %s" % (refused["code"], refused["message"]))
    for part in (address_a, "node-a", "not ready since", "not attached there"):
        check(part in refused["message"], "node-b's refusal lacks %s" % part)
    say("node-b staged it within %.1f s once node-a was out of service" % seconds)
    check(watch[0] in lab.admin("ceph", "osd", "blocklist", "ls"), "node-a's client is not on the blocklist")
    check(not [line for line in lab.admin("ceph", "osd", "blocklist", "ls").splitlines() if "cidr" in line], "more than one client is fenced")
    b.ask("publish")
    expect_all(b.ask("verify", "a", b.give(writer.journal)), acked, "node-a's file on node-b")

    b.ask("freeze", True)
    before = b.ask("checksum")
    a.detach()
    lab.admin("tap", lab.tap, "up")
    wait_for("an error that reaches node-a's application", lambda: writer.stalls()["errors"] > 0, 240, 1)
    show(ask(a.agent, "volume", volume_id))
    check(b.ask("checksum") == before, "the image changed after node-a had its network again")
    expect_answered_in_time(a, b, writer)
    b.ask("freeze", False)
    writer.stop()
    a.end()
    b.ask("end")
    b.end()


story_out_of_service.limit = 600
