"""The machine under the stories: where the programs are, files, mounts, devices, processes."""
import glob
import os
import subprocess

from checks import Failed

REPO = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("CORBD_LAB_BUILD", os.path.join(REPO, "build", "release"))
CORBD = os.path.join(BUILD, "corbd")
# Debian testing, as tests/lab/debian makes it: its tools and its Ceph are those of the shipped image.
NEWER = os.path.join(os.environ.get("XDG_CACHE_HOME", "/var/cache"), "corbd-lab/debian-forky")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def read(path, default=""):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return default


def put(path, text):
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def mounts():
    """(target, filesystem type, source, root) of every mount, as the kernel says."""
    found = []
    for line in read("/proc/self/mountinfo").splitlines():
        left, right = line.split(" - ", 1)
        fields, tail = left.split(), right.split()
        found.append((fields[4].replace("\\040", " "), tail[0], tail[1], fields[3]))
    return found


def mounted(target):
    return any(mount[0] == target for mount in mounts())


def devices():
    """index -> {backend, pid, size} of every connected nbd device."""
    found = {}
    for path in glob.glob("/sys/block/nbd*"):
        if os.path.exists(path + "/pid"):
            found[int(os.path.basename(path)[3:])] = {
                "backend": read(path + "/backend"), "pid": read(path + "/pid"), "size": int(read(path + "/size", "0")) * 512}
    return found


def parent_of(pid):
    """0: it has ended."""
    found = read("/proc/%d/stat" % pid).rpartition(") ")[2].split()
    return int(found[1]) if found else 0


def agents(of):
    """Process IDs of agents among processes that were started as such: their keepers are not."""
    found = list(of)
    parents = {parent_of(pid) for pid in found}
    return sorted(pid for pid in found if pid not in parents)


def child_of(keeper):
    """Its agent; 0 while there is none."""
    found = read("/proc/%d/task/%d/children" % (keeper, keeper)).split()
    return int(found[0]) if found else 0


def processes(text):
    """pid -> command line of the live processes whose command line contains text."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if text in line:
            found[int(path.split("/")[2])] = line
    return found


def run(argv, timeout=120, ok=True, **more):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **more)
    if ok and done.returncode != 0:
        raise Failed("%s: exit code %d: %s" % (" ".join(argv), done.returncode, done.stdout[-500:]))
    return done.stdout
