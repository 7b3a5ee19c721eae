"""A host without Kubernetes that has its own disk and systemd: the Debian package, its units, an upgrade, a reboot, a power cut."""
import json
import os
import subprocess

from checks import check, long, now_us, say, wait_for
from machine import MIB, agents, mounted, parent_of, processes, put, read, run
from node import Node
from stories_handover import blocklisted, expect_silence, told_by_nbd
from stories_keys import new_user
from writer import WRITER, Writer

# What a database's unit needs, by docs/standalone.md. Each boot writes another file; its journal is off the host, which may lose its power.
DATABASE = """[Unit]
Requires={mounts}
After={mounts}
AssertPathIsMountPoint={dir}
[Service]
ExecStart={writer} run --path {dir}/%b --size {size} --mode fsync --journal {out}/{name}-%b --threads {threads} --paced {threads} --pace-ms 50
[Install]
WantedBy=multi-user.target
"""


class Host:
    """In the second guest."""

    def __init__(self, lab):
        self.lab = lab
        self.out = os.environ["CORBD_OUT"]

    def set_up(self, fsid, images):
        """The cluster's files, the old package, and a mount for each folder. Nothing is started."""
        lab = self.lab
        put("/etc/ceph/ceph.conf", "[global]\nfsid = %s\nmon_host = %s\n" % (fsid, lab.mon))
        self.put_key(lab.user, lab.key)
        run(["mkdir", "-p", "/var/log/journal"])
        run(["systemctl", "restart", "systemd-journald"])
        self.install("old.deb")
        check(run(["systemctl", "is-active", "corbd"], ok=False).strip() == "inactive", "the package starts something")
        for folder, image in images.items():
            put("/etc/corbd/mounts.d/%s.conf" % os.path.basename(folder), "image = %s\ndir = %s\nuser = %s\n" % (image, folder, lab.user))

    def install(self, package):
        for line in run(["dpkg", "--no-triggers", "-i", os.path.join(self.out, package)], env=dict(os.environ, DEBIAN_FRONTEND="noninteractive")).splitlines():
            say(line)
        # systemd cannot unmount the disk at a shutdown, because the root lies on it, and dpkg may have been told not to sync.
        run(["sync"])

    def unit(self, image, folder):
        """`corbd mount --write-unit`, enabled; its name."""
        name = "mount-%s.service" % os.path.basename(folder)
        put("/etc/systemd/system/" + name, run(["corbd", "mount", "--write-unit", "--user", self.lab.user, image, folder]))
        self.enable(name)
        return name

    def database(self, name, folder, mounts, threads=2):
        """A service that writes into the mount, and that must never run without it."""
        put("/etc/systemd/system/%s.service" % name,
            DATABASE.format(mounts=mounts, dir=folder, writer=WRITER, size=8 * MIB, out=self.out, name=name, threads=threads))
        self.enable(name + ".service")

    def enable(self, *units):
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "enable", "--now", *units], timeout=170)

    def show(self, unit, field):
        return run(["systemctl", "show", "--value", "-p", field, unit]).strip()

    def wait_active(self, *units):
        for unit in units:
            wait_for("%s to be active" % unit, lambda: self.show(unit, "ActiveState") == "active", 90, 0.3)

    def runs(self, unit):
        """Which of its runs it is in, and how; one that is about to end is not `active`."""
        return [self.show(unit, field) for field in ("InvocationID", "ActiveState")]

    def mount_number(self, folder):
        """The kernel's, which another mount does not get at the same time."""
        found = [line.split()[0] for line in read("/proc/self/mountinfo").splitlines() if line.split()[4] == folder]
        check(len(found) == 1, "%d mounts at %s" % (len(found), folder))
        return found[0]

    def writer(self, name, folder, boot):
        return Writer(self.lab, os.path.join(folder, boot), journal=os.path.join(self.out, "%s-%s" % (name, boot)))

    def boot_id(self):
        return read("/proc/sys/kernel/random/boot_id").replace("-", "")

    def wait_writes(self, name, folder, count):
        self.writer(name, folder, self.boot_id()).wait_more(count)

    def end_writes(self, name):
        run(["systemctl", "stop", name])

    def verify(self, name, folder, boot, kills=()):
        """Of the file of a boot: what is lost."""
        return self.writer(name, folder, boot).expect_nothing_lost(kills)

    def longest_stall(self, name, folder):
        return self.writer(name, folder, self.boot_id()).stalls()["longest_stall_us"]

    def main_process(self):
        """Of the agent's service, as systemd knows it."""
        return int(self.show("corbd", "MainPID"))

    def agents(self):
        return [(parent_of(pid), pid) for pid in agents(processes("corbd run"))]

    def told_by_nbd(self):
        return told_by_nbd()

    def reload_that_fails(self):
        os.rename("/run/corbd/handover.sock", "/run/corbd/away.sock")
        done = subprocess.run(["systemctl", "reload", "corbd"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        os.rename("/run/corbd/away.sock", "/run/corbd/handover.sock")
        check(done.returncode != 0, "the reload says that it succeeded")
        return run(["journalctl", "-b", "-n", "60", "-o", "cat", "--no-pager", "_COMM=corbd"], ok=False).splitlines()[-1:]

    def kill(self, pid):
        os.kill(pid, 9)
        return now_us()

    def states(self):
        return {row["dir"]: row["state"] for row in json.loads(run(["corbd", "mounts", "-o", "json"]))["mounts"]}

    def put_key(self, user, key):
        put("/etc/ceph/ceph.client.%s.keyring" % user, "[client.%s]\n\tkey = %s\n" % (user, key))

    def put_user(self, user, folders):
        """Each mount's file names it from then on."""
        for folder in folders:
            run(["sed", "-i", "s/^user = .*/user = %s/" % user, "/etc/corbd/mounts.d/%s.conf" % os.path.basename(folder)])

    def users(self):
        """How many devices of the agent each Ceph user has."""
        return {key["user"]: len(key["used_by"]) for key in json.loads(run(["corbd", "keys", "-o", "json"], ok=False))["keys"]}

    def needs(self, user):
        return subprocess.run(["corbd", "keys", "client." + user], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60).returncode != 0

    def begin_mount(self, image, folder):
        """`corbd mount` of an image that another host has; returns once it is claimed, and while nothing is staged."""
        subprocess.Popen(["corbd", "mount", "--user", self.lab.user, image, folder], stdin=subprocess.DEVNULL, start_new_session=True)
        return wait_for("the claim", lambda: self.states().get(folder), 30)

    def stopped(self):
        """The units of the story in the order in which the boot before this one stopped them, by systemd's journal."""
        lines = run(["journalctl", "-b", "-1", "-o", "json", "_PID=1", "MESSAGE_ID=9d1aaa27d60140bd96365438aad20286"])
        units = [json.loads(line)["UNIT"] for line in lines.splitlines()]
        return [unit for unit in units if unit in ("corbd.service", "corbd-mounts.service") or unit.startswith(("db", "mount-"))]

    def shut_down(self):
        # After this answer is on its way.
        subprocess.Popen(["sh", "-c", "sleep 0.5; exec systemctl poweroff"], stdin=subprocess.DEVNULL, start_new_session=True)

    def stop(self, folders):
        """Ends what the story started, as a person would."""
        run(["systemctl", "stop", "db*", "mount-*", "corbd-mounts"], timeout=170)
        check(not [folder for folder in folders if mounted(folder)], "still mounted: %s" % run(["corbd", "mounts"]))
        run(["systemctl", "stop", "corbd"], timeout=170)

    def diagnose(self):
        said = run(["journalctl", "-b", "-o", "short-monotonic", "--no-pager", "_PID=1", "+", "_COMM=corbd"], ok=False)
        for line in said.splitlines()[-80:]:
            say(line[:300])


def booted(lab, *images):
    """(the second guest with the package and a mount of each image, the folders)."""
    host = Node(lab, "host", Host, disk=True)
    lab.admin("packages", host.out, timeout=120)
    folders = ["/srv/%d" % number for number in range(len(images))]
    host.ask("set_up", lab.admin("ceph", "fsid").strip(), {folder: image.spec for folder, image in zip(folders, images)})
    return host, folders


def expect_served_by(host, keeper):
    """One agent serves, and systemd knows its keeper. The agent's process ID."""
    found = host.ask("agents")
    check([one[0] for one in found] == [keeper], "keepers and agents: %s; systemd knows %s" % (found, keeper))
    return found[0][1]


def databases_on(host, folders, threads=2):
    """A database on each mount of mounts.d; the folders by their databases."""
    databases = {"db%d" % number: folder for number, folder in enumerate(folders)}
    for name, folder in databases.items():
        host.ask("database", name, folder, "corbd-mounts.service", threads=threads)
    return databases


def all_write(host, databases):
    for name, folder in databases.items():
        host.ask("wait_writes", name, folder, 60)


def end_all(host, databases, boot, kills):
    """Ends the databases, of which nothing is lost, and then what the story started."""
    for name, folder in databases.items():
        host.ask("end_writes", name)
        say("%s: %d writes, none lost, no error" % (folder, host.ask("verify", name, folder, boot, kills)["acked"]))
    host.ask("stop", list(databases.values()))
    host.end()


# [failure:151]
def story_host_upgrade(lab):
    """an upgrade of the Debian package, a failed reload and a crash under 16 writers lose no write or mount; the upgrade blocklists no client"""
    images = [lab.image(name, size=256 * MIB) for name in "abcd"]
    host, folders = booted(lab, *images)
    host.ask("enable", "corbd", "corbd-mounts")
    host.ask("wait_active", "corbd", "corbd-mounts")
    databases = databases_on(host, folders, threads=4)
    boot = host.ask("boot_id")
    all_write(host, databases)
    units = ("corbd", "corbd-mounts", *databases)
    before, first, cut_off, told = [host.ask("runs", unit) for unit in units], host.ask("main_process"), blocklisted(lab), host.ask("told_by_nbd")
    mounts = [host.ask("mount_number", folder) for folder in folders]
    host.ask("install", "new.deb")
    second = host.ask("main_process")
    check(second != first, "the upgrade left the agent that it found")
    expect_served_by(host, second)
    all_write(host, databases)
    check(blocklisted(lab) <= cut_off, "the upgrade blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told, host.ask("told_by_nbd"))
    stalls = [host.ask("longest_stall", name, folder) for name, folder in databases.items()]
    say("longest stall so far, with the upgrade, on each mount: %s s" % ", ".join("%.2f" % (stall / 1e6) for stall in stalls))

    # The next agent finds nobody to ask, and cannot have the lock.
    said = host.ask("reload_that_fails")
    say("a reload that fails: %s" % said)
    check(host.ask("main_process") == second, "a reload that failed changed the agent")
    expect_served_by(host, second)
    check([host.ask("runs", unit) for unit in units] == before, "a unit ended: %s, before %s" % ([host.ask("runs", unit) for unit in units], before))
    all_write(host, databases)

    # The agent dies: for systemd and the kernel nothing happens.
    agent = expect_served_by(host, second)
    kills = [host.ask("kill", agent)]
    all_write(host, databases)
    check(expect_served_by(host, second) != agent, "the agent lives")
    expect_silence(told, host.ask("told_by_nbd"))
    check([host.ask("runs", unit) for unit in units] == before, "a unit ended: %s, before %s" % ([host.ask("runs", unit) for unit in units], before))

    # systemd watches the keeper that it did not start.
    kills.append(host.ask("kill", second))
    wait_for("another keeper", lambda: host.ask("main_process") not in (0, second), 60)
    host.ask("wait_active", "corbd")
    all_write(host, databases)
    expect_served_by(host, host.ask("main_process"))
    check([host.ask("mount_number", folder) for folder in folders] == mounts, "a mount is another")
    end_all(host, databases, boot, kills)


story_host_upgrade.limit = 400


# [failure:220]
@long
def story_host_rotated(lab):
    """on a host without Kubernetes a keyring comes, and the mounts' files name its user: the databases go on under it, the old user is removed, and a killed agent comes back with the new one"""
    images = [lab.image(name, size=256 * MIB) for name in "ab"]
    host, folders = booted(lab, *images)
    users = [new_user(lab, "host.%d" % number)[0] for number in range(2)]

    def put_key(user):
        host.ask("put_key", user, lab.admin("ceph", "auth", "get-key", "client." + user).strip())
    put_key(users[0])
    host.ask("put_user", users[0], folders)
    host.ask("enable", "corbd", "corbd-mounts", "corbd-keys.path")
    host.ask("wait_active", "corbd", "corbd-mounts", "corbd-keys.path")
    databases = databases_on(host, folders)
    boot = host.ask("boot_id")
    all_write(host, databases)
    check(host.ask("users") == {users[0]: 2}, "before: %s" % host.ask("users"))
    cut_off, told = blocklisted(lab), host.ask("told_by_nbd")
    changed = now_us()
    put_key(users[1])
    host.ask("put_user", users[1], folders)
    wait_for("both devices to have the new user", lambda: host.ask("users") == {users[1]: 2}, 90)
    say("both devices have the new user %.1f s after it was written" % ((now_us() - changed) / 1e6))
    check(not host.ask("needs", users[0]), "the first user is still needed")
    lab.admin("ceph", "auth", "rm", "client." + users[0])
    all_write(host, databases)
    check(blocklisted(lab) <= cut_off, "the change blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told, host.ask("told_by_nbd"))
    stalls = [host.ask("longest_stall", name, folder) for name, folder in databases.items()]
    say("longest stall with the change: %s s" % ", ".join("%.2f" % (stall / 1e6) for stall in stalls))
    kills = [host.ask("kill", expect_served_by(host, host.ask("main_process")))]
    all_write(host, databases)
    check(host.ask("users") == {users[1]: 2}, "after the kill: %s" % host.ask("users"))
    end_all(host, databases, boot, kills)


story_host_rotated.limit = 400


def begin(lab, images):
    """A host whose mounts.d lists all but the last image, each with a database on it. The last image has a unit of its own."""
    host, folders = booted(lab, *images[:-1])
    host.ask("enable", "corbd", "corbd-mounts")
    folders.append("/srv/own")
    own = host.ask("unit", images[-1].spec, folders[-1])
    names = ["db%d" % number for number in range(len(folders))]
    for name, folder in zip(names, folders):
        host.ask("database", name, folder, own if folder == folders[-1] else "corbd-mounts.service")
    return host, dict(zip(names, folders))


def expect_back(host, databases, boot):
    """After a boot: every mount is there, and a database on it; nothing that was acknowledged before is lost."""
    units = ["corbd", "corbd-mounts", "mount-own", *databases]
    host.ask("wait_active", *units)
    for name, folder in databases.items():
        host.ask("wait_writes", name, folder, 10)
        found = host.ask("verify", name, folder, boot)
        say("%s: %d writes before, none lost, no error" % (folder, found["acked"]))


# [failure:28]
def story_host_reboot(lab):
    """a host's reboot stops its databases, their mounts, then the agent, and afterwards starts each on its mount, with all its data"""
    images = [lab.image(name, size=256 * MIB) for name in "ab"]
    host, databases = begin(lab, images)
    boot = host.ask("boot_id")
    for name, folder in databases.items():
        host.ask("wait_writes", name, folder, 30)
    host.ask("shut_down")
    host.wait_gone()
    host.boot()
    expect_back(host, databases, boot)
    stopped = host.ask("stopped")
    say("stopped in this order: %s" % ", ".join(stopped))
    for database, mounts in (("db0", "corbd-mounts"), ("db1", "mount-own")):
        order = [stopped.index(unit + ".service") for unit in (database, mounts, "corbd")]
        check(order == sorted(order), "%s, %s and the agent were stopped in this order: %s" % (database, mounts, stopped))
    host.ask("stop", list(databases.values()))
    host.end()


# [failure:28]
@long
def story_host_power_cut(lab):
    """a host that loses power under its databases and during a mount mounts all after its boot, and no acknowledged write is lost"""
    images = [lab.image(name, size=256 * MIB) for name in "ab"]
    host, databases = begin(lab, images)
    # While this guest has the image, the host's agent stages it not.
    elsewhere = lab.agent().start()
    taken = elsewhere.volume(lab.image("c", size=256 * MIB), block=True)
    taken.stage()
    state = host.ask("begin_mount", lab.pool + "/" + taken.id, "/srv/late")
    check(state == "half-mounted", "the mount of an image that another host has is %s" % state)
    boot = host.ask("boot_id")
    for name, folder in databases.items():
        host.ask("wait_writes", name, folder, 30)
    host.cut_power()
    taken.unstage()
    host.boot()
    expect_back(host, databases, boot)
    states = host.ask("states")
    check(states == dict.fromkeys([*databases.values(), "/srv/late"], "mounted"), "after the boot: %s" % states)
    host.ask("stop", [*databases.values(), "/srv/late"])
    host.end()


story_host_reboot.limit = story_host_power_cut.limit = 400
