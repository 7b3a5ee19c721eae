#!/usr/bin/env python3
"""Shows the promise of corbd: an ext4 volume on a real image, a verifying writer on it, and three times kill -9 of the agent.

Exits with 0 only if no application saw an I/O error and every acknowledged write is there.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import calls  # noqa: E402
import picture  # noqa: E402
from agent import timeline  # noqa: E402
from checks import Failed  # noqa: E402
from lab import Lab  # noqa: E402
from machine import BUILD  # noqa: E402
from writer import Writer  # noqa: E402

KILLS = 3
STEPS = (("restarted", "agent started again"), ("started", "agent up"), ("fenced", "dead predecessor fenced"),
         ("opened", "image opened"), ("proven", "ownership proven"), ("locked", "image lock taken"), ("reconnected", "kernel device reconnected"),
         ("first write", "first write acknowledged"), ("first new write", "first write issued after the kill"))


def step(text):
    print("demo: " + text, flush=True)


def show(number, line):
    print("\n  kill -9 number %d%sms since the kill" % (number, " " * 24))
    for key, text in STEPS:
        if line[key] is not None:
            print("    %-40s %8.0f" % (text, line[key]))
    print(flush=True)


def demo(lab):
    agent = lab.agent()
    step("starting the agent")
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
    kills = []
    for number in range(1, KILLS + 1):
        kills.append(agent.kill())
        agent.spawn()
        agent.wait_event("device.reconnected", 60, volume=volume.id)
        writer.wait_more(100)
        show(number, timeline(agent, volume, kills[-1], writer.stalls(kills)["kills"][-1]))
    step("stopping the writer, reading everything back")
    writer.stop()
    first = writer.verify(kills)
    step("unpublishing, unstaging, staging again, reading everything back once more")
    volume.unpublish(patience=30)
    volume.unstage(patience=30)
    volume.expect_gone()
    volume.stage()
    second = writer.verify(kills, os.path.join(volume.staged_path, "data"))
    volume.unstage(patience=30)
    volume.expect_gone()
    agent.stop()
    drawn = os.path.join(os.environ["CORBD_OUT"], "latency.svg")
    picture.draw(writer.journal, kills, drawn)
    step("the latency of every write around each kill is drawn in " + os.path.relpath(drawn))
    lost, errors = max(first["lost"], second["lost"]), second["errors"]
    print("\n  longest stall              %8.2f s" % (second["longest_stall_us"] / 1e6))
    print("  writes acknowledged        %8d" % second["acked"])
    print("  writes lost                %8d" % lost)
    print("  I/O errors seen            %8d\n" % errors, flush=True)
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
