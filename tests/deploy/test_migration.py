"""The files of deploy/migration: whose node is whose, and that every name in them is one that the other side has. tests/deploy/server asks an API
server too. ceph-csi's own objects are played here, by what docs/sources.md says of them."""
import copy
import re
import subprocess
import unittest

import helm

FOLDER = helm.ROOT / "deploy/migration"
# Values of corbd's chart.
BESIDE = {"helm": ["beside.yaml"], "rook": ["beside.yaml", "rook-beside.yaml"]}

# ceph-csi's DaemonSet, as far as the patch touches it.
CEPH_CSI = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}, "template": {"spec": {
    "containers": [{"name": "driver-registrar", "volumeMounts": []},
                   {"name": "csi-rbdplugin", "volumeMounts": [{"name": "keys-tmp-dir", "mountPath": "/tmp/csi/keys"}]}],
    "volumes": [{"name": "keys-tmp-dir", "emptyDir": {"medium": "Memory"}}, {"name": "host-dev", "hostPath": {"path": "/dev"}}]}}}
KEYS = {"containers": "name", "volumes": "name", "volumeMounts": "mountPath"}


def of(name):
    return helm.yaml.safe_load((FOLDER / name).read_text())


def merged(old, new, key=None):
    """A strategic merge patch, as kubectl carries it out: lists of objects are merged by their key, null removes."""
    if isinstance(old, dict) and isinstance(new, dict):
        made = {name: value for name, value in old.items() if not (name in new and new[name] is None)}
        for name, value in new.items():
            if value is not None:
                made[name] = merged(old.get(name), value, KEYS.get(name))
        return made
    if isinstance(old, list) and isinstance(new, list) and key:
        made = copy.deepcopy(old)
        for one in new:
            same = [at for at, other in enumerate(made) if other[key] == one[key]]
            made[same[0] if same else len(made):(same[0] + 1) if same else len(made)] = [merged(made[same[0]] if same else None, one)]
        return made
    return without_nulls(new)


def without_nulls(value):
    return {name: without_nulls(one) for name, one in value.items() if one is not None} if isinstance(value, dict) else value


def keeps_off(affinity):
    term, = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    expression, = term["matchExpressions"]
    return expression


def render(*names, **more):
    return helm.objects(files=[FOLDER / name for name in names], **more)


class Beside(unittest.TestCase):
    def test_a_node_is_corbd_s_or_ceph_csi_s_by_one_label(self):
        for names in BESIDE.values():
            pod = helm.only("DaemonSet", render(*names))["spec"]["template"]["spec"]
            self.assertEqual(pod["nodeSelector"]["corbd"], "true")
        for affinity in (of("ceph-csi-values.yaml")["nodeplugin"]["affinity"], of("operator-driver.yaml")["spec"]["nodePlugin"]["affinity"]):
            self.assertEqual(keeps_off(affinity), {"key": "corbd", "operator": "NotIn", "values": ["true"]})

    def test_no_pod_of_ceph_csi_restarts_because_of_the_change(self):
        self.assertEqual(of("ceph-csi-values.yaml")["nodeplugin"]["updateStrategy"], "OnDelete")
        self.assertEqual(of("operator-driver.yaml")["spec"]["nodePlugin"]["updateStrategy"], {"type": "OnDelete"})

    def test_corbd_takes_ceph_csi_s_objects_and_its_reading_of_mounter(self):
        for names in BESIDE.values():
            objects = render(*names)
            self.assertFalse([one for one in objects if one["kind"] == "CSIDriver"])
            pod = helm.only("DaemonSet", objects)["spec"]["template"]["spec"]
            self.assertIn("--default-mounter=rbd", pod["containers"][0]["args"])
            config, = [one for one in pod["volumes"] if one["name"] == "config"]
            self.assertEqual(config["configMap"]["name"], "ceph-csi-config")

    def test_rook_s_driver_has_its_name_and_its_own_folder_of_keys(self):
        pod = helm.only("DaemonSet", render(*BESIDE["rook"], namespace="rook-ceph"))["spec"]["template"]["spec"]
        env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        self.assertEqual(env["DRIVER_NAME"], "rook-ceph.rbd.csi.ceph.com")
        self.assertNotEqual([one for one in pod["volumes"] if one["name"] == "runtime"][0]["hostPath"]["path"], "/run/corbd")


class InItsPlace(unittest.TestCase):
    def setUp(self):
        self.spec = merged(CEPH_CSI, of("drop-in.yaml")["spec"])
        self.pod = self.spec["template"]["spec"]
        self.plugin, = [one for one in self.pod["containers"] if one["name"] == "csi-rbdplugin"]

    def test_the_patch_adds_what_corbd_s_own_pod_has(self):
        own = helm.only("DaemonSet", helm.objects())["spec"]["template"]["spec"]
        container = own["containers"][0]
        self.assertEqual(self.pod["terminationGracePeriodSeconds"], own["terminationGracePeriodSeconds"])
        theirs, ours = copy.deepcopy(container["livenessProbe"]), copy.deepcopy(self.plugin["livenessProbe"])
        words = ours.pop("exec")["command"]
        self.assertEqual([one for one in words if "runtime-dir" not in one], theirs.pop("exec")["command"])
        self.assertEqual(ours, theirs)
        own_pod = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
        self.assertIn(own_pod, self.plugin["env"])
        self.assertIn({"name": "dbus", "mountPath": "/run/dbus", "readOnly": True}, self.plugin["volumeMounts"])
        runtime, = [one for one in own["volumes"] if one["name"] == "runtime"]
        keys, = [one for one in self.pod["volumes"] if one["name"] == "keys-tmp-dir"]
        self.assertEqual(keys, {"name": "keys-tmp-dir", "hostPath": runtime["hostPath"]})

    def test_what_ceph_csi_has_besides_stays(self):
        self.assertEqual(self.spec["updateStrategy"], {"type": "OnDelete"})
        self.assertEqual([one["name"] for one in self.pod["containers"]], ["driver-registrar", "csi-rbdplugin"])
        self.assertIn({"name": "keys-tmp-dir", "mountPath": "/tmp/csi/keys"}, self.plugin["volumeMounts"])
        self.assertIn({"name": "host-dev", "hostPath": {"path": "/dev"}}, self.pod["volumes"])

    def test_the_rights_are_those_of_the_chart_that_ceph_csi_s_node_plugin_lacks(self):
        # ceph-csi's ClusterRole rbd-csi-nodeplugin.
        has = {("", "nodes"): {"get"}, ("", "secrets"): {"get"}, ("", "configmaps"): {"get"}, ("", "persistentvolumes"): {"get"},
               ("storage.k8s.io", "volumeattachments"): {"get", "list"}}
        role, binding = helm.yaml.safe_load_all((FOLDER / "rights.yaml").read_text())
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    has.setdefault((group, resource), set()).update(rule["verbs"])
        for rule in helm.only("ClusterRole", helm.objects())["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    self.assertLessEqual(set(rule["verbs"]), has.get((group, resource), set()), resource)
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])


class Doctor(unittest.TestCase):
    def setUp(self):
        self.pod = of("doctor.yaml")["spec"]
        self.container, = self.pod["containers"]

    def test_it_looks_where_corbd_s_own_pod_looks(self):
        own = helm.only("DaemonSet", helm.objects())["spec"]["template"]["spec"]
        paths = {one["mountPath"] for one in own["containers"][0]["volumeMounts"]} | {"/lib/modules"}
        self.assertLessEqual({one["mountPath"] for one in self.container["volumeMounts"]}, paths)
        self.assertTrue(all(one["readOnly"] for one in self.container["volumeMounts"]))
        self.assertTrue(self.pod["hostPID"])

    def test_the_command_of_the_document_makes_it_a_pod_of_one_node(self):
        text = (helm.ROOT / "docs/migrating-from-ceph-csi.md").read_text()
        command, = re.findall(r"^ +(sed .*doctor\.yaml) \| kubectl", text, re.M)
        pod = helm.yaml.safe_load(subprocess.run(["sh", "-c", command], cwd=helm.ROOT, capture_output=True, text=True, check=True, timeout=60).stdout)
        self.assertEqual((pod["metadata"]["name"], pod["spec"]["nodeName"]), ("corbd-doctor-node-7", "node-7"))
        container, = pod["spec"]["containers"]
        self.assertEqual(container["image"], "REGISTRY/corbd:VERSION")
        self.assertEqual([one["name"] for one in container["env"]], ["DRIVER_NAME", "NODE_ID"])

    def test_every_file_is_in_the_document(self):
        text = (helm.ROOT / "docs/migrating-from-ceph-csi.md").read_text()
        for path in FOLDER.glob("*.yaml"):
            self.assertIn("deploy/migration/" + path.name, text)

    def test_the_program_takes_its_words(self):
        done = subprocess.run([helm.PROGRAM, *self.container["args"], "--help"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = set(re.findall(r"--[a-z-]+", " ".join(self.container["args"])))
        self.assertLessEqual(words, set(re.findall(r"--[a-z-]+", done.stdout)))


if __name__ == "__main__":
    unittest.main()
