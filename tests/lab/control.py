"""Passes commands from a guest to the machine that runs the cluster, as files in the shared results folder.

On the machine: control.py OUT CEPH_DIR. In the guest: control.call(["rbd", "create", ...]).
Commands: rbd, ceph and rados with the admin's key; `osd stop|cont`, `osd|mon|mgr restart`, `mon move`, `link down|up` and more of the test cluster, as
scripts/lab/ceph has them; the same after `second`, of a cluster that `second start TICKETS [--three]` makes, with tickets of so many seconds, and `second stop`
ends; `tap NAME down|up`, one guest's network;
`node start FOLDER STORY PART DISK BOOT`, `node cut FOLDER`, `node gone FOLDER` and `node end`, a second guest (node.py) with a disk, or "", and more words for its kernel; `packages FOLDER`, Debian packages
of the build; `postgres FOLDER`, Debian's PostgreSQL; `images ARCHIVE...`, images of releases, unpacked (oci.py).
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = ".control"
DAEMONS = ("osd", "mon", "mgr", "link")  # scripts/lab/ceph takes a word about these
NODE_FOLDER = ".node"  # of the calls to a second guest
DISK_SIZE = "2G"  # of a second guest's disk; sparse


def call(argv, folder=None, timeout=60):
    """(exit code, stdout, stderr) of the command at the other end: on the machine, unless folder says where else."""
    folder = folder or os.path.join(os.environ["CORBD_OUT"], FOLDER)
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
    raise TimeoutError("no answer to %s: does the other end of %s run?" % (argv, folder))


def serve(folder, execute, until=lambda: False):
    """Answers every call with execute(argv, timeout): {"code": ..., "out": ..., "err": ...}."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    taken = set()
    while not until():
        now = {name for name in os.listdir(folder) if name.endswith(".req")}
        for name in now - taken:
            threading.Thread(target=answer, args=(os.path.join(folder, name), execute), daemon=True).start()
        taken = now
        time.sleep(0.02)


def answer(request, execute):
    with open(request) as file:
        asked = json.load(file)
    os.unlink(request)
    reply = request[: -len(".req")] + ".rep"
    with open(reply + ".tmp", "w") as file:
        json.dump(execute(asked["argv"], asked["timeout"]), file)
    os.rename(reply + ".tmp", reply)


# --- on the machine

def run(argv, timeout, **more):
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **more)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    except subprocess.TimeoutExpired:
        return {"code": 124, "out": "", "err": "%s did not end within %d s" % (argv, timeout)}


def refuse(why):
    return {"code": 127, "out": "", "err": why}


def cut(tap, down, timeout):
    """Drops what comes from a guest and what goes to it, or lets it through again. Nobody is told, as with a cable that is pulled out. The guest keeps
    its address, and the cut ends with the tap. If the tap itself were set down, the driver in the guest would fail for good."""
    try:
        with open("/proc/sys/net/ipv4/conf/%s/forwarding" % tap, "w") as file:
            file.write("0" if down else "1")
    except OSError as error:
        return refuse(str(error))
    return run(["tc", "qdisc", "replace", "dev", tap, "root", "blackhole" if down else "pfifo"], timeout)


class Machine:
    def __init__(self, ceph_dir):
        self.ceph_dir = ceph_dir
        self.scripts = os.path.join(HERE, "..", "..", "scripts", "lab")
        self.nodes = []  # (folder, process) of each second guest
        self.disks = []

    def execute(self, argv, timeout):
        if argv[0] == "second":
            return self.second(argv[1:], timeout)
        if argv[0] in DAEMONS:
            return self.ceph(argv[0], self.ceph_dir, *argv[1:], timeout=timeout)
        if argv[0] == "tap" and argv[1].startswith("crbdt"):
            return cut(argv[1], argv[2] == "down", timeout)
        if argv[:2] == ["node", "start"]:
            return self.start_node(argv[2:5], *argv[5:7], timeout)
        if argv[:2] in (["node", "cut"], ["node", "gone"]):
            return self.lose_node(argv[2], argv[1] == "cut", timeout)
        if argv == ["node", "end"]:
            return self.end_nodes()
        if argv[0] in ("packages", "postgres"):
            return run([os.path.join(HERE, argv[0]), argv[1]], timeout)
        if argv[0] == "images":
            return run([os.path.join(HERE, "oci.py"), os.path.join(HERE, "../../build/lab/images"), *argv[1:]], timeout)
        return self.ask_cluster(argv, timeout)

    def ceph(self, action, folder, *more, timeout, **environment):
        return run([os.path.join(self.scripts, "ceph"), action, folder, *more], timeout, env=dict(os.environ, **environment))

    def second(self, argv, timeout):
        folder = self.ceph_dir + "-second"
        if argv[0] == "start":
            made = self.ceph("start", folder, *argv[2:], timeout=timeout, CORBD_LAB_TICKETS=argv[1], CORBD_LAB_OSD_BYTES=str(2 << 30))
            return made if made["code"] != 0 else self.ceph("env", folder, timeout=timeout)
        if argv[0] in ("stop", *DAEMONS):
            return self.ceph(argv[0], folder, *argv[1:], timeout=timeout) if os.path.isdir(folder) else refuse("there is no second cluster")
        return self.ask_cluster(argv, timeout, folder)

    def ask_cluster(self, argv, timeout, folder=None):
        if argv[0] not in ("rbd", "ceph", "rados"):
            return refuse("unknown command " + argv[0])
        return run([argv[0], "-c", os.path.join(folder or self.ceph_dir, "ceph.conf")] + argv[1:], timeout)

    def start_node(self, node, disk, boot, timeout):
        """Returns once the second guest answers. node: folder, story, part. disk: "", or the file of its disk, which is made for its first boot."""
        folder = node[0]
        os.makedirs(folder, exist_ok=True)
        shutil.rmtree(os.path.join(folder, NODE_FOLDER), ignore_errors=True)
        if disk:
            self.disks.append(disk)
            if not os.path.exists(disk):
                made = run(["mkfs.ext4", "-q", disk, DISK_SIZE], timeout)
                if made["code"] != 0:
                    return made
        threading.Thread(target=self.keep_node, args=(*node, disk, boot), daemon=True).start()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if os.path.isdir(os.path.join(folder, NODE_FOLDER)):
                return {"code": 0, "out": "", "err": ""}
            if any(where == folder and process.poll() is not None for where, process in self.nodes):
                break
            time.sleep(0.1)
        return refuse("the second guest does not answer; its log is %s/log" % folder)

    def keep_node(self, folder, story, part, disk, boot):
        # The guest must not outlive this program. A thread of its own waits for it, because pdeathsig comes when the thread ends that began it.
        argv = ["setpriv", "--pdeathsig", "TERM", os.path.join(self.scripts, "guest"), "--guest", "uml", "--",
                "python3", "-u", "tests/lab/node.py", story, part]
        with open(os.path.join(folder, "log"), "ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=dict(os.environ, CORBD_OUT=folder, CORBD_LAB_DISK=disk, CORBD_LAB_BOOT=boot))
        self.nodes.append((folder, process))
        # It may ask the cluster, and nothing else: the rest is the story's.
        serve(os.path.join(folder, FOLDER), self.ask_cluster, lambda: process.poll() is not None)

    def lose_node(self, folder, cut, timeout):
        """A second guest without power, or one that shuts down by itself. Its folder and its disk stay."""
        for node in [node for node in self.nodes if node[0] == folder]:
            if cut:
                node[1].terminate()
            try:
                node[1].wait(timeout)
            except subprocess.TimeoutExpired:
                return refuse("the second guest does not end within %d s" % timeout)
            self.nodes.remove(node)
        return {"code": 0, "out": "", "err": ""}

    def end_nodes(self):
        left = self.nodes
        self.nodes = []
        for folder, _ in left:
            if os.path.isdir(os.path.join(folder, NODE_FOLDER)):
                open(os.path.join(folder, NODE_FOLDER, "end"), "w").close()
        code = 0
        for _, process in left:
            for patience, end in ((60, process.terminate), (20, process.kill), (5, lambda: None)):
                try:
                    code = process.wait(patience) or code
                    break
                except subprocess.TimeoutExpired:
                    end()
        for disk in self.disks:
            if os.path.exists(disk):
                os.unlink(disk)
        self.disks = []
        if left:
            # A story that failed may have left a node fenced, and the next story's clients have the same address.
            self.ask_cluster(["ceph", "osd", "blocklist", "clear"], 60)
        return {"code": code, "out": "", "err": "a second guest did not end cleanly" if code else ""}


if __name__ == "__main__":
    serve(os.path.join(sys.argv[1], FOLDER), Machine(sys.argv[2]).execute)
