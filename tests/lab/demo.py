#!/usr/bin/env python3
"""Shows the promise of corbd as the manifests run it, with a keeper: an ext4 volume on a real image and a verifying writer on it. The agent is killed three
times under that writer, and then replaced by a planned upgrade.

Exits with 0 only if no application saw an I/O error, every acknowledged write is there, and the kernel's driver noticed nothing.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import calls  # noqa: E402
import picture  # noqa: E402
from checks import Failed, check  # noqa: E402
from lab import Lab  # noqa: E402
from machine import BUILD  # noqa: E402
from stories_handover import blocklisted, expect_silence, hand_over, told_by_nbd  # noqa: E402
from stories_keeper import kill_child  # noqa: E402
from writer import Writer  # noqa: E402

KILLS = 3


def step(text):
    print("demo: " + text, flush=True)


def show(events, stalls):
    """events: pairs of a name and its time; stalls: the writer's entry for each."""
    print("\n  %-22s %26s %20s" % ("", "longest time in which no", "slowest write"))
    print("  %-22s %26s %20s" % ("event", "write was acknowledged", "after it"))
    for (name, _), entry in zip(events, stalls):
        print("  %-22s %23.0f ms %17.0f ms" % (name, (entry["first_us"] - entry["last_before_us"]) / 1000, entry["longest_write_us"] / 1000))
    print(flush=True)


def demo(lab):
    agent = lab.agent(flags=["--keeper"])
    step("starting the agent, and its keeper")
    agent.start()
    image = lab.image("volume")
    volume = agent.volume(image)
    step("staging %s (exclusive-lock, fast-diff, object-map) as ext4" % image.spec)
    volume.stage()
    volume.publish()
    path = os.path.join(volume.target(), "data")
    step("/dev/nbd%d is mounted; writing to %s" % (volume.device, path))
    writer = Writer(lab, path).start()
    writer.wait_more(100)
    told, events = told_by_nbd(), []
    for number in range(1, KILLS + 1):
        step("kill -9 of the agent, number %d" % number)
        events.append(("kill -9, number %d" % number, kill_child(agent, [volume])))
        writer.wait_more(100)
    cut_off = blocklisted(lab)
    step("a planned upgrade: the next agent starts beside the one that serves, and takes the device over")
    events.append(("planned upgrade", hand_over(agent, [volume])))
    writer.wait_more(100)
    check(blocklisted(lab) <= cut_off, "the upgrade blocklisted %s" % (blocklisted(lab) - cut_off))
    expect_silence(told)
    moments = [moment for _, moment in events]
    step("stopping the writer, reading everything back")
    writer.stop()
    first = writer.verify(moments)
    step("unpublishing, unstaging, staging again, reading everything back once more")
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()
    volume.stage()
    second = writer.verify(moments, os.path.join(volume.staged_path, "data"))
    volume.unstage(patience=30)
    volume.expect_gone()
    agent.stop()
    drawn = os.path.join(os.environ["CORBD_OUT"], "latency.svg")
    picture.draw(writer.journal, events, drawn)
    step("the latency of every write around each of these events is drawn in " + os.path.relpath(drawn))
    lost, errors = max(first["lost"], second["lost"]), second["errors"]
    show(events, second["kills"])
    print("  longest stall              %8.2f s" % (second["longest_stall_us"] / 1e6))
    print("  writes acknowledged        %8d" % second["acked"])
    print("  writes lost                %8d" % lost)
    print("  I/O errors seen            %8d" % errors)
    print("  lines in the kernel log    %8d\n" % 0, flush=True)
    return 1 if lost or errors else 0


def main():
    calls.load(BUILD)
    lab = Lab("demo")
    code = 1
    try:
        code = demo(lab)
    except Failed as failure:
        step("failed: %s" % failure)
        lab.diagnose()
    finally:
        if not lab.clean():
            code = code or 1
    step("passed" if code == 0 else "FAILED")
    return code


if __name__ == "__main__":
    sys.exit(main())
