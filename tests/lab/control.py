"""Passes commands from the guest to the machine that runs the cluster, as files in the shared results folder.

On the machine: control.py OUT CEPH_DIR. In the guest: control.call(["rbd", "create", ...]).
Commands: rbd, ceph and rados with the admin's key; `osd stop|cont` and `link down|up` of the test cluster.
"""
import json
import os
import subprocess
import sys
import threading
import time

FOLDER = ".control"


def call(argv, out=None, timeout=60):
    """(exit code, stdout, stderr) of the command on the machine."""
    folder = os.path.join(out or os.environ["CORBD_OUT"], FOLDER)
    name = "%d-%d" % (time.time_ns(), threading.get_ident())
    request, reply = (os.path.join(folder, name + end) for end in (".req", ".rep"))
    with open(request + ".tmp", "w") as file:
        json.dump({"argv": argv, "timeout": timeout}, file)
    os.rename(request + ".tmp", request)
    deadline = time.monotonic() + timeout + 10
    while time.monotonic() < deadline:
        try:
            with open(reply) as file:
                answer = json.load(file)
        except FileNotFoundError:
            time.sleep(0.05)
            continue
        os.unlink(reply)
        return answer["code"], answer["out"], answer["err"]
    raise TimeoutError("no answer to %s: does control.py run?" % argv)


def execute(argv, timeout, ceph_dir):
    lab = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "lab", "ceph")
    if argv[0] in ("rbd", "ceph", "rados"):
        argv = [argv[0], "-c", os.path.join(ceph_dir, "ceph.conf")] + argv[1:]
    elif argv[0] in ("osd", "link"):
        argv = [lab, argv[0], ceph_dir] + argv[1:]
    else:
        return {"code": 127, "out": "", "err": "unknown command " + argv[0]}
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    except subprocess.TimeoutExpired:
        return {"code": 124, "out": "", "err": "%s did not end within %d s" % (argv, timeout)}


def answer(request, ceph_dir):
    with open(request) as file:
        asked = json.load(file)
    os.unlink(request)
    reply = request[: -len(".req")] + ".rep"
    with open(reply + ".tmp", "w") as file:
        json.dump(execute(asked["argv"], asked["timeout"], ceph_dir), file)
    os.rename(reply + ".tmp", reply)


def serve(out, ceph_dir):
    folder = os.path.join(out, FOLDER)
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    taken = set()
    while True:
        now = {name for name in os.listdir(folder) if name.endswith(".req")}
        for name in now - taken:
            threading.Thread(target=answer, args=(os.path.join(folder, name), ceph_dir), daemon=True).start()
        taken = now
        time.sleep(0.02)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
