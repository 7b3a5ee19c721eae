"""corbd-bench in the guest: corbd beside rbd-nbd and krbd, in the same kernel and the same run. Emulation makes every absolute figure worthless: read the ratios.
A User Mode Linux only shows that it works, with few volumes."""
import json
import os
import shlex
import subprocess

from checks import check, long, say
from machine import BUILD, GIB, MIB, run

BENCH = os.path.join(BUILD, "corbd-bench")
AT_ONCE = "8"
# Until spare helpers have ended and buffers of the peak are given back, each after 10 s.
SETTLE = "15"


def small(lab):
    return os.environ.get("CORBD_LAB_WHERE") == "uml"


def bench(lab, *words, limit=900, codes=(0,)):
    done = subprocess.run([BENCH, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
                          env=dict(os.environ, PATH=os.path.join(lab.dir, "bin") + ":" + os.environ["PATH"]))
    for line in done.stdout.splitlines():
        say(line[:300])
    check(done.returncode in codes, "corbd-bench %s: exit code %d" % (words[0], done.returncode))


def keep(name, path, round_number=None):
    """Adds the figures of a file to those of this bench, and removes the file."""
    kept = os.path.join(os.environ["CORBD_OUT"], name + ".json")
    figures = json.load(open(kept)) if os.path.exists(kept) else []
    more = json.load(open(path)) if os.path.exists(path) else []
    if os.path.exists(path):
        os.unlink(path)
    for one in more:
        if round_number is not None:
            one["round"] = round_number
    with open(kept, "w") as file:
        json.dump(figures + more, file, indent=1)


def node(lab, agent, images, command=(), block=False, round_number=None, **more):
    """Our agent's volumes, by its CSI socket. Also the figures of one that failed are kept."""
    volumes = lab.write("volumes.json", json.dumps({
        "volumes": [image.name for image in images], "block": block, "fstype": "" if block else "ext4",
        "volume_context": {"staticVolume": "true", "clusterID": "lab", "pool": images[0].pool, "mounter": "rbd-nbd"},
        "secrets": {"userID": lab.user, "userKey": lab.key}}))
    root = os.path.join(lab.kubelet, "bench")
    os.makedirs(root, exist_ok=True)
    figures = os.path.join(lab.dir, "node.json")
    try:
        bench(lab, "node", "--endpoint", agent.endpoint, "--volumes", volumes, "--root", root, "--at-once", AT_ONCE, "--subject", "corbd", "--json", figures,
              *(["--", *command] if command else ["--settle", SETTLE]), **more)
    finally:
        if not command:
            keep("node", figures, round_number)


def peer(lab, name, images, command=(), block=False, round_number=None, **more):
    """The same volumes, by the commands of bench/peers.json."""
    root = os.path.join(lab.dir, "peer")
    os.makedirs(root, exist_ok=True)
    figures = os.path.join(lab.dir, "peer.json")
    try:
        bench(lab, "peer", "--at-once", AT_ONCE, "--conf", lab.conf, "--root", root, "--json", figures, *(["--block"] if block else []),
              *([] if command else ["--settle", SETTLE]), name,
              *[image.spec for image in images], *(["--", *command] if command else []), **more)
    finally:
        if not command:
            keep("node", figures, round_number)


@long
def story_node_compared(lab):
    """stage and publish of many fresh ext4 volumes, 8 at once, and what they cost, beside rbd-nbd with blkid, mkfs and mount"""
    count, rounds = (4, 1) if small(lab) else (100, 1)
    for round_number in range(rounds):
        ours = [lab.image("ours-%d-%03d" % (round_number, number), size=GIB) for number in range(count)]
        agent = lab.agent().start()
        node(lab, agent, ours, round_number=round_number)
        agent.stop()
        theirs = [lab.image("peer-%d-%03d" % (round_number, number), size=GIB) for number in range(count)]
        peer(lab, "rbd-nbd", theirs, round_number=round_number)


@long
def story_heal_compared(lab):
    """SIGKILL of the server under many writers until the last volume is written again, beside `rbd-nbd attach` of all in parallel"""
    count, rounds = (4, 1) if small(lab) else (64, 3)
    images = [lab.image("%03d" % number, size=64 * MIB) for number in range(count)]
    figures = os.path.join(lab.dir, "heal.json")
    try:
        heal_ours_and_theirs(lab, images, rounds, figures)
    finally:
        keep("heal", figures)


def heal_ours_and_theirs(lab, images, rounds, figures):
    for _ in range(rounds):
        agent = lab.agent().start()
        start = "exec %s >>%s 2>&1" % (shlex.join(agent.argv()), shlex.quote(agent.log_file))
        node(lab, agent, images, [BENCH, "heal", "--keep", "--kill", "kill -9 %d" % agent.process.pid, "--start", start, "--subject", "corbd", "--json", figures],
             block=True)
        lab.end_agents()
    limit = "60" if small(lab) else "400"
    # Those that do not come back are the figure, and rbd-nbd's cache loses writes.
    peer(lab, "rbd-nbd", images, [BENCH, "heal", "--keep", "--limit", limit, "--kill", "sh $CORBD_BENCH_KILL", "--start", "sh $CORBD_BENCH_START", "--subject",
                                  "rbd-nbd", "--json", figures], block=True, codes=(0, 1), limit=1500)
    check(any(one["subject"] == "rbd-nbd" for one in json.load(open(figures))), "rbd-nbd was not measured")


@long
def story_io_compared(lab):
    """IOPS, latency and CPU of 1, 8 and 32 busy devices: corbd, rbd-nbd with and without its cache, and the kernel's client"""
    count, options = (1, ["--points", "quick", "--rounds", "1", "--seconds", "1"]) if small(lab) else (32, ["--seconds", "3"])
    images = [lab.image("%02d" % number, size=64 * MIB, features="layering,exclusive-lock") for number in range(count)]
    for image in images:
        lab.admin("rbd", "bench", "--io-type", "write", "--io-size", "1M", "--io-total", "64M", image.spec)
    figures = os.path.join(lab.dir, "io.json")
    command = [BENCH, "io", "--filled", *options, "--json", figures, "--subject"]
    agent = lab.agent().start()
    try:
        node(lab, agent, images, command + ["corbd"], block=True, limit=1800)
        agent.stop()
        run(["modprobe", "rbd"])
        # Without librbd's cache it answers a write, as we do, when the cluster has it.
        for name in ("rbd-nbd", "rbd-nbd-uncached", "krbd"):
            peer(lab, name, images, command + [name], block=True, limit=1800)
    finally:
        keep("io", figures)


@long
def story_fsync_compared(lab):
    """writes with an fsync after each, on a raw device and by 16 writers on ext4, and PostgreSQL: corbd, rbd-nbd without its cache, and the kernel's client"""
    rounds, seconds = ("1", "1") if small(lab) else ("3", "5")
    raw, files = lab.image("raw", size=64 * MIB, features="layering,exclusive-lock"), lab.image("files", size=GIB, features="layering,exclusive-lock")
    lab.admin("rbd", "bench", "--io-type", "write", "--io-size", "1M", "--io-total", "64M", raw.spec)
    lab.admin("postgres", os.environ["CORBD_OUT"], timeout=300)
    figures, transactions = os.path.join(lab.dir, "io.json"), os.path.join(lab.dir, "pgbench.json")
    common = ["--rounds", rounds, "--seconds", seconds]

    def measure(drive, subject):
        drive([raw], [BENCH, "io", "--filled", "--points", "fsync", *common, "--json", figures, "--subject", subject], True)
        ask = shlex.join([BENCH, "io", "--points", "files", *common, "--json", figures, "--subject", subject])
        ask += " && " + shlex.join([BENCH, "pgbench", "--programs", os.path.join(os.environ["CORBD_OUT"], "postgres"), *common, "--json", transactions, "--subject", subject])
        drive([files], ["sh", "-c", ask], False)

    agent = lab.agent().start()
    try:
        measure(lambda images, command, block: node(lab, agent, images, command, block=block, limit=1200), "corbd")
        agent.stop()
        run(["modprobe", "rbd"])
        # Without librbd's cache it answers a write, as we do, when the cluster has it.
        for name in ("rbd-nbd-uncached", "krbd"):
            measure(lambda images, command, block: peer(lab, name, images, command, block=block, limit=1200), name)
    finally:
        keep("io", figures)
        keep("pgbench", transactions)


story_fsync_compared.limit = 2400
story_node_compared.limit = 1500
story_heal_compared.limit = 2400
story_io_compared.limit = 3000
