"""Makes CSI calls as kubelet does: gRPC, each over a new connection. `corbd csi` does the same, but starting it costs an emulated processor too much
for every call of a story."""
import os

# The caller gives up on a call that never ends, so many seconds after the call's deadline.
GRACE = 60
MESSAGES = {}  # full name -> class, from build/*/csi.desc


def load(build):
    """Reads the messages. Call it before a fork, so that each child has them."""
    import grpc  # noqa: F401 - a machine that only lists the stories may lack it
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    files, pool = descriptor_pb2.FileDescriptorSet(), descriptor_pool.DescriptorPool()
    with open(os.path.join(build, "csi.desc"), "rb") as file:
        files.ParseFromString(file.read())
    for file in files.file:
        pool.Add(file)
    MESSAGES.update(message_factory.MessageFactory(pool).GetMessages([file.name for file in files.file]))


def _capability(options):
    kind = {"block": {}} if options.get("block") else {
        "mount": {"fsType": options.get("fstype") or "", "mountFlags": _list(options.get("mount_flag"))}}
    return dict(kind, accessMode={"mode": options.get("mode") or "SINGLE_NODE_MULTI_WRITER"})


def _list(value):
    return value if isinstance(value, list) else [value] if value else []


def _context(options):
    if options.get("context"):
        return options["context"]
    context = {"staticVolume": "true", "clusterID": options.get("cluster_id") or "", "pool": options.get("pool") or "", "mounter": "rbd-nbd"}
    return dict(context, **dict(one.split("=", 1) for one in _list(options.get("attribute"))))


def _secrets(options):
    with open(options["key_file"]) as file:
        secrets = {"userID": options["user"], "userKey": file.read().strip()}
    if options.get("passphrase_file"):
        with open(options["passphrase_file"], newline="") as file:
            secrets["encryptionPassphrase"] = file.read()
    return secrets


def _stage(options):
    return dict(_unstage(options), volumeCapability=_capability(options), volumeContext=_context(options), secrets=_secrets(options))


def _unstage(options):
    return {"volumeId": options["volume_id"], "stagingTargetPath": options.get("staging_path") or ""}


def _publish(options):
    return dict(_unstage(options), targetPath=options["target"], readonly=bool(options.get("readonly")), volumeCapability=_capability(options),
                volumeContext=_context(options))


def _expand(options):
    size = {"capacityRange": {"requiredBytes": options["bytes"]}} if options.get("bytes") else {}
    return dict(_unstage(options), volumePath=options["target"], **size)


def _create(options):
    return {"name": options["name"], "capacityRange": {"requiredBytes": options["bytes"]}, "volumeCapabilities": [_capability(options)]}


def _fence(options):
    return {"parameters": {"clusterID": options["cluster_id"]}, "secrets": _secrets(options), "cidrs": [{"cidr": one} for one in options["cidrs"]]}


def _fences(options):
    return {"parameters": {"clusterID": options["cluster_id"]}, "secrets": _secrets(options)}


METHODS = {
    "stage": ("csi.v1.Node/NodeStageVolume", _stage),
    "unstage": ("csi.v1.Node/NodeUnstageVolume", _unstage),
    "publish": ("csi.v1.Node/NodePublishVolume", _publish),
    "unpublish": ("csi.v1.Node/NodeUnpublishVolume", lambda options: {"volumeId": options["volume_id"], "targetPath": options["target"]}),
    "expand": ("csi.v1.Node/NodeExpandVolume", _expand),
    "stats": ("csi.v1.Node/NodeGetVolumeStats", lambda options: {"volumeId": options["volume_id"], "volumePath": options["target"]}),
    "health": ("csi.v1.Node/NodeGetVolumeHealth", lambda options: {"volumeId": options["volume_id"]}),
    "storage": ("csi.v1.Node/NodeGetStorageHealth", lambda options: {}),
    "reclaim": ("reclaimspace.ReclaimSpaceNode/NodeReclaimSpace", _unstage),
    "create": ("csi.v1.Controller/CreateVolume", _create),
    "fence": ("fence.FenceController/FenceClusterNetwork", _fence),
    "unfence": ("fence.FenceController/UnfenceClusterNetwork", _fence),
    "fences": ("fence.FenceController/ListClusterFence", _fences),
    "fence_clients": ("fence.FenceController/GetFenceClients", _fences),
    "probe": ("csi.v1.Identity/Probe", lambda options: {}),
}


def _messages(method):
    """Full names of a method's request and response."""
    service, rpc = METHODS[method][0].split("/")
    package = service.rsplit(".", 1)[0]
    return ["%s.%s%s" % (package, rpc, end) for end in ("Request", "Response")]


class Call:
    """A CSI call under way; options as those of `corbd csi`."""

    def __init__(self, method, endpoint, timeout, wait=False, **options):
        import grpc
        from google.protobuf import json_format
        self.timeout = timeout
        path, request = METHODS[method]
        asked, answered = _messages(method)
        request = json_format.ParseDict(request(options), MESSAGES[asked]())
        self.channel = grpc.insecure_channel(endpoint, [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)])
        invoke = self.channel.unary_unary("/" + path, request_serializer=lambda message: message.SerializeToString(),
                                          response_deserializer=MESSAGES[answered].FromString)
        self.future = invoke.future(request, timeout=timeout, wait_for_ready=wait)

    def ended(self):
        return self.future.done()

    def end(self):
        """{"code": ..., "message": ..., "answer": the response as protobuf writes it in JSON}."""
        from google.protobuf import json_format
        error = self.future.exception(self.timeout + GRACE)
        self.channel.close()
        if error is not None:
            return {"code": error.code().name, "message": error.details()}
        return {"code": "OK", "message": "", "answer": json_format.MessageToDict(self.future.result())}
