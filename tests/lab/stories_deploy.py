"""The rights that deploy/kubernetes gives the agent, read from there. The stories show that none is too many, and why the agent needs the host's PIDs.
stories_container.py shows that they are enough in a container."""
import os
import re
import signal
import time

import yaml

from checks import check, long, say
from machine import CORBD, MIB, REPO, processes, read, run
from stories_hang import hang_helper, in_mkfs, network
from stories_luks import encrypted, expect_closed

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


def capabilities_of(pid):
    bits = int(re.search(r"CapEff:\s*(\w+)", read("/proc/%d/status" % pid))[1], 16)
    return {number for number in range(64) if bits >> number & 1}


def limited(lab, capabilities):
    agent = lab.agent()
    agent.begun_by = with_only(capabilities)
    agent.start()
    check(capabilities_of(agent.process.pid) == {NUMBERS[name] for name in capabilities}, "it has other capabilities than it shall")
    return agent


def of_its_application(volume):
    """The root folder belongs to the application alone, as after its first start."""
    os.chown(volume.staged_path, 1000, 1000)
    os.chmod(volume.staged_path, 0o700)


def send_buffers():
    """Bytes, of every unix socket."""
    return {int(size) for size in re.findall(r"skmem:\([^)]*\btb(\d+)", run(["ss", "-x", "-m"]))}


def denied_admin(lab, agent):
    answer = agent.volume(lab.image("a", size=64 * MIB)).try_stage()
    check(answer["code"] == "PERMISSION_DENIED", "stage: %s" % answer)
    return answer["message"]


def denied_resource(_, agent):
    return agent.wait_event("agent.io_flusher")["error"]


def denied_net_admin(lab, agent):
    # What anybody may have without the capability; newer kernels allow as much as the agent asks for.
    with open("/proc/sys/net/core/wmem_max", "w") as file:
        file.write("212992")
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
    # An agent with all capabilities undoes what this one could not.
    agent.stop()
    agent.begun_by = []
    agent.start()
    volume.unstage(patience=60)
    expect_closed(volume)
    return "%s: %s" % (answer["code"], answer["message"])


WITHOUT = {"SYS_ADMIN": denied_admin, "SYS_RESOURCE": denied_resource, "NET_ADMIN": denied_net_admin, "DAC_READ_SEARCH": denied_dac, "MKNOD": denied_mknod}


# Why each capability is needed depends on the kernel, not on us. Every run shows that they are enough.
# [rule:16]
@long
def story_capability_missing(lab):
    """an agent without one of the manifest's capabilities fails at what the manifest says it is for"""
    all_of_them = granted()
    check(set(all_of_them) == set(WITHOUT), "the manifest has %s, this story %s" % (all_of_them, sorted(WITHOUT)))
    for missing, try_it in WITHOUT.items():
        agent = limited(lab, [name for name in all_of_them if name != missing])
        say("without %s: %s" % (missing, try_it(lab, agent)))
        agent.stop()


story_capability_missing.limit = 480


# [rule:7]
@long
def story_pid_namespace(lab):
    """an agent that is its PID namespace's init, killed during a mkfs, does not end before another agent serves the device"""
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
    # This agent runs outside of the container. That container does not end, so kubelet would start no other one.
    successor = lab.agent("successor").start()
    agent.wait_exit(90)
    volume = successor.volume(image)
    volume.stage(patience=150)
    volume.expect_staged()
    call.kill()
    volume.unstage(patience=60)
    volume.expect_gone()
    successor.stop()
