"""A rollout that puts the next pod beside the present one, on a real kubelet with the pods of deploy/kubernetes/base.

Kubernetes 1.20, the lab's, has no maxSurge, so its controller is played: by daemonset.py as Kubernetes 1.36 has it, and in the story `rollout` step by step,
with a second DaemonSet of the same pods on the node. Scheduler, kubelet, probes and containers (runc) are real."""
import json
import os

import time

from checks import check, long, now_us, say, wait_for
from daemonset import PODS, Controller, is_deleted, is_ready
from machine import MIB, child_of, parent_of, read
from stories_docs import APPLY, NODE, App, Operator, end, on_a_cluster
from stories_handover import blocklisted, expect_silence, told_by_nbd

DAEMONSETS = "/apis/apps/v1/namespaces/ceph-csi/daemonsets"
# Pods hand over, as they do with maxSurge.
HANDING_OVER = APPLY.replace("/--handover/d; ", "")
LOCK = "/var/lib/kubelet/plugins/rbd.csi.ceph.com/corbd/lock"


class Rollout:
    def __init__(self, cluster):
        self.server = cluster.server
        self.spec = self.server.get(DAEMONSETS + "/corbd")["spec"]

    def begin(self, name):
        """The next revision's pods, beside those that are there."""
        spec = json.loads(json.dumps(self.spec))
        for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
            labels["app"] = name
        self.server.create(DAEMONSETS, "DaemonSet", "apps/v1", name, spec=spec)
        self.server.patch(DAEMONSETS + "/" + name, metadata={"labels": {"app": name}})

    def end(self, operator, name):
        """As the controller does with the pod that is no longer wanted."""
        operator.type("kubectl -n ceph-csi delete daemonset,pod -l app=" + name)
        check(not self.server.get(DAEMONSETS + "/" + name) and not self.pod(name), "%s is still there" % name)

    def pod(self, name):
        found = self.server.get("/api/v1/namespaces/ceph-csi/pods?labelSelector=app%3D" + name)["items"]
        return found[0] if found else None

    def container(self, name):
        """Of its agent: ready or not, how often it was started again, its process."""
        pod = self.pod(name)
        found = [one for one in (pod or {}).get("status", {}).get("containerStatuses") or [] if one["name"] == "corbd"]
        return found[0] if found else {"ready": False, "restartCount": 0}

    def wait_ready(self, name):
        wait_for("%s to be ready" % name, lambda: self.container(name)["ready"], 180, 0.2)

    def expect_as_it_was(self, name, restarts):
        found = self.container(name)
        check(found["ready"] and found["restartCount"] == restarts, "%s is no more as it was: %s" % (name, found))


def holder():
    """The agent that serves."""
    return int(read(LOCK))


def serving():
    """The keeper of the agent that serves: the first process of its container."""
    return parent_of(holder())


def log_of(pod):
    return "/var/log/pods/ceph-csi_%s_%s/corbd" % (pod["metadata"]["name"], pod["metadata"]["uid"])


def logged(pod):
    """What its agent's containers said, the previous one included."""
    folder = log_of(pod)
    return "".join(read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)))


def of_an_end(event):
    """Whether a pod's end explains it. A container that ends takes the probe along that just runs in it, or runc does not find it any more: a probe that says
    no names itself. And kubelet may ask for a container's state that it has just removed."""
    if event["reason"] == "FailedSync":
        return event["message"].startswith("error determining status:") and event["message"].rstrip('"').endswith("not found")
    return event["reason"] == "Unhealthy" and "corbd" not in event["message"]


def expect_no_warnings(server, what):
    """Kubernetes keeps an event for each probe that fails, and for whatever else kubelet cannot do with a pod."""
    events = server.get("/api/v1/namespaces/ceph-csi/events")["items"]
    seen = [one for one in events if one["involvedObject"]["kind"] == "Pod" and one["involvedObject"]["name"].startswith("corbd")]
    check(seen, "there is no event at all about corbd's pods")
    # The lab's kubelet has no name server of a cluster, and says so of each pod.
    warnings = [one for one in seen if one["type"] == "Warning" and one["reason"] != "MissingClusterDNS"]
    there = {one["metadata"]["name"] for one in server.get(PODS)["items"] if not is_deleted(one)}
    warnings = [one for one in warnings if one["involvedObject"]["name"] in there or not of_an_end(one)]
    found = ["%s: %s: %s" % (one["involvedObject"]["name"], one["reason"], one["message"]) for one in warnings]
    check(not found, "%s left warnings: %s" % (what, found))


def rolled(lab, cluster):
    operator = Operator(cluster, {"NODE": NODE})
    operator.type(HANDING_OVER)
    operator.type("kubectl -n ceph-csi rollout status daemonset/corbd")
    app = App(cluster, "r", lab.image("a", size=256 * MIB), mounter="rbd-nbd")
    app.wait()
    roll, cut_off, told, first = Rollout(cluster), blocklisted(lab), told_by_nbd(), serving()

    def expect_unnoticed():
        app.writer.wait_more(20, timeout=120)
        check(blocklisted(lab) <= cut_off, "the rollout blocklisted %s" % (blocklisted(lab) - cut_off))
        expect_silence(told)
        return app.writer.stalls()["longest_stall_us"] / 1e6
    say("longest stall before: %.2f s" % expect_unnoticed())
    begin = now_us()
    roll.begin("corbd-next")
    roll.wait_ready("corbd-next")
    second = serving()
    check(second != first, "the next pod is ready, and the agent of the first one serves")
    say("the next pod is ready after %.1f s" % ((now_us() - begin) / 1e6))
    roll.expect_as_it_was("corbd", 0)
    say("longest stall with the handover: %.2f s" % expect_unnoticed())
    expect_no_warnings(cluster.server, "the rollout")
    # Its container goes on, with a process that holds nothing.
    reserve = child_of(first)
    check(reserve and len(os.listdir("/proc/%d/task" % reserve)) < 5, "the agent in reserve has more threads than it needs")

    # kubelet starts the container in reserve again. It does not ask for the devices.
    os.kill(first, 9)
    wait_for("the first pod's container to be started again", lambda: roll.container("corbd")["restartCount"] == 1, 120, 0.2)
    roll.wait_ready("corbd")
    app.writer.wait_more(40, timeout=120)
    check(serving() == second, "the pod in reserve took the devices back")
    check(logged(roll.pod("corbd")).count("handover.in_reserve") == 2, "the first pod is not in reserve")

    roll.end(operator, "corbd")
    roll.expect_as_it_was("corbd-next", 0)
    say("longest stall with the whole rollout: %.2f s" % expect_unnoticed())

    # Another rollout, undone while both pods are there: the pod that is taken away serves, and gives to the one in reserve.
    roll.begin("corbd")
    roll.wait_ready("corbd")
    third = serving()
    check(third not in (first, second), "the third pod does not serve")
    expect_unnoticed()
    roll.end(operator, "corbd")
    wait_for("the pod in reserve to serve", lambda: serving() == second, 60, 0.2)
    say("longest stall with the rollout that was undone: %.2f s" % expect_unnoticed())
    roll.expect_as_it_was("corbd-next", 0)

    # The agent alone is killed: neither its container nor the kernel's driver notices.
    agent, kills = holder(), [now_us()]
    os.kill(agent, 9)
    wait_for("the keeper to start the agent again", lambda: holder() != agent and serving() == second, 60, 0.2)
    app.writer.wait_more(20, timeout=120)
    expect_silence(told)
    roll.wait_ready("corbd-next")
    roll.expect_as_it_was("corbd-next", 0)
    say("longest stall with a kill of the agent: %.2f s" % (app.writer.stalls()["longest_stall_us"] / 1e6))

    # Another rollout, and the first process of the container that serves is killed.
    roll.begin("corbd")
    roll.wait_ready("corbd")
    kills.append(now_us())
    os.kill(serving(), 9)
    wait_for("the pod in reserve to serve", lambda: serving() == second, 60, 0.2)
    app.writer.wait_more(40, timeout=180)
    wait_for("the pod whose agent was killed to ask for the devices", lambda: serving() != second, 120, 0.2)
    roll.wait_ready("corbd")
    app.writer.wait_more(40, timeout=180)
    app.expect_nothing_lost(kills)
    roll.end(operator, "corbd-next")
    end(cluster, operator, [app], "corbd")


# [failure:151][failure:170]
def story_rollout(lab):
    """in a rollout the next pod takes over unnoticed, and the first stays in reserve and serves again when the rollout is undone"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", rolled)


story_rollout.limit = 420


class Watched:
    """A writer above agents that come and go: nobody is to be blocklisted, and the kernel is to notice nothing."""

    def __init__(self, lab, app):
        self.lab, self.app, self.cut_off, self.told = lab, app, blocklisted(lab), told_by_nbd()

    def expect_unnoticed(self, what):
        self.app.writer.wait_more(20, timeout=120)
        check(blocklisted(self.lab) <= self.cut_off, "%s blocklisted %s" % (what, blocklisted(self.lab) - self.cut_off))
        expect_silence(self.told)
        say("longest stall with %s: %.2f s" % (what, self.app.writer.stalls()["longest_stall_us"] / 1e6))


class Node(Watched):
    """corbd's only pod, a writer's, and the controller, which makes the next ones."""

    def __init__(self, lab, cluster, name):
        self.server = cluster.server
        self.operator = Operator(cluster, {"NODE": NODE})
        self.operator.type(HANDING_OVER)
        self.operator.type("kubectl -n ceph-csi rollout status daemonset/corbd")
        app = App(cluster, name, lab.image("a", size=256 * MIB), mounter="rbd-nbd")
        app.wait()
        self.template = self.server.get(DAEMONSETS + "/corbd")["spec"]["template"]
        # The lab's own controller lets its pod go: nobody collects what a DaemonSet leaves.
        self.operator.type("kubectl -n ceph-csi delete daemonset corbd")
        self.first = self.pods()[0]["metadata"]["labels"]["controller-revision-hash"]
        self.controller = Controller(self.server, NODE, self.template, self.first)
        super().__init__(lab, app)

    def pods(self, deleted=False):
        found = self.server.get(PODS + "?labelSelector=app%3Dcorbd")["items"]
        return [one for one in found if deleted or not is_deleted(one)]

    def broken(self):
        template = json.loads(json.dumps(self.template))
        for container in template["spec"]["initContainers"] + template["spec"]["containers"]:
            container["image"] = "registry.lab/broken:1"
        return template

    def wait_settled(self, revision):
        """One pod, of this revision, which serves."""
        def settled():
            pods = self.pods(deleted=True)
            one = len(pods) == 1 and pods[0]["metadata"]["labels"]["controller-revision-hash"] == revision and not is_deleted(pods[0])
            return one and is_ready(pods[0]) and uid_of_pod(holder()) == pods[0]["metadata"]["uid"]
        wait_for("one pod of revision %s that serves" % revision, settled, 240, 0.3)

    def end(self, cluster):
        self.controller.end()
        self.app.expect_nothing_lost()
        end(cluster, self.operator, [self.app], "corbd")


def uid_of_pod(process):
    return dict(one.split("=", 1) for one in read("/proc/%d/environ" % process).split("\0") if "=" in one).get("POD_UID")


def deleted(lab, cluster):
    node = Node(lab, cluster, "rd")
    node.expect_unnoticed("nothing yet")
    for what in ("a deleted pod", "an evicted pod"):
        pod, agent = node.pods()[0]["metadata"]["name"], holder()
        if what == "a deleted pod":
            node.operator.type("kubectl -n ceph-csi delete pod --wait=false " + pod)
        else:
            # kubectl drain leaves a DaemonSet's pods alone.
            node.server.ask("POST", "%s/%s/eviction" % (PODS, pod), {"kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {"name": pod}})
        node.wait_settled(node.first)
        check(holder() != agent, "%s still serves" % pod)
        node.expect_unnoticed(what)
        expect_no_warnings(node.server, what)
    node.end(cluster)


# [failure:151][failure:170]
def story_rollout_deleted(lab):
    """an agent whose pod is deleted or evicted serves on until the next one asks, unnoticed"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", deleted)


story_rollout_deleted.limit = 420


def busy(lab, cluster):
    node = Node(lab, cluster, "rb")
    # Each wants the whole processor. They outrank nobody, and nobody outranks them.
    spins = [lab.start(["sh", "-c", "while :; do :; done"]) for _ in range(4 * os.cpu_count())]
    agent = holder()
    node.controller.apply("next", node.template)
    node.wait_settled("next")
    check(holder() != agent, "the first pod's agent still serves")
    # Some more probes of the pod that serves now.
    time.sleep(60)
    expect_no_warnings(node.server, "a rollout on a busy processor")
    check([one["restartCount"] for one in node.pods()[0]["status"]["containerStatuses"]] == [0], "a probe had the agent killed")
    for spin in spins:
        check(spin.poll() is None, "a processor was not busy")
        spin.kill()
        spin.wait(20)
    node.expect_unnoticed("a rollout on a busy processor")
    node.end(cluster)


# [failure:170]
@long
def story_rollout_busy(lab):
    """a rollout while every processor has four programs that want all of it: no probe fails, and no container is started again"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", busy)


story_rollout_busy.limit = 600


def stalled(lab, cluster):
    node = Node(lab, cluster, "rs")
    pod, agent = node.pods()[0], holder()
    node.controller.apply("broken", node.broken())
    wait_for("the next pod", lambda: len(node.pods()) == 2, 60, 0.2)
    time.sleep(10)
    check(len(node.pods()) == 2, "a rollout that is stalled took a pod away")
    # As the node's controller does once the node is NotReady (pkg/util/node, MarkPodsNotReady). kubelet says otherwise a moment later.
    path = "%s/%s" % (PODS, pod["metadata"]["name"])
    node.server.ask("PATCH", path + "/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, kind="application/strategic-merge-patch+json")
    wait_for("the controller to delete the pod that serves", lambda: is_deleted(node.server.get(path)), 60, 0.1)
    time.sleep(30)
    check(holder() == agent and os.path.exists("/proc/%d" % agent), "the agent that serves has ended")
    said = node.operator.type("kubectl -n ceph-csi exec %s -c corbd -- corbd status" % pod["metadata"]["name"], codes=(2,))
    check("was told to end" in said, "corbd status does not say so")
    node.expect_unnoticed("a stalled rollout")
    node.controller.apply(node.first, node.template)
    node.wait_settled(node.first)
    check(holder() != agent, "the agent that was deleted still serves")
    node.expect_unnoticed("a stalled rollout that was undone")
    node.end(cluster)


# [failure:151]
def story_rollout_stalled(lab):
    """a serving pod that is deleted while a broken image stalls the rollout and the node is briefly NotReady serves until the rollout is undone"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", stalled)


story_rollout_stalled.limit = 420


def undone(lab, cluster):
    node = Node(lab, cluster, "ru")
    node.expect_unnoticed("nothing yet")
    for moment in range(10):
        revision = "r%d" % moment
        node.controller.apply(revision, node.template)
        wait_for("the next pod", lambda: len(node.pods()) == 2, 60, 0.05)
        pod = [one for one in node.pods() if one["metadata"]["labels"]["controller-revision-hash"] == revision][0]
        wait_for("the next agent to ask", lambda: os.path.isdir(log_of(pod)) and "handover.waits" in logged(pod), 120, 0.02)
        time.sleep(0.15 * moment)
        node.controller.apply(node.first, node.template)
        say("undone %.2f s after the next agent asked" % (0.15 * moment))
        node.wait_settled(node.first)
        node.expect_unnoticed("rollout %d undone" % moment)
    node.end(cluster)


# [failure:151]
@long
def story_rollout_undone(lab):
    """a rollout is undone at ten moments of the handover: the next pod is deleted while it takes over, and gives everything back unnoticed"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", undone)


story_rollout_undone.limit = 900
