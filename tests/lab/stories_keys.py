"""Keys that the kernel's own client does not know (docs/sources.md#cephx-keys)."""

from checks import Skip, check, long, say
from machine import MIB
from stories_krbd import KRBD, expect_unmapped, needs_krbd, watchers
from writer import writes_through_a_kill


# Only a cluster of Ceph 20 makes such keys: tests/lab/debian.
@long
def story_aes256k(lab):
    """a volume whose user has an aes256k key, which this kernel's own client refuses, is served over nbd: staged, healed after kill -9, grown, unstaged"""
    if not lab.key.startswith("Ag"):
        raise Skip("this cluster's keys are of another type: tests/lab/debian forky scripts/lab/stories --kernel 6.12 aes256k")
    needs_krbd()
    image = lab.image("a", size=256 * MIB)
    agent = lab.agent().start()
    by_kernel = agent.volume(image, attributes=KRBD)
    refused = by_kernel.try_stage()
    if refused["code"] == "OK":
        by_kernel.unstage()
        raise Skip("this kernel's client knows such keys: --kernel 6.12 does not")
    say("mounter rbd: %s: %s" % (refused["code"], refused["message"]))
    check(refused["code"] == "FAILED_PRECONDITION" and "aes256k" in refused["message"], "refused for another reason")
    expect_unmapped(by_kernel, image)
    check(not watchers(lab, image), "the image is watched after the refusal")

    volume = agent.volume(image, attributes=("mounter=rbd", "tryOtherMounters=true"))
    volume.stage()
    check(volume.device is not None, "it is not served over nbd")
    volume.publish()
    writes_through_a_kill(lab, agent, volume)
    lab.admin("rbd", "resize", "--no-progress", "-s", "512M", image.spec)
    volume.expand(512 * MIB, patience=30)
    usage, abnormal = volume.stats()
    check(usage["BYTES"]["total"] > 400 * MIB, "the filesystem did not grow: %s" % usage)
    check(abnormal is None, "its condition: %s" % abnormal)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    agent.stop()
