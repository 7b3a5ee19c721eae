"""Plays the container runtime for a volume of a pod with `hostUsers: false` (KEP-127) or `recursiveReadOnly` (KEP-3857).

    pod.py SOURCE TARGET USER:GROUP write|read PROGRAM ARGUMENT...    TARGET must exist; PROGRAM's path is the machine's

The runtime copies the published mount, changes the copy before anybody sees it, and puts it into the container's mount namespace: containerd at 168ec21d,
core/mount/mount_idmapped_linux.go; runc, libcontainer/mount_linux.go. `read` also makes every mount of the copy read-only. USER and GROUP are the container's:
0 is FIRST on the machine.
"""
import ctypes
import os
import signal
import struct
import sys

FIRST, COUNT = 100000, 65536  # kubelet gives each pod such a range
NEWNS, NEWUSER = 0x20000, 0x10000000  # of unshare(2)
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # system calls, on every processor
CLONE, EMPTY_PATH, RECURSIVE, MOVE_EMPTY_PATH = 0x1, 0x1000, 0x8000, 0x4
IDMAP, READ_ONLY = 0x100000, 0x1
SLAVE_TREE = 0x4000 | 0x80000  # MS_REC, MS_SLAVE
NOWHERE = -9

libc = ctypes.CDLL(None, use_errno=True)


def call(what, function, *words):
    done = function(*[word if isinstance(word, (bytes, type(None))) else ctypes.c_long(word) for word in words])
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))
    return done


def user_namespace():
    """A descriptor of a new one with the pod's range."""
    ready, made = os.pipe()
    child = os.fork()
    if child == 0:
        call("unshare", libc.unshare, NEWUSER)
        os.write(made, b"x")
        signal.pause()
    os.read(ready, 1)
    for kind in ("uid", "gid"):
        with open("/proc/%d/%s_map" % (child, kind), "w") as file:
            file.write("0 %d %d" % (FIRST, COUNT))
    found = os.open("/proc/%d/ns/user" % child, os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


def change(tree, flags, attributes, namespace=0):
    wanted = struct.pack("QQQQ", attributes, 0, 0, namespace)
    call("mount_setattr", libc.syscall, MOUNT_SETATTR, tree, b"", EMPTY_PATH | flags, wanted, len(wanted))


def become(source, target, user, group, writes, argv):
    program = os.open(argv[0], os.O_RDONLY)  # the folders above it may be root's alone
    namespace = user_namespace()
    recursive = 0 if writes else RECURSIVE
    tree = call("open_tree", libc.syscall, OPEN_TREE, NOWHERE, source.encode(), CLONE | os.O_CLOEXEC | EMPTY_PATH | recursive)
    change(tree, recursive, IDMAP, namespace)
    if not writes:
        change(tree, RECURSIVE, READ_ONLY)
    call("setns", libc.setns, namespace, NEWUSER)
    call("unshare", libc.unshare, NEWNS)
    call("mount", libc.mount, None, b"/", None, SLAVE_TREE, None)
    call("move_mount", libc.syscall, MOVE_MOUNT, tree, b"", NOWHERE, target.encode(), MOVE_EMPTY_PATH)
    os.close(tree)
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    os.execve(program, argv, os.environ)


if __name__ == "__main__":
    owner, group_of_owner = (int(one) for one in sys.argv[3].split(":"))
    become(sys.argv[1], sys.argv[2], owner, group_of_owner, sys.argv[4] == "write", sys.argv[5:])
