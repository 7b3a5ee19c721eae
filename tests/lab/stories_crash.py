"""kill -9, at every place, under load."""
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time

from kit import CORBD, MIB, Failed, Writer, check, now_us, processes, read, run, say, show_timeline, timeline, wait_for
from stories_peer import RbdNbd


def restart_under(writer, agent, volume):
    """One kill -9, restart and heal under a writer; when it was killed."""
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    return kill


def killed_thrice(lab, block, mode):
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=block)
    volume.stage()
    path = volume.staged_path if block else os.path.join(volume.staged_path, "data")
    writer = Writer(lab, path, mode=mode).start()
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
    # What the kernel may have cached is out of the way after a full unmount and a new mount.
    volume.unstage(patience=30)
    volume.expect_gone()
    volume.stage()
    writer.expect_nothing_lost(kills)
    volume.unstage()
    volume.expect_gone()


def story_kill_direct(lab):
    """kill -9 three times under O_DIRECT writes to a raw block volume: no I/O error, no lost write"""
    killed_thrice(lab, True, "direct")


def story_kill_fsync(lab):
    """kill -9 three times under write and fdatasync on ext4: no I/O error, no lost write"""
    killed_thrice(lab, False, "fsync")


def story_kill_mmap(lab):
    """kill -9 three times under mmap and msync on ext4: no I/O error, no lost write"""
    killed_thrice(lab, False, "mmap")


def story_kill_20(lab):
    """20 rounds of kill -9, every second one in the middle of the healing: no I/O error, no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, threads=8).start()
    writer.wait_more(40)
    dice = random.Random(20)
    kills = []
    for number in range(20):
        if number % 2:
            time.sleep(dice.uniform(0.05, 4))
        else:
            writer.wait_more(40)
        kills.append(agent.kill())
        agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(100)
    writer.stop()
    found = writer.expect_nothing_lost(kills)
    say("acknowledged %d over 20 kills, longest stall %.2f s" % (found["acked"], found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()


story_kill_20.limit = 420


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
    return [name for name in run([CORBD, "run", "--list-failpoints"]).split() if re.match(r"(step|stage|heal)\.", name)]


def died(agent, timeout=5):
    """Whether a failpoint ended it."""
    try:
        agent.process.wait(timeout)
    except subprocess.TimeoutExpired:
        return False
    check(agent.process.returncode == -signal.SIGKILL, "the agent ended with %s: %s" % (agent.process.returncode, agent.tail()))
    return True


def story_kill_at_every_step(lab):
    """kill -9 before and after every step of stage and unstage, then a restart and the same call again: it converges, nothing is left"""
    hit, missed = [], []
    for number, point in enumerate(failpoints()):
        agent = lab.agent("agent-%d" % number).start(failpoints=[point + "=kill"])
        volume = agent.volume(lab.image("a%d" % number, size=64 * MIB))
        for attempt, again in ((volume.try_stage, volume.stage), (volume.try_unstage, volume.unstage)):
            answer = attempt()
            if died(agent, 5 if answer["code"] != "OK" else 0.2):
                hit.append(point)
                agent.start()
            elif answer["code"] != "OK":
                raise Failed("%s: %s" % (point, answer))
            try:
                if answer["code"] != "OK":
                    again(patience=60)
                if attempt == volume.try_stage:
                    volume.expect_staged()
                else:
                    volume.expect_gone()
            except Failed as failure:
                raise Failed("kill at %s: %s" % (point, failure))
        if point not in hit:
            missed.append(point)
        if agent.running:
            agent.kill()
        check(volume.device is None, "kill at %s: the device is left" % point)
    say("killed at %d points; not on the way: %s" % (len(hit), ", ".join(missed)))
    check(len(hit) > 20, "only %d points were reached" % len(hit))


story_kill_at_every_step.limit = 1200


def story_kill_while_healing(lab):
    """kill -9 before and after every step of the healing, under one writer: the next start heals, no I/O error, no lost write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    hit = []
    for point in failpoints():
        agent.kill()
        agent.spawn(failpoints=[point + "=kill"])
        wait_for("%s, or the end of the healing" % point,
                 lambda: agent.process.poll() is not None or agent.events("volume.healed", volume=volume.id), 60)
        # The point may be in the last step, after which "healed" is said.
        if died(agent, 0.3):
            hit.append(point)
    if agent.running:
        agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(40)
    writer.stop()
    writer.expect_nothing_lost()
    say("killed at %d points of the healing: %s" % (len(hit), ", ".join(hit)))
    check(len(hit) >= 6, "too few points were reached")
    volume.unstage(patience=30)
    volume.expect_gone()


story_kill_while_healing.limit = 600


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


def killed_while_helper_hangs(lab, what, looking_for):
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a"))
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
    try:
        agent.process.send_signal(signal.SIGCONT)
        lab.write("go", "")
        stuck = wait_for("a helper in " + what, looking_for, 60)
        time.sleep(1)
        check(looking_for() == stuck, "the helper was through %s before the network was cut" % what)
        begin = time.monotonic()
        agent.kill()
        took = time.monotonic() - begin
        say("killed while process %d hangs in %s: the agent was gone after %.2f s" % (stuck, what, took))
        check(took < 5, "the killed agent took %.1f s to be gone" % took)
        check(not agent_alive(agent), "the agent's socket still answers")
        lock_is_free(agent)
    finally:
        network(lab, "up")
    agent.start()
    volume.stage(patience=150)
    volume.expect_staged()
    call.kill()
    volume.unstage(patience=60)
    volume.expect_gone()


def agent_alive(agent):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(agent.socket)
            return True
        except OSError:
            return False


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
        run(["ip", "route", "replace", "10.223.0.0/16", "via", "10.0.2.2"])


def story_kill_in_mount(lab):
    """kill -9 while a helper hangs in mount on our own device: sockets and lock are free at once, the next start heals and the stage ends"""
    killed_while_helper_hangs(lab, "mount", in_mount)


def story_kill_in_mkfs(lab):
    """kill -9 while a helper hangs in mkfs on our own device: sockets and lock are free at once, the next start heals and the stage ends"""
    killed_while_helper_hangs(lab, "mkfs", in_mkfs)


# --- whose image is it

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
    ended = wait_for("the agent's verdict", lambda: agent.events("volume.not_healed", volume=volume.id) or agent.events(
        "volume.lost", volume=volume.id), 60)
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
    agent.kill()
    agent.spawn(flags=["--heal-without-proof"])
    agent.wait_event("device.reconnected", 60, volume=volume.id)
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
        "msg") in ("volume.not_healed", "volume.lost", "volume.heal_failed", "volume.unproven")], 90)
    say("the agent says: %s" % {name: value for name, value in ended[0].items() if name not in ("ts", "ts_us", "level")})
    time.sleep(3)
    check(not agent.events("device.reconnected", volume=volume.id), "the image is served while another node writes it")
    peer.kill()


def story_outage(lab):
    """a network outage of 20 s, with a kill -9 in the middle of it, costs a stall, no I/O error and no write"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path).start()
    writer.wait_more(20)
    network(lab, "down")
    time.sleep(5)
    kill = agent.kill()
    agent.spawn()
    time.sleep(15)
    check(agent.csi("probe")["code"] == "OK", "the agent does not answer without its cluster")
    network(lab, "up")
    agent.wait_event("device.reconnected", 90, volume=volume.id)
    writer.wait_more(20)
    writer.stop()
    found = writer.expect_nothing_lost([kill])
    say("longest stall %.1f s" % (found["longest_stall_us"] / 1e6))
    volume.unstage(patience=30)
    volume.expect_gone()
