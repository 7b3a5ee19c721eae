"""Each flag of `corbd run` has a value of the chart, or is left to extraArgs on purpose."""
import re
import subprocess
import unittest

import helm
from views import agent_of

# What no value stands for, and why.
LEFT = {
    "--accept-refused": "an operator's word for one rollout, and a time",
    "--allow-core-dumps": "to find a defect, on one node",
    "--crush-location": "one place for every node of the release; labels give each its own",
    "--failpoint": "for tests",
    "--fencing-only": "beside the provisioner, no node's agent (docs/dead-node.md)",
    "--freeze-limit": "few want another number",
    "--fsck-options": "few want other ones for all volumes; a StorageClass has mkfsOptions and mountOptions",
    "--heal-at-once": "few want another number",
    "--heal-without-proof": "removed: the agent ends with a sentence that says so",
    "--kubelet-registration-path": "the socket is at the same path in the pod and on the node",
    "--kms-configmap": "kmsConfigMapName is mounted, and a file comes before the API server's ConfigMap",
    "--leave-grace": "the pod's grace period follows it",
    "--list-failpoints": "prints and ends",
    "--metricspath": "for a scraper that asks for another path; the PodMonitor asks for /metrics",
    "--mkfs-options": "as --fsck-options",
    "--mount-options": "as --fsck-options",
    "--quiesce": "a StorageClass has mapOptions",
    "--register": "the agent registers itself",
    "--standalone": "for a host without kubelet",
    "--topology": "as --crush-location",
    "--unstage-orphans": "few want it",
    "--volume-health": "alpha in CSI 1.13",
    "--watch-all-volumeattachments": "for a cluster where many wait at the same time; it needs rbac.watchVolumeAttachments",
}

# The chart takes these only with their value: the pod's grace period follows the first, and the second must end.
NEEDED = {"--leave-grace": "=300", "--accept-refused": "=2026-11-28T12:00:00Z"}


class Flags(unittest.TestCase):
    def setUp(self):
        said = subprocess.run([helm.PROGRAM, "run", "--help"], capture_output=True, text=True, check=True).stdout
        self.flags = set(re.findall(r"^  (--[\w-]+)", said, re.M))
        text = (helm.CHART / "templates/_helpers.tpl").read_text()
        self.by_value = helm.yaml.safe_load(re.search(r'define "corbd.flags" -}}\n(.*?){{- end', text, re.S)[1])

    def test_each_flag_of_the_program_has_a_value_of_the_chart_or_is_left_to_extraArgs_on_purpose(self):
        self.assertGreater(len(self.flags), 30)
        self.assertEqual(self.flags, set(self.by_value) | set(LEFT))
        self.assertEqual(set(self.by_value) & set(LEFT), set())

    def test_the_chart_names_values_that_it_has(self):
        values = helm.yaml.safe_load((helm.CHART / "values.yaml").read_text())
        for path in set(self.by_value.values()) - {"itself"}:
            below = values
            for key in path.split("."):
                self.assertIn(key, below, path)
                below = below[key]

    def test_what_is_left_to_extraArgs_is_taken_there(self):
        for flag in LEFT:
            given = flag + NEEDED.get(flag, "")
            self.assertIn(given, agent_of(helm.objects({"nodeplugin.plugin.extraArgs": [given]}))["args"])


if __name__ == "__main__":
    unittest.main()
