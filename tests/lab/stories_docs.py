"""An operator with nothing but the documents installs corbd on a cluster of one node, and takes such a cluster from ceph-csi to corbd and back, by the commands
that the documents show, taken from there (documents.py).

API server, controllers, scheduler, kubelet and kubectl are real, of Kubernetes 1.20. Containers are made by runc with this machine's own programs in the
place of images. ceph-csi's node plugin and node-driver-registrar are played (tests/lab/kubernetes), and the external attacher is, too. `ssh` and `systemctl`
are scripts that do the same to the only node."""
import glob
import json
import os
import re
import shutil
import subprocess
import threading

import documents
import kube
from checks import Skip, check, long, now_us, say, wait_for
from documents import KEYS, KUBERNETES, MIGRATING, README
from machine import BUILD, MIB, REPO, agents, processes, put, read, run
from stories_container import needs_runc
from stories_keys import new_user
from stories_kubelet import Attacher, events
from writer import Writer

NODE, IMAGE = "node-7", "registry.lab/corbd:1.2.3"
PODS = "/api/v1/namespaces/default/pods"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class Cluster:
    """The node and the programs beside the API server."""
    controllers = "daemonset,deployment,replicaset"
    # As on a node. A guest has none of its own.
    folders = ("/var/lib/kubelet", "/run/corbd", "/var/log/pods")

    def __init__(self, lab, account):
        self.lab, self.server, self.account = lab, kube.Server(), account
        self.program = os.environ["CORBD_LAB_KUBELET"]
        self.bin = os.path.dirname(self.program)
        self.containers, self.folder, self.images = (os.path.join(lab.dir, name) for name in ("containers.sock", "containers", "images"))
        self.kubelet, self.attacher, self.ends = None, None, threading.Event()

    def start(self):
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)
            run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder])
        for folder in ("plugins", "plugins_registry"):
            os.makedirs(os.path.join("/var/lib/kubelet", folder))
        # A DaemonSet would wait for its pod on a node that another story left.
        for one in self.server.get("/api/v1/nodes")["items"]:
            self.remove("/api/v1/nodes/" + one["metadata"]["name"])
        self.make_images()
        os.makedirs(self.folder)
        self.run("containers", self.program, "-v=2", "containers", self.containers, self.images, self.folder)
        wait_for("the containers' socket", lambda: os.path.exists(self.containers), 60)
        self.start_kubelet()
        node = "/api/v1/nodes/" + NODE
        wait_for("the node", lambda: [one for one in (self.server.get(node) or {"status": {}})["status"].get("conditions", [])
                                      if (one["type"], one["status"]) == ("Ready", "True")], 120, 0.5)
        # The API server taints a new node, and the controller that ends that is not here.
        self.server.patch(node, spec={"taints": None})
        for name, words in (("kube-controller-manager", ["--controllers", self.controllers]), ("kube-scheduler", [])):
            self.run(name, os.path.join(self.bin, name), "--kubeconfig", os.environ["CORBD_LAB_KUBECONFIG"], "--leader-elect=false", "--port=0",
                     "--secure-port=0", *words)
        self.put("/api/v1/namespaces/ceph-csi/configmaps", "ConfigMap", "ceph-csi-config", data={
            "config.json": json.dumps([{"clusterID": "lab", "monitors": [self.lab.mon]}])})
        self.put("/api/v1/namespaces/default/secrets", "Secret", "docs-rbd", stringData={"userID": self.lab.user, "userKey": self.lab.key})
        # That of deploy/kubernetes/base, which the server got for its rights.
        self.remove("/apis/apps/v1/namespaces/ceph-csi/daemonsets/corbd")
        self.attacher = Attacher(self.server)
        self.thread = threading.Thread(target=self.restart_kubelets, daemon=True)
        self.thread.start()

    def put(self, path, kind, name, **more):
        self.remove(path + "/" + name)
        self.server.create(path, kind, "v1", name, **more)

    def remove(self, path):
        if self.server.get(path):
            self.server.delete(path)

    def run(self, name, *argv):
        return self.lab.start(list(argv), log=os.path.join(self.lab.out, name + ".log"))

    def start_kubelet(self):
        address = os.environ["CORBD_LAB_ADDRESS"].partition("/")[0]
        self.kubelet = self.run("kubelet", self.program, "-v=2", "node", NODE, os.environ["CORBD_LAB_KUBECONFIG"], "/var/lib/kubelet", self.containers, address)

    def make_images(self):
        """A folder for each: its programs, and the access of the pod's service account, which this server mounts nowhere."""
        for image, programs in (("corbd", {"corbd": "corbd", "corbd-probe": "corbd-probe", "cephcsi": "corbd"}), ("writer", {"corbd-writer": "corbd-writer"})):
            self.image(image, {name: os.path.join(BUILD, program) for name, program in programs.items()})
        for image in ("cephcsi", "csi-node-driver-registrar"):
            self.image(image, {image: os.path.join(self.bin, "lab")})
        config = self.access()
        cluster = config["clusters"][0]["cluster"]
        folder = os.path.join(self.images, "corbd")
        shutil.copy(cluster["certificate-authority"], os.path.join(folder, "ca.crt"))
        cluster["certificate-authority"] = os.path.join(folder, "ca.crt")
        put(os.path.join(folder, "kubeconfig"), json.dumps(config))
        put(os.path.join(folder, "environment"), "KUBERNETES_CONFIG_PATH=%s\n" % os.path.join(folder, "kubeconfig"))

    def access(self):
        """A kubeconfig of the pods' service account."""
        return json.loads(read(os.environ[self.account]))

    def image(self, name, programs):
        folder = os.path.join(self.images, name)
        os.makedirs(folder)
        for program, target in programs.items():
            os.symlink(target, os.path.join(folder, program))

    @property
    def restart(self):
        return os.path.join(self.lab.dir, "restart-kubelet")

    def restart_kubelets(self):
        """For the script `systemctl`."""
        while not self.ends.wait(0.2):
            if os.path.exists(self.restart):
                self.kubelet.kill()
                self.kubelet.wait(20)
                self.start_kubelet()
                os.remove(self.restart)

    def end(self):
        """Nothing of it is left for the next story."""
        self.ends.set()
        if self.attacher:
            self.attacher.end()
        self.remove("/api/v1/nodes/" + NODE)
        for process in self.lab.started:
            if process.poll() is None and "corbd-writer" not in process.args[0]:
                process.kill()
                process.wait(20)
        runc = ["runc", "--root", os.path.join(self.folder, "runc")]
        for container in subprocess.run(runc + ["list", "-q"], capture_output=True, text=True, timeout=60).stdout.split():
            subprocess.run(runc + ["delete", "--force", container], capture_output=True, timeout=60)
        for folder in self.folders:
            subprocess.run("while umount -l %s 2>/dev/null; do :; done" % folder, shell=True, timeout=60)


class Reader:
    """Someone who types the commands of documents, with other words in the place of their placeholders."""

    def __init__(self, values):
        self.values = values

    def type(self, text, codes=(0,), timeout=180):
        """What a command says."""
        for name, value in self.values.items():
            text = re.sub(r"\b%s\b" % re.escape(name), value, text)
        say("$ " + text)
        code, said = self.execute(text, timeout)
        for line in said.rstrip().splitlines():
            say("    " + line[:240])
        check(code in codes, "`%s` of the documents: exit code %d: %s" % (text, code, said[-300:]))
        return said

    def follow(self, document, section, before=(), after=(), codes=()):
        """Every command of the section, in its order. before and after: what the command begins with, and what is done then."""
        texts = documents.to_run(REPO, document, section)
        check(texts, "%s shows no command in %s" % (document, section))
        used = set()

        def of(rows, text):
            found = [begin for begin in dict(rows) if text.startswith(begin)]
            used.update(found)
            return dict(rows)[max(found, key=len)] if found else None
        for text in texts:
            (of(before, text) or (lambda: None))()
            said = self.type(text, of(codes, text) or (0,))
            (of(after, text) or (lambda _: None))(said)
        unused = set(dict(before)) | set(dict(after)) | set(dict(codes))
        check(unused <= used, "%s, %s has no command any more that begins with %s" % (document, section, unused - used))


class Operator(Reader):
    """In a folder, with kubectl and what the documents name."""

    def __init__(self, cluster, values, folder=REPO):
        super().__init__(values)
        lab = cluster.lab
        self.lab, self.folder = lab, folder
        self.path = os.path.join(lab.dir, "operator")
        self.variables = os.path.join(self.path, "variables")
        os.makedirs(self.path)
        put(self.variables, "")
        os.symlink(os.path.join(cluster.bin, "lab"), os.path.join(self.path, "kubectl"))
        os.symlink(os.path.join(REPO, "deploy/kubectl/kubectl-corbd"), os.path.join(self.path, "kubectl-corbd"))
        self.script("ssh", 'shift; exec "$@"')
        self.script("systemctl", 'test "$*" = "restart kubelet" && touch %s && while test -e %s; do sleep 0.1; done' % (cluster.restart, cluster.restart))
        # "Run these commands on the node, or in its pod."
        self.script("corbd", 'POD=$(kubectl -n ceph-csi get pod -l app=csi-rbdplugin -o name)\nexec kubectl -n ceph-csi exec $POD -c csi-rbdplugin -- corbd "$@"')

    def script(self, name, text):
        put(os.path.join(self.path, name), "#!/bin/bash\n%s\n" % text)
        os.chmod(os.path.join(self.path, name), 0o755)

    def execute(self, text, timeout):
        script = ". %s; cd %s; %s\nrc=$?; declare -p POD >%s 2>/dev/null; exit $rc" % (self.variables, self.folder, text, self.variables)
        environment = dict(os.environ, PATH=self.path + ":" + os.environ["PATH"], KUBECONFIG=os.environ["CORBD_LAB_KUBECONFIG"], HOME=self.path)
        done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, env=environment)
        return done.returncode, done.stdout


class App:
    """A Deployment whose only pod writes to its volume, and what was written to it so far."""

    def __init__(self, cluster, name, image, **attributes):
        self.cluster, self.name, self.image, self.writers = cluster, name, image, {}
        self.journals = os.path.join(cluster.lab.dir, "journals-" + name)
        os.makedirs(self.journals)
        server, lab = cluster.server, cluster.lab
        server.create("/api/v1/persistentvolumes", "PersistentVolume", "v1", "docs-" + name, spec={
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "256Mi"}, "claimRef": {"namespace": "default", "name": "docs-" + name},
            "csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": image.name, "fsType": "ext4",
                    "nodeStageSecretRef": {"namespace": "default", "name": "docs-rbd"},
                    "volumeAttributes": {"staticVolume": "true", "clusterID": "lab", "pool": image.pool, **attributes}}})
        server.create("/api/v1/namespaces/default/persistentvolumeclaims", "PersistentVolumeClaim", "v1", "docs-" + name, spec={
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}, "storageClassName": "", "volumeName": "docs-" + name})
        labels = {"app": "docs-" + name}
        server.create("/apis/apps/v1/namespaces/default/deployments", "Deployment", "apps/v1", "docs-" + name, spec={
            "replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": {
                "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30,
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "docs-" + name}}, {"name": "journals", "hostPath": {"path": self.journals}}],
                "containers": [{
                    "name": "writer", "image": "lab/writer:1", "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "command": ["corbd-writer", "run", "--path", "/data/$(POD)", "--size", str(16 * MIB), "--mode", "direct", "--journal", "/journals/$(POD)",
                                "--threads", "2", "--paced", "2", "--pace-ms", "50", "--seconds", "0"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "journals", "mountPath": "/journals"}]}]}}})

    @property
    def pod(self):
        """The one that runs, or None."""
        found = [one for one in self.cluster.server.get(PODS + "?labelSelector=app%3Ddocs-" + self.name)["items"]
                 if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]]
        return found[0]["metadata"] if found else None

    def wait(self):
        """Its pod, which writes."""
        pod = wait_for("a pod of %s that runs" % self.name, lambda: self.pod, 240, 0.5)
        self.mount = "/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/docs-%s/mount" % (pod["uid"], self.name)
        journal = os.path.join(self.journals, pod["name"])
        self.writer = self.writers.setdefault(pod["name"], Writer(self.cluster.lab, os.path.join(self.mount, pod["name"]), journal=journal))
        self.writer.wait_more(20, timeout=120)
        return pod["uid"]

    def expect_nothing_lost(self, kills=()):
        """Of all its pods so far."""
        for pod, writer in self.writers.items():
            found = writer.expect_nothing_lost(kills, path=os.path.join(self.mount, pod))
            say("%s: %d acknowledged writes, longest stall %.1f s" % (pod, found["acked"], found["longest_stall_us"] / 1e6))

    def end(self):
        self.cluster.server.patch("/apis/apps/v1/namespaces/default/deployments/docs-" + self.name, spec={"replicas": 0})


def needs_cluster(lab):
    if not os.environ.get("CORBD_LAB_KUBECONFIG"):
        raise Skip(os.environ.get("CORBD_LAB_KUBE_MISSING") or "no API server: scripts/lab/kubernetes start, env")
    if not lab.tap:
        raise Skip("the API server reaches the kubelet in a User Mode Linux only, for kubectl exec and logs")
    needs_runc()


def forget(server):
    """What a story that failed has left: the next one's node would run it."""
    # Nobody collects a Deployment's ReplicaSet, which would make its pod again.
    for path in ("/apis/apps/v1/namespaces/default/deployments", "/apis/apps/v1/namespaces/default/replicasets", "/apis/apps/v1/namespaces/ceph-csi/daemonsets",
                 "/api/v1/namespaces/default/pods?gracePeriodSeconds=0", "/api/v1/namespaces/ceph-csi/pods?gracePeriodSeconds=0", ATTACHMENTS):
        server.delete(path)


def on_a_cluster(lab, account, live, kind=Cluster):
    needs_cluster(lab)
    cluster = kind(lab, account)
    try:
        cluster.start()
        live(lab, cluster)
    except Exception:
        for pod in cluster.server.get("/api/v1/pods")["items"]:
            say("pod: %s: %s" % (pod["metadata"]["name"], json.dumps(pod["status"].get("containerStatuses") or pod["status"])[:600]))
        events(cluster.server)
        for path in sorted(glob.glob("/var/log/pods/*/*/*.log")):
            say("log: %s: %s" % (path, " | ".join(read(path).splitlines()[-3:])[:600]))
        forget(cluster.server)
        lab.disconnect_devices()
        raise
    finally:
        cluster.end()


def end(cluster, operator, apps, label):
    for app in apps:
        app.end()
    volumes = {"docs-" + app.name for app in apps}

    def attached():
        return [one for one in cluster.server.get(ATTACHMENTS)["items"] if one["spec"]["source"].get("persistentVolumeName") in volumes]
    wait_for("the end of the attachments", lambda: not attached(), 240, 0.5)
    # Nobody collects what a DaemonSet leaves.
    operator.type("kubectl -n ceph-csi delete daemonset,pod -l app=" + label)


# For a Kubernetes before 1.22, says the document.
APPLY = "kubectl kustomize deploy/kubernetes/base | sed '/maxSurge/d; /--handover/d; s/maxUnavailable: 0/maxUnavailable: 1/' | kubectl apply --validate=false -f -"


# What a program in the guest asks the machine with the cluster.
CEPH = """exec python3 -c 'import sys
sys.path.insert(0, "%s/tests/lab")
import control
code, out, err = control.call(["ceph", *sys.argv[1:]])
print(out, end="")
print(err, end="", file=sys.stderr)
sys.exit(code)' "$@"
""" % REPO


def rotate(operator, app, old, new):
    """Replaces the Ceph user of a volume that is written, as the page on keys has it."""
    operator.script("ceph", CEPH)
    # The longer name first.
    operator.values.update({"csi-rbd-node-2": new, "csi-rbd-node": old, "ceph-csi patch secret csi-rbd-secret": "default patch secret docs-rbd"})
    operator.follow(KEYS, "What each node has", codes={"kubectl corbd keys client.": (1,)})

    def moved():
        return operator.execute("kubectl corbd keys client." + old, 60)[0] == 0
    operator.follow(KEYS, "With your own Secrets", before={"kubectl corbd keys": lambda: wait_for("the volume's move to the new user", moved, 180, 1)})
    app.writer.wait_more(50, timeout=180)


def installed(lab, cluster):
    operator = Operator(cluster, {"NODE": NODE, "kubectl apply -k deploy/kubernetes/base": APPLY})
    apps = []
    old, new = "lab-docs-1", "lab-docs-2"
    for user in (old, new):
        lab.admin("ceph", "auth", "rm", "client." + user, ok=False)
    cluster.put("/api/v1/namespaces/default/secrets", "Secret", "docs-rbd", stringData={"userID": old, "userKey": read(new_user(lab, old)[1]).strip()})

    def volume(_):
        image = lab.image("a", size=256 * MIB)
        operator.values["ID"] = image.name
        apps.append(App(cluster, "c", image, mounter="rbd-nbd"))
        apps[0].wait()

    def name_of_pod(said):
        operator.values["POD"] = re.search(r"^(corbd-\S+) ", said, re.M)[1]
    operator.follow(
        KUBERNETES, "Install it", codes={"kubectl create namespace ceph-csi": (1,), "kubectl corbd status": (0, 1), "kubectl -n ceph-csi exec": (0, 1)},
        after={"kubectl -n ceph-csi rollout status": volume, "kubectl -n ceph-csi get pods": name_of_pod})
    kill = now_us()
    operator.type("kubectl -n ceph-csi delete pod -l app=corbd")
    apps[0].writer.wait_more(50, timeout=180)
    # The next agent serves before kubelet has told the API server that its pod runs.
    operator.type("kubectl -n ceph-csi rollout status daemonset/corbd")
    rotate(operator, apps[0], old, new)
    apps[0].expect_nothing_lost([kill])
    end(cluster, operator, apps, "corbd")


def there_and_back(lab, cluster):
    run(["modprobe", "rbd"], ok=False)
    kernels = os.path.exists("/sys/bus/rbd/supported_features")
    say("the second volume is %s" % ("the kernel client's" if kernels else "rbd-nbd's too: this kernel has no rbd"))
    operator = Operator(cluster, {"NODE": NODE, "REGISTRY/corbd:VERSION": IMAGE})
    operator.type("kubectl apply -f tests/lab/csi-rbdplugin.yaml")
    nbd = {"mounter": "rbd-nbd", "mapOptions": "nbd:rbd_cache=false"}
    apps = [App(cluster, "a", lab.image("a", size=256 * MIB), **nbd),
            App(cluster, "b", lab.image("b", size=256 * MIB), **({"mounter": "rbd"} if kernels else nbd))]
    begin = now_us()
    pods = [app.wait() for app in apps]
    say("ceph-csi serves both after %.0f s" % ((now_us() - begin) / 1e6))
    operator.values["ID"] = apps[0].image.name

    # --- to corbd, with its pods
    def foretold(said):
        check(all(app.image.name in said for app in apps), "the doctor does not name both volumes")

    def code_1(said):
        # I/O of rbd-nbd's volume waits for a while.
        check(said.strip() == "exit code 1", "the doctor's pod ended with %s" % said)
    operator.follow(MIGRATING, "Before", after={"kubectl -n ceph-csi logs": foretold, "kubectl -n ceph-csi get pod corbd-doctor-node-7 -o jsonpath='exit": code_1})
    said = []
    operator.follow(
        MIGRATING, "In its place: raw manifests", after={"kubectl -n ceph-csi rollout history": said.append},
        before={"kubectl -n ceph-csi delete pod": lambda: operator.follow(MIGRATING, "The cache of rbd-nbd")})
    operator.values["REVISION"] = max(re.findall(r"^(\d+) ", said[0], re.M), key=int)
    for app in apps:
        check(app.wait() in pods, "a pod of %s was made anew" % app.name)

    def healthy():
        found = json.loads(operator.type("corbd volumes -o json"))["volumes"]
        return sorted(one["id"] for one in found if one["health"] == "staged") == sorted(app.image.name for app in apps)
    wait_for("corbd to have both volumes", healthy, 120, 2)

    # --- broken, healed, watched
    agent, = agents(pid for pid, line in processes("--nodeserver=true").items() if line.startswith("cephcsi "))
    kill = now_us()
    os.kill(agent, 9)
    for app in apps:
        app.writer.wait_more(50, timeout=180)
    wait_for("both volumes after the agent's end", healthy, 120, 2)
    # The lab's node has no system bus, which is a warning.
    operator.follow(README, "Operations", codes={"corbd status": (0, 1), "corbd doctor": (0, 1)})

    # --- and back
    # The doctor is asked before and after the drain.
    said, doctor = [], "kubectl -n ceph-csi exec $POD -c csi-rbdplugin -- cephcsi doctor"
    operator.follow(MIGRATING, "Back", codes={doctor: (0, 1)}, after={doctor: said.append})
    check("I/O waits for a while" in said[0] and "Nothing stands in the way" in said[-1], "the doctor says: %s" % said)
    for app in apps:
        app.wait()
        app.expect_nothing_lost([kill])
    programs = [line for line in processes("--nodeserver=true").values() if line.startswith("cephcsi ")]
    check(len(programs) == 1 and processes("rbd-nbd map"), "it is not ceph-csi that serves them: %s" % programs)

    end(cluster, operator, apps, "csi-rbdplugin")
    check(not processes("rbd-nbd map"), "an rbd-nbd is left: %s" % processes("rbd-nbd map"))


# [failure:48]
def story_installed_by_the_docs(lab):
    """the document's own commands install corbd, roll out its pod, watch it, and replace it under a volume's writer"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", installed)


@long
def story_by_the_docs(lab):
    """the documents' own commands migrate a node from ceph-csi to corbd, watch, break and heal it, and roll it back, without a lost write"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_PLUGIN", there_and_back)


story_installed_by_the_docs.limit = 600
story_by_the_docs.limit = 1200
