#!/usr/bin/env python3
"""PostgreSQL on a filesystem: corbd-bench pgbench --programs DIR [--seconds S] [--rounds N] [--clients N] --subject NAME [--json FILE] [FOLDER]
DIR has PostgreSQL's bin and lib folders below it, as its Debian packages unpack. The server runs as nobody, with fsync on; transactions per second, by pgbench."""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import targets  # noqa: E402

NOBODY = 65534
SCALE = 2


class Server:
    def __init__(self, programs, folder):
        self.bin = glob.glob(os.path.join(programs, "usr/lib/postgresql/*/bin"))[0]
        self.folder = os.path.join(folder, "postgres")
        self.env = dict(os.environ, LC_ALL="C", LD_LIBRARY_PATH=":".join(glob.glob(os.path.join(programs, "usr/lib/*-linux-gnu"))))
        # The path of a socket is short.
        self.sockets = tempfile.mkdtemp(prefix="pgbench-")
        os.makedirs(self.folder, mode=0o700)
        for path in (self.folder, self.sockets):
            os.chown(path, NOBODY, NOBODY)

    def argv(self, program, *words):
        return ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", os.path.join(self.bin, program), *words]

    def run(self, program, *words):
        done = subprocess.run(self.argv(program, *words), env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=900)
        if done.returncode != 0:
            raise RuntimeError("%s: %s%s" % (program, done.stdout[-500:], self.log()[-500:]))
        return done.stdout

    def client(self, program, *words):
        """On the database `postgres`."""
        return self.run(program, "-h", self.sockets, "-U", "bench", *words, "postgres")

    def log(self):
        path = os.path.join(self.folder, "log")
        return open(path).read() if os.path.exists(path) else ""

    def start(self):
        self.run("initdb", "-A", "trust", "-U", "bench", "--data-checksums", "-D", self.folder)
        self.serve()
        self.client("pgbench", "-i", "-q", "-s", str(SCALE))

    def serve(self):
        # A pipe as its output would never end.
        self.run("pg_ctl", "-D", self.folder, "-w", "-t", "300", "-l", os.path.join(self.folder, "log"), "-o", "-k %s -c listen_addresses= -c jit=off" % self.sockets, "start")

    def end(self, mode):
        """fast: as a service is stopped. immediate: the next start recovers from the log, as after a loss of power."""
        self.run("pg_ctl", "-D", self.folder, "-w", "-t", "300", "-m", mode, "stop")

    def transactions(self, seconds, clients):
        """(a second, average latency in ms)."""
        said = self.client("pgbench", "-c", str(clients), "-j", "2", "-T", "%d" % seconds)
        return float(re.search(r"^tps = ([0-9.]+)", said, re.M)[1]), float(re.search(r"^latency average = ([0-9.]+)", said, re.M)[1])

    def end_all(self):
        """Whatever runs, and the folder of its sockets."""
        if os.path.exists(os.path.join(self.folder, "postmaster.pid")):
            self.end("immediate")
        shutil.rmtree(self.sockets, ignore_errors=True)

    def stop(self):
        self.end("fast")
        shutil.rmtree(self.folder)
        shutil.rmtree(self.sockets)


def main():
    parser = argparse.ArgumentParser(prog="corbd-bench pgbench", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    targets.add_to(parser)
    options = parser.parse_args()
    folder, figures = os.path.dirname(targets.paths(options)[0]), []
    server = Server(options.programs, folder)
    server.start()
    try:
        for round_number in range(options.rounds):
            tps, latency = server.transactions(options.seconds, options.clients)
            figures.append({"bench": "pgbench", "subject": options.subject, "kind": "tpcb", "tps": tps, "latency_ms": latency, "clients": options.clients, "round": round_number})
            print("%-17s %3d clients %8.1f transactions/s %8.1f ms" % (options.subject, options.clients, tps, latency), flush=True)
    finally:
        server.stop()
    targets.keep(options.json, figures)


if __name__ == "__main__":
    main()
