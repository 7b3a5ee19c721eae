"""The values for distributions of Kubernetes in deploy/helm/distributions."""
import json
import re
import unittest

import helm
from helm import only
from views import agent_of, pod_of, sources, variables

FILES = {path.stem: path for path in sorted((helm.ROOT / "deploy/helm/distributions").glob("*.yaml"))}
FOLDERS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}


def rendered(name):
    return helm.objects(files=[FILES[name]], kube="1.33.0")


class Distributions(unittest.TestCase):
    def test_each_distribution_has_kubelet_s_folder_inside_and_outside_of_the_pod(self):
        self.assertEqual(set(FILES), {"k0s", "k3s", "microk8s", "openshift", "rke2", "talos"})
        for name in FILES:
            found, folder = rendered(name), FOLDERS.get(name, "/var/lib/kubelet")
            self.assertEqual(sources(found)[folder]["hostPath"], {"path": folder, "type": "Directory"}, name)
            self.assertEqual(variables(found)["CSI_ENDPOINT"], "unix://%s/plugins/rbd.csi.ceph.com/csi.sock" % folder)
            if folder != "/var/lib/kubelet":
                self.assertNotIn('"/var/lib/kubelet', json.dumps(found), name)

    def test_nodes_that_load_no_modules_for_pods_get_an_init_container_without_a_capability(self):
        for name in FILES:
            init, = pod_of(rendered(name))["initContainers"]
            loads = name not in ("talos", "openshift")
            self.assertEqual("SYS_MODULE" in init["securityContext"]["capabilities"].get("add", []), loads, name)
            self.assertEqual("modprobe" in init["command"][-1], loads, name)

    def test_the_pod_writes_into_no_folder_of_a_read_only_root(self):
        writable = ("/var/", "/run/", "/dev", "/sys")
        for name in FILES:
            found = rendered(name)
            for container in pod_of(found)["containers"] + pod_of(found)["initContainers"]:
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"], name)
            paths = {one["name"]: one["hostPath"] for one in pod_of(found)["volumes"] if "hostPath" in one}
            for mount in agent_of(found)["volumeMounts"]:
                if mount["name"] in paths and not mount.get("readOnly"):
                    self.assertTrue(paths[mount["name"]]["path"].startswith(writable), (name, mount))

    def test_only_OpenShift_gets_an_SCC_and_its_pods_an_SELinux_domain_that_may_mount(self):
        for name in FILES:
            found = rendered(name)
            self.assertEqual([one["kind"] for one in found].count("SecurityContextConstraints"), int(name == "openshift"), name)
        found = rendered("openshift")
        self.assertEqual(pod_of(found)["securityContext"], {"seLinuxOptions": {"type": "spc_t"}})
        self.assertNotIn("SYS_MODULE", only("SecurityContextConstraints", found)["allowedCapabilities"])

    def test_each_file_says_where_its_facts_are_from(self):
        for name, path in FILES.items():
            self.assertTrue(re.search(r"https://\S+", path.read_text()), name)


if __name__ == "__main__":
    unittest.main()
