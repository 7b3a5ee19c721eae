"""kill -9 while a helper waits for our own device."""
import fcntl
import os
import shutil
import signal
import time

from checks import Failed, check, long, say, wait_for
from machine import CORBD, processes, read, run


# A mount reads the superblock itself before the kernel does in FSCONFIG_CMD_CREATE.
SYS_READ, SYS_PREAD64, SYS_FSCONFIG = 0, 17, 431


def in_mount():
    """pid of a helper that waits for the device in a mount."""
    for pid in processes(CORBD):
        for task in os.listdir("/proc/%d/task" % pid) if os.path.isdir("/proc/%d/task" % pid) else ():
            waits = read("/proc/%d/task/%s/stat" % (pid, task)).rsplit(") ", 1)[-1].startswith("D")
            call = read("/proc/%d/task/%s/syscall" % (pid, task)).split(" ")[0]
            if waits and call in [str(one) for one in (SYS_READ, SYS_PREAD64, SYS_FSCONFIG)]:
                return pid
    return None


def in_mkfs():
    """pid of the formatting program, once it has begun with the device."""
    return next((pid for pid, line in processes("mkfs.ext4").items() if "/dev/nbd" in line and not line.startswith("/bin/sh")), None)


def hang_helper(lab, agent, volume, what, looking_for):
    """The process that hangs in its use of our device, and the stage that waits for it. The network is down then."""
    if what == "mount":
        volume.stage()
        volume.unstage()
        agent.stop()
        agent.start(failpoints=["step.mount.before=stop"])
    else:
        lab.program("mkfs.ext4", 'case "$*" in */dev/nbd*) touch %s/begun; while [ ! -e %s/go ]; do sleep 0.05; done ;; esac\n'
                    'exec %s "$@"\n' % (lab.dir, lab.dir, shutil.which("mkfs.ext4")))
    call = lab.start([CORBD, "csi", "stage", "--endpoint", agent.endpoint, "--volume-id", volume.id, "--staging-path", volume.staging,
                      "--cluster-id", "lab", "--pool", volume.pool, "--user", lab.user, "--key-file", lab.key_file])
    if what == "mount":
        wait_for("the agent to stop before it mounts", lambda: read("/proc/%d/stat" % agent.process.pid).split(") ")[1][0] == "T", 60)
    else:
        wait_for("the helper to begin with mkfs", lambda: os.path.exists(lab.dir + "/begun"), 60)
    network(lab, "down")
    agent.process.send_signal(signal.SIGCONT)
    lab.write("go", "")
    stuck = wait_for("a helper in " + what, looking_for, 60)
    time.sleep(1)
    check(looking_for() == stuck, "the helper was through %s before the network was cut" % what)
    return stuck, call


def killed_while_helper_hangs(lab, agent, what, looking_for, within=5):
    agent.start()
    volume = agent.volume(lab.image("a"))
    try:
        stuck, call = hang_helper(lab, agent, volume, what, looking_for)
        begin = time.monotonic()
        agent.kill()
        took = time.monotonic() - begin
        say("killed while process %d hangs in %s: the agent was gone after %.2f s" % (stuck, what, took))
        check(took < within, "the killed agent took %.1f s to be gone" % took)
        check(not agent.listens(), "the agent's socket still answers")
        lock_is_free(agent)
    finally:
        network(lab, "up")
    agent.start()
    volume.stage(patience=150)
    volume.expect_staged()
    call.kill()
    volume.unstage(patience=60)
    volume.expect_gone()


def lock_is_free(agent):
    for name in os.listdir(agent.state_dir):
        path = os.path.join(agent.state_dir, name)
        if os.path.isfile(path) and "lock" in name:
            with open(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise Failed("the killed agent's lock %s is still held" % name)
            return
    say("no lock file in the state directory: %s" % os.listdir(agent.state_dir))


def network(lab, way):
    if lab.native:
        lab.admin("link", way)
        return
    run(["ip", "link", "set", "eth0", way])
    if way == "up":
        run(["ip", "route", "replace", "10.223.0.0/16", "via", os.environ["CORBD_LAB_GATEWAY"]])


# [rule:7]
@long
def story_kill_in_mount(lab):
    """after kill -9 while a helper hangs in mount, sockets and lock are free at once, and the next start heals and finishes the stage"""
    killed_while_helper_hangs(lab, lab.agent(), "mount", in_mount)


# [failure:46][rule:7]
@long
def story_kill_in_mkfs(lab):
    """after kill -9 while a helper hangs in mkfs, sockets and lock are free at once, and the next start heals and finishes the stage"""
    killed_while_helper_hangs(lab, lab.agent(), "mkfs", in_mkfs)
