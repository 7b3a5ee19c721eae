"""Cells of the matrix (tests/sim/matrix) on the real kernel, with what the real ceph-csi leaves on a node: tests/lab/matrix.jsonl, made by pairwise.py.
Each is staged, published, written, healed after a kill of the agent, read back and unstaged, or refused with the reason that the table has."""
import base64
import glob
import json
import os
import shutil
import time

from checks import Failed, Skip, check, long, say, wait_for
from machine import MIB, mounted, put, read, run
from stories_fscrypt import FOLDER, fscrypt, needs_fscrypt, raw_key
from stories_krbd import mapped, needs_krbd, watchers
from stories_kube import ApiServer
from stories_luks import PASSPHRASE, is_open, mapping, metadata
from stories_migrate import SECRET, as_kubelet_stages, known
from stories_peer import RbdNbd
from stories_seen import ask

SIZE = 384 * MIB  # mkfs.xfs makes none below 300 MiB, and LUKS and its tags take their part
FEATURES = {"plain": "layering", "exclusive-lock": "layering,exclusive-lock", "object-map": "layering,exclusive-lock,object-map,fast-diff",
            "journaling": "layering,exclusive-lock,journaling"}
MODES = {"one-pod": "SINGLE_NODE_SINGLE_WRITER", "one-reader": "SINGLE_NODE_READER_ONLY", "many-readers": "MULTI_NODE_READER_ONLY",
         "many-writers": "MULTI_NODE_MULTI_WRITER"}
CLAIMS = {"one-pod": "ReadWriteOncePod", "one-reader": "ReadOnlyMany", "many-readers": "ReadOnlyMany", "many-writers": "ReadWriteMany"}
READERS = ("one-reader", "many-readers", "ro-by-mount", "ro-by-map")
TEXT = "what the pod wrote " * 100


def cells():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "matrix.jsonl")) as file:
        return [json.loads(line) for line in file]


def named(cell):
    return ", ".join(cell[key] for key in ("mounter", "encryption", "use", "access", "features", "origin"))


def writes_of(name):
    """Since the kernel has the device; an nbd number keeps its count from one volume to the next."""
    return int(read("/sys/block/%s/stat" % name).split()[4])


class Played:
    """One cell, with an agent and an image of its own."""

    def __init__(self, lab, number, cell):
        self.lab, self.cell = lab, cell
        self.block, self.reads = cell["use"] == "block", cell["access"] in READERS
        self.image = lab.image("m%d" % number, size=SIZE, features=FEATURES[cell["features"]])
        self.agent = lab.agent()
        self.passphrase_file = lab.write("passphrase", PASSPHRASE)
        self.peer = None
        self.volume = self.make_volume(cell["use"], cell["encryption"], cell["mounter"], cell["access"])
        if not self.block:
            as_kubelet_stages(lab, self.volume)

    def make_volume(self, use, encryption, mounter, access):
        attributes = ["mounter=" + ("rbd-nbd" if mounter == "rbd-nbd" else "rbd")]
        if mounter == "rbd-or-nbd":
            attributes.append("tryOtherMounters=true")
        # rbd-nbd loses what its cache has when it is killed.
        attributes.append("mapOptions=nbd:rbd_cache=false%s" % (",read-only;krbd:ro" if access == "ro-by-map" else ""))
        if encryption != "none":
            attributes += ["encrypted=true", "encryptionType=" + ("file" if encryption == "files" else "block")]
        if encryption == "integrity":
            attributes.append("integrityMode=hmac-sha256")
        volume = self.agent.volume(self.image, block=use == "block", fstype=None if use in ("block", "unnamed") else use, mode=MODES.get(access),
                                   attributes=attributes)
        volume.flags = ["ro"] if access == "ro-by-mount" else []
        return volume

    def known_to_server(self, server):
        volume = self.volume
        known(server, self.lab, volume, **dict(one.split("=", 1) for one in volume.attributes))
        spec = server.objects["/api/v1/persistentvolumes/pv-" + volume.id]["spec"]
        spec["accessModes"] = [CLAIMS.get(self.cell["access"], "ReadWriteOnce")]
        spec["mountOptions"] = volume.flags
        spec["csi"]["fsType"] = volume.fstype or ""
        server.objects[SECRET]["data"]["encryptionPassphrase"] = base64.b64encode(PASSPHRASE.encode()).decode()

    # --- the calls

    def try_stage(self, volume=None):
        volume = volume or self.volume
        return volume.try_stage(300, passphrase_file=self.passphrase_file, mount_flag=volume.flags)

    def stage(self, volume=None):
        """As kubelet, which repeats whatever failed: a dead client's watch stands for 30 s."""
        deadline = time.monotonic() + 150
        while True:
            answer = self.try_stage(volume)
            if answer["code"] == "OK":
                return
            check(time.monotonic() < deadline, "stage: %s: %s" % (answer["code"], answer["message"]))
            time.sleep(2)

    def pod_path(self):
        return self.volume.target()

    def write(self, path):
        if os.path.isdir(path):
            put(os.path.join(path, "data"), TEXT)
            return
        with open(path, "r+b", buffering=0) as device:
            device.write(TEXT.encode())
            os.fsync(device.fileno())

    def read(self, path):
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
        if os.path.isdir(path):
            return read(os.path.join(path, "data")) == TEXT.strip()
        with open(path, "rb") as device:
            return device.read(len(TEXT)) == TEXT.encode()

    # --- what was there before

    def prepare(self):
        origin = self.cell["origin"]
        self.agent.start()
        if origin != "nothing":
            self.fill()
        self.written = {name: writes_of(name) for name in os.listdir("/sys/block")}
        if origin == "nothing":
            return
        if self.cell["origin"] in ("ceph-csi-runs", "ceph-csi-left", "adopted"):
            self.agent.stop()
            self.by_ceph_csi()
            self.agent.start()
        if origin == "adopted":
            self.adopt()
        if origin == "without-record":
            self.lose_record()

    def fill(self):
        """By an earlier stage as ReadWriteOnce."""
        cell, use = self.cell, self.cell["use"]
        if cell["origin"] == "other-filesystem":
            use = "ext4" if use == "xfs" else "xfs"
        encryption = "none" if cell["origin"] == "unencrypted" else cell["encryption"]
        if encryption == "files" and use not in ("ext4", "unnamed"):
            encryption = "none"  # it is refused whatever is there
        if cell["origin"] == "unencrypted":
            use = "ext4"
        maker = self.make_volume(use, encryption, "rbd-nbd", "one-node")
        if maker.block == self.volume.block:
            maker.staging = self.volume.staging
        self.stage(maker)
        maker.publish()
        self.write(maker.target())
        run(["sync"])
        maker.unpublish()
        maker.unstage()

    def by_ceph_csi(self):
        """As its NodeStageVolume leaves it, and as the pod has it."""
        volume, cell = self.volume, self.cell
        read_only = self.reads and cell["access"] != "ro-by-mount"
        if cell["kernel"]:
            options = "noudev" + (",ro" if read_only else "")
            device = run(["rbd", "-c", self.lab.conf, "map", "-o", options, self.image.spec]).strip().splitlines()[-1]
        else:
            self.peer = RbdNbd(self.lab, self.image)
            self.peer.map("--rbd_cache=false", *(["--read-only"] if read_only else []))
            device = self.peer.device
        stash = {"Version": 3, "pool": self.image.pool, "radosNamespace": "", "image": self.image.name, "unmapOptions": "",
                 "accessType": not cell["kernel"], "encrypted": cell["encryption"] in ("luks", "integrity")}
        if self.peer:
            stash.update(device=device, logDir="/var/log/ceph", logFileStrategy="remove")
        put(os.path.join(volume.staging, "image-meta.json"), json.dumps(stash))
        top = device
        if stash["encrypted"]:
            run(["cryptsetup", "luksOpen", device, os.path.basename(mapping(volume)), "--disable-keyring", "-d", self.passphrase_file,
                 *(["--readonly"] if read_only else [])])
            top = mapping(volume)
        staged = volume.staged_path
        if self.block:
            put(staged, "")
            run(["mount", "--bind", top, staged])
        else:
            os.makedirs(staged, exist_ok=True)
            run(["mount", "-o", "ro" if self.reads else "rw", top, staged])
        if cell["encryption"] == "files":
            needs_fscrypt()
            fscrypt("unlock", os.path.join(staged, FOLDER), "--key=" + raw_key(self.lab))
        if cell["origin"] == "ceph-csi-left":
            if self.peer:
                self.peer.kill()
            return
        target = self.pod_path()
        if self.block:
            put(target, "")
        else:
            os.makedirs(target, exist_ok=True)
        run(["mount", "--bind", os.path.join(staged, FOLDER) if cell["encryption"] == "files" else staged, target])

    def adopt(self):
        self.stage()
        if self.peer:
            ask(self.agent, "heal", self.volume.id, "--adopt")
            wait_for("the end of rbd-nbd", lambda: self.peer.process.poll() is not None, 60)

    def lose_record(self):
        self.stage()
        self.volume.publish(mount_flag=self.volume.flags)
        self.agent.kill()
        shutil.rmtree(self.agent.state_dir)
        self.agent.start()

    # --- what is expected

    def expect_refused(self):
        answer = self.try_stage()
        # A dead client's watch stands for 30 s.
        deadline = time.monotonic() + 90
        while answer["code"] == "UNAVAILABLE" and self.cell["stage"] not in answer["message"] and time.monotonic() < deadline:
            time.sleep(2)
            answer = self.try_stage()
        say("%s: %s" % (answer["code"], answer["message"]))
        check(answer["code"] != "OK", "it is served, and the table refuses it")
        check(self.cell["stage"] in answer["message"], "it is refused for another reason than in the table: %s" % answer)
        if self.cell["origin"] in ("ceph-csi-left", "without-record"):
            ask(self.agent, "heal", self.volume.id, "--without-proof")
            self.volume.unpublish(patience=60)
        self.volume.unstage(patience=60)
        self.expect_gone()

    def expect_data(self, when):
        if self.cell["origin"] == "nothing" and self.reads:
            return
        check(self.read(self.pod_path()), "what was written is not there %s" % when)

    def device_name(self):
        kernels = mapped(self.image)
        return kernels[0] if kernels else "nbd%d" % self.volume.device

    def expect_nothing_written(self):
        if self.reads and self.cell["access"] != "ro-by-mount":
            name = self.device_name()
            count = writes_of(name) - self.written.get(name, 0)
            check(count == 0, "%d writes went to a device that is only read" % count)

    def serve(self):
        volume = self.volume
        self.stage()
        check(bool(mapped(self.image)) == self.cell["kernel"], "another client serves it than the table says")
        if not mounted(self.pod_path()):
            volume.publish(mount_flag=volume.flags)
        if not self.reads:
            self.write(self.pod_path())
        self.expect_data("after the publish")
        wait_for("the note of its attachment", self.is_attached, 60)
        self.agent.kill()
        if self.peer and self.cell["origin"] == "ceph-csi-runs":
            check(self.peer.process.poll() is None, "rbd-nbd was not left alone")
        self.agent.start()
        self.stage()
        self.expect_data("after the kill")
        self.expect_nothing_written()
        check(mounted(volume.staged_path), "it is not staged any more")
        volume.unpublish(patience=60)
        volume.unstage(patience=120)
        self.expect_gone()
        self.stage()
        volume.publish(mount_flag=volume.flags)
        self.expect_data("after the next stage")
        volume.unpublish(patience=60)
        volume.unstage(patience=120)
        self.expect_gone()

    def is_attached(self):
        records = [json.loads(read(path)) for path in glob.glob(os.path.join(self.agent.state_dir, "volumes", "*.json"))]
        return any(one["record"].get("attachment_uid") == "uid-" + self.volume.id for one in records)

    def expect_gone(self):
        self.volume.expect_gone()
        check(not mapped(self.image), "%s is still mapped" % self.image.spec)
        check(not is_open(self.volume), "%s is still open" % mapping(self.volume))
        check(not os.path.exists(os.path.join(self.volume.staging, "image-meta.json")), "the stash is left")
        if self.peer:
            wait_for("the end of rbd-nbd", lambda: self.peer.process.poll() is not None, 60)
        wait_for("the end of every watch", lambda: not watchers(self.lab, self.image), 60)


def needs(cell):
    if cell["kernel"] or cell["mounter"] != "rbd-nbd":
        needs_krbd()
    if cell["encryption"] == "files":
        run(["modprobe", "ext4"], ok=False)
        if not os.path.exists("/sys/fs/ext4/features/encryption"):
            raise Skip("this kernel cannot encrypt files")
    types = {cell["use"]} | ({"ext4", "xfs"} if cell["origin"] == "other-filesystem" else set())
    for one in types - {"block", "unnamed"}:
        run(["modprobe", one], ok=False)
        if "\t%s\n" % one not in read("/proc/filesystems") + "\n":
            raise Skip("this kernel has no " + one)


def play(lab, chosen):
    """A cell that this kernel cannot have is told, and the others are played."""
    server, failed, skipped = ApiServer(lab), [], 0
    for number, cell in chosen:
        say("cell %d: %s" % (number, named(cell)))
        try:
            needs(cell)
            one = Played(lab, number, cell)
            one.known_to_server(server)
            one.prepare()
            if cell["stage"] is None:
                one.serve()
            else:
                one.expect_refused()
            one.agent.stop()
            shutil.rmtree(one.agent.state_dir, ignore_errors=True)
        except Skip as skip:
            skipped += 1
            say("cell %d: skipped: %s" % (number, skip))
        except Failed as error:
            # What it left is in the way of the next one.
            raise Failed("cell %d (%s): %s" % (number, named(cell), error)) from error
    say("%d cells, %d skipped" % (len(chosen), skipped))
    if skipped == len(chosen):
        raise Skip("this kernel can have none of these cells")


PARTS = 8
LIMIT = 1800


def part(lab, number):
    play(lab, list(enumerate(cells()))[number::PARTS])


def story_matrix(lab):
    """cells of the matrix that differ in everything are served as the table says, from rbd-nbd, from the kernel's client and anew; and one is refused with its reason"""
    all_cells = list(enumerate(cells()))
    served = [one for one in all_cells if one[1]["stage"] is None and one[1]["encryption"] != "integrity"]
    pick = [next(one for one in served if one[1]["origin"] == origin and one[1]["kernel"] == kernel)
            for origin, kernel in (("ceph-csi-runs", False), ("ceph-csi-left", True), ("nothing", False))]
    play(lab, pick + [next(one for one in all_cells if one[1]["stage"] is not None)])


@long
def story_matrix_1(lab):
    """the first eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 0)


@long
def story_matrix_2(lab):
    """the second eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 1)


@long
def story_matrix_3(lab):
    """the third eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 2)


@long
def story_matrix_4(lab):
    """the fourth eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 3)


@long
def story_matrix_5(lab):
    """the fifth eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 4)


@long
def story_matrix_6(lab):
    """the sixth eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 5)


@long
def story_matrix_7(lab):
    """the seventh eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 6)


@long
def story_matrix_8(lab):
    """the last eighth of the matrix's pairwise cover does on this kernel what the table says"""
    part(lab, 7)


story_matrix.limit = 600
for one in (story_matrix_1, story_matrix_2, story_matrix_3, story_matrix_4, story_matrix_5, story_matrix_6, story_matrix_7, story_matrix_8):
    one.limit = LIMIT
