"""A host without Kubernetes: `corbd run --standalone` and `corbd mount`."""
import json
import os
import subprocess

import netlink
from agent import Agent
from checks import check, say, wait_for
from machine import CORBD, MIB, mounted, put, read, run
from writer import Writer

FSID = "lab-standalone"


class Alone(Agent):
    """An agent as deploy/systemd/corbd.service starts it, in folders of the story's."""

    def __init__(self, lab):
        super().__init__(lab, "alone")
        self.conf = lab.write("ceph.conf", "[global]\nfsid = %s\nmon_host = %s\n" % (FSID, lab.mon))
        self.keyring = lab.write("keyring", "[client.%s]\n\tkey = %s\n" % (lab.user, lab.key))
        self.runtime = os.path.join(self.dir, "runtime")
        self.socket = os.path.join(self.runtime, "csi.sock")

    def argv(self, failpoints=(), flags=()):
        return [CORBD, "run", "--standalone", "--runtime-dir", self.runtime, "--state-dir", self.state_dir, "--ceph-conf", self.conf,
                "--config-dir", os.path.join(self.dir, "none"), "--verbose"] + self.flags + list(flags)

    def ask(self, *words, ok=True):
        return run([CORBD, *words, "--root", os.path.join(self.dir, "mounts"), "--runtime-dir", self.runtime, "--endpoint", self.endpoint],
                   timeout=300, ok=ok)

    def mount(self, image, target, *more):
        return self.ask("mount", image.spec, target, *more, "--wait", "--conf", self.conf, "--user", self.lab.user, "--keyring", self.keyring)

    def states(self):
        return {row["dir"]: row["state"] for row in json.loads(self.ask("mounts", "-o", "json").splitlines()[-1])["mounts"]}


def alone(lab):
    agent = Alone(lab)
    lab.agents.append(agent)
    return agent.start()


def story_standalone_mount(lab):
    """corbd mount on a host without Kubernetes: kill -9 of its agent under a writer loses nothing, data is there after unmount and mount"""
    agent = alone(lab)
    image = lab.image("a")
    target = os.path.join(lab.dir, "srv")
    os.makedirs(target)
    say(agent.mount(image, target).strip())
    check(agent.states() == {target: "mounted"}, "corbd mounts shows %s" % agent.states())
    writer = Writer(lab, os.path.join(target, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60)
    writer.wait_more(40)
    writer.stop()
    writer.expect_nothing_lost([kill])
    agent.ask("unmount", target)
    check(os.listdir(target) == [], "the folder is not empty after the unmount: %s" % os.listdir(target))
    check(agent.states() == {}, "something is still claimed: %s" % agent.states())
    agent.mount(image, target)
    writer.expect_nothing_lost([kill])
    agent.ask("unmount", target)


def story_nomad_host_volume(lab):
    """an image is a dynamic host volume of Nomad: its calls mount, grow and unmount it, again and again, and a kill of the agent loses nothing"""
    agent = alone(lab)
    image = lab.image("a", size=256 * MIB)
    volumes = os.path.join(lab.dir, "host_volumes")
    plugin, rules = os.path.join(lab.dir, "corbd-host-volume"), os.path.join(lab.dir, "host-volumes.conf")
    os.symlink(CORBD, plugin)
    elsewhere = ["--endpoint", agent.endpoint, "--root", os.path.join(agent.dir, "mounts"), "--runtime-dir", agent.runtime, "--rules", rules]
    parameters = {"image": image.spec, "conf": agent.conf, "user": lab.user, "keyring": agent.keyring, "options": "noatime"}

    def ask(operation, ok=True, **more):
        """As Nomad's client does, with nothing else in the environment."""
        env = {"DHV_OPERATION": operation, "DHV_VOLUMES_DIR": volumes, "DHV_VOLUME_ID": "7-9", "DHV_VOLUME_NAME": "db", "DHV_NAMESPACE": "default",
               "DHV_CAPACITY_MIN_BYTES": "0", "DHV_CAPACITY_MAX_BYTES": "0", "DHV_PARAMETERS": json.dumps(parameters), **more}
        done = subprocess.run([plugin, operation] + elsewhere, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        check((done.returncode == 0) == ok, "%s: exit code %d: %s%s" % (operation, done.returncode, done.stdout, done.stderr))
        return json.loads(done.stdout) if ok and done.stdout else done.stderr

    said = subprocess.run([plugin, "fingerprint"], env={"DHV_OPERATION": "fingerprint"}, capture_output=True, text=True, timeout=5)
    check("version" in json.loads(said.stdout), "fingerprint says %s%s" % (said.stdout, said.stderr))
    os.makedirs(volumes)
    check(rules in ask("create", ok=False), "a client without rules allows a volume")
    with open(rules, "w") as file:
        file.write("users = %s\npools = %s\nfiles = %s, %s\n" % (lab.user, image.spec.partition("/")[0], agent.conf, agent.keyring))
    made = ask("create")
    check(made == {"path": os.path.join(volumes, "7-9"), "bytes": 256 * MIB}, "create says %s" % made)
    check(ask("create") == made, "it is not the same again")
    flags = os.statvfs(made["path"]).f_flag
    check(flags & os.ST_NOSUID and flags & os.ST_NODEV, "a host volume is mounted without nosuid,nodev: %x" % flags)
    forbidden = json.dumps({**parameters, "options": "suid"})
    check(ask("create", DHV_PARAMETERS=forbidden) == made, "a mounted volume is refused because of its options")
    check(os.statvfs(made["path"]).f_flag & os.ST_NOSUID, "an option that the rules do not allow reached the mount")
    said = ask("delete", ok=False, DHV_VOLUME_ID="8-1", DHV_CREATED_PATH=made["path"])
    check("not the volume's own folder" in said, "a volume that names another's folder is deleted: %s" % said)
    writer = Writer(lab, os.path.join(made["path"], "data"), size=16 * MIB).start()
    writer.wait_more(20)
    kill = agent.kill()
    agent.spawn()
    agent.wait_event("device.reconnected", 60)
    writer.wait_more(40)
    check("is in use by" in ask("delete", ok=False, DHV_CREATED_PATH=made["path"]), "a volume in use is deleted")
    writer.stop()
    lab.admin("rbd", "resize", "--no-progress", "--size", "512", image.spec)
    check(ask("create")["bytes"] == 512 * MIB, "it did not grow")
    check("rbd resize" in ask("create", ok=False, DHV_CAPACITY_MIN_BYTES=str(1024 * MIB)), "a small image is large enough")
    for _ in range(2):
        ask("delete", DHV_CREATED_PATH=made["path"] + "/")
    check("'suid' is not allowed" in ask("create", ok=False, DHV_PARAMETERS=forbidden), "an option that the rules do not allow is mounted")
    check(not mounted(made["path"]) and agent.states() == {}, "something is left: %s" % agent.states())
    ask("create")
    writer.expect_nothing_lost([kill])
    ask("delete")
    agent.stop()


def story_standalone_dead(lab):
    """a mount in use is not taken down; a dead one is shown as such, and the next mount replaces it and finds the data"""
    agent = alone(lab)
    image = lab.image("a")
    target = os.path.join(lab.dir, "srv")
    agent.mount(image, target)
    put(os.path.join(target, "precious"), "hello")
    run(["sync", "-f", target])
    with open(os.path.join(target, "precious")):
        said = agent.ask("unmount", target, ok=False)
        check("is in use by" in said and "(%d)" % os.getpid() in said, "an unmount in use says: %s" % said)
    # While nobody serves the device, a look does not wait for it, nor does whoever reads what the look printed.
    agent.kill()
    states = agent.states()
    check(states == {target: "unknown"}, "without an agent corbd mounts shows %s" % states)
    agent.spawn()
    agent.wait_event("device.reconnected", 60)
    for index in netlink.lab_devices():
        netlink.disconnect(index)
    wait_for("corbd mounts to show it as dead", lambda: agent.states() == {target: "dead"}, 30)
    say(agent.ask("mounts").strip())
    agent.mount(image, target)
    check(agent.states() == {target: "mounted"}, "after the mount corbd mounts shows %s" % agent.states())
    check(read(os.path.join(target, "precious")) == "hello", "the file is not there")
    agent.ask("unmount", target)
    check(not os.path.exists(target), "a folder that the mount made is still there")


def story_standalone_another(lab):
    """a foreign mount at the target of a volume whose own mounts are gone stays: corbd unmount refuses it, and corbd mounts shows it"""
    agent = alone(lab)
    image = lab.image("a")
    target = os.path.join(lab.dir, "srv")
    agent.mount(image, target)
    row = json.loads(agent.ask("mounts", "-o", "json").splitlines()[-1])["mounts"][0]
    staged = [line.split()[4] for line in read("/proc/self/mountinfo").splitlines() if line.split()[4].startswith(row["staging"])]
    for path in [target, *staged]:
        run(["umount", path])
    run(["mount", "-t", "tmpfs", "somebody-elses", target])
    put(os.path.join(target, "precious"), "hello")
    said = agent.ask("unmount", target, ok=False)
    check("another mount is at " + target in said, "corbd unmount says: %s" % said)
    agent.ask("unmount", "--all", "--timeout", "3", ok=False)
    check(agent.states() == {target: "hidden"}, "corbd mounts shows %s" % agent.states())
    check(read(os.path.join(target, "precious")) == "hello", "the other mount is gone")
    run(["umount", target])
    agent.ask("unmount", target)
    check(agent.states() == {}, "something is still claimed: %s" % agent.states())


def story_standalone_grown(lab):
    """corbd expand gives a filesystem under a writer, and a raw block volume, the grown image's size; the empty file below the volume stays"""
    agent = alone(lab)
    images = [lab.image(name, size=256 * MIB) for name in "ab"]
    target, file = os.path.join(lab.dir, "srv"), os.path.join(lab.dir, "device")
    agent.mount(images[0], target)
    put(file, "")
    os.chmod(file, 0o640)
    agent.mount(images[1], file, "--block")
    writer = Writer(lab, os.path.join(target, "data"), size=16 * MIB).start()
    for image in images:
        lab.admin("rbd", "resize", "--no-progress", "-s", "512M", image.spec)
    for path in (target, file):
        said = agent.ask("expand", path).splitlines()[-1]
        check(said == path + " has 512 MiB", "corbd expand says: %s" % said)
    check(os.statvfs(target).f_blocks * os.statvfs(target).f_frsize > 400 * MIB, "the filesystem did not grow")
    with open(file, "rb") as device:
        check(device.seek(0, os.SEEK_END) == 512 * MIB, "the device did not grow")
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost()
    agent.ask("unmount", target)
    agent.ask("unmount", file)
    check(os.path.isfile(file) and os.stat(file).st_mode & 0o777 == 0o640, "the empty file that was there before is not there again")
