"""What goes wrong with a cluster of three monitors and three OSDs (`scripts/lab/ceph start --three`), as Ceph's own thrashers do it (qa/tasks in its source).

Each trouble begins, lasts and ends, and says what writes do meanwhile."""
import json
import sys
import time

from checks import wait_for
from machine import MIB, read, run

FLOW, WAIT = "writes flow", "writes wait"
FULL_RATIOS = {"nearfull": 0.85, "backfillfull": 0.9, "full": 0.95}  # Ceph's own


class Trouble:
    def __init__(self, name, begin, end, meanwhile, lasts=5):
        self.name, self.begin, self.end, self.meanwhile, self.lasts = name, begin, end, meanwhile, lasts


def ceph(lab, *words):
    return lab.admin("ceph", *words, timeout=90)


def each(daemon, word, ids):
    def act(lab):
        for one in ids:
            lab.admin(daemon, word, str(one))
    return act


def killed(daemon, ids, meanwhile, lasts=5):
    return Trouble("%s %s killed" % (daemon, " and ".join(map(str, ids))), each(daemon, "kill", ids), each(daemon, "restart", ids), meanwhile, lasts)


def stopped(daemon, ids, meanwhile, lasts=5):
    return Trouble("%s %s stopped, without an end of its connections" % (daemon, " and ".join(map(str, ids))), each(daemon, "stop", ids),
                   each(daemon, "cont", ids), meanwhile, lasts)


def marked_out(osd):
    return Trouble("osd %s marked out" % osd, lambda lab: ceph(lab, "osd", "out", str(osd)), lambda lab: ceph(lab, "osd", "in", str(osd)), FLOW)


def marked_down(osd):
    """An OSD that lives tells the monitors so, and is up again."""
    return Trouble("osd %s marked down while it lives" % osd, lambda lab: ceph(lab, "osd", "down", str(osd)), lambda lab: None, FLOW)


def set_ratios(lab, reached):
    """The cluster counts as so full, of the steps of FULL_RATIOS; None: as empty as it is."""
    ratios, names = dict(FULL_RATIOS), list(FULL_RATIOS)
    for name in names[: names.index(reached) + 1] if reached else ():
        ratios[name] = 0.001
    # Ceph takes no ratio for less than the one before it, so the highest comes last on the way down, and first on the way up.
    for name in names if reached else reversed(names):
        ceph(lab, "osd", "set-%s-ratio" % name, str(ratios[name]))


def cluster_is(reached, lasts=10):
    return Trouble("the cluster is %s" % reached, lambda lab: set_ratios(lab, reached), lambda lab: set_ratios(lab, None),
                   WAIT if reached == "full" else FLOW, lasts)


def set_quota(lab, pool, size):
    ceph(lab, "osd", "pool", "set-quota", pool, "max_bytes", str(size))


def quota_reached(pool, lasts=10):
    return Trouble("the quota of pool %s is reached" % pool, lambda lab: set_quota(lab, pool, 4096), lambda lab: set_quota(lab, pool, 0), WAIT, lasts)


def fenced_range(network):
    """The node's network is blocklisted by one entry."""
    return Trouble("the network %s is blocklisted" % network, lambda lab: ceph(lab, "osd", "blocklist", "range", "add", network, "3600"),
                   lambda lab: ceph(lab, "osd", "blocklist", "range", "rm", network), WAIT, 20)


def cut_off(lasts=20):
    return Trouble("the network to the cluster is gone", lambda lab: lab.admin("link", "down"), lambda lab: lab.admin("link", "up"), WAIT, lasts)


def pg_num(pool, number):
    """Placement groups are split or merged, and stay so. The end waits for that."""
    def begin(lab):
        for name in ("pg_num", "pgp_num"):
            ceph(lab, "osd", "pool", "set", pool, name, str(number))

    def is_done(lab):
        found = [one for one in json.loads(ceph(lab, "osd", "dump", "--format", "json"))["pools"] if one["pool_name"] == pool]
        return found[0]["pg_num"] == found[0]["pg_placement_num"] == number
    return Trouble("pool %s gets %d placement groups" % (pool, number), begin,
                   lambda lab: wait_for("%d placement groups" % number, lambda: is_done(lab), 180, 1), FLOW)


def paused(flag, lasts=10):
    return Trouble("the flag %s is set" % flag, lambda lab: ceph(lab, "osd", "set", flag), lambda lab: ceph(lab, "osd", "unset", flag), WAIT, lasts)


# --- in the guest

def device_to(lab):
    """The network device by which the guest reaches the cluster."""
    words = run(["ip", "route", "get", lab.mon.split(":")[0]]).split()
    return words[words.index("dev") + 1]


def set_netem(lab, words):
    """What is sent, and by a device of its own what is received, goes through netem; without words no more."""
    device = device_to(lab)
    for which in ("root", "ingress"):
        run(["tc", "qdisc", "del", "dev", device, which], ok=False)
    if not words:
        return
    run(["modprobe", "-a", "sch_netem", "sch_ingress", "cls_matchall", "act_mirred"])
    run(["modprobe", "ifb", "numifbs=1"])
    run(["ip", "link", "set", "ifb0", "up"])
    run(["tc", "qdisc", "add", "dev", device, "ingress"])
    run(["tc", "filter", "add", "dev", device, "ingress", "matchall", "action", "mirred", "egress", "redirect", "dev", "ifb0"])
    for one in ("ifb0", device):
        run(["tc", "qdisc", "replace", "dev", one, "root", "netem", *words])


def bad_network(words, lasts=30):
    return Trouble("the node's network has %s, both ways" % words, lambda lab: set_netem(lab, words.split()), lambda lab: set_netem(lab, []), FLOW, lasts)


def set_clock(seconds):
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)


def clock_off(seconds, lasts=40):
    """The node's clock goes that much ahead, or back. It is right again at the end."""
    return Trouble("the node's clock is %+d s off" % seconds, lambda lab: set_clock(seconds), lambda lab: set_clock(-seconds), FLOW, lasts)


LEFT = 384 * MIB  # of the guest's memory: the agent needs a part of it

HOG = """
import sys, time
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(bytearray(b"x") * (1 << 20))
while True:
    time.sleep(1)
    kept[:] = [bytearray(one) for one in kept[:64]] + kept[64:]
"""


class Pressure:
    """A program takes nearly all memory, and the kernel drops its caches again and again."""

    def __init__(self, lasts=20):
        self.lasts = lasts

    def begin(self, lab):
        available = int(next(line for line in read("/proc/meminfo").splitlines() if line.startswith("MemAvailable:")).split()[1]) << 10
        hog = lab.start([sys.executable, "-c", HOG, str(max(available - LEFT, 0) // MIB)])
        drop = lab.start(["sh", "-c", "while sleep 0.2; do echo 3 >/proc/sys/vm/drop_caches; done"])
        self.started = [hog, drop]

    def end(self, lab):
        for one in self.started:
            one.kill()
            one.wait()


def memory_pressure(lasts=20):
    made = Pressure(lasts)
    return Trouble("the node has hardly any memory, and its page cache is dropped again and again", made.begin, made.end, FLOW, lasts)
