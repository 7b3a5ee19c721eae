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

    def test_the_PrometheusRule_has_rules_that_Prometheus_takes(self):
        rule = only("PrometheusRule", helm.objects({"prometheusRule.enabled": True}))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rules.yaml"
            path.write_text(yaml.safe_dump(rule["spec"]))
            self.promtool("check", "rules", path)
