"""An agent with a parent process that starts it again when it dies, and has its links meanwhile."""
import mmap
import os
import signal
import time

from checks import Skip, check, long, now_us, say, wait_for
from machine import CORBD, MIB, child_of, devices, processes, read, run
from stories_handover import blocklisted, expect_silence, hand_over, told_by_nbd
from writer import Writer

# With the fourth death a keeper lets the links go, unless each agent had them all for 10 s. A handover makes a new one.
KILLS = 3
SERVES_WELL = 10.5


def kill_child(agent, volumes):
    """SIGKILL for the agent; when. Returns once the next one has gone on with every link."""
    before = {volume.id: len(agent.events("nbd.resumed", volume=volume.id)) for volume in volumes}
    child = child_of(agent.process.pid)
    check(child, "the keeper has no agent")
    kill = now_us()
    os.kill(child, signal.SIGKILL)
    for volume in volumes:
        wait_for("the next agent to go on with %s" % volume.id,
                 lambda volume=volume: len(agent.events("nbd.resumed", volume=volume.id)) > before[volume.id] or not agent.running, 60)
    check(agent.running, "the keeper ended with %s: %s" % (agent.process.poll(), agent.tail()))
    return kill


def staged(lab, agent):
    kinds = [("a", True, "direct"), ("b", False, "direct"), ("c", False, "fsync"), ("d", False, "mmap")]
    volumes = [agent.volume(lab.image("%s-%s" % (agent.name, name), size=256 * MIB), block=block) for name, block, _ in kinds]
    for volume in volumes:
        volume.stage()
    writers = [Writer(lab, volume.staged_path if block else os.path.join(volume.staged_path, "data"), size=16 * MIB, mode=mode, threads=4, paced=2).start()
               for volume, (_, block, mode) in zip(volumes, kinds)]
    return volumes, writers


def told(stalls):
    return ", ".join("%.2f" % (stall / 1e6) for stall in stalls)


def killed(lab, rounds, hands_over=True):
    agent = lab.agent(flags=["--keeper"]).start()
    volumes, writers = staged(lab, agent)
    numbers, said = [volume.device for volume in volumes], told_by_nbd()
    kills, unanswered = [], []

    def look_at_log():
        check(not agent.events("nbd.not_resumed"), "a link was not gone on with: %s" % agent.events("nbd.not_resumed"))
        unanswered.extend(entry["unanswered"] for entry in agent.events("nbd.resumed"))

    for number in range(rounds):
        if not hands_over:
            time.sleep(SERVES_WELL)
        elif number > 0 and number % KILLS == 0:
            look_at_log()
            kills.append(hand_over(agent, volumes))
        for writer in writers:
            writer.wait_more(20)
        kills.append(kill_child(agent, volumes))
    expect_silence(said)
    check([volume.device for volume in volumes] == numbers, "a device has another number")
    look_at_log()
    say("requests that were under way at the kills: %s" % unanswered)
    check(sum(unanswered) > 0, "no request was under way at any kill")
    check(not agent.events("keeper.links_let_go"), "the keeper let links go: %s" % agent.events("keeper.links_let_go"))
    stalls = []
    for writer in writers:
        writer.wait_more(20)
        writer.stop()
        stalls.append(writer.expect_nothing_lost(kills)["longest_stall_us"])
    say("%d kills, longest stall with a keeper %s s" % (rounds, told(stalls)))
    for volume in volumes:
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)
    return stalls


# [failure:152]
def story_keeper(lab):
    """four rounds of kill -9 with a keeper, under writers: no I/O error, no lost write, nothing in the kernel log, no timeout"""
    killed(lab, 4)


# [failure:152]
@long
def story_keeper_compared(lab):
    """the longest stall of a kill -9 under writers on four volumes, with a keeper and without"""
    with_keeper = killed(lab, 2)
    agent = lab.agent("plain").start()
    volumes, writers = staged(lab, agent)
    kills = []
    for _ in range(2):
        for writer in writers:
            writer.wait_more(20)
        kills.append(agent.kill())
        agent.spawn()
        for volume in volumes:
            agent.wait_event("device.reconnected", 60, volume=volume.id)
    stalls = []
    for writer in writers:
        writer.wait_more(20)
        writer.stop()
        stalls.append(writer.expect_nothing_lost(kills)["longest_stall_us"])
    say("longest stall without a keeper %s s, with one %s s" % (told(stalls), told(with_keeper)))
    for volume in volumes:
        volume.unstage(patience=30)
    for volume in volumes:
        volume.expect_gone()


# [failure:152]
def story_keeper_handover(lab):
    """a handover between agents with keepers, and a kill -9 of the next agent: the kernel sees neither, and nothing is lost"""
    agent = lab.agent(flags=["--keeper"]).start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    said, moments = told_by_nbd(), []
    for _ in range(2):
        moments.append(hand_over(agent, [volume]))
        writer.wait_more(20)
        moments.append(kill_child(agent, [volume]))
        writer.wait_more(20)
    expect_silence(said)
    writer.stop()
    writer.expect_nothing_lost(moments)
    volume.unstage(patience=30)
    volume.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)


def in_resize():
    """The helper inside the command that waits in the kernel."""
    for pid, line in processes(CORBD).items():
        if line.endswith(" helper") and read("/proc/%d/stat" % pid).split(") ")[-1][:1] == "D":
            return pid
    return None


def is_stopped(pid):
    return read("/proc/%d/stat" % pid).split(") ")[-1][:1] == "T"


# [failure:162][rule:3]
def story_kill_in_resize(lab):
    """after kill -9 with a keeper during a blocked resize, the next agent answers the writes, the device has grown, and nothing is lost"""
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 9):
        raise Skip("before Linux 6.9 a resize waits for nothing")
    agent = lab.agent(flags=["--keeper"]).start(failpoints=["step.kernel_resize.asked=stop"])
    image = lab.image("a", size=64 * MIB)
    volume, other = agent.volume(image, block=True), agent.volume(lab.image("b", size=64 * MIB), block=True)
    volume.stage()
    writer = Writer(lab, volume.staged_path, size=16 * MIB, threads=4).start()
    writer.wait_more(20)
    lab.admin("rbd", "resize", "--no-progress", "-s", "96M", image.spec)
    child = child_of(agent.process.pid)
    wait_for("the agent to stop before it resizes", lambda: is_stopped(child), 60)
    lab.admin("osd", "stop")
    try:
        os.kill(child, signal.SIGCONT)
        helper = wait_for("a helper in the resize", in_resize, 30)
        time.sleep(0.5)
        check(in_resize() == helper, "the resize did not wait")
        kill = now_us()
        os.kill(child, signal.SIGKILL)
        following = wait_for("the keeper to start the next agent", lambda: child_of(agent.process.pid) not in (0, child) and child_of(agent.process.pid), 20)
        agent.wait_event("agent.started", 60, pid=following)
        check(in_resize() == helper, "the resize ended although nobody answered")
    finally:
        lab.admin("osd", "cont")

    def in_spite_of_stops(condition):
        # The next agent has the failpoint too, and may have looked at the device just before it grew.
        def look():
            if is_stopped(following):
                os.kill(following, signal.SIGCONT)
            return condition()
        return look
    wait_for("the next agent to answer, and the device to grow",
             in_spite_of_stops(lambda: agent.events("nbd.resumed", volume=volume.id) and devices()[volume.device]["size"] == 96 * MIB), 60)
    wait_for("the helper to end", lambda: not os.path.exists("/proc/%d" % helper), 30)
    goal = writer.acked() + 20
    wait_for("20 more writes", in_spite_of_stops(lambda: writer.acked() >= goal), 60)
    writer.stop()
    writer.expect_nothing_lost([kill])
    other.stage(patience=30)
    for one in (volume, other):
        one.unstage(patience=30)
    for one in (volume, other):
        one.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)


# [failure:152]
@long
def story_keeper_50(lab):
    """50 rounds of kill -9 with a keeper, under 16 writers on four volumes: no I/O error, no lost write, nothing in the kernel log"""
    killed(lab, 50)


story_keeper_50.limit = 1200


# [failure:163]
@long
def story_keeper_50_alone(lab):
    """50 rounds of kill -9 under one keeper, without a handover in between: no I/O error, no lost write, nothing in the kernel log"""
    killed(lab, 50, hands_over=False)


story_keeper_50_alone.limit = 2400


# [failure:153]
def story_keeper_dies(lab):
    """agents whose keeper is killed, that crash, or that die again and again leave no trusted link: the next ones heal without a loss"""
    agent = lab.agent(flags=["--keeper"]).start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    kills = []

    # The keeper alone: its agent goes with it.
    child = child_of(agent.process.pid)
    kills.append(agent.kill())
    wait_for("the agent's end", lambda: not os.path.exists("/proc/%d" % child) or " Z " in read("/proc/%d/stat" % child), 20)
    agent.spawn()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(20)

    # A program that crashed may have written anywhere. Nothing of it is gone on with.
    resumed, healed = (len(agent.events(name, volume=volume.id)) for name in ("nbd.resumed", "device.reconnected"))
    kills.append(now_us())
    os.kill(child_of(agent.process.pid), signal.SIGSEGV)
    agent.wait_event("keeper.links_let_go", 20)
    wait_for("the device to be healed", lambda: len(agent.events("device.reconnected", volume=volume.id)) > healed, 60)
    check(len(agent.events("nbd.resumed", volume=volume.id)) == resumed, "a link of an agent that crashed was gone on with")
    writer.wait_more(20)

    # An agent that dies again and again, perhaps of what the last one left.
    let_go, healed = (len(agent.events(name)) for name in ("keeper.links_let_go", "device.reconnected"))
    while len(agent.events("keeper.links_let_go")) == let_go:
        check(agent.running, "the keeper ended with %s: %s" % (agent.process.poll(), agent.tail()))
        child = child_of(agent.process.pid)
        if child:
            kills.append(now_us())
            os.kill(child, signal.SIGKILL)
        time.sleep(0.3)
    wait_for("the device to be healed", lambda: len(agent.events("device.reconnected")) > healed, 60)
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost(kills[:2] + kills[-1:])
    volume.unstage(patience=30)
    volume.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)


def crash_loop(lab, seconds):
    agent = lab.agent(flags=["--keeper"]).start()
    volume = agent.volume(lab.image("a", size=256 * MIB))
    volume.stage()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    keeper, before, kills, written = agent.process.pid, blocklisted(lab), [], [writer.acked()]
    until = time.time() + seconds
    while time.time() < until:
        child = child_of(keeper)
        if child:
            time.sleep(4)
            written.append(writer.acked())
            kills.append(now_us())
            os.kill(child, signal.SIGKILL)
            wait_for("the agent's end", lambda child=child: child_of(keeper) != child, 20)
        time.sleep(0.2)
    pauses = [entry["after_ms"] for entry in agent.events("keeper.starts_again")]
    # The next one is good.
    writer.wait_more(20, 180)
    check(agent.running and agent.process.pid == keeper, "the keeper ended: %s" % agent.tail())
    more = len(blocklisted(lab) - before)
    say("%d deaths in %d s, pauses %s ms, writes after each life %s, %d more entries in the blocklist" % (len(kills), seconds, pauses, written, more))
    check(pauses == sorted(pauses) and pauses[0] == 0, "the pauses do not grow: %s" % pauses)
    check(written[-1] > written[0], "the writer stood still")
    check(more <= min(len(kills), 10), "%d deaths left %d entries in the blocklist" % (len(kills), more))
    writer.stop()
    writer.expect_nothing_lost(kills)
    volume.unstage(patience=30)
    volume.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)


# [failure:163]
def story_keeper_crash_loop(lab):
    """an agent that dies five times, four seconds after each start, restarts after growing pauses; its writer goes on and loses nothing"""
    crash_loop(lab, 22)


# [failure:163]
@long
def story_keeper_crash_loop_120(lab):
    """an agent that dies every four seconds for two minutes loses no write of its writer and adds at most ten blocklist entries"""
    crash_loop(lab, 120)


story_keeper_crash_loop_120.limit = 600


class BigWrite:
    """One direct write of 1 MiB, by a process of its own that handles SIGUSR1 and goes on."""
    def __init__(self, path, place, letter):
        self.path, self.place, self.letter, self.code = path, place, letter, None
        self.pid = os.fork()
        if self.pid == 0:
            self.write()

    def write(self):
        code = 255
        try:
            signal.signal(signal.SIGUSR1, lambda *_: None)
            signal.siginterrupt(signal.SIGUSR1, False)
            data = mmap.mmap(-1, MIB)
            data.write(self.letter * MIB)
            code = 0 if os.pwrite(os.open(self.path, os.O_WRONLY | os.O_DIRECT), data, self.place * MIB) == MIB else 254
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)

    def ended(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None


def io_errors():
    return [line for line in run(["dmesg"]).splitlines() if "I/O error" in line and "nbd" in line]


def half_sent(lab, rounds):
    agent = lab.agent(flags=["--keeper"]).start()
    volume = agent.volume(lab.image("a", size=256 * MIB), block=True)
    volume.stage()
    said = io_errors()
    for number in range(rounds):
        letter = bytes([65 + number % 26])
        if number > 0:
            # A new keeper, which counts no deaths yet.
            hand_over(agent, [volume])
        healed, let_go = (len(agent.events(name)) for name in ("device.reconnected", "keeper.links_let_go"))
        # Nobody reads, and the socket takes a few of these writes. One of the others is sent in part.
        child = child_of(agent.process.pid)
        os.kill(child, signal.SIGSTOP)
        writes = [BigWrite(volume.staged_path, place, letter) for place in range(24)]
        # Longer than the queue's timer.
        time.sleep(2.5)
        for write in writes:
            os.kill(write.pid, signal.SIGUSR1)
        time.sleep(0.5)
        # The keeper trusts the first death, and not the second one. It lets the link go.
        os.kill(child, signal.SIGKILL)
        following = wait_for("the keeper's next agent", lambda: next((pid for pid in [child_of(agent.process.pid)] if pid not in (None, child)), None), 20, 0.005)
        os.kill(following, signal.SIGSEGV)
        wait_for("the keeper to let the link go", lambda: len(agent.events("keeper.links_let_go")) > let_go, 20)
        wait_for("the device to be healed", lambda: len(agent.events("device.reconnected", volume=volume.id)) > healed, 60)
        wait_for("the end of every write", lambda: all([write.ended() for write in writes]), 60)
        check(all(write.code == 0 for write in writes), "writes ended with %s in round %d" % ([write.code for write in writes], number + 1))
        with open(volume.staged_path, "rb") as file:
            check(file.read(24 * MIB) == letter * (24 * MIB), "a write that was acknowledged is not there")
        check(not agent.events("link.cut"), "a link was cut: %s" % agent.events("link.cut"))
    # The kernel's log is a ring: what it said before may be gone.
    new = [line for line in io_errors() if line not in said]
    check(not new, "the kernel said: %s" % new[-3:])
    say("%d times 24 writes of 1 MiB, interrupted while a dead agent's link was full: no error" % rounds)
    volume.unstage(patience=30)
    volume.expect_gone()
    check(agent.stop() == 0, "the keeper ended with %s" % agent.process.returncode)


# [failure:158][rule:4]
def story_keeper_half_sent(lab):
    """a keeper drops a link full of requests, one of them half sent and interrupted by a signal, without an I/O error or a loss"""
    half_sent(lab, 2)


# [failure:158]
@long
def story_keeper_half_sent_20(lab):
    """a keeper drops a link full of requests 20 times, one of them half sent and interrupted by a signal, without an I/O error"""
    half_sent(lab, 20)


story_keeper_half_sent_20.limit = 900
