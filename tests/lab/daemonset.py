"""The controller of a DaemonSet with maxSurge 1 and maxUnavailable 0 on the only node, as Kubernetes 1.36 has it: pkg/controller/daemon/daemon_controller.go
(podsShouldBeOnNode, syncNodes) and update.go (rollingUpdate, findUpdatedPodsOnNode). The lab's Kubernetes 1.20 has no maxSurge."""
import json
import threading
import time

PODS = "/api/v1/namespaces/ceph-csi/pods"


def is_ready(pod):
    return any((one["type"], one["status"]) == ("Ready", "True") for one in pod["status"].get("conditions") or [])


def is_deleted(pod):
    return "deletionTimestamp" in pod["metadata"]


class Controller(threading.Thread):
    """Its pods have the label app=corbd. The scheduler's part is played too: each pod names its node."""

    def __init__(self, server, node, template, revision):
        super().__init__(daemon=True)
        self.server, self.node, self.made, self.ended, self.failure = server, node, 0, threading.Event(), None
        self.wanted = revision, template
        self.log = []
        self.start()

    def apply(self, revision, template):
        """Another revision, or one of before: an undo."""
        self.wanted = revision, template

    def end(self):
        self.ended.set()
        self.join()
        if self.failure:
            raise self.failure

    def pods(self):
        return self.server.get(PODS + "?labelSelector=app%3Dcorbd")["items"]

    def run(self):
        while not self.ended.wait(0.1):
            try:
                self.sync(*self.wanted)
            except Exception as failure:
                self.failure = failure
                return

    def sync(self, revision, template):
        """syncDaemonSet. What the first part did is seen before the second one acts: SatisfiedExpectations."""
        # getNodesToDaemonPods: without those that are being deleted and have ended.
        pods = [one for one in self.pods() if not (is_deleted(one) and one["status"].get("phase") in ("Failed", "Succeeded"))]
        if not self.carry_out(revision, template, *self.should_be_on_node(revision, pods)):
            self.carry_out(revision, template, *self.rolling_update(revision, pods))

    def should_be_on_node(self, revision, pods):
        """podsShouldBeOnNode: whether to make a pod, and which to delete."""
        running, ends = [], []
        for pod in pods:
            if is_deleted(pod):
                continue
            (ends if pod["status"].get("phase") in ("Failed", "Succeeded") else running).append(pod)
        if len(running) <= 1:
            return not running, ends
        new = old = None
        for pod in sorted(running, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])):
            if pod["metadata"]["labels"].get("controller-revision-hash") == revision:
                if new is None:
                    new = pod
                    continue
            elif old is None:
                old = pod
                continue
            ends.append(pod)
        if new and old and (not is_ready(old) or is_ready(new)):
            ends.append(old)
        return False, ends

    def rolling_update(self, revision, pods):
        """rollingUpdate with one node: an old pod, available or not, gets the new one beside it, and goes once that one is available."""
        there = [one for one in pods if not is_deleted(one)]
        new = [one for one in there if one["metadata"]["labels"].get("controller-revision-hash") == revision]
        old = [one for one in there if one not in new]
        if len(new) > 1 or len(old) > 1 or not old:
            return False, []
        if not new:
            return True, []
        return False, old if is_ready(new[0]) else []

    def carry_out(self, revision, template, make, ends):
        """syncNodes. Whether there was anything to do."""
        if make:
            self.made += 1
            metadata = json.loads(json.dumps(template["metadata"]))
            metadata["name"] = "corbd-%s-%d" % (revision, self.made)
            metadata["labels"]["controller-revision-hash"] = revision
            self.log.append((time.monotonic(), "makes", metadata["name"]))
            self.server.ask("POST", PODS, {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": dict(template["spec"], nodeName=self.node)})
        for pod in ends:
            self.log.append((time.monotonic(), "deletes", pod["metadata"]["name"]))
            self.server.ask("DELETE", PODS + "/" + pod["metadata"]["name"], missing=True)
        return make or bool(ends)
