"""What Ceph's own acceptance test asks of rbd-nbd (qa/workunits/rbd/rbd-nbd.sh), as far as it applies to a node agent."""
import glob
import hashlib
import json
import os
import subprocess
import time

from checks import Skip, check, long, say, wait_for
from cluster import Image
from machine import MIB, NEWER, put, read, run
from stories_calls import enlarge
from stories_peer import RbdNbd
from stories_seen import ask
from writer import Writer


def md5_of(path, size):
    digest = hashlib.md5()
    with open(path, "rb") as file:
        while size > 0:
            block = file.read(min(size, MIB))
            check(block, "%s ends early" % path)
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def used(lab, image):
    """Bytes of the image that are allocated."""
    return json.loads(lab.admin("rbd", "du", "--format", "json", image.spec))["images"][0]["used_size"]


def expect_statistics(volume, allocated):
    """The count is made after the first answer."""
    told = wait_for("a count of what the image uses", lambda: volume.stats(target=volume.staged_path)[0]["BYTES"]["used"], 10, 0.2)
    usage = volume.stats(target=volume.staged_path)[0]["BYTES"]
    check(told == allocated and usage["available"] == usage["total"] - allocated, "the cluster has %d bytes, the statistics are %s" % (allocated, usage))


def staged_block(lab, image, **options):
    volume = lab.agents[0].volume(image, block=True, **options) if lab.agents else lab.agent().start().volume(image, block=True, **options)
    volume.stage()
    return volume


def story_data_both_ways(lab):
    """what is written through the device is read from the cluster by another client, and the other way round"""
    image = lab.image("a", size=64 * MIB)
    volume = staged_block(lab, image)
    source = os.path.join(lab.dir, "random")
    run(["dd", "if=/dev/urandom", "of=" + source, "bs=1M", "count=16"])
    run(["dd", "if=" + source, "of=" + volume.staged_path, "bs=1M", "oflag=direct"])
    mine = md5_of(volume.staged_path, 64 * MIB)
    check(md5_of(source, 16 * MIB) == md5_of(volume.staged_path, 16 * MIB), "the device does not read what was written")
    volume.unstage()
    volume.expect_gone()
    peer = RbdNbd(lab, image)
    peer.map()
    check(md5_of(peer.device, 64 * MIB) == mine, "another client reads something else")
    run(["dd", "if=" + source, "of=" + peer.device, "bs=1M", "seek=32", "oflag=direct"])
    theirs = md5_of(peer.device, 64 * MIB)
    peer.unmap()
    volume.stage(patience=40)
    check(md5_of(volume.staged_path, 64 * MIB) == theirs, "we read something else than the other client wrote")
    volume.unstage()
    volume.expect_gone()


def story_trim(lab):
    """a discard gives the space back to the cluster, as the statistics say, and what is discarded reads as zeroes"""
    image = lab.image("a", size=64 * MIB)
    volume = staged_block(lab, image)
    run(["dd", "if=/dev/urandom", "of=" + volume.staged_path, "bs=4M", "count=8", "oflag=direct"])
    before = used(lab, image)
    check(before >= 32 * MIB, "only %d bytes are allocated" % before)
    expect_statistics(volume, before)
    run(["blkdiscard", "--offset", str(8 * MIB), "--length", str(16 * MIB), volume.staged_path])
    after = used(lab, image)
    say("allocated: %d MiB, after the discard of 16 MiB: %d MiB" % (before // MIB, after // MIB))
    check(after <= before - 16 * MIB, "nothing was given back")
    with open(volume.staged_path, "rb") as file:
        file.seek(8 * MIB)
        check(file.read(16 * MIB).count(0) == 16 * MIB, "discarded data is still there")
    # A volume is counted once a minute; after another stage, at once.
    volume.unstage()
    volume.stage()
    expect_statistics(volume, after)
    check("%.1f" % (after / 1e6) in ask(lab.agents[0], "top", "--once"), "corbd top does not say it")
    volume.unstage()
    volume.expect_gone()


def story_unaligned_discard(lab):
    """a discard and a zeroing whose ends lie inside objects and blocks touch nothing outside"""
    image = lab.image("a", size=64 * MIB)
    volume = staged_block(lab, image)
    source = os.path.join(lab.dir, "random")
    run(["dd", "if=/dev/urandom", "of=" + source, "bs=1M", "count=12"])
    run(["dd", "if=" + source, "of=" + volume.staged_path, "bs=1M", "oflag=direct"])
    with open(source, "rb") as file:
        old = file.read()
    content = bytearray(old)
    for how, begin, end in (("--verbose", 512 * 7, 512 * 9001), ("--zeroout", 5 * MIB + 512, 9 * MIB + 512 * 3)):
        run(["blkdiscard", how, "--offset", str(begin), "--length", str(end - begin), volume.staged_path])
        content[begin:end] = bytes(end - begin)
    with open(volume.staged_path, "rb") as file:
        found = file.read(12 * MIB)
    # A discard may leave units that it covers only in part.
    wrong = [place for place in range(0, len(content), 512) if found[place : place + 512] != content[place : place + 512]
             and not (512 * 7 <= place < 512 * 9001 and found[place : place + 512] == old[place : place + 512])]
    check(not wrong, "%d sectors differ, the first at %d" % (len(wrong), wrong[0] if wrong else 0))
    volume.unstage()
    volume.expect_gone()


def story_read_only(lab):
    """a read-only volume, of a filesystem and of a device, can be read and not written, and takes no lock from a writer"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    refused = agent.volume(image, mode="SINGLE_NODE_READER_ONLY").try_stage()
    say("an unformatted image, read-only: %s: %s" % (refused["code"], refused["message"]))
    check(refused["code"] == "FAILED_PRECONDITION", "an unformatted image is served read-only: %s" % refused)
    check(used(lab, image) == 0, "an image that is wanted read-only was written")
    writable = agent.volume(image)
    writable.stage()
    put(os.path.join(writable.staged_path, "hello"), "hello")
    writable.unstage()
    for options in (dict(mode="MULTI_NODE_READER_ONLY"), dict(mode="MULTI_NODE_READER_ONLY", block=True)):
        volume = agent.volume(image, **options)
        volume.stage()
        volume.publish()
        check(read("/sys/block/nbd%d/ro" % volume.device) == "1", "the device is not read-only")
        check(json.loads(lab.admin("rbd", "lock", "ls", "--format", "json", image.spec)) == [], "a reader took the lock")
        if volume.block:
            done = subprocess.run(["dd", "if=/dev/zero", "of=" + volume.target(), "bs=4096", "count=1", "oflag=direct"], capture_output=True)
            check(done.returncode != 0, "a read-only device can be written")
        else:
            check(read(os.path.join(volume.target(), "hello")) == "hello", "the file is not there")
            try:
                put(os.path.join(volume.target(), "hello"), "x")
                check(False, "a read-only filesystem can be written")
            except OSError:
                pass
        agent.kill()
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        check(len(md5_of("/dev/nbd%d" % volume.device, MIB)) == 32, "the healed reader does not read")
        volume.unpublish()
        volume.unstage(patience=20)
        volume.expect_gone()


# [failure:106]
def story_exclusive(lab):
    """an image that another client writes is not taken from it, and is staged once it is released"""
    image = lab.image("a", size=64 * MIB)
    peer = RbdNbd(lab, image)
    peer.cookie = "lab-another-node"
    peer.map()
    run(["dd", "if=/dev/urandom", "of=" + peer.device, "bs=4096", "count=1", "oflag=direct"])
    volume = lab.agent().start().volume(image, block=True)
    answer = volume.try_stage(timeout=12)
    say("while another client has it: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] in ("ABORTED", "UNAVAILABLE", "FAILED_PRECONDITION", "INTERNAL"), "stage: %s" % answer)
    check(volume.device is None, "it is served all the same")
    run(["dd", "if=/dev/urandom", "of=" + peer.device, "bs=4096", "count=1", "oflag=direct"])
    peer.unmap()
    volume.stage(patience=60)
    volume.unstage()
    volume.expect_gone()


# [failure:107]
def story_dead_owner(lab):
    """an image whose node died is not taken while its watch stands; afterwards its client is fenced and the volume staged"""
    image = lab.image("a", size=64 * MIB)
    peer = RbdNbd(lab, image)
    peer.cookie = "lab-another-node"
    peer.map()
    run(["dd", "if=/dev/urandom", "of=" + peer.device, "bs=4096", "count=1", "oflag=direct"])
    owner = json.loads(lab.admin("rbd", "lock", "ls", "--format", "json", image.spec))[0]["address"]
    peer.kill()
    volume = lab.agent().start().volume(image, block=True)
    answer = volume.try_stage(timeout=12)
    say("just after its death: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "UNAVAILABLE" and "client." in answer["message"], "stage: %s" % answer)
    volume.stage(patience=60)
    check(owner in lab.admin("ceph", "osd", "blocklist", "ls"), "the dead client %s is not fenced" % owner)
    volume.unstage()
    volume.expect_gone()


def story_names_and_namespaces(lab):
    """an image with a space in its name, and two of one name in two namespaces, are each served as themselves"""
    agent = lab.agent().start()
    spaced = lab.image("with a space", size=64 * MIB)
    volume = staged_block(lab, spaced)
    run(["dd", "if=/dev/urandom", "of=" + volume.staged_path, "bs=1M", "count=4", "oflag=direct"])
    volume.unstage()
    volume.expect_gone()
    check(used(lab, spaced) > 0, "the image with a space was not written")

    name = lab.image("same", size=64 * MIB).name
    space = lab.pool + "/lab-names"
    for argv in (("rbd", "rm", "--no-progress", space + "/" + name), ("rbd", "namespace", "rm", space)):
        lab.admin(*argv, ok=False)
    lab.admin("rbd", "namespace", "create", space)
    lab.admin("rbd", "create", "-s", "32M", "--image-feature", "layering,exclusive-lock,object-map,fast-diff", space + "/" + name)
    lab.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": [lab.mon]},
                                                {"clusterID": "inside", "monitors": [lab.mon], "rbd": {"radosNamespace": "lab-names"}}]))
    sizes = {}
    for cluster in ("lab", "inside"):
        volume = staged_block(lab, Image(lab, name, lab.pool), cluster_id=cluster)
        sizes[cluster] = int(read("/sys/block/nbd%d/size" % volume.device)) * 512
        volume.unstage()
        volume.expect_gone()
    say("the images of one name have %s bytes" % sizes)
    check(sizes == {"lab": 64 * MIB, "inside": 32 * MIB}, "not the images that were asked for")
    lab.admin("rbd", "rm", "--no-progress", space + "/" + name)
    lab.admin("rbd", "namespace", "rm", space)


def story_provisioned(lab):
    """a provisioner's volume, or a mapped one, is found by its handle, served as its attributes ask, healed, and left as ceph-csi would leave it"""
    agent = lab.agent(flags=["--enable-fencing"]).start()
    image = lab.image("a", size=256 * MIB)
    uuid = "50d53503-9da1-11ed-847e-bacf8f2f1297"
    journal = ("rados", "-p", lab.pool)
    lab.admin(*journal, "rm", "csi.volume." + uuid, ok=False)
    lab.admin(*journal, "create", "csi.volume." + uuid)
    lab.admin(*journal, "setomapval", "csi.volume." + uuid, "csi.imagename", image.name)
    pools = {pool["poolname"]: pool["poolnum"] for pool in json.loads(lab.admin("ceph", "osd", "lspools", "--format", "json"))}
    wishes = ["staticVolume=false", "mapOptions=krbd:x;nbd:try-netlink,notrim,reattach-timeout=600,rbd-op-threads=2,io-timeout=330"]
    # The other volume comes from a cluster that is gone, and is mapped to this one.
    lab.write("config/cluster-mapping.json", json.dumps([{"clusterIDMapping": {"lab-old": "lab"}, "RBDPoolIDMapping": [{"77": str(pools[lab.pool])}]}]))
    for cluster, pool in ("lab", pools[lab.pool]), ("lab-old", 77):
        handle = "0001-%04x-%s-%016x-%s" % (len(cluster), cluster, pool, uuid)
        volume = agent.volume(image, name=handle, cluster_id="no-matter", pool="no-matter", attributes=wishes)
        volume.stage()
        agent.wait_event("volume.ignored", 10, volume=handle)
        stash = os.path.join(volume.staging, "image-meta.json")
        left = json.loads(read(stash))
        check(left == {"Version": 3, "pool": lab.pool, "radosNamespace": "", "image": image.name, "unmapOptions": "", "accessType": True,
                       "encrypted": False, "device": "/dev/nbd%d" % volume.device, "logDir": "/var/log/ceph", "logFileStrategy": "remove"},
              "the stash: %s" % left)
        noted = json.loads(lab.admin("rbd", "image-meta", "list", "--format", "json", image.spec))
        check(noted.get(".rbd.csi.ceph.com/userid/%s/%s" % (handle, agent.nodeid)) == volume.user, "the user is not noted: %s" % noted)
        check(noted.get(".rbd.csi.ceph.com/clientaddress/%s/%s" % (handle, agent.nodeid), "").count(".") == 3, "the address is not noted: %s" % noted)
        volume.publish()
        put(os.path.join(volume.target(), "hello"), cluster)
        queue = "/sys/block/nbd%d/queue/" % volume.device
        check(int(read(queue + "discard_max_bytes")) == 0, "notrim, and the device discards")
        agent.kill()
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=handle)
        check(read(os.path.join(volume.target(), "hello")) == cluster, "another filesystem")
        volume.unpublish()
        volume.unstage()
        volume.expect_gone()
        check(not os.path.exists(stash), "the stash is left")
    check("csi.imageid" in lab.admin(*journal, "listomapkeys", "csi.volume." + uuid), "the image's id was not written")
    lab.admin(*journal, "rm", "csi.volume." + uuid)


# [failure:17][rule:3]
def story_resize(lab):
    """an image that grows makes its device grow under load; one that shrinks does not"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()

    def size():
        return int(read("/sys/block/nbd%d/size" % volume.device)) * 512
    writer = Writer(lab, volume.staged_path, size=32 * MIB).start()
    writer.wait_more(20)
    lab.admin("rbd", "resize", "--no-progress", "-s", "96M", image.spec)
    wait_for("the device to grow", lambda: size() == 96 * MIB, 30)
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost()
    run(["dd", "if=/dev/urandom", "of=" + volume.staged_path, "bs=1M", "seek=95", "count=1", "oflag=direct"])
    lab.admin("rbd", "resize", "--no-progress", "--allow-shrink", "-s", "80M", image.spec)
    agent.wait_event("image.resized", 30, bytes=80 * MIB)
    time.sleep(1)
    check(size() == 96 * MIB, "the device shrank to %d" % size())
    volume.unstage()
    volume.expect_gone()


def story_two_paths(lab):
    """a volume staged at two paths is one filesystem on one device; each path is unstaged by itself"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    first = volume.staging
    volume.stage()
    put(os.path.join(volume.staged_path, "hello"), "hello")
    device = volume.device
    volume.staging = os.path.join(os.path.dirname(first), "another")
    os.makedirs(volume.staging)
    volume.stage()
    check(volume.device == device, "a second device was made")
    check(read(os.path.join(volume.staged_path, "hello")) == "hello", "the second path shows something else")
    volume.unstage()
    check(volume.device == device, "the device went with the second path")
    volume.staging = first
    check(read(os.path.join(volume.staged_path, "hello")) == "hello", "the first path is gone")
    volume.unstage()
    volume.expect_gone()


def story_xfs_life(lab):
    """an xfs volume is made, written, healed after a kill -9, and there again at the next stage"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=512 * MIB), fstype="xfs")
    volume.stage()
    volume.publish()
    kinds = [line.split()[2] for line in read("/proc/mounts").splitlines() if volume.target() in line]
    check(kinds == ["xfs"], "not xfs: %s" % kinds)
    put(os.path.join(volume.target(), "hello"), "hello")
    agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    put(os.path.join(volume.target(), "again"), "again")
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    volume.stage()
    check(read(os.path.join(volume.staged_path, "again")) == "again", "what was written after the kill is not there")
    volume.unstage()
    volume.expect_gone()
    check(not glob.glob(os.path.join(volume.staging, "*")), "something is left in the staging folder")


# [failure:252]
@long
def story_newer_tools(lab):
    """what the tools of Debian testing, which the image has, make and grow of each type, this kernel mounts and this Debian's tools check and grow, and then the newer ones again"""
    if not os.path.exists(os.path.join(NEWER, "usr/sbin/mkfs.xfs")):
        raise Skip("no Debian testing in %s: tests/lab/debian makes it" % NEWER)
    kinds = ["ext4", "ext3", "xfs"]
    subprocess.run(["modprobe", "btrfs"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not os.path.exists(os.path.join(NEWER, "usr/sbin/mkfs.btrfs")):
        say("btrfs: skipped: %s has no btrfs-progs: the next run of tests/lab/debian installs them" % NEWER)
    elif "btrfs" not in read("/proc/filesystems").split():
        say("btrfs: skipped: this kernel does not have it")
    else:
        kinds.append("btrfs")
    tools = os.path.join(lab.dir, "tools")
    os.makedirs(tools)
    for tool in ("mkfs.ext4", "fsck.ext4", "mkfs.ext3", "fsck.ext3", "resize2fs", "mkfs.xfs", "xfs_repair", "xfs_growfs", "mkfs.btrfs", "fsck.btrfs", "btrfs"):
        put(os.path.join(tools, tool), """#!/bin/sh
exec unshare --mount sh -ec 'for one in dev proc run; do mount --rbind /$one %s/$one; done; exec chroot %s env PATH=/usr/sbin:/usr/bin "$0" "$@"' %s "$@"
""" % (NEWER, NEWER, tool))
        os.chmod(os.path.join(tools, tool), 0o755)
    say(run([os.path.join(tools, "mkfs.xfs"), "-V"]).strip())
    images = {kind: lab.image(kind, size=512 * MIB) for kind in kinds}
    newer = ["env", "PATH=%s:%s" % (tools, os.environ["PATH"])]
    for turn, begun_by in enumerate((newer, [], newer)):
        agent = lab.agent("agent-%d" % turn)
        agent.begun_by = begun_by
        agent.start()
        for kind, image in images.items():
            volume = agent.volume(image, fstype=kind)
            for stage in range(2):
                volume.stage()
                check(not agent.events("filesystem.for_newer_kernels"), "%s: made for newer kernels than Linux 5.14" % kind)
                path = os.path.join(volume.staged_path, "hello")
                check((turn, stage) == (0, 0) or read(path) == kind, "%s has lost its file" % kind)
                put(path, kind)
                before = os.statvfs(volume.staged_path).f_blocks
                size = image.info()["size"] + 128 * MIB
                enlarge(lab, image, size)
                volume.expand(size, patience=30)
                check(os.statvfs(volume.staged_path).f_blocks > before, "%s did not grow" % kind)
                volume.unstage()
                volume.expect_gone()
        agent.stop()
