"""What the switches of the chart (switches.py) do to the driver, its configuration, and what is beside the agent. test_pod.py has those of the pod."""
import re
import subprocess
import unittest

import helm
from helm import only
from switches import SWITCHES
from views import agent_of, pod_of, role, sources, told_by, variables


class Driver(unittest.TestCase):
    def test_the_driver_s_name_is_that_of_the_object_the_socket_and_the_right(self):
        found = told_by("another driver")
        self.assertEqual(only("CSIDriver", found)["metadata"]["name"], "blue.rbd.csi.ceph.com")
        self.assertEqual(variables(found)["CSI_ENDPOINT"], "unix:///var/lib/kubelet/plugins/blue.rbd.csi.ceph.com/csi.sock")
        self.assertEqual(variables(found)["DRIVER_NAME"], "blue.rbd.csi.ceph.com")
        self.assertEqual(role(found, "csidrivers"), [("ClusterRole", None, ["blue.rbd.csi.ceph.com"], ["get"])])
        self.assertIn("--metricsport=9681", agent_of(found)["args"])
        self.assertIn("--metricsport=9681", agent_of(found)["args"])
        self.assertEqual(only("DaemonSet", found)["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"], "9681")
        self.assertEqual(sources(found)["/run/corbd"]["hostPath"]["path"], "/run/corbd-blue")

    def test_another_kubelet_folder_is_the_same_inside_and_outside(self):
        found = told_by("another kubelet folder")
        self.assertEqual(sources(found)["/data/kubelet"]["hostPath"]["path"], "/data/kubelet")
        self.assertNotIn("/var/lib/kubelet", helm.json.dumps(found))
        self.assertEqual(variables(found)["CSI_ENDPOINT"], "unix:///data/kubelet/plugins/rbd.csi.ceph.com/csi.sock")
        self.assertLess({"--kubelet-dir=/data/kubelet", "--pluginpath=/data/kubelet/plugins"}, set(agent_of(found)["args"]))
        # `corbd doctor` in the pod has no part in the agent's flags.
        self.assertEqual((variables(found)["KUBELET_DIR"], variables(found)["PLUGIN_PATH"]), ("/data/kubelet", "/data/kubelet/plugins"))

    def test_folders_of_kubelet_that_are_links_are_mounted_at_their_own_paths(self):
        found = told_by("kubelet's folders on another disk")
        mounts = {one["name"]: one for one in agent_of(found)["volumeMounts"]}
        for name, path in (("kubelet", "/var/lib/kubelet"), ("kubelet-0", "/mnt/data/pods"), ("kubelet-1", "/mnt/data/plugins")):
            self.assertEqual((mounts[name]["mountPath"], mounts[name]["mountPropagation"]), (path, "Bidirectional"))
            self.assertEqual(sources(found)[path]["hostPath"], {"path": path, "type": "Directory"})

    def test_the_metrics_can_be_bound_to_loopback(self):
        self.assertIn("--metricsip=127.0.0.1", agent_of(told_by("HTTP for the node alone"))["args"])
        self.assertFalse([flag for flag in agent_of(told_by("defaults"))["args"] if flag.startswith("--metricsip")])

    def test_the_default_mounter_is_a_value(self):
        self.assertIn("--default-mounter=rbd", agent_of(told_by("the kernel's client"))["args"])

    def test_log_levels_from_4_on_log_every_step(self):
        self.assertIn("--verbose", agent_of(told_by("every step in the log"))["args"])
        self.assertNotIn("--verbose", agent_of(helm.objects({"logLevel": 3}))["args"])

    def test_the_CSIDriver_can_be_another_release_s(self):
        self.assertNotIn("CSIDriver", {one["kind"] for one in told_by("no CSIDriver")})

    def test_the_CSIDriver_s_fields_are_values(self):
        spec = only("CSIDriver", told_by("no SELinux mounts"))["spec"]
        self.assertEqual((spec["seLinuxMount"], spec["fsGroupPolicy"]), (False, "ReadWriteOnceWithFSType"))

    def test_an_API_server_of_before_1_25_gets_no_field_that_it_does_not_know(self):
        self.assertNotIn("seLinuxMount", only("CSIDriver", helm.objects(kube="1.24.9"))["spec"])
        self.assertIn("seLinuxMount", only("CSIDriver", helm.objects(kube="1.25.0"))["spec"])
        # A provider's own version.
        self.assertIn("seLinuxMount", only("CSIDriver", helm.objects(kube="1.29.3-gke.100"))["spec"])

    def test_kubelet_is_asked_to_ask_again_for_the_room_of_a_node_by_API_servers_that_know_the_field(self):
        field = "nodeAllocatableUpdatePeriodSeconds"
        for kube, expected in (("1.34.9", None), ("1.35.0", 600), ("1.36.2-eks-1", 600)):
            self.assertEqual(only("CSIDriver", helm.objects(kube=kube))["spec"].get(field), expected)
        self.assertNotIn(field, only("CSIDriver", helm.objects({"CSIDriver." + field: 0}, kube="1.36.0"))["spec"])
        with self.assertRaises(helm.Refused):
            helm.objects({"CSIDriver." + field: 9})

    def test_the_scheduler_keeps_pods_from_nodes_without_the_driver_on_API_servers_that_know_the_field(self):
        field = "preventPodSchedulingIfMissing"
        for kube, expected in (("1.36.9", None), ("1.37.0", True), ("1.38.0-alpha.1", True)):
            self.assertEqual(only("CSIDriver", helm.objects(kube=kube))["spec"].get(field), expected)
        self.assertNotIn(field, only("CSIDriver", helm.objects({"CSIDriver." + field: False}, kube="1.37.0"))["spec"])

    def test_the_most_volumes_of_a_node_are_a_value(self):
        self.assertIn("--max-volumes=250", agent_of(told_by("so many volumes"))["args"])
        self.assertFalse([one for one in agent_of(helm.objects())["args"] if "max-volumes" in one])

    def test_only_the_startup_taint_s_value_gives_the_right_to_patch_nodes_and_the_agent_tolerates_that_taint(self):
        found = told_by("a startup taint")
        self.assertIn("--remove-startup-taint", agent_of(found)["args"])
        self.assertEqual(pod_of(found)["tolerations"], [{"key": "gpu", "operator": "Exists"}, {"key": "rbd.csi.ceph.com/agent-not-ready", "operator": "Exists"}])
        self.assertEqual([verbs for _, _, _, verbs in role(found, "csinodes")], [["get"]])
        self.assertEqual(sorted(verbs for _, _, _, verbs in role(found, "nodes")), [["get", "list", "watch"], ["patch"]])
        account = only("ServiceAccount", found)["metadata"]
        for one in found:
            if one["kind"] == "ClusterRoleBinding":
                self.assertEqual(one["subjects"], [{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}])
        for name, values in SWITCHES.items():
            if name != "a startup taint":
                others = helm.objects(values)
                self.assertFalse([verbs for _, _, _, verbs in role(others, "nodes") if "patch" in verbs], name)
                self.assertNotIn("--remove-startup-taint", agent_of(others)["args"], name)

    def test_topology_is_by_labels(self):
        self.assertIn("--domainlabels=topology.kubernetes.io/region,topology.kubernetes.io/zone", agent_of(told_by("topology"))["args"])

    def test_read_affinity_is_by_labels(self):
        self.assertLess({"--enable-read-affinity", "--crush-location-labels=topology.kubernetes.io/zone,kubernetes.io/hostname"},
                        set(agent_of(told_by("read affinity"))["args"]))

    def test_each_kind_of_fencing_has_its_switch(self):
        self.assertLess({"--enable-fencing", "--fence-out-of-service"}, set(agent_of(told_by("fencing"))["args"]))
        self.assertNotIn("fenc", " ".join(agent_of(helm.objects())["args"]))

    def test_what_is_told_of_each_volume_and_which_requests_are_slow_are_values(self):
        self.assertLess({"--volume-metrics=latency", "--slow-request=5"}, set(agent_of(told_by("what is told of volumes"))["args"]))

    def test_a_trim_is_scheduled_only_by_its_value(self):
        self.assertIn("--trim-every=7d", agent_of(told_by("a trim each week"))["args"])
        self.assertNotIn("trim", " ".join(agent_of(helm.objects())["args"]))

    def test_nodes_are_without_rbd_nbd_only_by_its_value(self):
        self.assertIn("--no-rbd-nbd", agent_of(told_by("nodes without rbd-nbd"))["args"])
        self.assertNotIn("--no-rbd-nbd", agent_of(helm.objects())["args"])

    def test_more_flags_come_last(self):
        self.assertEqual(agent_of(told_by("more flags"))["args"][-2:], ["--heal-at-once=4", "--unstage-orphans"])


class Configuration(unittest.TestCase):
    def test_the_chart_makes_ceph_csi_s_ConfigMaps_where_nobody_else_does(self):
        found = {one["metadata"]["name"]: one["data"] for one in told_by("its own ConfigMaps") if one["kind"] == "ConfigMap"}
        self.assertEqual(set(found), {"ceph-csi-config", "ceph-csi-encryption-kms-config"})
        read = {key: helm.json.loads(text) for key, text in found["ceph-csi-config"].items()}
        values = SWITCHES["its own ConfigMaps"]
        self.assertEqual(read, {"config.json": values["csiConfig"], "cluster-mapping.json": values["csiMapping"]})
        self.assertEqual(helm.json.loads(found["ceph-csi-encryption-kms-config"]["config.json"]), values["encryptionKMSConfig"])

    def test_ConfigMaps_of_other_names_and_keys_are_shown_under_the_names_that_the_agent_reads(self):
        found = told_by("ConfigMaps of other names")
        self.assertEqual({(one["metadata"]["name"], *one["data"]) for one in found if one["kind"] == "ConfigMap"},
                         {("clusters", "list.json"), ("mapping", "map.json"), ("kms", "config.json")})
        shown = [(part["configMap"]["name"], part["configMap"]["items"][0]["key"], part["configMap"]["items"][0]["path"])
                 for part in sources(found)["/etc/ceph-csi-config"]["projected"]["sources"]]
        self.assertEqual(shown, [("clusters", "list.json", "config.json"), ("mapping", "map.json", "cluster-mapping.json")])
        self.assertEqual(sources(found)["/etc/ceph-csi-encryption-kms-config"]["configMap"]["name"], "kms")

    def test_another_key_is_shown_as_config_json(self):
        shown = sources(told_by("another key"))["/etc/ceph-csi-config"]["configMap"]
        self.assertEqual((shown["optional"], shown["items"]), (True, [{"key": "clusters.json", "path": "config.json"}, *(
            {"key": name, "path": name} for name in ("cluster-mapping.json", "mounters.json"))]))

    def test_a_missing_ConfigMap_keeps_no_pod_from_healing(self):
        for name in ("its own ConfigMaps", "ConfigMaps of other names", "a ceph.conf", "another key", "authorities of its own"):
            for volume in pod_of(helm.objects(SWITCHES[name]))["volumes"]:
                maps = [one["configMap"] for one in [volume, *volume.get("projected", {}).get("sources", [])] if "configMap" in one]
                self.assertTrue(all(one["optional"] for one in maps), "%s: %s" % (name, volume))

    def test_a_ceph_conf_is_where_librados_and_the_agent_look_and_every_byte_is_as_given(self):
        for name in ("a ceph.conf", "a ceph.conf whose first line is indented"):
            found = told_by(name)
            made = next(one for one in found if one["kind"] == "ConfigMap")
            self.assertEqual(made["data"]["ceph.conf"], SWITCHES[name]["cephconf"])
            self.assertEqual(sources(found)["/etc/ceph"]["configMap"]["name"], made["metadata"]["name"])
            self.assertIn("--ceph-conf=/etc/ceph/ceph.conf", agent_of(found)["args"])

    def test_a_name_that_YAML_takes_for_a_number_stays_a_name(self):
        names = dict.fromkeys(("driverName", "configMapName", "configMapKey", "mappingConfigMapName", "mappingConfigMapKey", "kmsConfigMapName",
                               "cephConfConfigMapName", "authoritiesConfigMapName", "authoritiesConfigMapKey", "nodeplugin.priorityClassName", "serviceAccounts.nodeplugin.name"), "17")
        found = helm.objects(dict(names, **{
            "fullnameOverride": "corbd", "cephconf": "[global]", "externallyManagedConfigmap": False, "rbac.secretNamespaces": ["18"], "namespace.create": True, "csiAddons.enabled": True,
            "prometheusRule.enabled": True, "nodeplugin.podMonitor.enabled": True, "nodeplugin.httpMetrics.service.enabled": True}), namespace="19")

        def numbers(value, path):
            if isinstance(value, dict):
                return [one for key, below in value.items() for one in numbers(below, path + [key])]
            if isinstance(value, list):
                return [one for at, below in enumerate(value) for one in numbers(below, path + [at])]
            return [path] if value in (17, 18, 19) else []
        self.assertEqual([(one["kind"], path) for one in found for path in numbers(one, [])], [])
        self.assertEqual({key for one in found if one["kind"] == "ConfigMap" for key in one["data"]}, {"17", "config.json", "ceph.conf"})

    def test_authorities_are_in_the_file_that_OpenSSL_reads_beside_those_of_the_image(self):
        found = told_by("authorities of its own")
        shown = sources(found)["/etc/corbd-authorities"]["configMap"]
        self.assertEqual(shown, {"name": "company", "optional": True, "items": [{"key": "root.pem", "path": "ca.crt"}]})
        self.assertEqual({one["name"]: one.get("value") for one in agent_of(found)["env"]}["SSL_CERT_FILE"], "/etc/corbd-authorities/ca.crt")
        self.assertNotIn("SSL_CERT_FILE", {one["name"] for one in agent_of(told_by("defaults"))["env"]})

    def test_an_existing_ceph_conf_is_shown_and_not_made(self):
        found = told_by("an existing ceph.conf")
        self.assertEqual(sources(found)["/etc/ceph"]["configMap"]["name"], "ceph-config")
        self.assertNotIn("ConfigMap", {one["kind"] for one in found})


class Beside(unittest.TestCase):
    def test_a_Service_leads_to_the_port_of_the_agents(self):
        found = told_by("a Service")
        service = only("Service", found)
        self.assertEqual(service["spec"]["ports"], [{"name": "http", "port": 80, "targetPort": 9680, "protocol": "TCP"}])
        self.assertIn("--metricsport=9680", agent_of(found)["args"])
        self.assertEqual(service["spec"]["selector"], only("DaemonSet", found)["spec"]["selector"]["matchLabels"])
        self.assertEqual((service["spec"]["clusterIP"], service["metadata"]["annotations"]), ("None", {"a": "b"}))
        # Otherwise the metrics of an agent that is not ready would be missing, and with them why.
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])

    def test_a_PodMonitor_finds_the_agents_under_the_job_of_the_alerts_and_replaces_the_annotations(self):
        found = told_by("a PodMonitor")
        monitor, template = only("PodMonitor", found), only("DaemonSet", found)["spec"]["template"]
        self.assertEqual(monitor["metadata"]["namespace"], "monitoring")
        self.assertEqual(monitor["metadata"]["labels"], {"app": "corbd", "release": "prometheus"})
        self.assertEqual(monitor["spec"]["namespaceSelector"], {"matchNames": ["ceph-csi"]})
        self.assertEqual(monitor["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
        endpoint, = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual(endpoint["interval"], "10s")
        # The container names no port, by which a target would be found.
        self.assertIn({"sourceLabels": ["__meta_kubernetes_pod_container_name"], "regex": agent_of(found)["name"], "action": "keep"}, endpoint["relabelings"])
        address = [(one["regex"], one["replacement"]) for one in endpoint["relabelings"] if one.get("targetLabel") == "__address__"]

        def asked(ip):
            # Prometheus matches whole values.
            return [put.replace("$1", re.fullmatch(match, ip)[1]) for match, put in address if re.fullmatch(match, ip)]
        self.assertEqual((asked("192.0.2.7"), asked("2001:db8::7")), (["192.0.2.7:9680"], ["[2001:db8::7]:9680"]))
        self.assertIn({"targetLabel": "job", "replacement": "corbd"}, endpoint["relabelings"])
        self.assertIn('up{job="corbd"}', (helm.ROOT / "deploy/prometheus/rules.yaml").read_text())
        self.assertFalse([name for name in template["metadata"]["annotations"] if name.startswith("prometheus.io")])

    def test_the_PrometheusRule_has_the_project_s_alerts_each_with_the_address_of_its_entry_in_the_runbook(self):
        rule = only("PrometheusRule", told_by("a PrometheusRule"))
        groups = helm.yaml.safe_load((helm.ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
        headings = [line[4:].strip() for line in (helm.ROOT / "docs/runbook.md").read_text().splitlines() if line.startswith("### ")]
        for group in groups:
            for alert in group["rules"]:
                self.assertIn(alert["alert"], headings)
                alert["annotations"]["runbook_url"] = "https://runbooks.example/corbd#" + alert["alert"].lower()
        self.assertEqual(rule["spec"]["groups"], groups)
        self.assertEqual(rule["metadata"]["labels"], {"app": "kube-prometheus-stack"})

    def test_the_sidecar_of_CSI_Addons_has_the_agent_s_socket_and_nothing_else_of_the_node(self):
        found = told_by("CSI-Addons")
        sidecar = next(one for one in pod_of(found)["containers"] if one["name"] == "csi-addons")
        mount, = sidecar["volumeMounts"]
        folder = next(one["hostPath"]["path"] for one in pod_of(found)["volumes"] if one["name"] == mount["name"])
        socket = variables(found)["CSI_ADDONS_ENDPOINT"]
        self.assertEqual(socket, "unix://%s/csi-addons.sock" % folder)
        self.assertIn("--csi-addons-address=unix://%s/csi-addons.sock" % mount["mountPath"], sidecar["args"])
        self.assertIn("--controller-port=9071", sidecar["args"])
        self.assertEqual(sidecar["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertFalse(sidecar["securityContext"]["allowPrivilegeEscalation"])
        self.assertTrue(mount["readOnly"])

    def test_more_objects_are_rendered_and_their_texts_are_templates(self):
        self.assertEqual({one["metadata"]["name"] for one in told_by("more objects") if one["kind"] == "ConfigMap"}, {"more", "corbd-text"})

    def test_the_namespace_is_labelled_for_Pod_Security(self):
        namespace = only("Namespace", told_by("its namespace"))
        self.assertEqual(namespace["metadata"]["name"], "ceph-csi")
        self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged")

    def test_the_namespace_survives_an_uninstall_and_a_prune(self):
        kept = {"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Delete=false,Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
        self.assertEqual(only("Namespace", told_by("its namespace"))["metadata"]["annotations"], kept)

    def test_the_flags_of_every_rendering_are_flags_of_the_program(self):
        said = subprocess.run([helm.PROGRAM, "run", "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  (--[\w-]+)", said, re.M))
        read = set(re.findall(r"\(Env:(\w+)\)", said))
        self.assertGreater(len(known), 15)
        read.add("SSL_CERT_FILE")  # by OpenSSL
        for name, values in SWITCHES.items():
            agent = agent_of(helm.objects(values))
            self.assertLessEqual({flag.split("=")[0] for flag in agent["args"][1:]}, known, name)
            self.assertLessEqual({one["name"] for one in agent["env"]}, read, name)


if __name__ == "__main__":
    unittest.main()
