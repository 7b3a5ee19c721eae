#!/usr/bin/env python3
"""Runs the stories: every function story_* of the files stories_*.py. Each runs in a process of its own, with a time limit.

Usage: run_in_guest.py [--list] [--long] [NAME...]
The first docstring line of a story is the sentence that is printed: `ok N - sentence`, `not ok N - sentence # why`, `ok N - sentence # SKIP why`.
$CORBD_OUT/results.jsonl lists the finished stories. A second run with that file goes on after them. Exit codes: 0, all stories are finished and none
failed; 1, a story failed; 75, the remaining stories need a new boot, because the kernel is not usable any more.
"""
import argparse
import glob
import importlib
import json
import os
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import calls  # noqa: E402
from agent import Agent  # noqa: E402
from checks import Failed, Skip, say  # noqa: E402
from lab import Lab  # noqa: E402
from machine import BUILD, put, read  # noqa: E402

LIMIT = 240


def stories():
    found = []
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stories_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        found += [value for name, value in vars(module).items() if name.startswith("story_")]
    return found


def sentence(story):
    return story.__doc__.strip().splitlines()[0].rstrip(".")


def is_long(story):
    return getattr(story, "long", False)


def work(story, name):
    """In the child: exit code 0 done, 77 skipped, 1 failed; the reason of the last two goes to a file."""
    lab = Lab(name)
    try:
        story(lab)
        code = 0
    except Skip as skip:
        put(os.path.join(lab.out, "why"), str(skip))
        code = 77
    except BaseException as error:
        put(os.path.join(lab.out, "why"), str(error) if isinstance(error, Failed) else repr(error))
        if not isinstance(error, Failed):
            say(traceback.format_exc().replace("\n", "\n# "))
        lab.diagnose()
        code = 1
    clean = lab.clean()
    if code == 0 and not clean:
        put(os.path.join(lab.out, "why"), "it left something behind")
    sys.stdout.flush()
    # A story that left something behind did not pass.
    os._exit(code if clean else 76 if code == 1 else 78)


def attempt(story, name, limit):
    """(status, clean)."""
    child = os.fork()
    if child == 0:
        os.setsid()
        work(story, name)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return {0: ("ok", True), 77: ("skip", True), 76: ("not ok", False), 78: ("not ok", False)}.get(code, ("not ok", code == 1))
        time.sleep(0.05)
    lab = Lab(name)
    put(os.path.join(lab.out, "why"), "not done after %d s" % limit)
    lab.agents = [Agent(lab)]
    lab.diagnose()
    os.kill(child, signal.SIGKILL)
    return "not ok", lab.clean()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--list", action="store_true", help="every story; long: not without --long or its name")
    options.add_argument("--long", action="store_true")
    options.add_argument("names", nargs="*")
    options = options.parse_args()
    if options.list:
        for story in stories():
            print("%-5s %-36s %s" % ("long" if is_long(story) else "", story.__name__[6:], sentence(story)))
        return 0
    unknown = set(options.names) - {story.__name__[6:] for story in stories()}
    if unknown:
        print("no story %s; --list shows them" % ", ".join(sorted(unknown)), file=sys.stderr)
        return 2
    chosen = [story for story in stories()
              if story.__name__[6:] in options.names or not options.names and (options.long or not is_long(story))]
    calls.load(BUILD)
    results = os.path.join(os.environ["CORBD_OUT"], "results.jsonl")
    done = {}
    if os.path.exists(results):
        for line in open(results):
            entry = json.loads(line)
            done[entry["story"]] = entry["status"]

    def keep(name, status, **more):
        with open(results, "a") as file:
            file.write(json.dumps(dict(story=name, status=status, **more)) + "\n")

    failed = False
    for number, story in enumerate(chosen, 1):
        name = story.__name__[6:]
        if done.get(name) == "begun":
            # The kernel died in the middle of this story.
            why = "the guest ended in it"
            print("not ok %d - %s # %s" % (number, sentence(story), why), flush=True)
            keep(name, "not ok", sentence=sentence(story), why=why)
            failed = True
        if name in done:
            continue
        keep(name, "begun")
        begin = time.monotonic()
        status, clean = attempt(story, name, getattr(story, "limit", LIMIT))
        took = time.monotonic() - begin
        why = " ".join(read(os.path.join(os.environ["CORBD_OUT"], "stories", name, "why")).split()) if status != "ok" else ""
        print("%s %d - %s (%.0f s)%s" % ("ok" if status == "skip" else status, number, sentence(story), took,
                                         {"skip": " # SKIP " + why, "not ok": " # " + why}.get(status, "")), flush=True)
        keep(name, status, sentence=sentence(story), seconds=round(took, 1), why=why)
        failed = failed or status == "not ok"
        if not clean:
            say("this kernel is not clean any more: the rest needs a new boot")
            return 75
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
