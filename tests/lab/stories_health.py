"""What others are told of the health of volumes and of the storage."""
import glob
import json
import os

from checks import check, wait_for
from machine import MIB
from reporter import CannotTell, Reporter, staging_path
from volume import DRIVER


def told(reporter, volume):
    """"-" if the reporter cannot tell."""
    try:
        return reporter.condition(volume.id)
    except CannotTell:
        return "-"


def story_condition_reporter(lab):
    """CSI-Addons' volume-condition reporter, old and new, reports a volume of this agent through a crash on one connection, and sees it degraded and well again"""
    agent = lab.agent(flags=["--volume-health"]).start()
    volume, block = agent.volume(lab.image("a", size=256 * MIB)), agent.volume(lab.image("b", size=64 * MIB), block=True)
    volume.staging = staging_path(lab.kubelet, DRIVER, volume.id)
    os.makedirs(volume.staging)
    for one in (volume, block):
        one.stage()
        one.publish()
    with open(os.path.join(os.path.dirname(volume.target()), "vol_data.json"), "w") as file:
        json.dump({"driverName": DRIVER, "volumeHandle": volume.id, "specVolID": "pv-" + volume.id}, file)
    old, new = (Reporter(lab.kubelet, agent.endpoint, DRIVER, knows) for knows in (False, True))
    check(new.by_health, "the new reporter asks for no health")
    check(told(old, volume) is None and told(new, volume) is None, "well: %s, %s" % (told(old, volume), told(new, volume)))
    check(told(new, block) is None, "raw block: %s" % told(new, block))
    check(told(old, block) == "-", "the old reporter finds a raw block volume, which docs/operations.md denies: %s" % told(old, block))
    check("backendHealth" not in agent.csi("storage")["answer"], "storage: %s" % agent.csi("storage"))
    agent.kill()
    for name in glob.glob(os.path.join(lab.dir, "runtime", "keys", "*")):
        os.unlink(name)  # so that the volume waits for a stage
    agent.start()
    wait_for("a degraded volume", lambda: "the device has no server" in (told(new, volume) or ""), 30, 0.2)
    check(told(old, volume) == "-", "the old reporter, although nobody measures the volume: %s" % told(old, volume))
    for one in (volume, block):
        one.stage(patience=60)
    for reporter in (old, new):
        wait_for("a volume that is well again", lambda: told(reporter, volume) is None, 60, 0.5)
    for one in (volume, block):
        one.unpublish(patience=30)
        one.unstage(patience=30)
    volume.expect_gone()
    check(told(new, volume) == "-", "of a volume that is gone: %s" % told(new, volume))
    agent.stop()
