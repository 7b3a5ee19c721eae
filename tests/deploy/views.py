"""Parts of a rendering."""
import helm
from helm import only
from switches import SWITCHES


def told_by(name):
    """The objects of a switch."""
    return helm.objects(SWITCHES[name])


def pod_of(found):
    return only("DaemonSet", found)["spec"]["template"]["spec"]


def agent_of(found):
    return next(one for one in pod_of(found)["containers"] if one["name"] == "corbd")


def sources(found):
    """What each mount path of the agent shows."""
    volumes = {one["name"]: one for one in pod_of(found)["volumes"]}
    return {one["mountPath"]: volumes[one["name"]] for one in agent_of(found)["volumeMounts"]}


def role(found, resource):
    """All rules about a resource: kind and namespace of their role, resource names, verbs."""
    return [(one["kind"], one["metadata"].get("namespace"), rule.get("resourceNames"), rule["verbs"])
            for one in found if one["kind"] in ("ClusterRole", "Role") for rule in one["rules"] if resource in rule["resources"]]


def variables(found):
    return {one["name"]: one.get("value") for one in agent_of(found)["env"]}
