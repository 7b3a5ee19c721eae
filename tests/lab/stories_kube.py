"""Healing by what an API server knows: a scripted server, in this kernel."""
import base64
import hashlib
import http.server
import json
import os
import shutil
import threading

from checks import check, long, say, wait_for
from machine import MIB, put, read
from stories_seen import volumes_of
from volume import DRIVER
from writer import Writer

NODE = "node-1"


def attachment_of(volume):
    """The name that Kubernetes gives its VolumeAttachment."""
    return "csi-" + hashlib.sha256((volume.id + DRIVER + NODE).encode()).hexdigest()


class ApiServer:
    """Objects by path; everything else is not found. Events are kept."""

    def __init__(self, lab):
        self.objects, self.made, self.asked, self.events = {}, {}, [], []  # made: what a POST to a path answers
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, code, body):
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                server.asked.append(self.path)
                folder, _, name = self.path.partition("?")[0].rpartition("/")
                if self.path in server.objects:
                    body = server.objects[self.path]
                    return self.answer(200, dict(body, metadata={"name": name, **body.get("metadata", {})}))
                self.answer(404, {"kind": "Status", "reason": "NotFound", "code": 404, "message": "%s not found" % self.path,
                                  "details": {"name": name, "kind": folder.rpartition("/")[2]}})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path in server.made:
                    return self.answer(201, server.made[self.path])
                server.events.append(body)
                self.answer(201, {"metadata": {"name": "event-%d" % len(server.events)}})

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        config = os.path.join(lab.dir, "kubeconfig")
        put(config, json.dumps({
            "current-context": "lab", "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:%d" % self.http.server_port}}], "users": [{"name": "lab", "user": {}}]}))
        os.environ["KUBERNETES_CONFIG_PATH"] = config

    def attach(self, lab, volume, uid="uid-1"):
        """The objects of a static volume that is attached to this node."""
        name = attachment_of(volume)
        self.objects["/apis/storage.k8s.io/v1/volumeattachments/" + name] = {
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": "pv-1"}}, "status": {"attached": True}}
        self.objects["/api/v1/persistentvolumes/pv-1"] = {
            "metadata": {"name": "pv-1", "uid": "pv-uid"}, "status": {"phase": "Bound"},
            "spec": {"accessModes": ["ReadWriteOnce"], "claimRef": {"namespace": "shop", "name": "data", "uid": "claim-uid"},
                     "csi": {"driver": DRIVER, "volumeHandle": volume.id, "fsType": "ext4", "nodeStageSecretRef": {"name": "key", "namespace": "ceph"},
                             "volumeAttributes": {"staticVolume": "true", "clusterID": volume.cluster_id, "pool": volume.pool}}}}
        self.objects["/api/v1/namespaces/ceph/secrets/key"] = {"data": {
            "userID": base64.b64encode(volume.user.encode()).decode(), "userKey": base64.b64encode(read(volume.key_file).strip().encode()).decode()}}

    def secret(self, name_space, name, **data):
        self.objects["/api/v1/namespaces/%s/secrets/%s" % (name_space, name)] = {
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}

    def attachments_asked(self):
        return sum("volumeattachments" in path for path in self.asked)


def attached(lab, image):
    server = ApiServer(lab)
    agent = lab.agent()
    volume = agent.volume(image)
    # Kubelets from 1.24 on stage it here.
    volume.staging = os.path.join(lab.kubelet, "plugins/kubernetes.io/csi", DRIVER, hashlib.sha256(volume.id.encode()).hexdigest(), "globalmount")
    os.makedirs(volume.staging)
    server.attach(lab, volume)
    return server, agent, volume


def written(lab, image):
    """The same, staged, its attachment noted, and a writer on it."""
    server, agent, volume = attached(lab, image)
    agent.start()
    volume.stage()
    volume.publish()
    wait_for("the attachment to be noted", lambda: noted(agent), 30)
    writer = Writer(lab, os.path.join(volume.target(), "data"), size=16 * MIB).start()
    writer.wait_more(50)
    return server, agent, volume, writer


def keeps_writing(writer, kill):
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost([kill])


def noted(agent, uid="uid-1"):
    folder = os.path.join(agent.state_dir, "volumes")
    return any(json.loads(read(os.path.join(folder, name)))["record"]["attachment_uid"] == uid for name in os.listdir(folder) if name.endswith(".json"))


def end(agent, volume):
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()
    agent.stop()


def story_healed_without_state(lab):
    """an agent that lost its records and keys heals a volume under its writer with three API requests: no I/O error, no lost write"""
    server, agent, volume, writer = written(lab, lab.image("a", size=256 * MIB))
    kill = agent.kill()
    for name in ("state", "runtime"):
        shutil.rmtree(os.path.join(lab.dir, name))
    server.asked.clear()
    agent.start()
    # Without records the agent's own dead client looks like any other. Its watch must end first, which takes 30 s.
    agent.wait_event("device.reconnected", 120, volume=volume.id)
    say("asked: %s" % [path for path in server.asked if "nodes" not in path])
    # Of every agent's start: its own node, and whether the API server answers.
    asked = [path for path in server.asked if "nodes" not in path and "/version" not in path]
    check(len(asked) <= 3, "more than three questions: %s" % asked)
    keeps_writing(writer, kill)
    end(agent, volume)


def story_healed_without_keys(lab):
    """an agent whose keys went with its pod asks the API server for them, and heals by its records: no I/O error, no lost write"""
    server, agent, volume, writer = written(lab, lab.image("a", size=256 * MIB))
    kill = agent.kill()
    shutil.rmtree(os.path.join(lab.dir, "runtime"))
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    keeps_writing(writer, kill)
    volume.stage()  # kubelet does this after its own restart; nothing has to be done
    end(agent, volume)


# [failure:220]
@long
def story_secret_renamed(lab):
    """a StorageClass names another Secret and the old one is deleted: the running volume, whose PersistentVolume keeps the old name, goes on, also over a kill; an agent without keys names the missing Secret, and goes on once it is back"""
    server, agent, volume, writer = written(lab, lab.image("a", size=256 * MIB))
    old = "/api/v1/namespaces/ceph/secrets/key"
    kept = server.objects.pop(old)
    server.secret("ceph", "key-2", userID=volume.user, userKey=read(volume.key_file).strip())
    kills = [agent.kill()]
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    writer.wait_more(50)
    check(old not in server.asked, "the deleted Secret was asked for, although nobody refused the key")

    kills.append(agent.kill())
    shutil.rmtree(os.path.join(lab.dir, "runtime"))
    agent.start()
    wait_for("the missing Secret to be named", lambda: "ceph/key" in volumes_of(agent)[volume.id].get("last_error", {}).get("text", ""), 60)
    say(volumes_of(agent)[volume.id]["last_error"]["text"])
    server.objects[old] = kept
    agent.wait_event("device.reconnected", 120, volume=volume.id)
    writer.wait_more(50)
    writer.stop()
    writer.expect_nothing_lost(kills)
    end(agent, volume)


# [rule:2a]
@long
def story_attachment_proves(lab):
    """an image without exclusive-lock is healed as long as its volume stayed attached here, and is lost once it was attached anew"""
    server, agent, volume, writer = written(lab, lab.image("a", size=256 * MIB, features="layering"))
    kill = agent.kill()
    agent.start()
    agent.wait_event("device.reconnected", 60, volume=volume.id)
    keeps_writing(writer, kill)
    agent.kill()
    server.attach(lab, volume, uid="uid-2")
    agent.start()
    wait_for("the volume to be lost", lambda: volumes_of(agent)[volume.id]["health"] == "lost", 60)
    wait_for("an event on its claim", lambda: [one for one in server.events if one["reason"] == "VolumeLost"], 30)
    about = server.events[-1]["involvedObject"]
    check((about["kind"], about["name"]) == ("PersistentVolumeClaim", "data"), "the event is on %s" % about)
    say(server.events[-1]["message"])
    wait_for("the volume to be given up", lambda: volumes_of(agent)[volume.id]["health"] == "failed", 120)
    end(agent, volume)
