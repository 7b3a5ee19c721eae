"""The alerts, by Prometheus' own promtool."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import helm
import yaml
from helm import only


class Rules(unittest.TestCase):
    def setUp(self):
        if shutil.which("promtool"):
            return
        problem = "no promtool: scripts/setup installs Debian's prometheus"
        # A CI that skips would pass without having looked.
        if "CI" in os.environ:
            self.fail(problem)
        self.skipTest(problem)

    def promtool(self, *words):
        done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_alerts_fire_when_they_should_and_name_the_claim(self):
        self.promtool("test", "rules", helm.ROOT / "tests/deploy/rules_test.yaml")

    def test_pods_that_are_deleted_by_hand_are_no_stalled_rollout(self):
        stalled = [next(rule["expr"] for group in only("PrometheusRule", helm.objects({"prometheusRule.enabled": True, "nodeplugin.updateStrategy": strategy}))["spec"]["groups"]
                        for rule in group["rules"] if rule["alert"] == "CorbdRolloutStalled") for strategy in ("RollingUpdate", "OnDelete")]
        self.assertEqual(["kube_daemonset" in one for one in stalled], [True, False])
        self.assertTrue(stalled[1].rstrip().endswith('kube_pod_status_unschedulable{pod=~".*corbd.*"}[2m])) > 0'), stalled[1])

    def test_the_PrometheusRule_has_rules_that_Prometheus_takes(self):
        rule = only("PrometheusRule", helm.objects({"prometheusRule.enabled": True}))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rules.yaml"
            path.write_text(yaml.safe_dump(rule["spec"]))
            self.promtool("check", "rules", path)
