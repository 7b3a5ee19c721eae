"""From ceph-csi's node plugin and back, with what it leaves on a node. `corbd doctor` says beforehand what happens."""
import base64
import hashlib
import json
import os
import subprocess

from checks import check, long, now_us, say, wait_for
from machine import CORBD, MIB, devices, mounted, put, read, run
from stories_kube import NODE, ApiServer
from stories_krbd import needs_krbd, only_device
from stories_peer import RbdNbd
from stories_seen import ask, show, volumes_of
from volume import DRIVER
from writer import Writer

CSI = "plugins/kubernetes.io/csi"
SECRET = "/api/v1/namespaces/ceph/secrets/key"


def known(server, lab, volume, **attributes):
    """Its objects in the API server: a bound PersistentVolume that is attached here."""
    pv = "pv-" + volume.id
    name = "csi-" + hashlib.sha256((volume.id + DRIVER + NODE).encode()).hexdigest()
    server.objects["/apis/storage.k8s.io/v1/volumeattachments/" + name] = {
        "metadata": {"name": name, "uid": "uid-" + volume.id, "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": pv}}, "status": {"attached": True}}
    server.objects["/api/v1/persistentvolumes/" + pv] = {
        "metadata": {"name": pv, "uid": "pv-uid"}, "status": {"phase": "Bound"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block" if volume.block else "Filesystem",
                 "claimRef": {"namespace": "shop", "name": "data", "uid": "claim-uid"},
                 "csi": {"driver": DRIVER, "volumeHandle": volume.id, "fsType": "ext4", "nodeStageSecretRef": {"name": "key", "namespace": "ceph"},
                         "volumeAttributes": {"staticVolume": "true", "clusterID": volume.cluster_id, "pool": volume.pool, **attributes}}}}
    server.objects[SECRET] = {"data": {
        "userID": base64.b64encode(lab.user.encode()).decode(), "userKey": base64.b64encode(read(lab.key_file).strip().encode()).decode()}}


def as_kubelet_stages(lab, volume):
    """kubelet's own folder and file of a filesystem."""
    folder = os.path.join(lab.kubelet, CSI, DRIVER, hashlib.sha256(volume.id.encode()).hexdigest())
    volume.staging = os.path.join(folder, "globalmount")
    os.makedirs(volume.staging)
    put(os.path.join(folder, "vol_data.json"), json.dumps({"driverName": DRIVER, "volumeHandle": volume.id}))


def by_ceph_csi(lab, agent, image, nbd, device):
    """A filesystem on `device`, as ceph-csi's NodeStageVolume leaves it."""
    volume = agent.volume(image, attributes=() if nbd else ("mounter=rbd",))
    as_kubelet_stages(lab, volume)
    os.makedirs(volume.staged_path)
    run(["mkfs.ext4", "-q", device])
    run(["mount", device, volume.staged_path])
    stash = {"Version": 3, "pool": image.pool, "radosNamespace": "", "image": image.name, "unmapOptions": "", "accessType": nbd, "encrypted": False}
    if nbd:
        stash.update(device=device, logDir="/var/log/ceph", logFileStrategy="remove")
    put(os.path.join(volume.staging, "image-meta.json"), json.dumps(stash))
    return volume


def host_pids():
    """In a PID namespace of the lab's own, its /proc is the host's."""
    return [] if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]" else ["--root", "/"]


def forecast(agent, what, code):
    """What `corbd doctor --before-...` says: JSON."""
    argv = [CORBD, "doctor", "--before-" + what, "--nodeid", NODE, "--kubelet-dir", agent.lab.kubelet, "--config-dir", os.path.join(agent.dir, "config"),
            "--state-dir", agent.state_dir, "--runtime-dir", os.path.join(agent.dir, "runtime"), "--drivername", DRIVER, *host_pids()]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=90)
    show(shown.stdout)
    check(shown.returncode == code, "doctor --before-%s: exit code %d, not %d: %s" % (what, shown.returncode, code, shown.stderr))
    said = subprocess.run(argv + ["-o", "json"], capture_output=True, text=True, timeout=90)
    return {one["volume_id"]: one for one in json.loads(said.stdout)["volumes"]}


def cache_of(found):
    return [one for one in found["findings"] if one["check"] == "cache"]


def wait_staged(agent, volume):
    wait_for("%s staged" % volume.id, lambda: volumes_of(agent)[volume.id]["health"] == "staged", 30)


def writer_on(lab, volume):
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(30)
    return writer


def keeps_writing(writer, kills=()):
    writer.wait_more(50, timeout=120)
    writer.stop()
    return writer.expect_nothing_lost(kills)


def story_migrated_and_back(lab):
    """a node goes from ceph-csi to corbd and back under a writer on rbd-nbd's volume, as the doctor predicted, without an I/O error"""
    server, agent = ApiServer(lab), lab.agent()
    image = lab.image("a", size=256 * MIB)
    peer = RbdNbd(lab, image)
    # Switch off rbd-nbd's cache, which loses acknowledged writes by itself.
    peer.map("--rbd_cache=false")
    volume = by_ceph_csi(lab, agent, image, True, peer.device)
    known(server, lab, volume, mounter="rbd-nbd", mapOptions="nbd:rbd_cache=false")
    writer = writer_on(lab, volume)
    before = forecast(agent, "migration", 1)[volume.id]
    check(not cache_of(before), "it is not seen that rbd-nbd runs without a cache: %s" % before)
    check(before["now"].startswith("rbd-nbd, process %d" % peer.process.pid), "now: %s" % before)
    check(before["next_stage"] == "corbd, by its attribute mounter", "next stage: %s" % before)
    check(before["claim"] == "shop/data" and before["device"] == peer.device, "%s" % before)

    # ceph-csi's pod ends, and with it rbd-nbd. The agent asks the API server: nobody stages.
    kills = [now_us()]
    peer.kill()
    check(forecast(agent, "migration", 2)[volume.id]["now"].startswith("nobody"), "a device without a server has one")
    agent.start()
    agent.wait_event("device.reconnected", 120, volume=volume.id)
    writer.wait_more(50)
    wait_staged(agent, volume)
    check(forecast(agent, "migration", 0)[volume.id]["now"] == "corbd", "it is not seen that corbd serves it")

    # And back: ceph-csi's healer attaches rbd-nbd to the device of its image-meta.json.
    after = forecast(agent, "rollback", 1)[volume.id]
    check(after["now"] == "corbd" and after["after"].startswith("rbd-nbd"), "%s" % after)
    agent.stop()
    stash = json.loads(read(os.path.join(volume.staging, "image-meta.json")))
    check(stash["accessType"] and stash["device"] == peer.device, "ceph-csi would find %s" % stash)
    kills.append(now_us())
    peer.attach()
    found = keeps_writing(writer, kills)
    say("longest stall %.2f s" % (found["longest_stall_us"] / 1e6))
    check(mounted(volume.staged_path), "its mount is gone")
    run(["umount", volume.staged_path])
    peer.unmap()
    # What the image has, and not only what a living rbd-nbd has of it.
    peer.map("--rbd_cache=false")
    run(["mount", peer.device, volume.staged_path])
    writer.expect_nothing_lost(kills)
    run(["umount", volume.staged_path])
    peer.unmap()


def story_migrated_krbd(lab):
    """a volume of the kernel's client goes from ceph-csi to corbd and back under its writer without a stall, as the doctor said"""
    needs_krbd()
    server, agent = ApiServer(lab), lab.agent(flags=["--default-mounter=rbd"])
    image = lab.image("a", size=256 * MIB)
    device = run(["rbd", "-c", lab.conf, "map", "-o", "noudev", image.spec]).strip()
    volume = by_ceph_csi(lab, agent, image, False, device)
    known(server, lab, volume, mounter="rbd")
    writer = writer_on(lab, volume)
    before = forecast(agent, "migration", 0)[volume.id]
    check(before["now"] == "the kernel" and "without a break" in before["after"], "%s" % before)
    check(before["next_stage"] == "the kernel, by its attribute mounter", "%s" % before)
    agent.start()
    writer.wait_more(30)
    volume.stage()  # kubelet, when it starts
    check(only_device(image) == device, "it was mapped anew")
    after = forecast(agent, "rollback", 0)[volume.id]
    check("without a break" in after["after"], "%s" % after)
    agent.stop()
    keeps_writing(writer)
    # ceph-csi's unstage, by the names in its file.
    stash = json.loads(read(os.path.join(volume.staging, "image-meta.json")))
    check(not stash["accessType"], "ceph-csi would look for rbd-nbd: %s" % stash)
    run(["umount", volume.staged_path])
    run(["rbd", "-c", lab.conf, "unmap", "%s/%s" % (stash["pool"], stash["image"]), "--options", "noudev"])
    check(not os.path.exists("/sys/bus/rbd/devices/" + device[len("/dev/rbd"):]), "%s is left" % device)


def story_rollback_refused(lab):
    """the doctor refuses a rollback that would leave a volume unserved, whose unstage by ceph-csi says OK and leaves its device"""
    server, agent = ApiServer(lab), lab.agent()
    image = lab.image("a", size=128 * MIB)
    agent.start()
    volume = agent.volume(image)
    as_kubelet_stages(lab, volume)
    known(server, lab, volume)
    volume.stage()
    device = volume.device
    found = forecast(agent, "rollback", 2)[volume.id]
    check(found["after"] == "nobody", "%s" % found)
    check("leaves /dev/nbd%d" % device in found["findings"][0]["said"], "%s" % found["findings"])
    agent.stop()
    # As ceph-csi's NodeUnstageVolume calls it. It takes this answer for success.
    said = run(["rbd-nbd", "unmap", image.spec, "-c", lab.conf], ok=False)
    check("is not mapped" in said, "rbd-nbd unmap says: %s" % said)
    check(device in devices(), "the device is gone")
    # The way out: corbd is put back on the node, and drains.
    agent.start()
    agent.wait_event("device.reconnected", 120, volume=volume.id)
    wait_staged(agent, volume)
    drain = lab.start([CORBD, "drain", "--runtime-dir", os.path.join(agent.dir, "runtime")])
    volume.unstage(patience=30)
    check(drain.wait(60) == 0, "the drain ended with %s" % drain.returncode)
    volume.expect_gone()
    check(not forecast(agent, "rollback", 0), "something is left to go back")
    agent.stop()


@long
def story_migration_refused(lab):
    """a volume of rbd-nbd without a cookie fails the doctor's check, and corbd leaves it to rbd-nbd"""
    server, agent = ApiServer(lab), lab.agent()
    image = lab.image("a", size=128 * MIB)
    peer = RbdNbd(lab, image)
    before = set(devices())
    index = None
    try:
        peer.process = lab.start(["rbd-nbd", "map", image.spec, "-c", lab.conf, "--try-netlink", "--foreground"], log=os.path.join(lab.out, "rbd-nbd.log"))
        index = wait_for("rbd-nbd's device", lambda: [one for one in devices() if one not in before and devices()[one]["size"] > 0], 60)[0]
        peer.device = "/dev/nbd%d" % index
        volume = by_ceph_csi(lab, agent, image, True, peer.device)
        known(server, lab, volume, mounter="rbd-nbd")
        found = forecast(agent, "migration", 2)[volume.id]
        check([one for one in found["findings"] if one["check"] == "identifier"], "%s" % found)
        check(cache_of(found), "the cache of rbd-nbd is no finding: %s" % found)
        agent.start()
        said = volume.try_stage()
        refused = "carries" in said["message"] or "something else is mounted" in said["message"]
        check(said["code"] == "FAILED_PRECONDITION" and refused, "a stage of it says %s" % said)
        check(peer.process.poll() is None, "rbd-nbd has ended")
        check(index in devices(), "its device is gone")
        agent.stop()
        run(["umount", volume.staged_path])
    finally:
        if index is not None and peer.process.poll() is None:
            peer.unmap()
