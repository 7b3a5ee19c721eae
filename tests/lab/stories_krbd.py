"""Volumes that the kernel's own rbd client serves."""
import glob
import json
import os

from checks import Skip, check, long, now_us, say, wait_for
from machine import MIB, mounted, put, read, run
from stories_luks import PASSPHRASE, encrypted, is_open, mapping, metadata, stage
from stories_seen import ask, volumes_of
from stories_steps import Sweep
from writer import Writer

KRBD = ("mounter=rbd",)
FEATURES = "layering,exclusive-lock,object-map,fast-diff"


def needs_krbd():
    run(["modprobe", "rbd"], ok=False)
    if not os.path.exists("/sys/bus/rbd/supported_features"):
        raise Skip("this kernel has no rbd module")


def mapped(image):
    """Names of the kernel's devices with that image: rbd0."""
    return ["rbd" + os.path.basename(path) for path in glob.glob("/sys/bus/rbd/devices/*") if read(path + "/name") == image.name]


def only_device(image):
    found = mapped(image)
    check(len(found) == 1, "devices of %s: %s" % (image.spec, found))
    return "/dev/" + found[0]


def expect_unmapped(volume, image):
    check(not mounted(volume.staged_path), "%s is still mounted" % volume.staged_path)
    check(not mapped(image), "%s is still mapped" % image.spec)
    check(not glob.glob(os.path.join(volume.agent.state_dir, "volumes", "*.json")), "a record is left")


def watchers(lab, image):
    return json.loads(lab.admin("rbd", "status", "--format", "json", image.spec)).get("watchers", [])


def expect_no_key(lab, agent):
    """The Ceph key is in no log, argv, environment, or name of a key in the kernel."""
    secret = read(lab.key_file)
    places = {agent.log_file: read(agent.log_file), "dmesg": run(["dmesg"]), "/proc/keys": read("/proc/keys")}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        places[path] = read(path)
    for path in glob.glob(os.path.join(agent.state_dir, "**"), recursive=True):
        if os.path.isfile(path):
            places[path] = read(path)
    found = [place for place, text in places.items() if secret in text]
    check(not found, "the key is in %s" % found)
    check("client." + lab.user not in places["/proc/keys"], "the kernel still has the key of client." + lab.user)


def unmap_all(image):
    for name in mapped(image):
        run(["rbd", "unmap", "-o", "noudev", "/dev/" + name], ok=False)


# [failure:112]
def story_krbd_life(lab):
    """the life of an ext4 volume of the kernel's client: staged, used while the agent is killed, found again, grown, unstaged; its key is nowhere"""
    needs_krbd()
    image = lab.image("a", size=256 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    begin = now_us()
    volume.stage()
    say("stage of a new filesystem took %.2f s" % ((now_us() - begin) / 1e6))
    volume.publish()
    device = only_device(image)
    check(len(watchers(lab, image)) == 1, "not only the kernel watches the image: %s" % watchers(lab, image))
    check(volumes_of(agent)[volume.id].get("by_kernel"), "it is not seen that the kernel serves it")
    expect_no_key(lab, agent)
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(50)
    agent.kill()
    writer.wait_more(50)
    agent.start()
    volume.stage()
    check(only_device(image) == device, "it was mapped anew")
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost()
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", image.spec)
    volume.expand(512 * MIB, patience=30)
    usage, abnormal = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    check(abnormal is None, "its condition: %s" % abnormal)
    volume.unpublish()
    # This needs neither key nor cluster.
    volume.unstage()
    expect_unmapped(volume, image)
    check(not watchers(lab, image), "the image is still watched")
    agent.stop()


# [failure:268]
def story_krbd_fenced(lab):
    """the cluster cuts off the kernel's client: the volume says so and how to get out, and is whole after that"""
    needs_krbd()
    image = lab.image("a", size=256 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    volume.stage()
    volume.publish()
    kept = os.path.join(volume.staged_path, "kept")
    put(kept, "stored before")
    run(["sync", kept])
    client = read("/sys/bus/rbd/devices/%s/client_addr" % os.path.basename(only_device(image))[3:]).strip()
    lab.admin("ceph", "osd", "blocklist", "add", client, "600")
    wait_for("a condition that tells of it", lambda: volume.stats()[1], timeout=200, pause=2)
    say("its condition: %s" % volume.stats()[1])
    check(client in volume.stats()[1], "the condition does not name %s" % client)
    told = ask(agent, "status", code=2)
    check("1 whose kernel client the cluster has blocklisted" in told, "corbd status does not tell: %s" % told)
    # As it says: the entry goes, and the pods end.
    lab.admin("ceph", "osd", "blocklist", "rm", client)
    volume.unpublish()
    volume.unstage()
    expect_unmapped(volume, image)
    volume.stage()
    volume.publish()
    check(read(kept) == "stored before", "what was stored before is gone")
    check(volume.stats()[1] is None, "its condition: %s" % volume.stats()[1])
    volume.unpublish()
    volume.unstage()
    agent.stop()


# [failure:132]
def story_mounter_ruled(lab):
    """mounters.json puts a volume that names the kernel's client on nbd at its next stage; what is staged keeps its client"""
    needs_krbd()
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    rules = os.path.join(agent.dir, "config", "mounters.json")
    volume.stage()
    only_device(image)
    put(rules, json.dumps([{"pool": image.pool, "mounter": "rbd-nbd"}]))
    volume.stage()
    only_device(image)
    volume.unstage()
    volume.stage()
    check(not mapped(image), "the kernel's client serves it in spite of the rule")
    volume.expect_staged()
    put(rules, "[{}]")
    volume.stage()
    volume.unstage()
    refused = volume.try_stage()
    say("%s: %s" % (refused["code"], refused["message"]))
    check(refused["code"] == "UNAVAILABLE" and "rule 1" in refused["message"], "a rule that says nothing: %s" % refused)
    os.remove(rules)
    volume.stage()
    only_device(image)
    volume.unstage()
    agent.stop()


@long
def story_krbd_block(lab):
    """a raw block volume of the kernel's client: the device itself is staged and published, its writes are in the image"""
    needs_krbd()
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, block=True, attributes=KRBD)
    volume.stage()
    volume.publish()
    with open(volume.target(), "r+b", buffering=0) as device:
        device.write(b"corbd" * 1024)
        os.fsync(device.fileno())
    volume.unpublish()
    volume.unstage()
    expect_unmapped(volume, image)
    volume.stage()
    with open(volume.staged_path, "rb") as device:
        check(device.read(5) == b"corbd", "what was written is not there")
    volume.unstage()
    agent.stop()


@long
def story_krbd_read_only(lab):
    """a read-only volume of the kernel's client is mapped read-only, and without a watch"""
    needs_krbd()
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    volume.stage()
    put(os.path.join(volume.staged_path, "x"), "x")
    volume.unstage()
    reader = agent.volume(image, attributes=KRBD, mode="MULTI_NODE_READER_ONLY")
    reader.stage()
    name = os.path.basename(only_device(image))
    check(read("/sys/block/%s/ro" % name) == "1", "the device can be written")
    check(read(os.path.join(reader.staged_path, "x")) == "x", "the filesystem is not the writer's")
    check(not watchers(lab, image), "a reader watches the image")
    reader.unstage()
    expect_unmapped(reader, image)
    agent.stop()


@long
def story_krbd_namespace(lab):
    """an image in a RADOS namespace is mapped by the kernel's client, and told from one of the same name outside"""
    needs_krbd()
    lab.admin("rbd", "namespace", "create", "--pool", lab.pool, "--namespace", "tenant", ok=False)
    outside = lab.image("a", size=64 * MIB)
    inside = "%s/tenant/%s" % (lab.pool, outside.name)
    lab.admin("rbd", "rm", "--no-progress", inside, ok=False)
    lab.admin("rbd", "create", "-s", "64M", "--image-feature", FEATURES, inside)
    lab.write("config/config.json", json.dumps([{"clusterID": "lab", "monitors": [lab.mon], "rbd": {"radosNamespace": "tenant"}}]))
    agent = lab.agent().start()
    volume = agent.volume(outside, attributes=KRBD)
    volume.stage()
    name = os.path.basename(only_device(outside))[3:]
    check(read("/sys/bus/rbd/devices/%s/pool_ns" % name) == "tenant", "the image outside of the namespace was mapped")
    volume.unstage()
    expect_unmapped(volume, outside)
    agent.stop()
    lab.admin("rbd", "rm", "--no-progress", inside)


# [failure:109]
def story_krbd_other_mounter(lab):
    """an image with journaling is refused by its feature, and served over nbd where another mounter may try"""
    needs_krbd()
    image = lab.image("a", size=128 * MIB, features="layering,exclusive-lock,journaling")
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    refused = volume.try_stage()
    check(refused["code"] == "FAILED_PRECONDITION" and "journaling" in refused["message"], "answered %s" % refused)
    volume = agent.volume(image, attributes=("mounter=rbd", "tryOtherMounters=true"))
    volume.stage()
    check(volume.device is not None and not mapped(image), "it is not served over nbd")
    volume.unstage()
    agent.stop()


# [failure:106][failure:111]
def story_krbd_in_use(lab):
    """an image that another client has open is not mapped; the refusal names that client, and the stage succeeds once it is gone"""
    needs_krbd()
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image, attributes=KRBD)
    run(["rbd", "-c", lab.conf, "map", "-o", "noudev,noshare", image.spec])
    try:
        refused = volume.try_stage()
        check(refused["code"] == "FAILED_PRECONDITION", "answered %s" % refused)
    finally:
        unmap_all(image)
    volume.stage(patience=60)
    volume.unstage()
    expect_unmapped(volume, image)
    agent.stop()


# [failure:246]
def story_krbd_of_ceph_csi(lab):
    """a volume that ceph-csi staged with the kernel's client is unstaged without a record, and another one staged again, published, grown, unstaged"""
    needs_krbd()
    agent = lab.agent()
    staged = []
    for name in ("a", "b"):
        image = lab.image(name, size=128 * MIB)
        volume = agent.volume(image, attributes=KRBD)
        device = run(["rbd", "-c", lab.conf, "map", "-o", "noudev", image.spec]).strip()
        run(["mkfs.ext4", "-q", device])
        os.makedirs(volume.staged_path)
        run(["mount", device, volume.staged_path])
        put(os.path.join(volume.staging, "image-meta.json"), json.dumps({
            "Version": 3, "pool": image.pool, "radosNamespace": "", "image": image.name, "unmapOptions": "", "accessType": False,
            "encrypted": False}))
        staged.append((image, volume))
    agent.start()
    image, volume = staged[0]
    volume.unstage()
    expect_unmapped(volume, image)
    check(not os.path.exists(os.path.join(volume.staging, "image-meta.json")), "ceph-csi's stash is left")
    image, volume = staged[1]
    put(os.path.join(volume.staged_path, "x"), "x")
    volume.stage()
    volume.publish()
    check(read(os.path.join(volume.target(), "x")) == "x", "its data is not there")
    lab.admin("rbd", "resize", "--no-progress", "-s", "256M", image.spec)
    volume.expand(256 * MIB, patience=30)
    volume.stats()
    volume.unpublish()
    volume.unstage()
    expect_unmapped(volume, image)
    check(not os.path.exists(os.path.join(volume.staging, "image-meta.json")), "ceph-csi's stash is left")
    agent.stop()


# [failure:241]
def story_number_left_read_only(lab):
    """a number that another program left read-only takes the writes of the writable volumes that get it: a new filesystem, and raw block"""
    device = "/dev/nbd0"
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    # Its device exists, unconfigured, once something was there.
    first = agent.volume(image)
    first.stage()
    check(first.device == 0, "the first volume did not get the first number")
    first.unstage()
    for name, block in (("b", False), ("c", True)):
        run(["blockdev", "--setro", device])
        check(read("/sys/block/nbd0/ro") == "1", "the kernel did not keep the flag")
        volume = agent.volume(lab.image(name, size=64 * MIB), block=block)
        volume.stage()
        volume.publish()
        check(volume.device == 0, "it did not get that number")
        check(read("/sys/block/nbd0/ro") == "0", "the device is read-only")
        with open(volume.target() if block else os.path.join(volume.target(), "x"), "r+b" if block else "wb", buffering=0) as file:
            file.write(b"corbd" * 1024)
            os.fsync(file.fileno())
        volume.unpublish()
        volume.unstage()
    agent.stop()


def encrypted_krbd(lab, agent, name, passphrase=PASSPHRASE):
    """A static volume of the KMS `default` and `mounter: rbd`, ceph-csi's default for encrypted volumes."""
    return encrypted(lab, agent, name, passphrase=passphrase, options=KRBD)


def expect_closed_and_unmapped(volume):
    expect_unmapped(volume, volume.image)
    check(not is_open(volume), "%s is still open" % mapping(volume))
    check(not os.path.exists(os.path.join(volume.staging, "image-meta.json")), "ceph-csi's stash is left")


# [failure:240]
def story_krbd_luks_life(lab):
    """the life of an encrypted volume of the kernel's client: header, filesystem, writes while the agent is killed, growth, unstage, and what was written after the next stage"""
    needs_krbd()
    agent = lab.agent().start()
    volume = encrypted_krbd(lab, agent, "a")
    stage(volume)
    device = only_device(volume.image)
    check(run(["blkid", "-p", "-o", "value", "-s", "TYPE", device]).strip() == "crypto_LUKS", "%s is not LUKS" % device)
    check(metadata(lab, volume, "rbd.csi.ceph.com/encrypted") == "encrypted", "the image's metadata do not say that it is encrypted")
    volume.publish()
    put(os.path.join(volume.target(), "file"), "canary-plaintext " * 4096)
    run(["sync", "-f", volume.target()])
    check(run(["grep", "-c", "canary-plaintext", device], ok=False).strip() == "0", "the image holds plaintext")
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(50)
    agent.kill()
    writer.wait_more(50)
    agent.start()
    stage(volume)
    check(only_device(volume.image) == device and is_open(volume), "it was mapped anew")
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost()
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", volume.image.spec)
    volume.expand(512 * MIB, patience=30)
    usage, abnormal = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    check(abnormal is None, "its condition: %s" % abnormal)
    volume.unpublish()
    volume.unstage()
    expect_closed_and_unmapped(volume)
    stage(volume)
    check("canary-plaintext" in read(os.path.join(volume.staged_path, "file")), "what was written is gone")
    volume.unstage()
    expect_closed_and_unmapped(volume)
    agent.stop()


# [failure:240]
def story_krbd_luks_of_ceph_csi(lab):
    """an encrypted volume that ceph-csi staged with the kernel's client is unstaged without a record, and another one adopted under its writer, published and unstaged"""
    needs_krbd()
    agent = lab.agent()
    staged = []
    for name in ("a", "b"):
        volume = encrypted_krbd(lab, agent, name)
        device = run(["rbd", "-c", lab.conf, "map", "-o", "noudev", volume.image.spec]).strip()
        run(["cryptsetup", "-q", "luksFormat", "--type", "luks2", "--hash", "sha256", "--pbkdf-memory", "32768", device, "-d", volume.passphrase_file])
        run(["cryptsetup", "luksOpen", device, os.path.basename(mapping(volume)), "--disable-keyring", "-d", volume.passphrase_file])
        lab.admin("rbd", "image-meta", "set", volume.image.spec, "rbd.csi.ceph.com/encrypted", "encrypted")
        run(["mkfs.ext4", "-q", mapping(volume)])
        os.makedirs(volume.staged_path)
        run(["mount", mapping(volume), volume.staged_path])
        put(os.path.join(volume.staging, "image-meta.json"), json.dumps({
            "Version": 3, "pool": volume.image.pool, "radosNamespace": "", "image": volume.image.name, "unmapOptions": "", "accessType": False,
            "encrypted": True}))
        staged.append((volume, device))
    volume, device = staged[1]
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(50)
    agent.start()
    staged[0][0].unstage()
    expect_closed_and_unmapped(staged[0][0])
    stage(volume)
    volume.publish()
    check(only_device(volume.image) == device, "it was mapped anew")
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost()
    volume.unpublish()
    volume.unstage()
    expect_closed_and_unmapped(volume)
    agent.stop()


# The simulator kills the agent at every call of this too.
# [failure:112]
@long
def story_krbd_crashes(lab):
    """after kill -9 before or after any step of a stage or unstage with the kernel client, repeating the call converges, and leaves nothing"""
    needs_krbd()
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent()
    sweep = Sweep(agent)
    volume = agent.volume(image, attributes=KRBD)
    staged = sweep.call(volume, "stage")
    check(mounted(volume.staged_path), "%s is not mounted" % volume.staged_path)
    only_device(image)
    unstaged = sweep.call(volume, "unstage")
    expect_unmapped(volume, image)
    say("killed at %d points of stage, %d of unstage" % (staged, unstaged))
    check(staged >= 22 and unstaged >= 10, "too few points were reached")


story_krbd_crashes.limit = 900
