"""The controller of a DaemonSet with maxSurge 1 and maxUnavailable 0 on the only node, as Kubernetes 1.36 has it: pkg/controller/daemon/daemon_controller.go
(podsShouldBeOnNode, syncNodes) and update.go (rollingUpdate, findUpdatedPodsOnNode). The lab's Kubernetes 1.20 has no maxSurge."""
import hashlib
import json
import threading

PODS = "/api/v1/namespaces/ceph-csi/pods"
APPS = "/apis/apps/v1/namespaces/ceph-csi/"
DAEMONSET = APPS + "daemonsets/corbd"


def is_ready(pod):
    return any((one["type"], one["status"]) == ("Ready", "True") for one in pod["status"].get("conditions") or [])


def is_deleted(pod):
    return "deletionTimestamp" in pod["metadata"]


def age(pod):
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


class Controller(threading.Thread):
    """Its pods have the label app=corbd. The scheduler's part is played too: each pod names its node."""

    def __init__(self, server, node, template, revision):
        super().__init__(daemon=True)
        self.server, self.node, self.made, self.ended, self.failure = server, node, 0, threading.Event(), None
        self.wanted = revision, template
        self.owners = []
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

    def there(self):
        """getNodesToDaemonPods: without those that are being deleted and have ended."""
        return [one for one in self.pods() if not (is_deleted(one) and one["status"].get("phase") in ("Failed", "Succeeded"))]

    def run(self):
        while not self.ended.wait(0.1):
            try:
                self.step()
            except Exception as failure:
                self.failure = failure
                return

    def step(self):
        self.sync(*self.wanted)

    def sync(self, revision, template):
        """syncDaemonSet. What the first part did is seen before the second one acts: SatisfiedExpectations."""
        pods = self.there()
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
        for pod in sorted(running, key=age):
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
            metadata["ownerReferences"] = self.owners
            self.server.ask("POST", PODS, {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": dict(template["spec"], nodeName=self.node)})
        for pod in ends:
            self.server.ask("DELETE", PODS + "/" + pod["metadata"]["name"], missing=True)
        return make or bool(ends)


class Followed(Controller):
    """Does what the DaemonSet of the API server says, so that `kubectl apply`, `rollout status`, `rollout undo` and `delete` have their effects."""

    def __init__(self, server, node):
        super().__init__(server, node, None, None)

    def step(self):
        one = self.server.get(DAEMONSET)
        if one is None or is_deleted(one):
            # The garbage collector, which is real, ends the pods.
            return
        self.owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "corbd", "uid": one["metadata"]["uid"], "controller": True,
                        "blockOwnerDeletion": True}]
        template = one["spec"]["template"]
        revision = hashlib.sha256(json.dumps([template, self.owners], sort_keys=True).encode()).hexdigest()[:10]
        self.keep_history(revision, template)
        self.sync(revision, template)
        self.tell(one, revision)

    def keep_history(self, revision, template):
        """constructHistory: the present template has the highest number; `kubectl rollout undo` applies the one before it."""
        kept = self.server.get(APPS + "controllerrevisions")["items"]
        kept = [one for one in kept if one["metadata"].get("ownerReferences") == self.owners]
        last = max((one["revision"] for one in kept), default=0)
        path, name = APPS + "controllerrevisions", "corbd-" + revision
        for one in [one for one in kept if one["metadata"]["name"] == name]:
            if one["revision"] == last:
                return
            # Its number cannot be patched: the server takes the data for others then.
            self.server.delete(path + "/" + name)
        labels = dict(template["metadata"]["labels"], **{"controller-revision-hash": revision})
        self.server.ask("POST", path, {
            "kind": "ControllerRevision", "apiVersion": "apps/v1", "metadata": {"name": name, "labels": labels, "ownerReferences": self.owners},
            "revision": last + 1, "data": {"spec": {"template": dict(template, **{"$patch": "replace"})}}})

    def tell(self, one, revision):
        """updateDaemonSetStatus: of the node's pods the oldest counts, also while it ends."""
        oldest = sorted(self.there(), key=age)[:1]
        ready = len([pod for pod in oldest if is_ready(pod)])
        new = len([pod for pod in oldest if pod["metadata"]["labels"].get("controller-revision-hash") == revision])
        status = {"observedGeneration": one["metadata"]["generation"], "desiredNumberScheduled": 1, "currentNumberScheduled": len(oldest),
                  "numberMisscheduled": 0, "numberReady": ready, "numberAvailable": ready, "updatedNumberScheduled": new}
        if {name: one["status"].get(name, 0) for name in status} != status:
            # It may be gone by now.
            self.server.ask("PATCH", DAEMONSET + "/status", {"status": status}, missing=True)
