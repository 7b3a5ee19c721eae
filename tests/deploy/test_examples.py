"""The examples of deploy/kubernetes/examples fit together, and the agent knows what they ask for. tests/deploy/server asks an API server too."""
import re
import unittest

import helm

FOLDER = helm.ROOT / "deploy/kubernetes/examples"
# What only the provisioner reads.
PROVISIONER = {"clusterID", "pool"}


def examples():
    return [one for path in sorted(FOLDER.glob("*.yaml")) for one in helm.yaml.safe_load_all(path.read_text())]


def of(kind):
    return [one for one in examples() if one["kind"] == kind]


class Examples(unittest.TestCase):
    def test_a_StorageClass_is_the_driver_s_and_says_who_serves_its_volumes(self):
        driver = helm.only("CSIDriver", helm.objects())["metadata"]["name"]
        classes = of("StorageClass")
        self.assertEqual(len(classes), 2)
        for one in classes:
            self.assertEqual((one["provisioner"], one["parameters"]["mounter"]), (driver, "rbd-nbd"))
            self.assertIn("exclusive-lock", one["parameters"]["imageFeatures"].split(","))

    def test_the_agent_reads_every_parameter_that_is_not_the_provisioner_s(self):
        source = "".join(path.read_text() for path in (helm.ROOT / "src/cephcsi").glob("*.cpp"))
        known = set(re.findall(r'(?:value|find)\(\w*,? ?"(\w+)"\)', source)) | PROVISIONER
        self.assertGreater(len(known), 8)
        for one in of("StorageClass"):
            self.assertLessEqual({name for name in one["parameters"] if not name.startswith("csi.storage.k8s.io/")}, known)

    def test_the_Secrets_that_a_StorageClass_names_are_there_with_what_a_stage_needs(self):
        secrets = {(one["metadata"]["namespace"], one["metadata"]["name"]): set(one["stringData"]) for one in of("Secret")}
        for one in of("StorageClass"):
            given = one["parameters"]
            for use in ("provisioner", "controller-expand", "node-stage"):
                keys = secrets[given["csi.storage.k8s.io/%s-secret-namespace" % use], given["csi.storage.k8s.io/%s-secret-name" % use]]
                wanted = {"userID", "userKey"} | ({"encryptionPassphrase"} if given.get("encrypted") == "true" else set())
                self.assertEqual(keys, wanted)

    def test_a_claim_names_a_StorageClass_and_a_pod_names_a_claim(self):
        classes = {one["metadata"]["name"] for one in of("StorageClass")}
        claims = {one["metadata"]["name"]: one for one in of("PersistentVolumeClaim")}
        self.assertLessEqual({one["spec"]["storageClassName"] for one in claims.values()}, classes)
        for pod in of("Pod"):
            volume, = pod["spec"]["volumes"]
            container, = pod["spec"]["containers"]
            block = claims[volume["persistentVolumeClaim"]["claimName"]]["spec"].get("volumeMode") == "Block"
            used, = container["volumeDevices" if block else "volumeMounts"]
            self.assertEqual(used["name"], volume["name"])

    def test_the_clusters_are_in_the_ConfigMap_that_the_agent_s_pod_shows(self):
        clusters, = of("ConfigMap")
        values = helm.yaml.safe_load((helm.CHART / "values.yaml").read_text())
        self.assertEqual(clusters["metadata"]["name"], values["configMapName"])
        listed = {one["clusterID"] for one in helm.json.loads(clusters["data"]["config.json"])}
        self.assertEqual({one["parameters"]["clusterID"] for one in of("StorageClass")}, listed)
        # The chart's own words for the same would be taken.
        helm.render({"externallyManagedConfigmap": False, "csiConfig": helm.json.loads(clusters["data"]["config.json"])})


if __name__ == "__main__":
    unittest.main()
