"""What corbd-bench node, heal and io must reach beside rbd-nbd, or the peer that a row names. Each figure is the median of its rounds, with the least and the most."""
import statistics

PEER = "rbd-nbd"


def values(figures, bench, subject, kind, key, **where):
    return [one[key] for one in figures if one["bench"] == bench and one["subject"] == subject and one["kind"] == kind and one.get(key) is not None and
            all(one.get(name) == value for name, value in where.items())]


def shown(found, unit, digits=2):
    """The median, and the spread of more than one."""
    if not found:
        return "-"
    text = "%.*f%s" % (digits, statistics.median(found), unit)
    return text + (" [%.*f-%.*f]" % (digits, min(found), digits, max(found)) if len(found) > 1 else "")


def row(what, ours, theirs, ratio, goal, least=True, bound=False, unit="", digits=2, peer=PEER):
    """goal: the least ratio, or the most."""
    return {"what": what, "peer": peer, "ours": shown(ours, unit, digits), "theirs": ("more than " if bound and theirs else "") + shown(theirs, unit, digits), "ratio": ratio, "goal": goal,
            "least": least, "bound": bound, "missed": ratio is None or (ratio < goal if least else ratio > goal)}


def per_volume(figures, subject, key):
    """Of one volume more: what all cost, less what the first one did."""
    after = [one for one in figures if one["bench"] == "node" and one["subject"] == subject and one["kind"] == "cost"]
    pairs = zip([one for one in after if one["when"] == "first"], [one for one in after if one["when"] == "after"])
    return [(new[key] - old[key]) / (new["served"] - 1) for old, new in pairs if new["served"] > 1]


def quotient(up, down):
    return statistics.median(up) / statistics.median(down) if up and down and statistics.median(down) else None


def rows(figures):
    """Every goal of which one side was measured. Without the other it is missed."""
    for kind in ("randread", "randwrite"):
        ours, theirs = (values(figures, "io", subject, kind, "iops", depth=16, volumes=1) for subject in ("corbd", PEER))
        if ours or theirs:
            yield row("device, %s 4 KiB, depth 16" % kind.replace("rand", "random "), ours, theirs, quotient(ours, theirs), 1.5, unit="/s", digits=0)
    for peer, goal in (("rbd-nbd-uncached", 2.0), ("krbd", 0.5)):
        ours, theirs = (values(figures, "io", subject, "fsync", "iops", depth=16, volumes=1) for subject in ("corbd", peer))
        if theirs:
            yield row("device, write 4 KiB and fsync, depth 16", ours, theirs, quotient(ours, theirs), goal, unit="/s", digits=0, peer=peer)
    ours, theirs = ([one for one in figures if one["bench"] == "node" and one["subject"] == subject and one["kind"] == "up"] for subject in ("corbd", PEER))
    if ours or theirs:
        all_served = all(one["done"] == one["volumes"] for one in ours + theirs)
        value = quotient([one["s"] for one in theirs], [one["s"] for one in ours]) if all_served else None
        what = "stage and publish of %d volumes, %d at once" % ((ours + theirs)[0]["volumes"], (ours + theirs)[0]["at_once"])
        yield row(what + ("" if all_served else ", NOT ALL of which were served"), [one["s"] for one in ours], [one["s"] for one in theirs], value, 3, unit=" s")
        memory = [per_volume(figures, subject, "pss_kib") for subject in ("corbd", PEER)]
        yield row("one more volume: PSS", *memory, quotient(*memory), 1 / 14, least=False, unit=" KiB", digits=0)
        threads = [per_volume(figures, subject, "threads") for subject in ("corbd", PEER)]
        yield row("one more volume: threads", *threads, statistics.median(threads[0]) if threads[0] else None, 0, least=False)
    ours, theirs = ([one for one in figures if one["bench"] == "heal" and one["subject"] == subject] for subject in ("corbd", PEER))
    if ours or theirs:
        bound, all_healed = any(one["bound"] for one in theirs), ours and not any(one["bound"] for one in ours)
        value = quotient([one["s"] for one in theirs], [one["s"] for one in ours]) if all_healed else None
        what = "heal of %d volumes, to the last one's first write" % (ours + theirs)[0]["volumes"]
        yield row(what + ("" if all_healed else ", NOT ALL of which were healed"), [one["s"] for one in ours], [one["s"] for one in theirs], value, 10,
                  bound=bound, unit=" s")
        # What did not come back could not be read.
        lost = [[one["lost"] for one in who] for who in (ours, theirs)]
        yield row("heal: lost acknowledged writes", *lost, max(lost[0]) if all_healed else None, 0, least=False, digits=0)


def line(one):
    mark = ">= " if one["least"] else "<= "
    ratio = "-" if one["ratio"] is None else ("> " if one["bound"] else "") + "%.3g" % one["ratio"]
    return "%-52s corbd %-26s %s %-26s %-8s goal %s%.2g%s" % (one["what"], one["ours"], one["peer"], one["theirs"], ratio, mark, one["goal"], "  missed" if one["missed"] else "")
