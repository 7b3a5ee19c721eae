#!/usr/bin/env python3
"""Starts a CSI driver by its command, drives it as corbd-bench node does, and ends it: corbd-bench driver [--peers FILE] [--set NAME=VALUE]... NAME --root DIR [option of node...]
NAME is a driver of bench/peers.json. {endpoint} and {root} in its command are this run's, --set gives the others. It has 60 s to listen and, after SIGTERM, 60 s to end."""
import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 60  # seconds


def listens(path):
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(path) == 0


def wait_for(driver, path):
    end = time.monotonic() + LIMIT
    while not listens(path):
        if driver.poll() is not None:
            raise SystemExit("corbd-bench: the driver ended with %d before it listened" % driver.returncode)
        if time.monotonic() > end:
            raise SystemExit("corbd-bench: the driver does not listen on %s after %d s" % (path, LIMIT))
        time.sleep(0.05)


def end(driver):
    driver.terminate()
    try:
        driver.wait(LIMIT)
    except subprocess.TimeoutExpired:
        print("corbd-bench: the driver does not end after %d s, and is killed" % LIMIT, file=sys.stderr)
        driver.kill()
        driver.wait()


def read_peer(options):
    with open(options.peers) as file:
        drivers = json.load(file)["driver"]
    if options.name not in drivers:
        raise SystemExit("corbd-bench: %s has no driver %s, only %s" % (options.peers, options.name, ", ".join(sorted(drivers))))
    return drivers[options.name]


def command_of(peer, options, names):
    try:
        return [word.format(**names) for word in shlex.split(peer["command"])]
    except KeyError as missing:
        raise SystemExit("corbd-bench: the command of driver %s needs --set %s=..." % (options.name, missing.args[0])) from missing


def main():
    parser = argparse.ArgumentParser(prog="corbd-bench driver", description=__doc__.split("\n")[0])
    parser.add_argument("--peers", default=os.path.join(HERE, "peers.json"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a name of the driver's command")
    parser.add_argument("--root", required=True)
    parser.add_argument("name")
    options, more = parser.parse_known_args()
    peer = read_peer(options)
    bench = os.environ.get("CORBD_BENCH", os.path.join(HERE, "../build/release/corbd-bench"))
    # So that a signal ends what is below, and not only this.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="corbd-bench-") as folder:
        path = os.path.join(folder, "csi.sock")
        names = dict([one.split("=", 1) for one in options.set], root=options.root, endpoint="unix://" + path)
        driver = subprocess.Popen(command_of(peer, options, names), stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_for(driver, path)
            # In a session of its own, as a Ctrl-C must reach it once: it takes its volumes down, and by a second one it leaves at once.
            node = subprocess.Popen([bench, "node", "--endpoint", names["endpoint"], "--root", options.root, "--pid", str(driver.pid), "--subject", options.name,
                                     *(["--words", peer["processes"]] if "processes" in peer else []), *more], stdin=subprocess.DEVNULL, start_new_session=True)
            while True:
                try:
                    return node.wait()
                except KeyboardInterrupt:
                    node.terminate()
        finally:
            end(driver)


if __name__ == "__main__":
    sys.exit(main())
