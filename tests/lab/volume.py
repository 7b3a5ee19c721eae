"""A volume of an agent, as kubelet sees it."""
import glob
import os
import time

from checks import Failed, check
from machine import devices, mounted

DRIVER = "rbd.csi.ceph.com"
# Codes after which kubelet simply calls again.
TRANSIENT = ("ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED")


class Volume:
    """One volume of an agent as kubelet sees it; kubelet makes the folders above the paths."""

    def __init__(self, agent, image, block=False, fstype=None, mode=None, cluster_id="lab", user=None, key_file=None, pool=None, name=None,
                 attributes=(), context=None):
        self.context = context  # of a provisioned volume
        self.agent, self.block, self.fstype, self.mode, self.attributes = agent, block, fstype, mode, list(attributes)
        self.id = name or image.name
        self.pool = pool or image.pool
        self.cluster_id, self.user, self.key_file = cluster_id, user or agent.lab.user, key_file or agent.lab.key_file
        csi = os.path.join(agent.lab.kubelet, "plugins", "kubernetes.io", "csi")
        self.staging = os.path.join(csi, "volumeDevices", "staging", "pv-" + self.id) if block else os.path.join(
            csi, DRIVER, "pv-" + self.id, "globalmount")
        os.makedirs(self.staging, exist_ok=True)

    @property
    def capability(self):
        return dict(block=self.block, fstype=self.fstype, mode=self.mode)

    @property
    def staged_path(self):
        return os.path.join(self.staging, self.id)

    def target(self, pod="pod-1"):
        if self.block:
            path = os.path.join(self.agent.lab.kubelet, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-" + self.id, pod)
        else:
            path = os.path.join(self.agent.lab.kubelet, "pods", pod, "volumes/kubernetes.io~csi/pv-" + self.id, "mount")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @property
    def device(self):
        """Index of the nbd device that carries this volume's identifier, or None."""
        found = [index for index, device in devices().items() if device["backend"] == self.id]
        check(len(found) < 2, "two devices carry the identifier %s: %s" % (self.id, found))
        return found[0] if found else None

    def begin(self, method, timeout=120, pod="pod-1", **more):
        """One call for this volume, under way."""
        arguments = {
            "stage": lambda: dict(staging_path=self.staging, cluster_id=self.cluster_id, pool=self.pool, user=self.user, key_file=self.key_file,
                                  attribute=self.attributes, context=self.context, **self.capability),
            "publish": lambda: dict(staging_path=self.staging, target=self.target(pod), cluster_id=self.cluster_id, pool=self.pool,
                                    attribute=self.attributes, context=self.context, **self.capability),
            "unpublish": lambda: dict(target=self.target(pod)),
            "unstage": lambda: dict(staging_path=self.staging),
            "expand": lambda: dict(staging_path=self.staging, target=self.target(pod)),
            "stats": lambda: dict(target=self.target(pod)),
            "health": dict,
        }[method]()
        return self.agent.begin_csi(method, timeout, volume_id=self.id, **{**arguments, **more})

    def try_stage(self, timeout=120, **more):
        return self.begin("stage", timeout, **more).end()

    def try_publish(self, pod="pod-1", **more):
        return self.begin("publish", pod=pod, **more).end()

    def try_unpublish(self, pod="pod-1", **more):
        return self.begin("unpublish", pod=pod, **more).end()

    def try_unstage(self, timeout=120):
        return self.begin("unstage", timeout).end()

    def try_expand(self, size=None, **more):
        """To `size` bytes, or to what the image has."""
        return self.begin("expand", bytes=size, **more).end()

    def expand(self, size=None, patience=0, **more):
        """The capacity in bytes that the agent answers."""
        return int(self._must("expand", lambda: self.try_expand(size, **more), patience)["answer"]["capacityBytes"])

    def try_stats(self, timeout=20, **more):
        return self.begin("stats", timeout, **more).end()

    def stats(self, **more):
        """unit -> its numbers, and what is abnormal (None while the volume is healthy)."""
        answer = self._must("stats", lambda: self.try_stats(**more))["answer"]
        usage = {one["unit"]: {name: int(one.get(name, 0)) for name in ("total", "used", "available")} for one in answer["usage"]}
        condition = answer["volumeCondition"]
        return usage, condition["message"] if condition.get("abnormal") else None

    def _must(self, what, call, patience=0):
        deadline = time.monotonic() + patience
        while True:
            answer = call()
            if answer["code"] == "OK":
                return answer
            if answer["code"] not in TRANSIENT or time.monotonic() > deadline:
                raise Failed("%s of %s: %s: %s" % (what, self.id, answer["code"], answer["message"]))
            time.sleep(0.5)

    # patience: for so many seconds, repeat the call as kubelet would.
    def stage(self, patience=0, **more):
        return self._must("stage", lambda: self.try_stage(**more), patience)

    def publish(self, pod="pod-1", patience=0, **more):
        return self._must("publish", lambda: self.try_publish(pod, **more), patience)

    def unpublish(self, pod="pod-1", patience=0):
        return self._must("unpublish", lambda: self.try_unpublish(pod), patience)

    def unstage(self, patience=0):
        return self._must("unstage", self.try_unstage, patience)

    def expect_staged(self):
        check(mounted(self.staged_path), "%s is not mounted" % self.staged_path)
        check(self.device is not None, "no device carries %s" % self.id)
        if not self.block:
            with open(os.path.join(self.staged_path, "probe"), "w") as file:
                file.write("x")
                file.flush()
                os.fsync(file.fileno())

    def expect_gone(self):
        check(not mounted(self.staged_path), "%s is still mounted" % self.staged_path)
        check(self.device is None, "nbd%s still carries %s" % (self.device, self.id))
        left = glob.glob(os.path.join(self.agent.state_dir, "volumes", "*.json"))
        check(not left, "records are left: %s" % left)
