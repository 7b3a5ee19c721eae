#!/usr/bin/env python3
"""A second node for a story: another guest on the same cluster, with an address, a kernel and a folder of its own.

The story asks, and the second guest does: ask("stage", timeout=15) calls that method of the story's part for the second node, and returns what it
returned. Calls are files in the shared folder (control.py), so they need no network. In the second guest: node.py STORY MODULE.CLASS.
"""
import importlib
import json
import os
import shutil
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import calls  # noqa: E402
import control  # noqa: E402
from checks import Failed, Skip, say  # noqa: E402
from lab import Lab  # noqa: E402
from machine import BUILD  # noqa: E402


class Node:
    """In the story: the second guest. It ends with the story, however the story ends. disk: its root stays over its boots, and systemd boots it.
    boot: more words for its kernel's command line."""

    def __init__(self, lab, name, part, disk=False, boot=""):
        if not lab.tap:
            raise Skip("a second node needs a guest with a network of its own: --guest uml")
        if disk and not os.path.exists("/lib/systemd/systemd"):
            raise Skip("no systemd, which boots a host with a disk of its own: scripts/setup installs it")
        self.lab, self.name, self.out = lab, name, os.path.join(lab.out, name)
        # One of an earlier boot.
        shutil.rmtree(self.out, ignore_errors=True)
        self.argv = [self.out, lab.story, "%s.%s" % (part.__module__, part.__name__), self.out + ".disk" if disk else "", boot]
        self.boot()

    def boot(self):
        self.lab.admin("node", "start", *self.argv, timeout=180)

    def ask(self, method, *arguments, patience=180, **options):
        """What the method returns, as JSON passes it. patience: how long to wait for that."""
        code, out, err = control.call([method, list(arguments), options], os.path.join(self.out, control.NODE_FOLDER), patience)
        if code != 0:
            raise Failed("%s: %s: %s" % (self.name, method, err))
        return json.loads(out)

    def cut_power(self):
        self.lab.admin("node", "cut", self.out)

    def wait_gone(self):
        """Until it has shut itself down."""
        self.lab.admin("node", "gone", self.out, timeout=180)

    def end(self):
        """Clean, or the story fails."""
        self.lab.admin("node", "end", timeout=180)

    def give(self, path):
        """Passes a file to the second guest; its path there."""
        return shutil.copy(path, self.out)


def main():
    story, name = sys.argv[1:]
    calls.load(BUILD)
    lab = Lab(story)
    module, kind = name.split(".")
    part = getattr(importlib.import_module(module), kind)(lab)

    def execute(argv, _):
        method, arguments, options = argv
        say("%s %s %s" % (method, arguments, options))
        try:
            return {"code": 0, "out": json.dumps(getattr(part, method)(*arguments, **options)), "err": ""}
        except Exception as error:
            if not isinstance(error, Failed):
                say(traceback.format_exc().replace("\n", "\n# "))
            lab.diagnose()
            getattr(part, "diagnose", lambda: None)()
            return {"code": 1, "out": "", "err": str(error) if isinstance(error, Failed) else repr(error)}
    folder = os.path.join(os.environ["CORBD_OUT"], control.NODE_FOLDER)
    control.serve(folder, execute, lambda: os.path.exists(os.path.join(folder, "end")))
    return 0 if lab.clean() else 1


if __name__ == "__main__":
    sys.exit(main())
