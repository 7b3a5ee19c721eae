"""CSI's public conformance suite (csi-sanity of kubernetes-csi/csi-test) against the agent and the test provisioner. No Debian package has it:
`go install github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@latest`, then CORBD_SANITY=path (CONTRIBUTING)."""
import os
import shutil
import subprocess

from checks import Skip, check, say, wait_for
from machine import BUILD, MIB

# Tests that do not concern a node plugin, and tests of what the test provisioner does not do.
NOT_OURS = "Controller Service|GroupController|Snapshot|ListVolumes"


def story_conformance(lab):
    """CSI's conformance suite passes against the agent and the test provisioner, for filesystems and for raw block"""
    suite = os.environ.get("CORBD_SANITY") or shutil.which("csi-sanity")
    if not suite:
        raise Skip("no csi-sanity here: set CORBD_SANITY to it, or put it into PATH")
    agent = lab.agent().start()
    endpoint = "unix://" + os.path.join(lab.dir, "controller.sock")
    # The provisioner lives as long as its standard input.
    provisioner = subprocess.Popen([os.path.join(BUILD, "corbd-provisioner"), endpoint], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("the test provisioner's socket", lambda: os.path.exists(endpoint[len("unix://"):]), 30)
    secrets = lab.write("secrets.yaml", "".join("%sSecret:\n  userID: %s\n  userKey: %s\n" % (call, lab.user, lab.key) for call in (
        "CreateVolume", "DeleteVolume", "ControllerExpandVolume", "NodeStageVolume", "NodePublishVolume")))
    mount_dir = os.path.join(lab.kubelet, "conformance")
    os.makedirs(mount_dir)
    failed = []
    try:
        for kind in ("mount", "block"):
            argv = [suite, "--csi.endpoint", agent.endpoint, "--csi.controllerendpoint", endpoint, "--csi.secrets", secrets,
                    "--csi.mountdir", os.path.join(mount_dir, "target-" + kind), "--csi.stagingdir", os.path.join(mount_dir, "staging-" + kind),
                    "--csi.testvolumesize", str(256 * MIB), "--csi.testvolumeexpandsize", str(512 * MIB),
                    "--csi.testvolumeaccesstype", kind, "-ginkgo.skip", NOT_OURS]
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
            for line in done.stdout.splitlines()[-30:]:
                say(line)
            if done.returncode != 0:
                failed.append("csi-sanity, %s: exit code %d" % (kind, done.returncode))
    finally:
        provisioner.stdin.close()
        provisioner.wait(20)
    # Run both kinds, whatever became of the first.
    check(not failed, "; ".join(failed))


story_conformance.limit = 1300
