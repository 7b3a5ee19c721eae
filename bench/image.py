#!/usr/bin/env python3
"""Measures a server of RBD images beside its peers, without a kernel: image.py [--seconds S] [--rounds N] [--points quick|busy|all] [--io-threads N...] OUT.json
Each subject of bench/peers.json serves the same images of a real cluster in turn, and fio asks for 4 KiB at random places. `serves`: one process for all images, or one
for each, which fio reaches by NBD; `fio`: fio is itself the client of the cluster. --io-threads 1 2: corbd once with one io thread and once with two, in turn, as
`corbd` and `corbd-2io`. CORBD_LAB_* name the cluster (scripts/lab/ceph env DIR)."""
import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fio  # noqa: E402

IMAGE_BYTES = 1 << 30
VOLUMES = 8
POINTS = [(kind, depth, volumes) for kind in ("randread", "randwrite") for depth, volumes in ((1, 1), (16, 1), (64, 1), (16, VOLUMES))]
BUSY = [(kind, depth, VOLUMES) for kind in ("randread", "randwrite") for depth in (1, 16, 64)]
QUICK = [("randread", 16, 1), ("randwrite", 16, 1)]
CHOICES = {"all": POINTS, "busy": BUSY, "quick": QUICK}


class Bench:
    def __init__(self, seconds):
        self.seconds = seconds
        self.folder = tempfile.mkdtemp(prefix="corbd-bench-")
        self.names = {"bench": os.path.join(HERE, "../build/release/corbd-bench"), "folder": self.folder, "pool": os.environ["CORBD_LAB_POOL"],
                      "user": os.environ["CORBD_LAB_USER"], "conf": os.path.join(self.folder, "ceph.conf")}
        with open(os.path.join(self.folder, "keyring"), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("[client.%s]\nkey = %s\n" % (self.names["user"], os.environ["CORBD_LAB_KEY"]))
        # As the agent has it: an acknowledged write is stored. librbd's cache would compare something else.
        with open(self.names["conf"], "w") as file:
            file.write("[global]\nmon_host = %s\nkeyring = %s/keyring\nrbd_cache = false\nlog_file =\n" % (os.environ["CORBD_LAB_MON"], self.folder))
        self.env = dict(os.environ, CEPH_CONF=self.names["conf"])
        self.images = ["bench-%d" % number for number in range(VOLUMES)]

    def fill(self, words, image):
        return [word.format(image=image, **self.names) for word in words]

    def rbd(self, *words):
        subprocess.run(["rbd", "-c", self.names["conf"], "--id", self.names["user"], "-p", self.names["pool"], *words], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def make_images(self):
        """Every block is written once: a read of what never was is answered without a look at the disk."""
        for image in self.images:
            subprocess.run(["rbd", "-c", self.names["conf"], "--id", self.names["user"], "-p", self.names["pool"], "rm", image], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.rbd("create", "--size", str(IMAGE_BYTES >> 20), "--image-feature", "layering,exclusive-lock", image)
            fio.run([["--ioengine=rbd", "--clientname=" + self.names["user"], "--pool=" + self.names["pool"], "--rbdname=" + image]],
                    ["--rw=write", "--bs=1M", "--iodepth=16"], self.env, self.folder)

    def remove(self):
        for image in self.images:
            try:
                self.rbd("rm", image)
            except subprocess.CalledProcessError:
                print("bench: image %s is left" % image, file=sys.stderr)
        shutil.rmtree(self.folder)

    def begin(self, peer, images):
        """The subject's processes, when each image can be reached. The last word of a command that serves all images is repeated for each."""
        words = peer["command"]
        if peer["serves"] == "all":
            commands = [self.fill(words[:-1], "") + [word for image in images for word in self.fill(words[-1:], image)]]
        else:
            commands = [self.fill(words, image) for image in images]
        log = open(os.path.join(self.folder, "servers.log"), "a")
        servers = [subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command in commands]
        end = time.monotonic() + 60
        while not all(os.path.exists(os.path.join(self.folder, image + ".sock")) for image in images):
            if time.monotonic() > end or any(server.poll() is not None for server in servers):
                raise RuntimeError("%s does not serve: see %s" % (commands[0][0], log.name))
            time.sleep(0.05)
        return servers

    def end(self, servers, images):
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(60)
        for image in images:
            path = os.path.join(self.folder, image + ".sock")
            if os.path.exists(path):
                os.unlink(path)

    def measure(self, peer, kind, depth, volumes):
        images = self.images[:volumes]
        if "fio" in peer:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = self.timed([self.fill(peer["fio"], image) for image in images], kind, depth)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        else:
            servers = self.begin(peer, images)
            try:
                jobs = [["--ioengine=nbd", "--uri=nbd+unix:///?socket=%s/%s.sock" % (self.folder, image)] for image in images]
                before = sum(cpu_of(server.pid) for server in servers)
                found = self.timed(jobs, kind, depth)
                cpu = sum(cpu_of(server.pid) for server in servers) - before
            finally:
                self.end(servers, images)
        found.pop("io_bytes")
        return dict(found, cpu_us=cpu * 1e6 / found.pop("requests"))

    def timed(self, jobs, kind, depth):
        return fio.timed(jobs, kind, depth, self.seconds, env=self.env, folder=self.folder)


def cpu_of(pid):
    """Seconds, of all its threads."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_threads(peers, numbers):
    """corbd once for each number of io threads, then the others."""
    ours, found = peers["corbd"], {}
    for number in numbers:
        command = [word.replace("{io_threads}", str(number)) for word in ours["command"]]
        found["corbd" if number == 1 else "corbd-%dio" % number] = dict(ours, command=command)
    return {**found, **{name: peer for name, peer in peers.items() if name != "corbd"}}


def middle(rounds):
    """The round in the middle by IOPS, with the least and the most."""
    ordered = sorted(rounds, key=lambda one: one["iops"])
    return dict(ordered[len(ordered) // 2], iops_least=ordered[0]["iops"], iops_most=ordered[-1]["iops"], cpu_us=statistics.median(one["cpu_us"] for one in rounds))


def main():
    # So that a signal ends the servers too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", choices=sorted(CHOICES), default="all")
    parser.add_argument("--io-threads", type=int, nargs="+", default=[1], metavar="N", help="of corbd")
    parser.add_argument("out")
    options = parser.parse_args()
    peers = with_threads(json.load(open(os.path.join(HERE, "peers.json")))["image"], options.io_threads)
    bench, figures = Bench(options.seconds), []
    try:
        bench.make_images()
        print("%-10s %6s %8s %-10s %10s %10s %10s %14s" % ("", "depth", "volumes", "", "IOPS", "p50 us", "p99 us", "CPU us/request"))
        for kind, depth, volumes in CHOICES[options.points]:
            rounds = {name: [] for name in peers}
            for _ in range(options.rounds):
                for name, peer in peers.items():
                    rounds[name].append(bench.measure(peer, kind, depth, volumes))
            for name in peers:
                figure = dict(middle(rounds[name]), bench="image", kind=kind, bytes=4096, depth=depth, volumes=volumes, subject=name)
                figures.append(figure)
                print("%-10s %6d %8d %-10s %10.0f %10.0f %10.0f %14.1f" % (kind, depth, volumes, name, figure["iops"], figure["p50_us"], figure["p99_us"], figure["cpu_us"]),
                      flush=True)
    finally:
        bench.remove()
    with open(options.out, "w") as file:
        json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
