"""What the chart renders without a value, and what is made of it."""
import re
import unittest

import helm
import yaml
from switches import SWITCHES


class Defaults(unittest.TestCase):
    def test_the_manifests_for_kustomize_and_the_table_of_values_are_what_the_chart_makes_them(self):
        differ = helm.subprocess.run([helm.ROOT / "scripts/manifests", "--check"], capture_output=True, text=True)
        self.assertEqual(differ.returncode, 0, differ.stdout + differ.stderr)

    def test_the_default_rendering_is_the_kustomize_base_and_nothing_else(self):
        base = []
        for path in sorted((helm.ROOT / "deploy/kubernetes/base").glob("*.yaml")):
            base += [one for one in helm.yaml.safe_load_all(path.read_text()) if one["kind"] != "Kustomization"]
        by_kind = lambda one: one["kind"]  # noqa: E731
        self.assertEqual(sorted(helm.objects(), key=by_kind), sorted(base, key=by_kind))

    def test_the_values_for_rook_render_what_the_kustomization_for_rook_has(self):
        rook = []
        for name in ("rbac", "daemonset"):
            rook += helm.yaml.safe_load_all((helm.ROOT / "deploy/kubernetes/rook" / (name + ".yaml")).read_text())
        by_kind = lambda one: one["kind"]  # noqa: E731
        self.assertEqual(sorted(helm.objects(files=[helm.CHART / "values-rook.yaml"], namespace="rook-ceph"), key=by_kind), sorted(rook, key=by_kind))

    def test_the_two_shipped_manifests_share_no_object_and_nothing_of_a_node(self):
        folders, objects = [], []
        for folder in ("base", "rook"):
            found = [one for path in sorted((helm.ROOT / "deploy/kubernetes" / folder).glob("*.yaml")) if path.name != "kustomization.yaml"
                     for one in yaml.safe_load_all(path.read_text()) if one]
            objects.append({(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found})
            pod = next(one for one in found if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
            agent = next(one for one in pod["containers"] if one["name"] == "corbd")
            env = {one["name"]: one.get("value") for one in agent["env"]}
            folders.append({"port": next(one for one in agent["args"] if one.startswith("--metricsport=")), "socket": env["CSI_ENDPOINT"], "driver": env["DRIVER_NAME"],
                            "runtime": next(one["hostPath"]["path"] for one in pod["volumes"] if one["name"] == "runtime")})
        self.assertEqual(objects[0] & objects[1], set())
        self.assertEqual([key for key in folders[0] if folders[0][key] == folders[1][key]], [])

    def test_two_releases_of_one_name_in_two_namespaces_share_no_object(self):
        names = [{(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in helm.objects(dict(values, **{"CSIDriver.create": False}), namespace=namespace)}
                 for values in SWITCHES.values() for namespace in ("ceph-csi", "other") if "extraDeploy" not in values and "fullnameOverride" not in values]
        for one, other in zip(names[::2], names[1::2]):
            shared = {(kind, name) for kind, namespace, name in one & other if namespace not in ("tenant", "team-a", "team-b", "monitoring", "ceph-csi")}
            self.assertEqual(shared, set())

    def test_the_overlay_for_a_second_namespace_shares_no_object_with_the_base(self):
        readme = (helm.ROOT / "deploy/kubernetes/README.md").read_text()
        overlay = yaml.safe_load(re.search(r"^```yaml\n(apiVersion: kustomize.*?)^```", readme, re.M | re.S)[1])
        self.assertEqual(overlay["resources"], ["../base"])
        patched = [yaml.safe_load(one["patch"]) for one in overlay["patches"]]
        deleted = {(one["kind"], one["metadata"]["name"]) for one in patched if one.get("$patch") == "delete"}
        self.assertEqual(len(deleted), len(overlay["patches"]))
        base, names = helm.objects(), set()
        for kind, name, inside in ((one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in base):
            if (kind, name) not in deleted:
                names.add((kind, inside and overlay["namespace"], name + overlay.get("nameSuffix", "")))
        self.assertEqual(names & {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in base}, set())
        # kubelet and the API server know the driver by this object's name.
        self.assertNotIn("CSIDriver", {kind for kind, _, _ in names})

    def test_kubelet_is_never_asked_to_repeat_a_publish(self):
        # docs/developers/rules.md, rule 26. No value asks for it either.
        for name, values in SWITCHES.items():
            self.assertNotIn("requiresRepublish", helm.json.dumps(helm.objects(values, kube="1.37.0")), name)
        with self.assertRaises(helm.Refused):
            helm.objects({"CSIDriver.requiresRepublish": True})

    def test_each_value_of_the_chart_is_in_the_schema(self):
        def walk(value, schema, path):
            for key, below in value.items():
                self.assertIn(key, schema.get("properties", {}), "%s.%s is in values.yaml and not in values.schema.json" % (path, key))
                own = schema["properties"][key]
                if "$ref" not in own and "additionalProperties" in own and own["additionalProperties"] is False:
                    walk(below, own, path + "." + key)
        values = helm.yaml.safe_load((helm.CHART / "values.yaml").read_text())
        schema = helm.json.loads((helm.CHART / "values.schema.json").read_text())
        walk(values, schema, "")
        self.assertLessEqual(set(schema["properties"]) - set(values), {"global"})

    def test_each_value_has_its_comment(self):
        table = (helm.ROOT / "deploy/helm/README.md").read_text()
        self.assertGreater(len(re.findall(r"^\| `", table, re.M)), 70)
        self.assertEqual(re.findall(r"^\| `(\S+)` \| .* \| *\|$", table, re.M), [])

    def test_a_release_of_another_name_and_namespace_has_them_everywhere(self):
        found = helm.objects(release="blue", namespace="elsewhere")
        daemonset, binding = helm.only("DaemonSet", found), helm.only("ClusterRoleBinding", found)
        everywhere = {one["metadata"]["name"] for one in found if "namespace" not in one["metadata"]}
        self.assertEqual({one["metadata"]["name"] for one in found if "namespace" in one["metadata"]}, {"blue-corbd"})
        self.assertEqual(everywhere - {"rbd.csi.ceph.com"}, {"blue-corbd-elsewhere"})
        self.assertEqual({one["metadata"]["namespace"] for one in found if "namespace" in one["metadata"]}, {"elsewhere"})
        self.assertEqual(daemonset["spec"]["selector"]["matchLabels"], daemonset["spec"]["template"]["metadata"]["labels"])
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": "blue-corbd", "namespace": "elsewhere"}])
        self.assertEqual(daemonset["spec"]["template"]["spec"]["serviceAccountName"], "blue-corbd")

    def test_the_notes_name_the_release_and_the_ConfigMap_that_it_does_not_make(self):
        notes = helm.render(release="blue", namespace="elsewhere")["templates/NOTES.txt"]
        for words in ("--namespace elsewhere rollout status daemonset/blue-corbd", "ConfigMap ceph-csi-config, which this release does not make",
                      "kubectl label namespace elsewhere pod-security.kubernetes.io/enforce=privileged"):
            self.assertIn(words, notes)

    def test_the_chart_s_alerts_are_the_project_s(self):
        self.assertEqual((helm.CHART / "files/rules.yaml").read_text(), (helm.ROOT / "deploy/prometheus/rules.yaml").read_text())

    def test_the_chart_s_version_is_that_of_the_program(self):
        about = helm.yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
        version = re.search(r"project\(corbd[^)]*VERSION ([\d.]+)", (helm.ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual([about["version"], about["appVersion"]], [version, version])


if __name__ == "__main__":
    unittest.main()
