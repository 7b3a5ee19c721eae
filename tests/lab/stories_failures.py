"""The node fails around the agent: its disk, its descriptors, its memory, its filesystems. docs/failures.md has the number of each."""
import os
import resource
import socket
import subprocess
import threading
import time

import netlink
from checks import Skip, check, long, say, wait_for
from machine import MIB, devices, mounted, put, read, run
from stories_heal import taken_by_another
from stories_luks import encrypted, expect_closed
from stories_peer import RbdNbd
from stories_seen import ask, volumes_of
from writer import Writer


# [failure:18]
def story_full_disk_heals(lab):
    """staged volumes on a full state directory are served on and healed after each kill -9: no I/O error, no lost write"""
    agent = lab.agent()
    os.makedirs(agent.state_dir)
    run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", agent.state_dir])
    agent.start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    subprocess.run(["dd", "if=/dev/zero", "of=" + agent.state_dir + "/full", "bs=512"], capture_output=True)
    kills = []
    for _ in range(2):
        kills.append(agent.kill())
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        check(agent.events("record.not_written"), "the disk took the record after all")
        writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost(kills)
    os.unlink(agent.state_dir + "/full")
    volume.unstage(patience=20)
    volume.expect_gone()
    agent.stop()


# [failure:41]
@long
def story_no_descriptors(lab):
    """an agent without a free descriptor serves its devices; calls wait or fail with a reason, and succeed once descriptors are free"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    other = agent.volume(lab.image("b", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    pid = agent.process.pid
    used = len(os.listdir("/proc/%d/fd" % pid))
    say("descriptors in use: %d" % used)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Leave room for a few calls, but none for what a stage opens.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, hard))
    answer = other.try_stage(timeout=20)
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] != "OK", "the limit does not hold")
    hogs = []
    for _ in range(20):
        hogs.append(socket.socket(socket.AF_UNIX))
        hogs[-1].connect(agent.socket)
    answer = other.try_stage(timeout=10)
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] != "OK", "there is a descriptor left")
    writer.wait_more(50)
    for hog in hogs:
        hog.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    other.stage(patience=60)
    check(agent.process.poll() is None, "the agent ended")
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost()
    for one in (volume, other):
        one.unstage(patience=20)
    volume.expect_gone()


# [failure:42][rule:23]
@long
def story_out_of_memory(lab):
    """an agent that its cgroup's limit kills under a writer is started again and heals: no I/O error, no lost write"""
    root = "/sys/fs/cgroup"
    if not os.path.exists(root + "/cgroup.controllers"):
        if lab.native:
            raise Skip("this machine's cgroups are not ours")
        run(["mount", "-t", "cgroup2", "cgroup2", root])
    if "memory" not in read(root + "/cgroup.controllers").split():
        raise Skip("no memory controller")
    # Not below the containers' cgroup, which takes no processes of its own once it has children.
    group = root + "/corbd-lab-out-of-memory"
    put(root + "/cgroup.subtree_control", "+memory")
    os.makedirs(group, exist_ok=True)
    agent = lab.agent()
    agent.begun_by = ["sh", "-c", "echo $$ >%s/cgroup.procs; exec \"$0\" \"$@\"" % group]
    agent.start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    kills = []
    for _ in range(2):
        used = int(read(group + "/memory.current"))
        kills.append(time.time_ns() // 1000)
        with open(group + "/memory.max", "w") as file:
            file.write(str(used // 4))
        code = agent.wait_exit(60)
        say("limited from %d MiB to a quarter: the agent ended with %s" % (used // MIB, code))
        check(code == -9, "it was not killed")
        check("oom_kill 0" not in read(group + "/memory.events").replace("oom_kill_group", ""), "not for its memory")
        with open(group + "/memory.max", "w") as file:
            file.write("max")
        agent.start()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost(kills)
    volume.unstage(patience=20)
    volume.expect_gone()
    agent.stop()
    wait_for("the empty cgroup", lambda: not read(group + "/cgroup.procs"), 20)
    os.rmdir(group)


# [failure:47]
def story_damaged_filesystem(lab):
    """a filesystem that fsck cannot repair by itself is neither mounted nor formatted, and is as it was"""
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image)
    volume.stage()
    volume.unstage()
    peer = RbdNbd(lab, image)
    peer.map()
    # Remove the root folder, and let the superblock say so.
    run(["debugfs", "-w", "-R", "clri <2>", peer.device])
    run(["debugfs", "-w", "-R", "ssv state 2", peer.device])
    peer.unmap()
    answer = volume.try_stage()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] not in ("OK", "UNAVAILABLE"), "stage of a damaged filesystem: %s" % answer["code"])
    check(not mounted(volume.staged_path), "it is mounted")
    volume.expect_gone()
    peer.map()
    said = subprocess.run(["e2fsck", "-n", "-f", peer.device], capture_output=True, text=True, timeout=60).stdout
    check("oot inode is not a directory" in said or "oot inode not allocated" in said, "the damage is gone: %s" % said[-300:])
    peer.unmap()


def digest(lab, image):
    """Of the whole image, as the cluster has it."""
    exported = run(["sh", "-c", "rbd -c %s export --no-progress %s - | sha256sum" % (lab.conf, image.spec)])
    return exported.split()[0]


def fsck(agent, volume, *words, code):
    """The output of corbd fsck beside a stage, as kubelet repeats one."""
    stage = threading.Timer(1.5, volume.try_stage)
    stage.start()
    said = ask(agent, "fsck", volume.id, "--timeout", "50", *words, code=code)
    stage.join()
    say(said)
    return said


# [failure:47]
def story_on_damage(lab):
    """a damaged ext4 is refused or mounted without a write as its volume says, and the command of the error repairs it, as corbd fsck does"""
    image = lab.image("a", size=64 * MIB)
    agent = lab.agent().start()
    volume = agent.volume(image)
    answer = agent.volume(image, attributes=["corbd/on-damage=repair"]).try_stage()
    check(answer["code"] == "INVALID_ARGUMENT" and "fsck, refuse or read-only" in answer["message"], "an unknown word: %s" % answer)
    volume.stage()
    put(os.path.join(volume.staged_path, "kept"), "kept")
    volume.unstage()
    peer = RbdNbd(lab, image)
    peer.map()
    run(["debugfs", "-w", "-R", "mkdir lost", peer.device])
    run(["debugfs", "-w", "-R", "clri lost", peer.device])
    run(["debugfs", "-w", "-R", "ssv state 3", peer.device])
    # A replay of the empty journal would take this away again.
    run(["debugfs", "-w", "-R", "feature needs_recovery", peer.device])
    peer.unmap()
    before = digest(lab, image)
    refusing = agent.volume(image, attributes=["corbd/on-damage=refuse"])
    answer = refusing.try_stage()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "FAILED_PRECONDITION" and "e2fsck -f" in answer["message"], "refuse: %s" % answer)
    refusing.expect_gone()
    check("corbd fsck --repair %s" % refusing.id in answer["message"], "the error names no corbd fsck")
    said = fsck(agent, refusing, code=1)
    check("waiting for the next stage" in said and "e2fsck -f -n" in said and "nothing was changed" in said, "corbd fsck: %s" % said)
    check(digest(lab, image) == before, "corbd fsck changed the image")
    reading = agent.volume(image, attributes=["corbd/on-damage=read-only"])
    reading.stage()
    check(read("/sys/block/nbd%d/ro" % reading.device).strip() == "1", "the device takes writes")
    check(read(os.path.join(reading.staged_path, "kept")) == "kept", "the file is gone")
    said = agent.events("filesystem.damaged", volume=reading.id)
    check(said and "e2fsck -f" in said[-1]["cause"], "the log names no command: %s" % said)
    answer = reading.try_publish()
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "FAILED_PRECONDITION" and "readOnly" in answer["message"], "a pod that may write: %s" % answer)
    reading.publish("pod-2", readonly=True)
    kept = os.path.join(reading.target("pod-2"), "kept")
    agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=reading.id)
    run(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"])
    check(read(kept) == "kept", "the file is gone after a heal")
    check(read("/sys/block/nbd%d/ro" % reading.device).strip() == "1", "the device takes writes after a heal")
    index = reading.device
    reading.unpublish("pod-2", patience=20)
    reading.unstage(patience=20)
    reading.expect_gone()
    check(read("/sys/block/nbd%d/ro" % index).strip() == "0", "the number stays read-only")
    check(digest(lab, image) == before, "something was written")
    said = fsck(agent, refusing, "--repair", code=0)
    check("e2fsck -f -y" in said and "no error is left" in said, "corbd fsck --repair: %s" % said)
    refusing.expect_staged()
    check(read(os.path.join(refusing.staged_path, "kept")) == "kept", "the file is gone after the repair")
    said = ask(agent, "fsck", refusing.id, code=1)
    check(refusing.staged_path in said, "corbd fsck of a mounted volume: %s" % said)
    refusing.unstage(patience=20)
    refusing.expect_gone()


# [failure:52]
@long
def story_hung_unmount(lab):
    """an unmount that hangs on a device without proof holds up no other volume, and ends once its volume is given up"""
    agent = lab.agent().start()
    image = lab.image("a", size=64 * MIB)
    volume, other = agent.volume(image), agent.volume(lab.image("b", size=64 * MIB))
    volume.stage()
    with open(os.path.join(volume.staged_path, "file"), "wb") as file:
        file.write(os.urandom(MIB))
    agent.kill()
    peer = taken_by_another(lab, image)
    run(["dd", "if=/dev/zero", "of=" + peer.device, "bs=4096", "count=1", "seek=15000", "oflag=direct"])
    unmount = lab.start(["umount", volume.staged_path])
    agent.start()
    agent.wait_event("volume.state", 60, volume=volume.id, new="unproven")
    for _ in range(2):
        other.stage()
        other.expect_staged()
        other.unstage()
    answer = volume.try_unstage(timeout=10)
    say("unstage of the unproven volume: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] != "OK" and unmount.poll() is None, "the unmount did not wait")
    ask(agent, "fail", volume.id, "--yes-really")
    agent.wait_event("volume.failed", 150, volume=volume.id)
    unmount.wait(60)
    volume.unstage(patience=90)
    volume.expect_gone()
    peer.kill()


story_hung_unmount.limit = 360


# [failure:116][rule:8]
def story_held_open(lab):
    """an unstage waits as long as another program has the device open, names it, and ends once it is closed, even across a restart"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=64 * MIB))
    volume.stage()
    held = os.open("/dev/nbd%d" % volume.device, os.O_RDONLY)
    call = volume.begin("unstage")
    seen = agent.wait_event("operation.waits", 20, volume=volume.id)
    say(seen["waits_for"])
    check("fuser" in seen["waits_for"], "it does not say what to do")
    agent.kill()
    call.end()
    agent.start()
    call = volume.begin("unstage")
    agent.wait_event("operation.waits", 20, volume=volume.id)
    os.close(held)
    answer = call.end()
    check(answer["code"] == "OK", "unstage: %s" % answer)
    volume.expect_gone()
    agent.stop()


def taken_away(agent, volume, **options):
    volume.stage(**options)
    volume.publish()
    put(os.path.join(volume.staged_path, "kept"), "x")
    netlink.disconnect(volume.device)
    agent.wait_event("volume.state", 20, volume=volume.id, new="absent")
    told = wait_for("its error", lambda: volumes_of(agent)[volume.id].get("last_error"), 20)
    say("%s" % told)
    answer = volume.try_stage(timeout=20, **options)
    say("stage: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "UNAVAILABLE", "it is staged")
    volume.unpublish(patience=20)
    volume.unstage(patience=20)
    volume.expect_gone()
    volume.stage(patience=20, **options)
    check(read(os.path.join(volume.staged_path, "kept")) == "x", "what was written is gone")
    volume.unstage(patience=20)
    volume.expect_gone()


# [failure:113]
def story_taken_away(lab):
    """a mounted volume whose device another program disconnects gets I/O errors, is reported, and can be restaged once its pod has ended"""
    agent = lab.agent().start()
    taken_away(agent, agent.volume(lab.image("a", size=64 * MIB)))
    agent.stop()


# [failure:113]
def story_taken_away_block(lab):
    """a pod whose raw device another program disconnected never sees another volume under its number, and the volume can be restaged later"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=64 * MIB), block=True)
    volume.stage()
    volume.publish()
    number = volume.device
    netlink.disconnect(number)
    wait_for("the device to go", lambda: number not in devices(), 20)
    answer = volume.try_stage(timeout=20)
    say("stage: %s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "UNAVAILABLE", "it is staged under its pod")
    other = agent.volume(lab.image("b", size=64 * MIB), block=True)
    other.stage()
    check(other.device != number, "the other volume has its number: the pod would write to it")
    for restart in (False, True):
        try:
            with open(volume.target(), "rb") as file:
                check(not file.read(1), "the pod reads something")
        except OSError as error:
            say("the pod gets: %s" % error)
        if not restart:
            agent.kill()
            agent.start()
            agent.wait_event("device.reconnected", 60, volume=other.id)
    other.unstage(patience=20)
    other.stage()
    check(other.device != number, "after a restart the other volume has its number")
    volume.unpublish()
    volume.stage(patience=20)
    volume.publish()
    run(["dd", "if=/dev/zero", "of=" + volume.target(), "bs=4096", "count=1", "oflag=direct"])
    volume.unpublish()
    for one in (volume, other):
        one.unstage(patience=20)
    volume.expect_gone()
    agent.stop()


@long
def story_taken_away_others(lab):
    """an xfs volume and an encrypted one survive a disconnect by another program in the same way"""
    agent = lab.agent().start()
    taken_away(agent, agent.volume(lab.image("a", size=512 * MIB), fstype="xfs"))
    volume = encrypted(lab, agent, "b")
    taken_away(agent, volume, passphrase_file=volume.passphrase_file)
    expect_closed(volume)
    agent.stop()
