"""An operator with nothing but two releases' files (scripts/release) installs the first one on a node or on a host, upgrades to the second one, goes back, and
removes it, by the documents' own commands, under a volume's writer.

On the node an image is what `ctr` imported: it is played, and unpacks the release's archive (oci.py), from whose files alone the container is made. The
DaemonSet's controller is played, too (daemonset.py): it follows what kubectl asks for, with maxSurge. The rest is as in stories_docs.py."""
import glob
import os
import re
import shutil
import signal
import subprocess

import releases
import stories_host
from checks import check, long, say, wait_for
from daemonset import APPS, DAEMONSET, PODS, Followed, is_deleted, is_ready
from documents import README, RELEASES, STANDALONE
from machine import MIB, REPO, child_of, devices, mounts, processes, put, read, run
from stories_deploy import NUMBERS, capabilities_of
from node import Node
from stories_docs import APPLY, NODE, App, Cluster, Operator, Reader, on_a_cluster
from stories_handover import blocklisted, expect_silence
from stories_host import expect_served_by
from stories_rollout import Watched, holder, serving, uid_of_pod
from writer import WRITER

# As APPLY of stories_docs, for a server without maxSurge. The agents hand over.
ROLL_OUT = "kubectl kustomize %s | sed '/maxSurge/d; s/maxUnavailable: 0/maxUnavailable: 1/' | kubectl apply --validate=false -f -"
BASE = "corbd-kubernetes-%s/deploy/kubernetes/base"
# What scripts/lab/kubernetes put on the server for its rights.
OF_THE_CHECKOUT = ("/apis/rbac.authorization.k8s.io/v1/clusterroles/corbd", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/corbd",
                   "/api/v1/namespaces/ceph-csi/serviceaccounts/corbd", "/apis/storage.k8s.io/v1/csidrivers/rbd.csi.ceph.com")


class NewNode(Cluster):
    """Without an image of corbd, and without any object of it on the server."""
    controllers = "deployment,replicaset,garbagecollector"
    folders = ("/var/lib/kubelet", "/var/log/pods")

    def __init__(self, lab, account):
        super().__init__(lab, account)
        self.releases, self.controller = releases.two(), None
        self.unpacked = lab.admin("images", *(one.image for one in self.releases), timeout=300).splitlines()

    def make_images(self):
        super().image("writer", {"corbd-writer": WRITER})
        config = self.access()
        cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
        host, _, port = cluster["server"].rpartition("/")[2].rpartition(":")
        folder = os.path.join(self.images, "account")
        os.makedirs(folder)
        for name, text in (("token", token), ("ca.crt", read(cluster["certificate-authority"])), ("namespace", "ceph-csi"),
                           ("environment", "KUBERNETES_SERVICE_HOST=%s\nKUBERNETES_SERVICE_PORT=%s\n" % (host, port))):
            put(os.path.join(folder, name), text)

    def start(self):
        super().start()
        for path in OF_THE_CHECKOUT:
            self.remove(path)
        self.controller = Followed(self.server, NODE)

    def end(self):
        try:
            if self.controller:
                self.controller.end()
        finally:
            self.put_back()

    def put_back(self):
        super().end()
        shutil.rmtree("/run/corbd", ignore_errors=True)
        environment = dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"], KUBECONFIG=os.environ["CORBD_LAB_KUBECONFIG"], HOME=self.lab.dir)
        # For the stories that come after this one.
        run(["bash", "-c", "kubectl() { %s/kubectl \"$@\"; }; cd %s; %s" % (self.bin, REPO, APPLY)], env=environment)
        self.remove(DAEMONSET)


class Installer(Operator):
    """In the folder with the files of both releases, with ctr."""

    def __init__(self, cluster):
        first, second = cluster.releases
        folder = os.path.join(cluster.lab.dir, "files")
        os.makedirs(folder)
        values = {"kubectl apply -k " + BASE % name: ROLL_OUT % BASE % name for name in ("VERSION", "NEXT")}
        self.cluster = cluster
        super().__init__(cluster, dict(values, VERSION=first.version, NEXT=second.version, NODE=NODE), folder)
        for one in (second, first):
            for path in glob.glob(one.folder + "/*"):
                copy = os.path.join(folder, os.path.basename(path))
                if os.path.lexists(copy):
                    os.unlink(copy)
                os.symlink(path, copy)
        cases = "\n".join("%s) folder=%s ;;" % (os.path.basename(one.image), unpacked) for one, unpacked in zip(cluster.releases, cluster.unpacked))
        self.script("ctr", """test "$1 $2 $3 $4" = "-n k8s.io images import" && test -r "$5" || exit 2
case $(basename "$5") in
%s
*) exit 2 ;;
esac
into=%s/$(cat $folder/reference)
mkdir -p "$(dirname "$into")" && ln -sfn $folder "$into" && echo "unpacking $(cat $folder/reference)...done" """ % (cases, cluster.images))

    def pods(self):
        return self.cluster.server.get(PODS + "?labelSelector=app%3Dcorbd")["items"]

    def name_pod(self):
        """POD is the pod that serves."""
        self.values["POD"], = [one["metadata"]["name"] for one in self.pods() if one["metadata"]["uid"] == uid_of_pod(holder())]

    def in_pod(self, words, codes=(0,)):
        self.name_pod()
        return self.type("kubectl -n ceph-csi exec POD -c corbd -- " + words, codes=codes)

    def expect_alone(self, release):
        """One pod, which serves with this release's program."""
        def alone():
            pods = self.pods()
            return len(pods) == 1 and not is_deleted(pods[0]) and is_ready(pods[0]) and uid_of_pod(holder()) == pods[0]["metadata"]["uid"]
        wait_for("the only pod to serve", alone, 240, 0.3)
        check("corbd %s " % release.version in self.in_pod("corbd --version"), "another version serves")


def expect_rights(server):
    """The agent that serves has the rights of its manifest, no file of the machine, and none that it could change."""
    asked = server.get(DAEMONSET)["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    check(asked["readOnlyRootFilesystem"] and asked["capabilities"]["drop"] == ["ALL"], "the manifest gives another container: %s" % asked)
    check(capabilities_of(holder()) == {NUMBERS[name] for name in asked["capabilities"]["add"]}, "its capabilities: %s" % capabilities_of(holder()))
    lines = [line.split() for line in read("/proc/%d/mountinfo" % holder()).splitlines()]
    root, = [line for line in lines if line[4] == "/"]
    check("ro" in root[5].split(",") and root[root.index("-") + 1] == "overlay", "its root: %s" % root)
    check(not [line for line in lines if line[4].startswith(("/usr", "/bin", "/lib"))], "it has programs of the machine: %s" % lines)


def without_image(operator, watched, first):
    """The image of the next release is not on the node: its pod cannot start, the rollout waits, and is undone."""
    agent = holder()
    operator.type("tar -xf corbd-kubernetes-NEXT.tar.gz")
    operator.type("kubectl apply -k " + BASE % "NEXT")
    wait_for("the pod that cannot start", lambda: len(operator.pods()) == 2, 60, 0.2)
    said = operator.type("kubectl -n ceph-csi rollout status daemonset/corbd --timeout=15s", codes=(1,))
    check("timed out" in said or "exceeded" in said, "the rollout goes on")
    check(len(operator.pods()) == 2 and holder() == agent, "the rollout took the agent away that serves")
    watched.expect_unnoticed("a release whose image is not on the node")
    operator.follow(RELEASES, "Roll the manifests back")
    operator.expect_alone(first)
    check(holder() == agent, "a rollback to the pod that serves changed its agent")
    watched.expect_unnoticed("the rollback of that")


def with_a_pod_that_hangs(operator, watched, second):
    """The present pod's processes stop for a while, just when it has given everything, so the pod does not end."""
    keeper, agent = serving(), holder()
    operator.type("kubectl apply -k " + BASE % "NEXT")
    wait_for("the agent to have handed over", lambda: not os.path.exists("/proc/%d" % agent), 180, 0.02)
    stopped = [pid for pid in (keeper, child_of(keeper)) if pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    wait_for("the present pod to be told to end", lambda: any(is_deleted(one) for one in operator.pods()), 60, 0.2)
    watched.expect_unnoticed("a pod that does not end")
    operator.in_pod("corbd status", codes=(0, 1))
    check(len(operator.pods()) == 2, "the pod that hangs is gone")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    operator.type("kubectl -n ceph-csi rollout status daemonset/corbd")
    operator.expect_alone(second)
    watched.expect_unnoticed("its end")


def upgraded(lab, cluster):
    (first, second), server = cluster.releases, cluster.server
    operator = Installer(cluster)
    operator.follow(README, "Put it on a cluster", codes={"kubectl create namespace ceph-csi": (1,)})
    app = App(cluster, "f", lab.image("a", size=256 * MIB), mounter="rbd-nbd")
    app.wait()
    operator.expect_alone(first)
    expect_rights(server)
    operator.in_pod("corbd doctor")
    watched = Watched(lab, app)
    watched.expect_unnoticed("nothing yet")
    without_image(operator, watched, first)

    operator.follow(RELEASES, "Upgrade the manifests")
    operator.expect_alone(second)
    watched.expect_unnoticed("the upgrade")
    expect_rights(server)
    operator.in_pod("corbd doctor")
    operator.follow(RELEASES, "Roll the manifests back")
    operator.expect_alone(first)
    watched.expect_unnoticed("the rollback")
    with_a_pod_that_hangs(operator, watched, second)
    app.expect_nothing_lost()

    operator.name_pod()
    operator.values["VERSION"] = second.version
    operator.follow(RELEASES, "Uninstall from a cluster", before={"kubectl uncordon": app.end})
    expect_nothing_left(server)


def expect_nothing_left(server):
    found = [path for path in (DAEMONSET, *OF_THE_CHECKOUT) if server.get(path)]
    check(not found, "on the server is left: %s" % found)
    left = [one["metadata"]["name"] for one in server.get(PODS)["items"]]
    check(not left, "pods are left: %s" % left)
    wait_for("the end of its history", lambda: not server.get(APPS + "controllerrevisions")["items"], 60, 0.5)
    check(not devices(), "devices are left: %s" % devices())
    found = [one for one in mounts() if "nbd" in one[2] or "/csi/" in one[0]]
    check(not found, "mounts are left: %s" % found)
    check(not processes("corbd run"), "processes are left: %s" % processes("corbd run"))
    found = glob.glob("/run/corbd") + glob.glob("/var/lib/kubelet/plugins/rbd*") + os.listdir("/var/lib/kubelet/plugins_registry")
    check(not found, "files are left: %s" % found)


@long
def story_released_cluster(lab):
    """two releases' files alone: the first is installed on a cluster, upgraded, rolled back and removed without a lost write, unnoticed by the kernel"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", upgraded, NewNode)


story_released_cluster.limit = 1500


class Host(stories_host.Host):
    """In the second guest: an administrator's shell, who says yes to apt."""

    def prepare(self, fsid, key):
        put("/etc/ceph/ceph.conf", "[global]\nfsid = %s\nmon_host = %s\n" % (fsid, self.lab.mon))
        put("/etc/ceph/ceph.client.admin.keyring", "[client.admin]\n\tkey = %s\n" % key)

    def execute(self, text):
        done = subprocess.run(["bash", "-c", "cd %s; %s" % (self.out, text)], input="y\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=280)
        # As in install().
        run(["sync"])
        return done.returncode, re.sub(r"\(Reading database \.\.\. (\d+%)?\n", "", done.stdout)

    def left(self):
        """What there is of corbd, but for the folder that docs/releases.md leaves."""
        folders = ["/etc", "/run", "/usr/bin", "/lib/systemd", "/usr/share/bash-completion", "/usr/share/doc", "/usr/share/man", "/var/lib"]
        others = [word for path in ("*corbd-lab*", "/var/lib/dpkg/*", "/run/corbd") for word in ("-not", "-path", path)]
        found = run(["find", *folders, "-xdev", "-name", "*corbd*", *others], ok=False)
        return found.splitlines() + glob.glob("/run/corbd/keys/*") + list(processes("corbd run").values()) + ["nbd%d" % number for number in devices()]

    def program(self):
        """Of the agent that serves."""
        return os.readlink("/proc/%d/exe" % self.agents()[0][1])


class Administrator(Reader):
    """On a host, in the folder with the packages of both releases."""

    def __init__(self, host, first, second, **values):
        packages = {"corbd_%s+deb12_amd64.deb" % name: os.path.basename(one.package) for name, one in (("VERSION", first), ("NEXT", second))}
        super().__init__(dict(packages, **values))
        self.host = host
        for one in (first, second):
            host.give(one.package)

    def execute(self, text, timeout):
        return self.host.ask("execute", text, patience=300)


def broken(release, folder):
    """The package of a release whose program ends at once, as a newer version."""
    tree, made = os.path.join(folder, "tree"), os.path.join(folder, "corbd_broken.deb")
    run(["dpkg-deb", "--raw-extract", release.package, tree])
    put(os.path.join(tree, "usr/bin/corbd"), "#!/bin/sh\nexit 1\n")
    run(["sed", "-i", "/^Version:/s/$/+broken/", os.path.join(tree, "DEBIAN/control")])
    run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made])
    return made


@long
def story_released_host(lab):
    """two releases' Debian packages, by apt-get: the first is installed, upgraded under a database, rolled back and purged without a lost write"""
    first, second = releases.two()
    image = lab.image("a", size=256 * MIB)
    host = Node(lab, "host", Host, disk=True)
    host.ask("prepare", lab.admin("ceph", "fsid").strip(), lab.admin("ceph", "auth", "get-key", "client.admin").strip())
    administrator = Administrator(host, first, second, **{"rbd/db": image.spec})

    administrator.follow(README, "Put it on a host", codes={"corbd doctor": (0, 1)})
    administrator.follow(STANDALONE, "Set up", codes={"corbd doctor": (0, 1)})
    host.ask("database", "db", "/srv/db", "corbd-mounts.service")
    boot = host.ask("boot_id")

    def expect_unnoticed(what):
        host.ask("wait_writes", "db", "/srv/db", 40)
        check(blocklisted(lab) <= cut_off, "%s blocklisted %s" % (what, blocklisted(lab) - cut_off))
        expect_silence(told, host.ask("told_by_nbd"))
        check([host.ask("runs", unit) for unit in ("corbd", "corbd-mounts", "db")] == runs, "%s ended a unit" % what)
        say("longest stall with %s: %.2f s" % (what, host.ask("longest_stall", "db", "/srv/db") / 1e6))
    cut_off, told = blocklisted(lab), host.ask("told_by_nbd")
    runs = [host.ask("runs", unit) for unit in ("corbd", "corbd-mounts", "db")]
    expect_unnoticed("nothing yet")
    keepers = [host.ask("main_process")]

    def expect_taken_over(what, release):
        check(administrator.type("corbd --version").startswith("corbd %s " % release.version), "%s put another program there" % what)
        keepers.append(host.ask("main_process"))
        check(len(set(keepers)) == len(keepers), "%s left the agent that it found" % what)
        expect_served_by(host, keepers[-1])
        check(host.ask("program") == "/usr/bin/corbd", "the agent's program is %s" % host.ask("program"))
        expect_unnoticed(what)
    administrator.follow(RELEASES, "Upgrade the Debian package")
    expect_taken_over("the upgrade", second)
    administrator.follow(RELEASES, "Roll the Debian package back")
    expect_taken_over("the rollback", first)

    # A release whose program does not start at all, and back.
    host.give(broken(second, lab.dir))
    check("the present one serves on" in administrator.type("apt-get install ./corbd_broken.deb"), "apt-get does not say that nobody took over")
    expect_unnoticed("a release that does not start")
    administrator.follow(RELEASES, "Roll the Debian package back")
    expect_taken_over("the rollback of that", first)
    check("volumes on this host" in administrator.type("apt-get remove corbd", codes=(100,)), "the refusal says something else")
    expect_unnoticed("a removal that is refused")
    found = host.ask("verify", "db", "/srv/db", boot)
    say("%d writes, none lost, no error" % found["acked"])
    host.ask("end_writes", "db")
    administrator.follow(RELEASES, "Uninstall from a host")
    left = host.ask("left")
    check(not left, "of corbd is left: %s" % left)
    host.end()


story_released_host.limit = 900
