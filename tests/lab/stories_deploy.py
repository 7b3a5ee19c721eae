"""The rights that deploy/kubernetes gives the agent: enough, none too many, and what a container without `privileged` lacks."""
import os
import re
import signal
import subprocess
import time

import yaml

from kit import CORBD, MIB, REPO, Skip, Writer, check, long, mounted, processes, put, read, run, say
from stories_crash import hang_helper, in_mkfs, network
from stories_krbd import KRBD, expect_unmapped, needs_krbd, only_device
from stories_luks import encrypted, expect_closed, stage

# linux/capability.h
NUMBERS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "NET_ADMIN": 12,
           "NET_RAW": 13, "IPC_LOCK": 14, "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_CHROOT": 18, "SYS_PTRACE": 19, "SYS_ADMIN": 21,
           "SYS_NICE": 23, "SYS_RESOURCE": 24, "MKNOD": 27, "SYSLOG": 34}


def manifest():
    """The agent's container of the DaemonSet."""
    with open(os.path.join(REPO, "deploy/kubernetes/base/daemonset.yaml")) as file:
        return yaml.safe_load(file)["spec"]["template"]["spec"]["containers"][0]


def granted():
    rights = manifest()["securityContext"]["capabilities"]
    check(rights["drop"] == ["ALL"], "the manifest keeps more than it lists")
    return rights["add"]


def with_only(capabilities):
    """The words before an agent that has these and no others, and a root folder that it cannot write, as in its container."""
    readonly = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", 'mount -o remount,bind,ro / && exec "$0" "$@"']
    bounds = ",".join(["-all"] + ["+" + name.lower() for name in capabilities])
    return readonly + ["setpriv", "--bounding-set", bounds, "--inh-caps", "-all", "--ambient-caps", "-all", "--"]


def rights_of(agent):
    bits = int(re.search(r"CapEff:\s*(\w+)", read("/proc/%d/status" % agent.process.pid))[1], 16)
    return {number for number in range(64) if bits >> number & 1}


def limited(lab, capabilities, name="agent"):
    agent = lab.agent(name)
    agent.begun_by = with_only(capabilities)
    agent.start()
    check(rights_of(agent) == {NUMBERS[name] for name in capabilities}, "it has other capabilities than it shall: %s" % rights_of(agent))
    return agent


def of_its_application(volume):
    """The root folder belongs to the application alone, as after its first start."""
    os.chown(volume.staged_path, 1000, 1000)
    os.chmod(volume.staged_path, 0o700)


def send_buffers():
    """Bytes, of every unix socket."""
    return {int(size) for size in re.findall(r"skmem:\([^)]*\btb(\d+)", run(["ss", "-x", "-m"]))}


def nothing_denied(agent):
    for message in ("agent.io_flusher", "unmount.sync_failed"):
        check(not agent.events(message), "%s: %s" % (message, agent.events(message)))
    denied = [line for line in read(agent.log_file).splitlines() if "not permitted" in line or "ermission denied" in line]
    check(not denied, "the log has: %s" % denied[:3])


def life_of_ext4(lab, agent):
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    of_its_application(volume)
    volume.publish()
    check(max(send_buffers()) >= 4 * MIB, "send buffers: %s" % send_buffers())
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(30)
    kill = agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(30)
    writer.stop()
    writer.expect_nothing_lost([kill])
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", volume.pool + "/" + volume.id)
    volume.expand(512 * MIB, patience=30)
    usage, _ = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


def life_of_xfs(lab, agent):
    volume = agent.volume(lab.image("b", size=512 * MIB), fstype="xfs")
    volume.stage()
    of_its_application(volume)
    lab.admin("rbd", "resize", "--no-progress", "-s", "768M", volume.pool + "/" + volume.id)
    volume.publish()
    volume.expand(768 * MIB, patience=30)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()


def life_of_luks(lab, agent):
    volume = encrypted(lab, agent, "c")
    stage(volume)
    volume.expect_staged()
    of_its_application(volume)
    agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    volume.unstage()
    expect_closed(volume)


def life_of_krbd(lab, agent):
    image = lab.image("d", size=64 * MIB)
    volume = agent.volume(image, attributes=KRBD)
    volume.stage()
    volume.publish()
    only_device(image)
    put(os.path.join(volume.target(), "file"), "text")
    volume.unpublish()
    volume.unstage()
    expect_unmapped(volume, image)


def story_capabilities(lab):
    """with the manifest's capabilities and nothing else the agent stages, heals, grows and unstages ext4, xfs, encrypted and krbd volumes"""
    agent = limited(lab, granted())
    for life in (life_of_ext4, life_of_xfs, life_of_luks):
        life(lab, agent)
        nothing_denied(agent)
    try:
        needs_krbd()
        life_of_krbd(lab, agent)
    except Skip as skip:
        say("krbd: %s" % skip)
    nothing_denied(agent)
    said = run(with_only(granted()) + [CORBD, "doctor", "--kubelet-dir", lab.kubelet], ok=False)
    for line in said.splitlines():
        say(line)
    for fine in ("capabilities", "mount-propagation") + (() if lab.native else ("pid-namespace", "network-namespace")):
        check(re.search("^OK +%s " % fine, said, re.M), "the doctor is not content with %s" % fine)
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)


story_capabilities.limit = 480


# --- each of them


def denied_admin(lab, agent):
    answer = agent.volume(lab.image("a", size=64 * MIB)).try_stage()
    check(answer["code"] == "PERMISSION_DENIED", "stage: %s" % answer)
    return answer["message"]


def denied_resource(_, agent):
    return agent.wait_event("agent.io_flusher")["error"]


def denied_net_admin(lab, agent):
    volume = agent.volume(lab.image("b", size=64 * MIB), block=True)
    volume.stage()
    largest = max(send_buffers())
    volume.unstage()
    check(largest < 4 * MIB, "a send buffer of %d bytes" % largest)
    return "the largest send buffer has %d KiB" % (largest // 1024)


def denied_dac(lab, agent):
    volume = agent.volume(lab.image("c", size=64 * MIB))
    volume.stage()
    of_its_application(volume)
    volume.unstage()
    failed = agent.events("unmount.sync_failed")
    check(failed, "the root folder of uid 1000 was opened")
    return "unstage: %s" % failed[0]["error"]


def denied_mknod(lab, agent):
    volume = encrypted(lab, agent, "d")
    answer = volume.try_stage(passphrase_file=volume.passphrase_file)
    check(answer["code"] != "OK", "an encrypted volume was staged")
    # What it could not undo either.
    agent.stop()
    agent.begun_by = []
    agent.start()
    volume.unstage(patience=60)
    expect_closed(volume)
    return "%s: %s" % (answer["code"], answer["message"])


WITHOUT = {"SYS_ADMIN": denied_admin, "SYS_RESOURCE": denied_resource, "NET_ADMIN": denied_net_admin, "DAC_READ_SEARCH": denied_dac, "MKNOD": denied_mknod}


# Why each is needed, and what a container without privileges lacks, changes with the kernel, not with us; that they are enough is seen every time.
@long
def story_capability_missing(lab):
    """without any one of the manifest's capabilities the agent lacks what the manifest says that it is for"""
    all_of_them = granted()
    check(set(all_of_them) == set(WITHOUT), "the manifest has %s, this story %s" % (all_of_them, sorted(WITHOUT)))
    for missing, try_it in WITHOUT.items():
        agent = limited(lab, [name for name in all_of_them if name != missing])
        say("without %s: %s" % (missing, try_it(lab, agent)))
        agent.stop()


story_capability_missing.limit = 480


# --- what is no capability

# What a runtime lets every container use: null, zero, full, random, urandom, tty, console, ptmx, pts; and any node may be made.
DEVICES_OF_A_CONTAINER = ("c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm",
                          "c 136:* rwm")


def in_device_cgroup(lab):
    """The words before an agent in such a cgroup: version 1, whose check in the kernel is that of version 2's programs."""
    root = os.path.join(lab.dir, "devices")
    os.makedirs(root)
    if subprocess.run(["mount", "-t", "cgroup", "-o", "devices", "cgroup", root], capture_output=True).returncode != 0:
        raise Skip("this kernel has no device cgroup of version 1 for us")
    group = os.path.join(root, "corbd-lab")
    os.makedirs(group, exist_ok=True)
    put(group + "/devices.deny", "a")
    for line in DEVICES_OF_A_CONTAINER:
        with open(group + "/devices.allow", "w") as file:
            file.write(line)
    return group, ["sh", "-c", "echo $$ >%s/cgroup.procs && exec \"$0\" \"$@\"" % group]


def refused(lab, image, words):
    """A stage by an agent behind these words ends with an error; another agent, without them, takes away what it left."""
    agent = lab.agent()
    agent.begun_by = words
    agent.start()
    volume = agent.volume(lab.image(image, size=64 * MIB))
    answer = volume.try_stage()
    agent.stop()
    check(answer["code"] != "OK", "it was staged")
    agent.begun_by = []
    agent.start()
    volume.unstage(patience=60)
    volume.expect_gone()
    agent.stop()
    return "%s: %s" % (answer["code"], answer["message"])


@long
def story_unprivileged(lab):
    """with all capabilities, but the devices, /sys or mount propagation of a container that is not privileged, no volume reaches its pod"""
    group, words = in_device_cgroup(lab)
    say("with a container's devices: " + refused(lab, "a", words))
    os.rmdir(group)
    read_only = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", 'mount -o remount,bind,ro /sys && exec "$0" "$@"']
    say("with a container's /sys: " + refused(lab, "b", read_only))
    agent = lab.agent()
    agent.begun_by = ["unshare", "--mount", "--propagation", "slave"]
    agent.start()
    volume = agent.volume(lab.image("c", size=64 * MIB))
    volume.stage()
    check(not mounted(volume.staged_path), "the mount reached the host")
    volume.unstage()
    volume.expect_gone()
    agent.stop()




@long
def story_pid_namespace(lab):
    """an agent that is the init of a PID namespace, killed while a mkfs in there waits for its device, does not end before another agent serves that"""
    agent = lab.agent()
    agent.begun_by = ["unshare", "--pid", "--fork"]
    agent.start()
    image = lab.image("a")
    volume = agent.volume(image)
    try:
        stuck, call = hang_helper(lab, agent, volume, "mkfs", in_mkfs)
        init, = [pid for pid, line in processes(CORBD + " run").items() if line.startswith(CORBD + " run")]
        os.kill(init, signal.SIGKILL)
        time.sleep(10)
        say("10 s after its SIGKILL the init, process %d, is %s in %s, and process %d in %s" % (
            init, read("/proc/%d/stat" % init).split(") ")[1][0], read("/proc/%d/wchan" % init), stuck, read("/proc/%d/wchan" % stuck)))
        check(agent.process.poll() is None, "the init ended while a process of its namespace waits for a device")
    finally:
        network(lab, "up")
    # Outside of the container that does not end: kubelet would start none.
    successor = lab.agent("successor").start()
    agent.wait_exit(90)
    volume = successor.volume(image)
    volume.stage(patience=150)
    volume.expect_staged()
    call.kill()
    volume.unstage(patience=60)
    volume.expect_gone()
    successor.stop()
