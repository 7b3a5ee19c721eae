"""What the switches of the chart (switches.py) do to the pod and to its rights."""
import unittest

import helm
from helm import only
from switches import SWITCHES
from views import agent_of, pod_of, role, sources, told_by


def securities(found):
    pod = pod_of(found)
    return {one["name"]: one["securityContext"] for one in pod["initContainers"] + pod["containers"]}


def rules(found):
    """Every right as (kind of role, namespace, group, resource, resource name, verb)."""
    return {(one["kind"], one["metadata"].get("namespace"), group, resource, name, verb)
            for one in found if one["kind"] in ("ClusterRole", "Role") for rule in one["rules"]
            for group in rule["apiGroups"] for resource in rule["resources"] for name in rule.get("resourceNames", [None]) for verb in rule["verbs"]}


def strategy(found):
    return only("DaemonSet", found)["spec"]["updateStrategy"]


def hands_over(found):
    """Whether the agent asks its predecessor for the devices."""
    return "--handover" in agent_of(found)["args"]


class Pod(unittest.TestCase):
    def test_the_image_and_its_secret_are_values_for_both_containers(self):
        found = told_by("another image")
        for one in pod_of(found)["containers"] + pod_of(found)["initContainers"]:
            self.assertEqual((one["image"], one["imagePullPolicy"]), ("localhost:5000/team/corbd:1.2@sha256:" + "0" * 64, "Always"))
        self.assertEqual(pod_of(found)["imagePullSecrets"], [{"name": "pull"}])

    def test_resources_are_values_and_null_takes_the_default_away(self):
        found = told_by("limits")
        self.assertEqual(agent_of(found)["resources"], {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}})
        self.assertFalse(pod_of(found)["initContainers"][0]["resources"])

    def test_where_the_node_loads_its_modules_the_init_container_has_no_capability_and_no_modules(self):
        found = told_by("no modules")
        init, = pod_of(found)["initContainers"]
        self.assertNotIn("add", init["securityContext"]["capabilities"])
        self.assertNotIn("modprobe", init["command"][-1])
        self.assertNotIn("modules", {one["name"] for one in pod_of(found)["volumes"]})

    def test_the_update_strategy_is_a_value(self):
        self.assertEqual(only("DaemonSet", told_by("pods that are deleted by hand"))["spec"]["updateStrategy"], {"type": "OnDelete"})
        self.assertEqual(strategy(told_by("many nodes at the same time"))["rollingUpdate"], {"maxSurge": "10%", "maxUnavailable": 0})

    def test_the_agent_has_a_keeper_unless_a_value_says_otherwise(self):
        self.assertIn("--keeper", agent_of(told_by("defaults"))["args"])
        self.assertIn("--keeper", agent_of(told_by("a rollout without a second pod"))["args"])
        self.assertNotIn("--keeper", agent_of(told_by("no keeper"))["args"])

    def test_a_rollout_puts_the_next_pod_beside_the_present_one_which_hands_over_to_it(self):
        found = told_by("defaults")
        self.assertEqual(strategy(found), {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        self.assertTrue(hands_over(found))

    def test_where_a_second_pod_is_not_wanted_or_cannot_be_the_present_one_ends_first(self):
        for found, nodes in ((told_by("a rollout without a second pod"), 2), (told_by("CSI-Addons"), 1), (helm.objects(kube="1.21.14"), 1)):
            self.assertEqual(strategy(found), {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": nodes}})
            self.assertFalse(hands_over(found))
        self.assertFalse(hands_over(told_by("pods that are deleted by hand")))

    def test_no_container_beside_a_second_pod_takes_a_port_of_the_host(self):
        for name, values in SWITCHES.items():
            found = helm.objects(values)
            if "maxSurge" in strategy(found).get("rollingUpdate", {}):
                self.assertEqual([one["name"] for one in pod_of(found)["containers"] if one.get("ports")], [], name)

    def test_the_probes_look_for_the_pod_s_own_agent(self):
        for name, values in SWITCHES.items():
            agent = agent_of(helm.objects(values))
            self.assertEqual(agent["readinessProbe"]["exec"]["command"], ["corbd-probe", "ready", "--wait=45"], name)
            self.assertEqual(agent["livenessProbe"]["exec"]["command"], ["corbd-probe", "alive", "--wait=20"], name)
            self.assertIn({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}, agent["env"], name)

    def test_the_number_of_io_threads_is_a_value(self):
        self.assertIn("--io-threads=4", agent_of(told_by("several io threads"))["args"])

    def test_the_pod_outlives_the_agent_s_grace(self):
        found = told_by("a long shutdown")
        self.assertIn("--shutdown-grace=300", agent_of(found)["args"])
        self.assertEqual(pod_of(found)["terminationGracePeriodSeconds"], 450)
        self.assertEqual(pod_of(helm.objects({"nodeplugin.shutdownGraceSeconds": 0}))["terminationGracePeriodSeconds"], 240)
        self.assertEqual(pod_of(told_by("a long leave"))["terminationGracePeriodSeconds"], 940)

    def test_where_the_pod_runs_is_a_value(self):
        pod, values = pod_of(told_by("where it runs")), SWITCHES["where it runs"]
        self.assertEqual(pod["nodeSelector"], {"kubernetes.io/os": "linux", "storage": "yes"})
        self.assertEqual((pod["tolerations"], pod["affinity"], pod["priorityClassName"]),
                         tuple(values["nodeplugin." + name] for name in ("tolerations", "affinity", "priorityClassName")))

    def test_annotations_and_labels_are_values_and_an_annotation_of_the_chart_can_be_replaced(self):
        found = told_by("annotations and labels")
        daemonset = only("DaemonSet", found)
        template = daemonset["spec"]["template"]["metadata"]
        self.assertEqual(daemonset["metadata"]["annotations"], {"on": "daemonset"})
        self.assertEqual((template["annotations"]["on"], template["annotations"]["prometheus.io/scrape"]), ("pod", "false"))
        self.assertEqual(template["labels"], {"app": "corbd", "team": "storage"})
        self.assertEqual({one["metadata"]["labels"]["part-of"] for one in found}, {"storage"})

    def test_an_SELinux_domain_is_the_pod_s(self):
        self.assertEqual(pod_of(told_by("an SELinux domain"))["securityContext"], {"seLinuxOptions": {"type": "spc_t"}})

    def test_without_HTTP_nothing_listens(self):
        found = told_by("no HTTP")
        agent = agent_of(found)
        self.assertFalse([flag for flag in agent["args"] if flag.startswith("--metricsport")])
        self.assertNotIn("prometheus.io/scrape", only("DaemonSet", found)["spec"]["template"]["metadata"]["annotations"])

    def test_folders_of_the_node_are_values_and_stay_the_same_in_the_pod(self):
        found = told_by("folders of the node")
        self.assertEqual(sources(found)["/run/dbus"]["hostPath"]["path"], "/var/run/dbus")
        self.assertEqual(sources(found)["/var/log/ceph"]["hostPath"]["path"], "/data/log")
        modules = next(one for one in pod_of(found)["volumes"] if one["name"] == "modules")
        self.assertEqual(modules["hostPath"]["path"], "/run/booted-system/kernel-modules/lib/modules")

    def test_other_names_are_those_of_every_object(self):
        self.assertEqual({one["metadata"]["name"] for one in told_by("other names")} - {"rbd.csi.ceph.com"}, {"agent"})


class Rights(unittest.TestCase):
    def test_no_switch_gives_a_container_more_than_the_default(self):
        default = securities(told_by("defaults"))
        for name, values in SWITCHES.items():
            for container, security in securities(helm.objects(values)).items():
                allowed = default.get(container, {"capabilities": {}})
                self.assertLessEqual(set(security["capabilities"].get("add", [])), set(allowed["capabilities"].get("add", [])), name)
                self.assertEqual(security["capabilities"]["drop"], ["ALL"], name)
                self.assertLessEqual(security.get("privileged", False), allowed.get("privileged", False), name)
                self.assertTrue(security["readOnlyRootFilesystem"], name)

    def test_no_switch_shows_the_pod_another_folder_of_the_node_than_the_default(self):
        default = {one["name"] for one in pod_of(helm.objects())["volumes"] if "hostPath" in one}
        for name, values in SWITCHES.items():
            volumes = {one["name"]: one["hostPath"]["path"] for one in pod_of(helm.objects(values))["volumes"] if "hostPath" in one}
            linked = {"kubelet-%d" % number for number in range(len(values.get("kubeletLinkedFolders", [])))}
            for more in set(volumes) - default - linked:
                # The sidecar's part of what the agent has.
                self.assertTrue(volumes[more].startswith(volumes["kubelet"] + "/"), "%s: %s" % (name, more))

    def test_no_switch_but_these_gives_more_rights_on_the_API_server(self):
        default, more = rules(helm.objects()), {}
        for name, values in SWITCHES.items():
            # The driver's name is in a right. Secrets have a test of their own.
            given = {right for right in rules(helm.objects(values)) - default if right[3] not in ("csidrivers", "secrets")}
            if given:
                more[name] = {(kind, resource, only_this, verb) for kind, _, _, resource, only_this, verb in given}
        self.assertEqual(more, {
            "VolumeAttachments by a watch": {("ClusterRole", "volumeattachments", None, verb) for verb in ("list", "watch")},
            "a startup taint": {("ClusterRole", "csinodes", None, "get"), ("ClusterRole", "nodes", None, "patch")},
            "a KMS with something of each tenant": {("Role", "configmaps", None, "get"),
                                                    ("Role", "serviceaccounts/token", "ceph-csi-vault-sa", "create")},
            "a KMS with tenants everywhere": {("ClusterRole", "configmaps", None, "get")},
            "CSI-Addons": {("Role", "csiaddonsnodes", None, verb) for verb in ("get", "watch", "create", "update")} |
                          {("Role", "pods", None, "get"), ("Role", "daemonsets/finalizers", "corbd", "update")}})

    def test_the_sidecar_may_ask_who_calls_it(self):
        bindings = [one for one in told_by("CSI-Addons") if one["kind"] == "ClusterRoleBinding"]
        self.assertEqual({one["roleRef"]["name"] for one in bindings}, {"corbd", "system:auth-delegator"})

    def test_secrets_of_named_namespaces_replace_the_right_to_get_any(self):
        found = told_by("Secrets of some namespaces")
        self.assertEqual(role(found, "secrets"), [("Role", "ceph-csi", None, ["get"]), ("Role", "tenant", None, ["get"])])
        bindings = [one for one in found if one["kind"] == "RoleBinding"]
        self.assertEqual({(one["metadata"]["namespace"], one["subjects"][0]["namespace"]) for one in bindings}, {("ceph-csi", "ceph-csi"), ("tenant", "ceph-csi")})

    def test_what_a_KMS_has_of_each_tenant_is_in_the_tenants_namespaces_or_in_all(self):
        found = told_by("a KMS with something of each tenant")
        self.assertEqual(role(found, "configmaps"), [("Role", "team-a", None, ["get"]), ("Role", "team-b", None, ["get"])])
        self.assertEqual({one["metadata"]["namespace"] for one in found if one["kind"] == "RoleBinding"}, {"team-a", "team-b"})
        self.assertEqual(role(found, "serviceaccounts/token"),
                         [("Role", name, ["ceph-csi-vault-sa"], ["create"]) for name in ("team-a", "team-b")])
        found = told_by("a KMS with tenants everywhere")
        self.assertEqual(role(found, "configmaps"), [("ClusterRole", None, None, ["get"])])
        self.assertEqual(role(found, "serviceaccounts/token"), [])

    def test_a_watch_of_VolumeAttachments_is_a_switch(self):
        self.assertEqual(role(told_by("VolumeAttachments by a watch"), "volumeattachments"), [("ClusterRole", None, None, ["get", "list", "watch"])])

    def test_rights_and_account_can_be_somebody_else_s(self):
        found = told_by("rights of somebody else")
        self.assertEqual({one["kind"] for one in found}, {"CSIDriver", "DaemonSet"})
        self.assertEqual(pod_of(found)["serviceAccountName"], "mine")

    def test_the_account_s_name_is_that_of_the_object_the_binding_and_the_pod(self):
        found = told_by("an account of another name")
        self.assertEqual({only("ServiceAccount", found)["metadata"]["name"], only("ClusterRoleBinding", found)["subjects"][0]["name"],
                          pod_of(found)["serviceAccountName"]}, {"agent"})

    def test_OpenShift_s_constraints_allow_what_the_pod_asks_for_and_no_more(self):
        for values in (SWITCHES["OpenShift"], dict(SWITCHES["OpenShift"], **SWITCHES["no modules"]), dict(SWITCHES["OpenShift"], **SWITCHES["CSI-Addons"])):
            found = helm.objects(values)
            allowed, pod = only("SecurityContextConstraints", found), pod_of(found)
            asked = {right for one in securities(found).values() for right in one["capabilities"].get("add", [])}
            self.assertEqual(set(allowed["allowedCapabilities"]), asked)
            kinds = {next(kind for kind in one if kind != "name") for one in pod["volumes"]}
            self.assertEqual(set(allowed["volumes"]), kinds | {"projected"})
            self.assertEqual(allowed["users"], ["system:serviceaccount:ceph-csi:corbd"])
            self.assertEqual((allowed["allowHostPID"], allowed["allowHostNetwork"], allowed["allowHostIPC"]), (pod["hostPID"], pod["hostNetwork"], False))
            ports = [one for container in pod["containers"] for one in container.get("ports", [])]
            self.assertEqual(allowed["allowHostPorts"], bool(ports))


class Named(unittest.TestCase):
    def test_each_switch_has_its_test(self):
        tests = "".join(path.read_text() for path in (helm.ROOT / "tests/deploy").glob("test_*.py"))
        self.assertEqual([name for name in SWITCHES if '"%s"' % name not in tests], [])


if __name__ == "__main__":
    unittest.main()
