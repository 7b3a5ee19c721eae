"""kill -9 at every place, under load."""
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import time

from kit import CORBD, MIB, TRANSIENT, Failed, Writer, check, long, now_us, processes, read, run, say, show_timeline, timeline, wait_for
from stories_peer import RbdNbd
from stories_seen import ask


def restart_under(writer, agent, volume):
    """One kill -9, restart and heal under a writer; when it was killed."""
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    return kill


def story_kill_block(lab):
    """kill -9 three times under O_DIRECT writes to a raw block volume: no I/O error, no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(40)
    kills = []
    for number in range(3):
        kills.append(restart_under(writer, agent, volume))
        found = writer.stalls(kills)["kills"][-1]
        show_timeline(number + 1, timeline(agent, volume, kills[-1], found))
        check(volume.device is not None, "the device is gone")
    writer.stop()
    found = writer.expect_nothing_lost(kills)
    say("acknowledged %d, longest stall %.2f s" % (found["acked"], found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()


def killed_again_and_again(lab, rounds):
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
    volume.stage()
    writers = [Writer(lab, os.path.join(volume.staged_path, mode), size=16 * MIB, mode=mode, threads=2, paced=1).start()
               for mode in ("direct", "fsync", "mmap")]
    dice = random.Random(rounds)
    kills = []
    for number in range(rounds):
        if number % 2:
            time.sleep(dice.uniform(0.05, 3))
        else:
            for writer in writers:
                writer.wait_more(10)
        kills.append(agent.kill())
        agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    for writer in writers:
        writer.wait_more(30)
        writer.stop()
    # A full unmount and a new mount drop what the kernel may have cached.
    for again in (False, True):
        for writer in writers:
            found = writer.expect_nothing_lost(kills)
            if not again:
                say("%s: acknowledged %d over %d kills, longest stall %.2f s" % (
                    os.path.basename(writer.path), found["acked"], rounds, found["longest_stall_us"] / 1e6))
        volume.unstage(patience=30)
        volume.expect_gone()
        if not again:
            volume.stage()


def story_kill_10(lab):
    """10 rounds of kill -9 under O_DIRECT, buffered and mmap writers on ext4, half of them in the middle of the healing: no I/O error, no lost write"""
    killed_again_and_again(lab, 10)


@long
def story_kill_50(lab):
    """50 rounds of kill -9 under O_DIRECT, buffered and mmap writers on ext4, half of them in the middle of the healing: no I/O error, no lost write"""
    killed_again_and_again(lab, 50)


story_kill_50.limit = 480


def story_term(lab):
    """SIGTERM and a new start under the writer: no I/O error, no lost write, and the lock was kept"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(40)
    terms = []
    for number in range(2):
        terms.append(now_us())
        check(agent.stop() == 0, "SIGTERM: exit code %s" % agent.process.returncode)
        agent.spawn()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(40)
        show_timeline(number + 1, timeline(agent, volume, terms[-1], writer.stalls(terms)["kills"][-1]))
    writer.stop()
    writer.expect_nothing_lost(terms)
    volume.unstage(patience=30)
    volume.expect_gone()


def story_three_volumes_heal(lab):
    """three volumes under load heal together after one kill -9"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image(name, size=256 * MIB), block=True) for name in "abc"]
    for volume in volumes:
        volume.stage()
    writers = [Writer(lab, volume.staged_path, threads=2, paced=2).start() for volume in volumes]
    for writer in writers:
        writer.wait_more(20)
    kill = agent.kill()
    agent.spawn()
    for volume, writer in zip(volumes, writers):
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(20)
    for number, (volume, writer) in enumerate(zip(volumes, writers), 1):
        writer.stop()
        found = writer.expect_nothing_lost([kill])
        show_timeline(number, timeline(agent, volume, kill, found["kills"][0]))
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()


# --- at every step

def failpoints():
    return run([CORBD, "run", "--list-failpoints"]).split()


RECOVERY = ("fence", "open_image", "lock", "start_session", "kernel_reconfigure")


class Sweep:
    """Starts the agent with every failpoint armed that was not hit yet, until a call gets through or all is quiet."""

    def __init__(self, agent):
        self.agent, self.hit = agent, []

    def spawn(self):
        if self.agent.running:
            self.agent.kill()
        self.agent.spawn(failpoints=[name + "=kill" for name in failpoints() if name not in self.hit])

    def died(self, patience=0.3):
        """Whether a failpoint ended it; which one is then known."""
        try:
            self.agent.process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        check(self.agent.process.returncode == -signal.SIGKILL, "the agent ended with %s: %s" % (self.agent.process.returncode, self.agent.tail()))
        name = self.agent.events("failpoint.hit")[-1]["name"]
        check(name not in self.hit, "%s was not armed" % name)
        self.hit.append(name)
        return True

    def call(self, volume, method):
        """The same call until it is answered, however often the agent dies in it or before it; at how many points it did. The steps by
        which the next start serves the device again are killed in once for all calls."""
        self.hit = [name for name in self.hit if name.split(".")[1] in RECOVERY]
        before = len(self.hit)
        call = None
        while True:
            self.spawn()
            # This call starts beside the agent. If it was not made yet when the agent died, it goes to the next agent.
            call = call or volume.begin(method, wait=True)
            while not call.ended():
                if self.died(0.02):
                    break
            else:
                answer, call = call.end(), None
                if self.died():
                    continue
                check(answer["code"] in TRANSIENT + ("OK",), "after %s: %s" % (", ".join(self.hit), answer))
                if answer["code"] == "OK":
                    return len(self.hit) - before
                continue
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline and not call.ended():
                time.sleep(0.01)
            if call.ended():
                call = None


def killed_everywhere(lab, **options):
    agent = lab.agent()
    sweep = Sweep(agent)
    volume = agent.volume(lab.image("a", size=512 * MIB), **options)
    # A blocklisting is a commit of the monitors, which they gather for a second. This story does not measure that.
    lab.admin("ceph", "config", "set", "mon", "paxos_propose_interval", "0.05")
    points = [sweep.call(volume, "stage")]
    volume.expect_staged()
    for method in ("publish", "unpublish", "unstage"):
        points.append(sweep.call(volume, method))
    volume.expect_gone()
    lab.admin("ceph", "config", "rm", "mon", "paxos_propose_interval")
    say("killed at %d points of stage, %d of publish, %d of unpublish, %d of unstage" % tuple(points))
    check(points[0] >= (18 if volume.block else 26) and points[1] >= 4 and points[2] >= 4 and points[3] >= 10, "too few points were reached: %s" % points)


@long
def story_kill_everywhere_ext4(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of an ext4 volume: the same call again converges, nothing is left"""
    killed_everywhere(lab)


@long
def story_kill_everywhere_xfs(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of an xfs volume: the same call again converges, nothing is left"""
    killed_everywhere(lab, fstype="xfs")


@long
def story_kill_everywhere_block(lab):
    """kill -9 before and after every step of stage, publish, unpublish and unstage of a block volume: the same call again converges, nothing is left"""
    killed_everywhere(lab, block=True)


def killed_while_healing(lab, **options):
    agent = lab.agent().start()
    sweep = Sweep(agent)
    volume = agent.volume(lab.image("a", size=512 * MIB), **options)
    volume.stage()
    writer = Writer(lab, volume.staged_path if volume.block else os.path.join(volume.staged_path, "data")).start()
    while True:
        sweep.spawn()
        wait_for("a failpoint, or the end of the healing",
                 lambda: agent.process.poll() is not None or agent.events("volume.healed", volume=volume.id), 60)
        # The point may be in the last step, and "healed" comes only after that.
        if not sweep.died():
            break
    agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    writer.stop()
    writer.expect_nothing_lost()
    say("killed at %d points of the healing: %s" % (len(sweep.hit), ", ".join(sweep.hit)))
    check(len(sweep.hit) >= 10, "too few points were reached")
    volume.unstage(patience=30)
    volume.expect_gone()


@long
def story_kill_while_healing_ext4(lab):
    """kill -9 before and after every step of the healing of an ext4 volume, under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab)


@long
def story_kill_while_healing_xfs(lab):
    """kill -9 before and after every step of the healing of an xfs volume, under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab, fstype="xfs")


@long
def story_kill_while_healing_block(lab):
    """kill -9 before and after every step of the healing of a block volume, under one writer: the next start heals, no I/O error, no lost write"""
    killed_while_healing(lab, block=True)


for sweep in (story_kill_everywhere_ext4, story_kill_everywhere_xfs, story_kill_everywhere_block):
    sweep.limit = 900


# --- while a helper waits for our own device

SYS_FSCONFIG = 431  # FSCONFIG_CMD_CREATE reads the superblock


def in_mount():
    """pid of a helper inside the call that mounts."""
    for pid in processes(CORBD):
        for task in os.listdir("/proc/%d/task" % pid) if os.path.isdir("/proc/%d/task" % pid) else ():
            if read("/proc/%d/task/%s/syscall" % (pid, task)).split(" ")[0] == str(SYS_FSCONFIG):
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
    say("no lock file in the state folder: %s" % os.listdir(agent.state_dir))


def network(lab, way):
    if lab.native:
        lab.admin("link", way)
        return
    run(["ip", "link", "set", "eth0", way])
    if way == "up":
        run(["ip", "route", "replace", "10.223.0.0/16", "via", os.environ["CORBD_LAB_GATEWAY"]])


@long
def story_kill_in_mount(lab):
    """kill -9 while a helper hangs in mount on our own device: sockets and lock are free at once, the next start heals and the stage ends"""
    killed_while_helper_hangs(lab, lab.agent(), "mount", in_mount)


@long
def story_kill_in_mkfs(lab):
    """kill -9 while a helper hangs in mkfs on our own device: sockets and lock are free at once, the next start heals and the stage ends"""
    killed_while_helper_hangs(lab, lab.agent(), "mkfs", in_mkfs)


# --- which node owns the image

def watchers(lab, image):
    status = json.loads(lab.admin("rbd", "status", "--format", "json", image.spec))
    return [watcher["address"] for watcher in status.get("watchers", [])]


def story_image_recreated(lab):
    """an image deleted and made anew under the same name while the agent was down is not served and not written"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=2, paced=0).start()
    writer.wait_more(20)
    agent.kill()
    for address in watchers(lab, image):
        lab.admin("ceph", "osd", "blocklist", "add", address, "60")
    wait_for("the dead watcher to go", lambda: not watchers(lab, image), 60, 0.5)
    image.remove()
    lab.admin("rbd", "create", "-s", "256M", "--image-feature", "layering,exclusive-lock,object-map,fast-diff", image.spec)
    before = writer.acked()
    agent.spawn()
    ended = wait_for("the agent's verdict", lambda: agent.events("volume.state", volume=volume.id, to="lost"), 60)
    say("the agent says: %s" % {name: value for name, value in ended[0].items() if name not in ("ts", "ts_us", "level")})
    time.sleep(3)
    check(not agent.events("device.reconnected", volume=volume.id), "the new image is served under the old device")
    check(lab.admin("rbd", "diff", image.spec).strip() == "", "the new image was written")
    good = writer.stalls()
    check(good["acked"] <= before, "%d writes were acknowledged with the image gone" % (good["acked"] - before))


def story_unproven(lab):
    """an image without exclusive-lock is not served again by itself after a kill -9, but is on the operator's word"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB, features="layering"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(20)
    kills = [agent.kill()]
    agent.spawn()

    def verdict():
        return [entry for entry in agent.lines() if entry.get("volume") == volume.id and "unproven" in str(entry)]
    said = wait_for("the word unproven", verdict, 60)[0]
    say("the agent says: %s" % {name: value for name, value in said.items() if name not in ("ts", "ts_us", "level")})
    time.sleep(5)
    check(not agent.events("device.reconnected", volume=volume.id), "it is served without proof")
    answer = volume.try_stage(timeout=20)
    check(answer["code"] != "OK", "stage blesses a volume that is not served")
    say("stage meanwhile: %s: %s" % (answer["code"], answer["message"]))
    say(ask(agent, "heal", volume.id, "--without-proof").strip())
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    check(agent.events("admin.heal_without_proof", volume=volume.id), "the word is not in the log")
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost(kills)
    volume.unstage(patience=30)
    volume.expect_gone()


def story_other_node_took_it(lab):
    """an image that another node has opened meanwhile is not served again"""
    agent = lab.agent().start()
    image = lab.image("a", size=256 * MIB)
    volume = agent.volume(image, block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=2, paced=0).start()
    writer.wait_more(20)
    agent.kill()
    for address in watchers(lab, image):
        lab.admin("ceph", "osd", "blocklist", "add", address, "600")
    peer = RbdNbd(lab, image)
    peer.cookie = "lab-another-node"
    peer.map()
    run(["dd", "if=/dev/zero", "of=" + peer.device, "bs=4096", "count=1", "seek=60000", "oflag=direct"])
    agent.spawn()
    ended = wait_for("the agent's verdict", lambda: [entry for entry in agent.lines() if entry.get("volume") == volume.id and entry.get(
        "msg") == "volume.heal_failed"], 90)
    say("the agent says: %s" % {name: value for name, value in ended[0].items() if name not in ("ts", "ts_us", "level")})
    time.sleep(3)
    check(not agent.events("device.reconnected", volume=volume.id), "the image is served while another node writes it")
    peer.kill()


def story_outage(lab):
    """monitors and OSDs out of reach for 60 s, with a kill -9 in the middle of it, cost a stall, no I/O error and no write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(20)
    network(lab, "down")
    time.sleep(5)
    kill = agent.kill()
    agent.spawn()
    time.sleep(55)
    check(agent.csi("probe")["code"] == "OK", "the agent does not answer without its cluster")
    network(lab, "up")
    agent.wait_event("device.reconnected", 90, volume=volume.id)
    writer.wait_more(20)
    writer.stop()
    found = writer.expect_nothing_lost([kill])
    say("longest stall %.1f s" % (found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()
