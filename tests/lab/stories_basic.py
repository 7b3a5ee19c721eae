"""A volume's life without faults."""
import os
import stat
import threading
import time

from checks import Failed, check, now_us, say, wait_for
from cluster import FEATURES
from machine import BUILD, MIB, mounted, put, read, run
from stories_peer import RbdNbd
from writer import Writer


def file_of(volume, pod="pod-1"):
    return os.path.join(volume.target(pod), "hello")


# [rule:4]
def story_driver(lab):
    """the nbd room against this kernel's own driver: links, replaced links, sizes, disconnects, numbers"""
    said = run([os.path.join(BUILD, "tests", "lab", "lab_nbd"), "-r", "compact", "~a real kernel keeps the contract*"], timeout=200)
    say(said.strip().splitlines()[-1])


def story_kernel_contract(lab):
    """this kernel does what the simulator's kernel does: dead links, timers, mounts, filesystems, mappings"""
    said = run([os.path.join(BUILD, "tests", "lab", "lab_nbd"), "-r", "compact", "a real kernel keeps the contract*"], timeout=230)
    say(said.strip().splitlines()[-1])


def story_ext4_life(lab):
    """a fresh image is staged with ext4, published, unpublished, unstaged; what was written is there the next time"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
    begin = now_us()
    volume.stage()
    say("stage of a fresh 1 GiB ext4 volume: %.1f s" % ((now_us() - begin) / 1e6))
    volume.expect_staged()
    queue = "/sys/block/nbd%d/queue/" % volume.device
    check(read(queue + "io_timeout") == "1000", "io_timeout is %s, not 1000" % read(queue + "io_timeout"))
    check(os.path.exists(os.path.join(agent.state_dir, "volumes")), "no records in the state directory")
    begin = now_us()
    volume.publish()
    say("publish: %.1f s" % ((now_us() - begin) / 1e6))
    put(file_of(volume), "hello")
    volume.unpublish()
    check(not os.path.exists(volume.target()), "the target is still there")
    volume.unstage()
    volume.expect_gone()
    volume.stage()
    volume.publish()
    check(read(file_of(volume)) == "hello", "the file is not there after the second stage")
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)


def story_block_life(lab):
    """a raw block volume is staged, published as a device, written, unpublished and unstaged"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    check(stat.S_ISBLK(os.stat(volume.staged_path).st_mode), "what is staged is not a block device")
    volume.publish()
    check(stat.S_ISBLK(os.stat(volume.target()).st_mode), "what is published is not a block device")
    writer = Writer(lab, volume.target(), size=64 * MIB).start(seconds=3)
    writer.process.wait(60)
    found = writer.expect_nothing_lost()
    say("acknowledged: %d" % found["acked"])
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    # A second reader shares nothing with the agent. It shows that the bytes are in the cluster.
    peer = RbdNbd(lab, image)
    peer.map()
    writer.expect_nothing_lost(path=peer.device)
    peer.kill()


# [failure:22][failure:23]
def story_repeats(lab):
    """every call may be repeated; one with another capability is refused; unstaging what was never staged succeeds"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
    check(volume.try_unstage()["code"] == "OK", "unstage of an unknown volume is not OK")
    check(volume.try_unpublish()["code"] == "OK", "unpublish of an unknown target is not OK")
    answer = volume.try_publish()
    check(answer["code"] == "FAILED_PRECONDITION", "publish before stage: %s" % answer)
    volume.stage()
    before = volume.device
    volume.stage()
    check(volume.device == before, "a second stage changed the device")
    volume.publish()
    volume.publish()
    volume.publish("pod-2", readonly=True)
    try:
        put(file_of(volume, "pod-2"), "x")
    except OSError:
        pass
    else:
        raise Failed("a read-only publish can be written")
    other = agent.csi("stage", volume_id=volume.id, staging_path=volume.staging, cluster_id="lab", pool=volume.pool, user=volume.user,
                      key_file=volume.key_file, block=True)
    check(other["code"] == "ALREADY_EXISTS", "stage as block over ext4: %s" % other)
    for pod in ("pod-1", "pod-1", "pod-2"):
        volume.unpublish(pod)
    volume.unstage()
    volume.unstage()
    volume.expect_gone()


def story_three_at_once(lab):
    """three volumes are staged and unstaged at the same time"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image(name, size=256 * MIB)) for name in "abc"]
    failures = []

    def life(volume):
        try:
            volume.stage(patience=60)
            volume.expect_staged()
        except Exception as error:
            failures.append(str(error))
    for action in (life, lambda volume: volume.unstage(patience=60)):
        threads = [threading.Thread(target=action, args=(volume,)) for volume in volumes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not failures, "; ".join(failures))
    for volume in volumes:
        volume.expect_gone()


def story_features(lab):
    """an image with layering only is served as well as one with every feature"""
    agent = lab.agent().start()
    for name, features in (("plain", "layering"), ("full", FEATURES + ",deep-flatten")):
        volume = agent.volume(lab.image(name, size=256 * MIB, features=features))
        volume.stage()
        volume.expect_staged()
        volume.unstage()
        volume.expect_gone()


# [rule:8]
def story_busy_unmount(lab):
    """an unpublish and an unstage of a volume in use fail with a retryable error and succeed once it is free"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
    volume.stage()
    volume.publish()
    put(file_of(volume), "busy")
    with open(file_of(volume)) as held:
        answer = volume.try_unpublish()
        check(answer["code"] != "OK", "unpublish of a target in use is OK")
        say("unpublish in use: %s: %s" % (answer["code"], answer["message"]))
        check(held.read() == "busy", "the open file is not readable")
        check(mounted(volume.target()), "the target in use is not mounted any more")
    volume.unpublish(patience=30)
    with open(os.path.join(volume.staged_path, "hello")) as held:
        answer = volume.try_unstage()
        check(answer["code"] != "OK", "unstage of a volume in use is OK")
        say("unstage in use: %s: %s" % (answer["code"], answer["message"]))
        check(held.read() == "busy", "the open file is not readable after the refused unstage")
    volume.unstage(patience=30)
    volume.expect_gone()


# [rule:8]
def story_device_claimed(lab):
    """a device that another mount namespace uses is not disconnected"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    hidden = os.path.join(lab.dir, "hidden")
    os.makedirs(hidden)
    holder = lab.start(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                        "mount /dev/nbd%d %s && touch %s/up && exec sleep 600" % (volume.device, hidden, lab.dir)])
    wait_for("the hidden mount", lambda: os.path.exists(lab.dir + "/up"), 30)
    answer = volume.try_unstage(timeout=30)
    check(answer["code"] != "OK", "unstage is OK while another namespace has the device mounted")
    say("unstage while mounted elsewhere: %s: %s" % (answer["code"], answer["message"]))
    check(volume.device is not None, "the device went away under the other namespace's mount")
    holder.kill()
    holder.wait(20)
    volume.unstage(patience=60)
    volume.expect_gone()


# [failure:5][failure:14][rule:5]
def story_slow_cluster(lab):
    """an OSD that stops for 15 s causes a stall, but no I/O error and no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(50)
    lab.admin("osd", "stop")
    time.sleep(15)
    lab.admin("osd", "cont")
    writer.wait_more(50)
    writer.stop()
    found = writer.expect_nothing_lost()
    say("longest stall %.1f s" % (found["longest_stall_us"] / 1e6))
    check(found["longest_stall_us"] > 8e6, "no stall: the OSD was not stopped")
    volume.unstage(patience=30)
    volume.expect_gone()
