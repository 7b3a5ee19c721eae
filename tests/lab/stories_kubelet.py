"""The agent under a real kubelet with real mounts, and a real API server with the manifests of deploy/kubernetes and the controllers that bind
and attach (scripts/lab/kubernetes). Its containers are pretended. The story plays the containers' writes and the external attacher."""
import os
import re
import signal
import threading
import urllib.request

import kube
from checks import Skip, check, long, now_us, say, wait_for
from machine import GIB, mounted, read
from recorder import FAILED, Recorder, records
from stories_calls import enlarge
from volume import DRIVER, Volume
from writer import Writer

NODE, METRICS = "node-1", 9090
PODS = "/api/v1/namespaces/default/pods"
POD = PODS + "/pod-1"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class Kubelet:
    """Its programs: the containers, which outlive it as those of a real node do, and itself."""

    def __init__(self, lab):
        self.lab, self.program = lab, os.environ["CORBD_LAB_KUBELET"]
        self.containers = os.path.join(lab.dir, "containers.sock")
        self.process = None
        self._run("containers", "containers", self.containers)
        wait_for("the pretended containers", lambda: os.path.exists(self.containers), 60)

    def _run(self, name, *words):
        return self.lab.start([self.program, "-v=2", *words], log=os.path.join(self.lab.out, name + ".log"))

    def start(self):
        self.process = self._run("kubelet", "node", NODE, os.environ["CORBD_LAB_KUBECONFIG"], self.lab.kubelet, self.containers)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(20)

    def stand_still(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


def calls(method):
    """How many calls of it the agent answered with OK, since it started."""
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % METRICS, timeout=20) as answer:
        text = answer.read().decode()
    found = re.search(r'^corbd_csi_operations_seconds_count\{method="%s",grpc_status_code="OK"\} (\d+)' % method, text, re.M)
    return int(found.group(1)) if found else 0


class Attacher:
    """As external-attacher with a driver that has nothing to attach, as ceph-csi's: what shall be attached is said to be."""

    def __init__(self, server):
        self.server, self.ends = server, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ends.wait(0.5):
            for one in self.server.get(ATTACHMENTS)["items"]:
                if one["spec"]["attacher"] == DRIVER and not one.get("status", {}).get("attached"):
                    self.server.patch("%s/%s/status" % (ATTACHMENTS, one["metadata"]["name"]), status={"attached": True})

    def end(self):
        self.ends.set()
        self.thread.join(60)


def describe(lab, server, image):
    """A volume, its claim and a pod that uses it, as an administrator and a user would."""
    describe_claim(lab, server, image)
    pod(server, "pod-1")


def describe_claim(lab, server, image, number=1):
    """Each story of the server has objects of its own."""
    name = lambda kind: "%s-%d" % (kind, number)  # noqa: E731
    server.create("/api/v1/namespaces/default/secrets", "Secret", "v1", name("rbd"), stringData={"userID": lab.user, "userKey": lab.key})
    server.create("/api/v1/persistentvolumes", "PersistentVolume", "v1", name("pv"), spec={
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "default", "name": name("claim")},
        "csi": {"driver": DRIVER, "volumeHandle": image.name, "fsType": "ext4",
                "nodeStageSecretRef": {"namespace": "default", "name": name("rbd")},
                "volumeAttributes": {"staticVolume": "true", "clusterID": "lab", "pool": image.pool, "mounter": "rbd-nbd"}}})
    server.create("/api/v1/namespaces/default/persistentvolumeclaims", "PersistentVolumeClaim", "v1", name("claim"), spec={
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "", "volumeName": name("pv")})


def pod(server, name, claim="claim-1"):
    return server.create(PODS, "Pod", "v1", name, spec={
        "nodeName": NODE, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": "main", "image": "pretended", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]})


def events(server):
    for event in server.get("/api/v1/namespaces/default/events")["items"]:
        say("event: %s %s: %s" % (event["involvedObject"].get("name"), event["reason"], event.get("message", "")[:300]))


def story_kubelet(lab):
    """a real kubelet: a pod's volume is staged and published, lives through a killed agent and a restarted kubelet, and goes with its pod"""
    whole(lab, live)


story_kubelet.limit = 1500


def whole(lab, tells, calls_go_to=None):
    """A node with an agent, a kubelet and an attacher, and what is told of them. calls_go_to: the socket that kubelet knows, for the agent's own."""
    if not os.environ.get("CORBD_LAB_KUBECONFIG"):
        raise Skip(os.environ.get("CORBD_LAB_KUBE_MISSING") or "no API server: scripts/lab/kubernetes start, env")
    server = kube.Server()
    image = lab.image("a", size=GIB)
    # As on a node whose kubelet ran before. The agent registers itself where this folder exists.
    os.makedirs(os.path.join(lab.kubelet, "plugins_registry"))
    # The agent has the rights of the manifests and no others.
    os.environ["KUBERNETES_CONFIG_PATH"] = os.environ["CORBD_LAB_KUBE_AGENT"]
    agent = lab.agent(flags=["--metricsport", str(METRICS)])
    agent.flags += ["--kubelet-registration-path", calls_go_to or agent.socket]
    agent.start()
    kubelet = Kubelet(lab).start()
    attacher = Attacher(server)
    try:
        tells(lab, server, image, agent, kubelet)
    except Exception:
        events(server)
        raise
    finally:
        attacher.end()


def wait_registered(server, agent):
    def registered():
        found = server.get("/apis/storage.k8s.io/v1/csinodes/" + NODE) or {"spec": {}}
        return [(one["name"], one["nodeID"]) for one in found["spec"].get("drivers") or []] == [(DRIVER, agent.nodeid)]
    wait_for("the registration", registered, 120)


def running(server, name):
    wait_for("the pod " + name, lambda: (server.get(PODS + "/" + name) or {}).get("status", {}).get("phase") == "Running", 240, 0.5)


def live(lab, server, image, agent, kubelet):
    begin = now_us()
    wait_registered(server, agent)
    say("registered after %.1f s" % ((now_us() - begin) / 1e6))

    begin = now_us()
    describe(lab, server, image)
    running(server, "pod-1")
    say("Running after %.1f s" % ((now_us() - begin) / 1e6))
    uid = server.get(POD)["metadata"]["uid"]
    target = os.path.join(lab.kubelet, "pods", uid, "volumes/kubernetes.io~csi/pv-1/mount")
    check(mounted(target), "%s is not mounted" % target)
    volume = Volume(agent, image)
    device = volume.device
    check(device is not None, "no device carries %s" % image.name)
    attachment, = server.get(ATTACHMENTS)["items"]
    folder = os.path.join(agent.state_dir, "volumes")
    wait_for("its record to know the attachment",
             lambda: any(attachment["metadata"]["uid"] in read(os.path.join(folder, name)) for name in os.listdir(folder)), 60)

    writer = Writer(lab, os.path.join(target, "file")).start()
    writer.wait_more(40)
    kill = agent.kill()
    agent.start()
    writer.wait_more(40)
    check(volume.device == device, "the volume has another device after its agent was killed")

    # When kubelet starts it asks for everything anew. While Ceph is out of reach, only an agent that does not ask Ceph can answer.
    lab.admin("link", "down")
    kubelet.kill()
    begin = now_us()
    kubelet.start()
    for method in ("NodeStageVolume", "NodePublishVolume"):
        wait_for(method + " of the kubelet that started again", lambda: calls(method) == 1, 240, 0.5)
    say("staged and published again %.1f s after kubelet started, without Ceph" % ((now_us() - begin) / 1e6))
    lab.admin("link", "up")
    writer.wait_more(40, timeout=120)
    writer.stop()
    found = writer.expect_nothing_lost([kill])
    say("acknowledged: %d, longest stall %.2f s" % (found["acked"], found["longest_stall_us"] / 1e6))
    check(server.get(POD)["status"]["phase"] == "Running", "the pod is %s" % server.get(POD)["status"]["phase"])
    check(server.get(POD)["metadata"]["uid"] == uid, "it is another pod")

    begin = now_us()
    server.delete(POD)
    wait_for("the end of the pod", lambda: server.get(POD) is None, 240, 0.5)
    wait_for("the end of its device", lambda: volume.device is None, 120, 0.5)
    say("gone after %.1f s" % ((now_us() - begin) / 1e6))
    check(calls("NodeUnpublishVolume") >= 1 and calls("NodeUnstageVolume") >= 1, "kubelet did not call for it")
    check(not mounted(target), "%s is still mounted" % target)
    wait_for("the end of its attachment", lambda: not server.get(ATTACHMENTS)["items"], 240, 0.5)
    denied = [line for line in read(agent.log_file).splitlines() if "grant the verb" in line]
    check(not denied, "the manifests' rights do not suffice: %s" % denied[:2])
    left = os.listdir(os.path.join(agent.state_dir, "volumes"))
    check(not [name for name in left if name.endswith(".json")], "records are left: %s" % left)
    check(agent.stop() == 0, "the agent ended with %s" % agent.process.returncode)


@long
def story_kubelet_recorded(lab):
    """a real kubelet's calls are written down: start, restart, deletion by force, eviction, drain, an agent that is down, a node that is away, and more"""
    recorder = Recorder(os.path.join(lab.dir, "recorder.sock"), os.path.join(lab.dir, "agent.sock"), {lab.kubelet: "/var/lib/kubelet"},
                        "1.20.2, of Debian 12's source package")

    def tells(lab, server, image, agent, kubelet):
        recorder.names.update({image.name: "image-1", '"%s"' % image.pool: '"pool"'})
        wait_registered(server, agent)
        describe_claim(lab, server, image, 2)
        told = Told(lab, server, image, agent, kubelet, recorder)
        for name, tell in SITUATIONS.items():
            recorder.begin(tell.__doc__)
            tell(told)
            told.gone()
            recorder.end(os.path.join(records(lab), name + ".jsonl"))
            say("written: %s.jsonl" % name)
    whole(lab, tells, recorder.socket)


story_kubelet_recorded.limit = 3000


class Told:
    """What a story does to a kubelet while its calls are written down."""

    def __init__(self, lab, server, image, agent, kubelet, recorder):
        self.lab, self.server, self.image, self.agent, self.kubelet, self.recorder = lab, server, image, agent, kubelet, recorder
        self.volume = Volume(agent, image)

    def create(self, name, runs=True):
        self.recorder.event(name + " is created")
        self.recorder.names[pod(self.server, name, "claim-2")["metadata"]["uid"]] = "uid-of-" + name
        if runs:
            running(self.server, name)
            self.recorder.event(name + " runs")

    def delete(self, name, force=False):
        self.recorder.event(name + (" is deleted by force" if force else " is deleted"))
        self.server.ask("DELETE", PODS + "/" + name, {"kind": "DeleteOptions", "apiVersion": "v1", **({"gracePeriodSeconds": 0} if force else {})})

    def evict(self, name):
        self.recorder.event(name + " is evicted")
        self.server.ask("POST", PODS + "/" + name + "/eviction", {
            "kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {"name": name, "namespace": "default"}})

    def grow(self):
        """As external-resizer, which has grown the image and leaves the filesystem to kubelet."""
        enlarge(self.lab, self.image, 2 * GIB)
        self.recorder.event("the claim grows")
        self.server.patch("/api/v1/persistentvolumes/pv-2", spec={"capacity": {"storage": "2Gi"}})

    def gone(self):
        wait_for("the end of the pods", lambda: not self.server.get(PODS)["items"], 400, 0.5)
        wait_for("the end of the device", lambda: self.volume.device is None, 400, 0.5)
        wait_for("the end of the attachment", lambda: not self.server.get(ATTACHMENTS)["items"], 400, 0.5)

    def kubelet_dies(self):
        self.recorder.event("kubelet is killed")
        self.kubelet.kill()

    def kubelet_starts(self):
        self.recorder.event("kubelet starts")
        self.kubelet.start()

    def restarts_within(self, method):
        """Kubelet dies while its call of this method, which the end of pod-1 brings, waits for its answer."""
        self.recorder.hold(method)
        self.delete("pod-1")
        self.recorder.wait_call(method, 120)
        self.kubelet_dies()
        self.recorder.release()
        self.kubelet_starts()

    def agent_dies(self):
        self.recorder.event("agent is killed")
        self.agent.kill()

    def agent_starts(self):
        self.recorder.event("agent starts")
        self.agent.start()
        wait_registered(self.server, self.agent)

    def ceph(self, answers):
        self.recorder.event("ceph answers" if answers else "ceph is silent")
        self.lab.admin("link", "up" if answers else "down")


def told_start(told):
    """A pod starts, its claim grows while it runs, and it ends."""
    told.create("pod-1")
    told.recorder.wait_call("NodeGetVolumeStats", 150)
    told.grow()
    told.recorder.wait_call("NodeExpandVolume", 120, "OK")
    told.delete("pod-1")


def told_restart(told):
    """Kubelet restarts while a pod runs, and while it takes the pod's volume down."""
    told.create("pod-1")
    told.kubelet_dies()
    told.kubelet_starts()
    told.recorder.wait_call("NodePublishVolume", 240, "OK", 2)
    told.restarts_within("NodeUnpublishVolume")


def told_forgotten(told):
    """Kubelet restarts between unpublish and unstage, when the pod's folder is gone. The next pod of the claim comes after that."""
    told.create("pod-1")
    told.restarts_within("NodeUnstageVolume")
    told.recorder.wait_call("NodeGetInfo", 120, "OK")
    told.create("pod-2")
    told.delete("pod-2")


def told_force(told):
    """A pod is deleted by force, and its replacement starts on the same node."""
    told.create("pod-1")
    told.delete("pod-1", force=True)
    told.create("pod-2")
    told.delete("pod-2")


def told_eviction(told):
    """A pod is evicted while Ceph is silent, and Ceph answers after two unstages have failed."""
    told.create("pod-1")
    told.ceph(False)
    told.evict("pod-1")
    told.recorder.wait_call("NodeUnstageVolume", 300, FAILED, 2)
    told.ceph(True)


def told_drain(told):
    """A node is drained, and takes the pod's replacement when it is back in service."""
    told.create("pod-1")
    told.server.patch("/api/v1/nodes/" + NODE, spec={"unschedulable": True})
    told.evict("pod-1")
    told.gone()
    told.server.patch("/api/v1/nodes/" + NODE, spec={"unschedulable": False})
    told.create("pod-2")
    told.delete("pod-2")


def told_agent_down(told):
    """The agent is down when kubelet wants a volume, and when it takes the volume down."""
    told.agent_dies()
    told.create("pod-1", runs=False)
    told.recorder.wait_call("NodeGetCapabilities", 120, "UNAVAILABLE", 3)
    told.agent_starts()
    running(told.server, "pod-1")
    told.recorder.event("pod-1 runs")
    told.agent_dies()
    told.delete("pod-1")
    told.recorder.wait_call("NodeUnpublishVolume", 120, "UNAVAILABLE", 3)
    told.agent_starts()


def told_away(told):
    """A node is cut off, and its kubelet stands still. When it is back its pod is gone from the API server."""
    told.create("pod-1")
    told.recorder.event("node-1 is cut off")
    told.lab.admin("link", "down")
    told.kubelet.stand_still()
    told.delete("pod-1", force=True)
    wait_for("the end of the pod", lambda: told.server.get(POD) is None, 60)
    told.recorder.event("node-1 is back")
    told.lab.admin("link", "up")
    told.kubelet.go_on()


# An undone stage is left out. If a pod is deleted while its stage is under way, kubelet 1.20 removes the pod's folder with vol_data.json, and then publishes
# the volume all the same. Without that file it can never unpublish the volume.
SITUATIONS = {"start": told_start, "kubelet_restart": told_restart, "unstage_forgotten": told_forgotten, "force_deleted": told_force,
              "eviction": told_eviction, "drain": told_drain, "agent_down": told_agent_down, "node_loss": told_away}
