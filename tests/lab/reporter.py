"""Plays the volume-condition reporter of CSI-Addons' sidecar: kubernetes-csi-addons, sidecar/internal/volume-condition, its volume/driver.go at 80f52144 and
platform/kubelet.go at 08f2bfe6. It has one connection for its life, and learns at its start what the driver can do."""
import glob
import hashlib
import json
import os

import calls
from checks import check
from machine import mounted

VOLUME_CONDITION, GET_VOLUME_HEALTH = "VOLUME_CONDITION", "GET_VOLUME_HEALTH"


def staging_path(kubelet, driver, volume_id):
    """Where kubelet stages a filesystem, and the reporter looks for it."""
    return os.path.join(kubelet, "plugins/kubernetes.io/csi", driver, hashlib.sha256(volume_id.encode()).hexdigest(), "globalmount")


class CannotTell(Exception):
    """It logs this, and asks again a minute later."""


class Reporter:
    def __init__(self, kubelet, endpoint, driver, knows_health):
        """knows_health: from kubernetes-csi-addons#1095 on; 0.13 and 0.14 know VolumeCondition alone."""
        import grpc
        self.kubelet, self.driver = kubelet, driver
        self.channel = grpc.insecure_channel(endpoint)
        name = self.ask("Identity/GetPluginInfo")["name"]
        check(name == driver, "the driver calls itself %s" % name)
        offered = {one["rpc"]["type"] for one in self.ask("Node/NodeGetCapabilities")["capabilities"]}
        self.by_health = knows_health and GET_VOLUME_HEALTH in offered
        check(self.by_health or VOLUME_CONDITION in offered, "the reporter would not start: %s" % offered)

    def ask(self, method, **request):
        import grpc
        from google.protobuf import json_format
        asked, answered = (calls.MESSAGES["csi.v1.%s%s" % (method.split("/")[1], end)] for end in ("Request", "Response"))
        invoke = self.channel.unary_unary("/csi.v1." + method, request_serializer=lambda message: message.SerializeToString(),
                                          response_deserializer=answered.FromString)
        try:
            answer = invoke(json_format.ParseDict(request, asked()), timeout=60, wait_for_ready=True)
        except grpc.RpcError as error:
            raise CannotTell("%s: %s" % (error.code().name, error.details()))
        return json_format.MessageToDict(answer)

    def staged_at(self, volume_id):
        path = staging_path(self.kubelet, self.driver, volume_id)
        for one in (path, os.path.join(path, volume_id)):
            if mounted(one):
                return one
        return None

    def published_at(self, volume_id):
        for name in glob.glob(os.path.join(self.kubelet, "pods/*/volumes/kubernetes.io~csi/*/vol_data.json")):
            with open(name) as file:
                data = json.load(file)
            if (data.get("driverName"), data.get("volumeHandle")) == (self.driver, volume_id):
                return name.replace("vol_data.json", "mount")
        return None

    def condition(self, volume_id):
        """The message of an unhealthy volume, None for a healthy one."""
        staged = self.staged_at(volume_id)
        if not self.by_health:
            if not staged:
                raise CannotTell("failed to get staging path")
            answer = self.ask("Node/NodeGetVolumeStats", volumeId=volume_id, volumePath=staged)
            if "volumeCondition" not in answer:
                raise CannotTell("VolumeCondition not found in NodeGetVolumeStats response")
            return answer["volumeCondition"]["message"] if answer["volumeCondition"].get("abnormal") else None
        paths = {"stagingTargetPath": staged, "volumePublishPath": self.published_at(volume_id)}
        answer = self.ask("Node/NodeGetVolumeHealth", volumeId=volume_id, **{name: path for name, path in paths.items() if path})
        if "volumeHealth" not in answer:
            raise CannotTell("VolumeHealth missing from NodeGetVolumeHealth response")
        found = [one for one in answer["volumeHealth"].get("healthStatuses", []) if one["status"] in ("DEGRADED", "INACCESSIBLE", "DATA_LOSS")]
        return "; ".join(one.get("message") or one["reason"] for one in found) if found else None
