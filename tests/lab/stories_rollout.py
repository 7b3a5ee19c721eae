"""A rollout that puts the next pod beside the present one, on a real kubelet with the pods of deploy/kubernetes/base.

Kubernetes 1.20, the lab's, has no maxSurge: the story plays that part of the DaemonSet's controller. It puts a second DaemonSet of the same pods on the
node, waits until its pod is ready, and takes the first one away. Scheduler, kubelet, probes and containers (runc) are real."""
import json
import os

from checks import check, now_us, say, wait_for
from machine import MIB, child_of, parent_of, read
from stories_docs import APPLY, NODE, App, Operator, end, on_a_cluster
from stories_handover import blocklisted, expect_silence, told_by_nbd

DAEMONSETS = "/apis/apps/v1/namespaces/ceph-csi/daemonsets"
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


def logged(pod):
    """What its agent's containers said, the one before included."""
    folder = "/var/log/pods/ceph-csi_%s_%s/corbd" % (pod["metadata"]["name"], pod["metadata"]["uid"])
    return "".join(read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)))


def rolled(lab, cluster):
    operator = Operator(cluster, {"NODE": NODE})
    operator.type(APPLY)
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


def story_rollout(lab):
    """a rollout with a second pod beside the first: the next pod takes over unnoticed, the one in reserve stays that when it dies, and serves again when the rollout is undone"""
    on_a_cluster(lab, "CORBD_LAB_KUBE_AGENT", rolled)


story_rollout.limit = 420
