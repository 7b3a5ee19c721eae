"""What must not work, and must leave nothing behind."""
import os
import subprocess
import time

from checks import Skip, check, long, say
from machine import CORBD, MIB, mounted, processes, put, read, run


def refused(volume, codes, words=()):
    answer = volume.try_stage()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] in codes, "expected %s, got %s" % ("/".join(codes), answer))
    for word in words:
        check(word in answer["message"], "the message does not name %s: %s" % (word, answer["message"]))
    check(volume.agent.lab.key not in answer["message"], "the message holds the key")
    volume.expect_gone()


# [failure:31]
def story_wrong_requests(lab):
    """an unknown clusterID, a missing pool, a missing image and a wrong key each fail with a reason and leave nothing behind"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    refused(agent.volume(image, cluster_id="elsewhere"), ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"), ["elsewhere"])
    refused(agent.volume(image, pool="nopool"), ("NOT_FOUND",), ["nopool"])
    refused(agent.volume(image, name="noimage"), ("NOT_FOUND",), ["noimage"])
    wrong = lab.write("wrong", "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==")
    refused(agent.volume(image, key_file=wrong), ("UNAUTHENTICATED", "PERMISSION_DENIED"))
    refused(agent.volume(image, user="nobody"), ("UNAUTHENTICATED", "PERMISSION_DENIED"))
    # None of these failures may spoil the good case.
    volume = agent.volume(image)
    volume.stage()
    volume.unstage()
    volume.expect_gone()


# [rule:14]
def story_path_outside(lab):
    """a staging path outside the kubelet's folder, or through a symbolic link, is refused"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.staging = os.path.join(lab.dir, "outside")
    os.makedirs(volume.staging)
    refused(volume, ("INVALID_ARGUMENT",))
    link = os.path.join(lab.kubelet, "link")
    os.symlink(volume.staging, link)
    volume.staging = link
    refused(volume, ("INVALID_ARGUMENT",))


def story_bad_input(lab):
    """a broken config.json, a missing staging folder, a tiny image, an unknown filesystem and an RWX filesystem each fail with a reason and leave nothing"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    config = os.path.join(lab.dir, "config", "config.json")
    good = read(config)
    for bad in (None, "", "{", '{"clusterID":"lab"}', '[{"clusterID":"lab","monitors":[]}]'):
        os.unlink(config) if bad is None else lab.write("config/config.json", bad)
        answer = agent.volume(image).try_stage()
        say("config.json %r: %s: %s" % (bad, answer["code"], answer["message"]))
        check(answer["code"] != "OK" and "config.json" in answer["message"], "config.json %r: %s" % (bad, answer))
        agent.volume(image).expect_gone()
        lab.write("config/config.json", good)
    volume = agent.volume(image)
    volume.staging = os.path.join(lab.kubelet, "nowhere")
    refused(volume, ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"), ["nowhere"])
    refused(agent.volume(lab.image("tiny", size=512 * 1024)), ("FAILED_PRECONDITION",), ["524288"])
    refused(agent.volume(image, fstype="zfs"), ("INVALID_ARGUMENT",), ["zfs", "ext4", "xfs"])
    refused(agent.volume(image, mode="MULTI_NODE_MULTI_WRITER"), ("INVALID_ARGUMENT",), ["RWX"])
    refused(agent.volume(image, mode="UNKNOWN"), ("INVALID_ARGUMENT",), ["access mode"])


# [rule:11]
def story_target_in_the_way(lab):
    """a target that is a link, or a folder with something in it, is refused and nothing in it is deleted"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    target = volume.target()
    elsewhere = os.path.join(lab.kubelet, "elsewhere")
    os.makedirs(elsewhere)
    put(os.path.join(elsewhere, "precious"), "precious")
    os.symlink(elsewhere, target)
    answer = volume.try_publish()
    say("a link: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "INVALID_ARGUMENT", "a link: %s" % answer)
    os.unlink(target)
    os.makedirs(target)
    put(os.path.join(target, "precious"), "precious")
    answer = volume.try_publish()
    say("a folder with something in it: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] != "OK", "a folder with something in it: %s" % answer)
    check(volume.try_unpublish()["code"] in ("OK", "FAILED_PRECONDITION", "INTERNAL", "ABORTED", "UNAVAILABLE"), "unpublish of it")
    for place in (elsewhere, target):
        check(read(os.path.join(place, "precious")) == "precious", "%s/precious was deleted" % place)
    os.unlink(os.path.join(target, "precious"))
    volume.publish(patience=20)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


# [failure:18][failure:19]
@long
def story_state_folder_full(lab):
    """a stage fails before it acts on a full or read-only state directory, and staged volumes keep running"""
    agent = lab.agent()
    os.makedirs(agent.state_dir)
    run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", agent.state_dir])
    agent.start()
    staged = agent.volume(lab.image("a", size=256 * MIB))
    staged.stage()
    other = agent.volume(lab.image("b", size=256 * MIB))

    def fails():
        answer = other.try_stage()
        say("%s: %s" % (answer["code"], answer["message"]))
        check(answer["code"] != "OK", "stage is OK")
        check(agent.state_dir in answer["message"], "the message does not name the folder")
        check(other.device is None and not mounted(other.staged_path), "it acted before it wrote")
        put(os.path.join(staged.staged_path, "still"), "here")
    subprocess.run(["dd", "if=/dev/zero", "of=" + agent.state_dir + "/full", "bs=4k"], capture_output=True)
    fails()
    os.unlink(agent.state_dir + "/full")
    records = os.path.join(agent.state_dir, "volumes")
    run(["mount", "--bind", records, records])
    run(["mount", "-o", "remount,bind,ro", records])
    fails()
    run(["umount", records])
    other.stage(patience=20)
    for volume in (staged, other):
        volume.unstage(patience=20)
    staged.expect_gone()
    agent.stop()


# [rule:1]
def story_cache_refused(lab):
    """an image whose metadata switches the write-back cache on is not served"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    lab.admin("rbd", "config", "image", "set", image.spec, "rbd_cache", "true")
    refused(agent.volume(image), ("FAILED_PRECONDITION",), ["rbd_cache"])
    lab.admin("rbd", "config", "image", "rm", image.spec, "rbd_cache")
    volume = agent.volume(image)
    volume.stage()
    volume.unstage()
    volume.expect_gone()


# [rule:10]
def story_foreign_data(lab):
    """an image that holds data but no filesystem is not formatted"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    lab.admin("rbd", "bench", "--io-type", "write", "--io-size", "4096", "--io-total", "65536", "--io-pattern", "rand", image.spec)
    before = lab.admin("rbd", "diff", image.spec)
    answer = agent.volume(image).try_stage()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "FAILED_PRECONDITION", "expected FAILED_PRECONDITION, got %s" % answer)
    check(lab.admin("rbd", "diff", image.spec) == before, "the image was written")
    agent.volume(image).expect_gone()


# [failure:49]
def story_second_agent(lab):
    """a second agent on the same state directory ends at once and names the process that holds it"""
    agent = lab.agent().start()
    second = lab.agent("second")
    begin = time.monotonic()
    second.spawn()
    code = second.wait_exit(60)
    say("the second agent said: %s" % second.tail(2))
    check(code not in (0, -9), "the second agent ended with %s" % code)
    check(time.monotonic() - begin < 30, "it took %.0f s" % (time.monotonic() - begin))
    check(str(agent.process.pid) in second.tail(5), "it does not name process %d" % agent.process.pid)
    check(agent.csi("probe")["code"] == "OK", "the first one does not answer any more")


# [failure:30]
def story_no_nbd(lab):
    """a stage without the nbd module fails and names it; with the module the same agent serves"""
    if lab.native:
        raise Skip("this kernel is not ours to unload modules from")
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    block = "/etc/modprobe.d/corbd-lab.conf"
    run(["rmmod", "nbd"])
    with open(block, "w") as file:
        file.write("install nbd /bin/false\n")
    try:
        answer = volume.try_stage(timeout=60)
        say("%s: %s" % (answer["code"], answer["message"]))
        check(answer["code"] != "OK", "stage is OK without the module")
        check("nbd" in answer["message"], "the message does not name nbd: %s" % answer["message"])
        check(not mounted(volume.staged_path), "something is mounted")
    finally:
        os.unlink(block)
        run(["modprobe", "nbd", "nbds_max=0"])
    volume.stage(patience=60)
    volume.expect_staged()
    volume.unstage()
    volume.expect_gone()


def story_runtime_on_disk(lab):
    """a runtime folder that is not on tmpfs is refused, because keys must not reach a disk"""
    agent = lab.agent()
    disk = os.path.join(lab.out, "runtime")
    agent.spawn(flags=["--runtime-dir", disk])
    code = agent.wait_exit(60)
    say("it said: %s" % agent.tail(2))
    check(code not in (0, -9), "the agent runs with its keys in %s" % disk)


# [failure:31][rule:15]
def story_no_secret_in_sight(lab):
    """the Ceph key is in no log line, argument, environment or record"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    volume.publish()
    key = lab.key.encode()
    seen = [agent.log_file]
    for folder, _, files in os.walk(agent.state_dir):
        seen += [os.path.join(folder, name) for name in files]
    for pid in processes(CORBD):
        seen += ["/proc/%d/%s" % (pid, name) for name in ("cmdline", "environ")]
    check(len(seen) > 3, "too few places were looked at: %s" % seen)
    for path in seen:
        with open(path, "rb") as file:
            check(key not in file.read(), "the key is in %s" % path)
    for folder, _, files in os.walk(os.path.join(lab.dir, "runtime")):
        for name in files:
            mode = os.stat(os.path.join(folder, name)).st_mode & 0o077
            check(mode == 0, "%s is open to others: %o" % (name, mode))
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    left = []
    for folder, _, files in os.walk(os.path.join(lab.dir, "runtime")):
        for name in files:
            # The admin socket is there too.
            if not os.path.isfile(os.path.join(folder, name)):
                continue
            with open(os.path.join(folder, name), "rb") as file:
                left += [name] if key in file.read() else []
    check(not left, "the key is still in %s after unstage" % left)
