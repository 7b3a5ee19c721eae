"""The agent as deploy/nomad runs it, in a container of runc, and what Nomad's client asks of it (docs/sources.md#nomad)."""
import os
import re

import calls
import hcl
from checks import check, say
from machine import CORBD, MIB, REPO, mounted, put, read
from stories_container import Contained, needs_runc
from writer import Writer

# After these codes Nomad's client tries again, thrice altogether. Every other one fails the allocation.
REPEATED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
TRY = 120


def inside(body, *path):
    for name in path:
        [(_, body)] = body[name]
    return body


TASK = inside(hcl.parse(read(os.path.join(REPO, "deploy/nomad/plugin.nomad.hcl"))), "job", "group", "task")
PLUGIN = inside(TASK, "csi_plugin")


class InNomad(Contained):
    """With the paths that Nomad gives a plugin, which are not those of the host."""

    def __init__(self, lab):
        super().__init__(lab)
        # What Nomad's client has below its state_dir.
        self.plugins = os.path.join(lab.dir, "nomad/csi/plugins")
        self.base = os.path.join(lab.dir, "nomad/csi/node/corbd")
        for folder in (self.plugins, self.base, os.path.join(lab.dir, "host/etc/ceph")):
            os.makedirs(folder)
        put(os.path.join(lab.dir, "host/etc/ceph/ceph.conf"),
            "[global]\nfsid = %s\nmon_host = %s\n" % (lab.admin("ceph", "fsid").strip(), lab.mon))
        self.socket = os.path.join(self.plugins, "csi.sock")

    def on_host(self, path):
        base = PLUGIN["stage_publish_base_dir"]
        check(path.startswith(base + "/"), "%s is not the plugin's" % path)
        return self.base + path[len(base):]

    def spec(self, root, argv):
        spec = super().spec(root, argv)
        config = inside(TASK, "config")
        values = {"node.unique.name": "node-1"}
        spec["process"]["args"] = [CORBD, config["command"], "--verbose"] + [
            re.sub(r"\$\{([\w.]+)\}", lambda found: values[found.group(1)], one) for one in config["args"] if "metricsport" not in one]
        spec["process"]["env"].append("CSI_ENDPOINT=unix://%s/csi.sock" % PLUGIN["mount_dir"])
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != self.lab.dir]

        def bind(source, destination, *options):
            os.makedirs(source, exist_ok=True)
            return {"destination": destination, "type": "bind", "source": source, "options": ["rbind", *options]}
        for one in config["volumes"]:
            source, destination, *options = one.split(":")
            # The lab's folder stands for the host's.
            if destination != "/dev":
                spec["mounts"].append(bind(os.path.join(self.lab.dir, "host" + source), destination, *options))
        spec["mounts"] += [bind(self.plugins, PLUGIN["mount_dir"]), bind(self.base, PLUGIN["stage_publish_base_dir"], "rshared")]
        return spec


class Client:
    """Nomad's csimanager: the order of its calls, its paths, its tries. It remembers claims until it is restarted."""

    def __init__(self, agent, fsid):
        self.agent, self.lab, self.fsid = agent, agent.lab, fsid
        self.claims = {}

    def paths(self, image, alloc, read_only):
        usage = "%s-file-system-single-node-writer" % ("ro" if read_only else "rw")
        base = PLUGIN["stage_publish_base_dir"]
        return "%s/staging/default/vol-%s/%s" % (base, image.name, usage), "%s/per-alloc/%s/vol-%s/%s" % (base, alloc, image.name, usage)

    def call(self, method, **options):
        for _ in range(3):
            answer = calls.Call(method, self.agent.endpoint, TRY, **options).end()
            if answer["code"] not in REPEATED:
                break
        return answer

    def must(self, method, **options):
        answer = self.call(method, **options)
        check(answer["code"] == "OK", "%s: %s" % (method, answer))
        return answer

    def volume(self, image):
        return dict(volume_id=image.name, cluster_id=self.fsid, pool=image.pool, user=self.lab.user, key_file=self.lab.key_file, fstype="ext4",
                    mode="SINGLE_NODE_WRITER")

    def mount(self, image, alloc, read_only=False):
        """The allocation's folder, on the host."""
        staging, target = self.paths(image, alloc, read_only)
        self.claims.setdefault(staging, set()).add(alloc)
        os.makedirs(self.agent.on_host(staging), mode=0o700, exist_ok=True)
        if not mounted(self.agent.on_host(staging)):
            self.must("stage", staging_path=staging, **self.volume(image))
        os.makedirs(os.path.dirname(self.agent.on_host(target)), exist_ok=True)
        if not mounted(self.agent.on_host(target)):
            self.must("publish", staging_path=staging, target=target, readonly=read_only, **self.volume(image))
        check(mounted(self.agent.on_host(target)), "the mount did not reach the host")
        return self.agent.on_host(target)

    def unmount(self, image, alloc, read_only=False):
        """The answer to the unstage that Nomad asks for when it knows of no other claim; None if it asks for none."""
        staging, target = self.paths(image, alloc, read_only)
        self.must("unpublish", volume_id=image.name, target=target)
        check(not os.path.exists(self.agent.on_host(target)), "the target is left")
        left = self.claims.get(staging, set()) - {alloc}
        self.claims[staging] = left
        return None if left else self.call("unstage", volume_id=image.name, staging_path=staging)

    def restart(self):
        """nomad#25813: it finds the mounts, asks the plugin nothing, and does not know any more who shares a staging path."""
        self.claims = {}

    def expand(self, image, alloc, size):
        staging, target = self.paths(image, alloc, False)
        return int(self.must("expand", volume_id=image.name, staging_path=staging, target=target, bytes=size)["answer"]["capacityBytes"])


def expect_refused(answer, alloc):
    say("Nomad's unstage under %s: %s: %s" % (alloc, answer["code"], answer["message"]))
    check(answer["code"] == "FAILED_PRECONDITION", "the unstage under another allocation: %s" % answer)
    check(alloc in answer["message"], "the refusal does not name the allocation that has the volume")


def story_nomad(lab):
    """in Nomad's layout: a killed agent heals with no call of Nomad's, an unstage under another allocation is refused and its data path stays"""
    needs_runc()
    agent = InNomad(lab)
    lab.agents.append(agent)
    agent.start()
    image = lab.image("a", size=256 * MIB)
    nomad = Client(agent, lab.admin("ceph", "fsid").strip())
    check(calls.Call("probe", agent.endpoint, 5).end()["code"] == "OK", "the plugin is not ready")
    folder = nomad.mount(image, "writer")
    put(os.path.join(folder, "text"), "hello")
    readers = {alloc: nomad.mount(image, alloc, read_only=True) for alloc in ("reader-1", "reader-2")}
    writer = Writer(lab, os.path.join(folder, "data"), size=16 * MIB).start()
    writer.wait_more(20)
    nomad.restart()
    kill = agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=image.name)
    writer.wait_more(20)
    expect_refused(nomad.unmount(image, "reader-1", read_only=True), "reader-2")
    check(read(os.path.join(readers["reader-2"], "text")) == "hello", "the other allocation lost its volume")
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", image.spec)
    check(nomad.expand(image, "writer", 512 * MIB) == 512 * MIB, "the volume did not grow")
    check(os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize > 400 * MIB, "the filesystem did not grow")
    answer = nomad.unmount(image, "reader-2", read_only=True)
    check(answer["code"] == "OK", "the unstage after the last reader: %s" % answer)
    # Nomad repeats what failed, for a day.
    answer = nomad.unmount(image, "reader-1", read_only=True)
    check(answer["code"] in ("OK", "NOT_FOUND"), "the repeated unstage: %s" % answer)
    writer.wait_more(20)
    writer.stop()
    writer.expect_nothing_lost([kill])
    check(nomad.unmount(image, "writer")["code"] == "OK", "the last unstage failed")
    check(not agent.volume(image).device, "the device is left")
    agent.stop()
