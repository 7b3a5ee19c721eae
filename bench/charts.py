"""The report's pictures: SVG that needs nothing else."""
import math

COLORS = {"corbd": "#2457c5", "qemu-nbd": "#b3561d", "rbd-nbd": "#b3561d", "nbdkit": "#b3561d", "krbd": "#4d7c2a", "librbd": "#7a7a7a"}
OTHER = "#888"
NAMES = {"fsync": "write and fsync", "read": "sequential read", "write": "sequential write"}


def text(point):
    kind, size, depth, volumes = point
    return "%s %d KiB, depth %d%s" % (NAMES.get(kind, kind.replace("rand", "random ")), size // 1024, depth, ", %d volumes" % volumes if volumes > 1 else "")


def bars(points, peer, goal):
    rows = [(point, name, one["iops"] / row[peer]["iops"], one["iops"]) for point, row in points.items() if peer in row for name, one in row.items()]
    if not rows:
        return ""
    left, width, high = 400, 1120, 18
    scale = (width - left - 200) / max(value for _, _, value, _ in rows)
    out, y, last = [], 24, None
    for point, name, value, iops in rows:
        if point != last:
            y += 10
            out.append('<text x="%d" y="%d" text-anchor="end" font-weight="600">%s</text>' % (left - 78, y + 13, text(point)))
            last = point
        out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (left - 8, y + 13, name))
        out.append('<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>' % (left, y, max(value * scale, 1), high - 4, COLORS.get(name, OTHER)))
        out.append('<text x="%.1f" y="%d">%.2f (%.0f/s)</text>' % (left + value * scale + 6, y + 13, value, iops))
        y += high
    for at, dash, label, anchor in ((1, "3", peer + " ", "end"), (goal, "7 3", " goal %.1f" % goal, "start")):
        x = left + at * scale
        out.append('<line x1="%.1f" x2="%.1f" y1="20" y2="%d" stroke="#666" stroke-dasharray="%s"/><text x="%.1f" y="14" text-anchor="%s">%s</text>' % (
            x, x, y, dash, x, anchor, label))
    return '<svg viewBox="0 0 %d %d" width="%d" height="%d">%s</svg>' % (width, y + 8, width, y + 8, "".join(out))


def curves(points):
    """Latency by depth, one small chart for each kind: p50 as a line, p99 dashed; both axes are logarithmic."""
    out = []
    for kind in dict.fromkeys(point[0] for point in points):
        depths = sorted({point[2] for point in points if point[0] == kind and point[3] == 1})
        row = {depth: points.get((kind, 4096, depth, 1), {}) for depth in depths}
        values = [one[what] for by in row.values() for one in by.values() for what in ("p50_us", "p99_us") if one.get(what)]
        if len(depths) < 2 or not values:
            continue
        low, high = math.log(min(values)), math.log(max(values))
        x = lambda depth: 60 + 380 * math.log(depth) / math.log(depths[-1])
        y = lambda value: 220 - 180 * (math.log(value) - low) / max(high - low, 1e-9)
        chart = ['<text x="60" y="16" font-weight="600">%s: latency, us (line p50, dashed p99)</text>' % kind.replace("rand", "random ")]
        chart += ['<text x="%.0f" y="240" text-anchor="middle">depth %d</text>' % (x(depth), depth) for depth in depths]
        for value in (min(values), math.exp((low + high) / 2), max(values)):
            chart.append('<line x1="60" x2="440" y1="%.1f" y2="%.1f" stroke="#eee"/><text x="54" y="%.1f" text-anchor="end">%.0f</text>' % (y(value), y(value), y(value) + 4, value))
        for name in dict.fromkeys(name for by in row.values() for name in by):
            for what, dash in (("p50_us", ""), ("p99_us", ' stroke-dasharray="4 3"')):
                path = " ".join("%.1f,%.1f" % (x(depth), y(by[name][what])) for depth, by in row.items() if name in by and by[name].get(what))
                chart.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>' % (path, COLORS.get(name, OTHER), dash))
        last = -14.0
        ends = sorted((y(one["p50_us"]), name) for name, one in row[depths[-1]].items() if one.get("p50_us"))
        for at, name in ends:
            last = max(at + 4, last + 13)  # so that no name is on another
            chart.append('<text x="446" y="%.1f" style="fill:%s">%s</text>' % (last, COLORS.get(name, OTHER), name))
        out.append('<svg viewBox="0 0 520 250" width="520" height="250" style="display:inline-block">%s</svg>' % "".join(chart))
    return "".join(out)


def recovery(figures):
    """How many volumes write again, by the time since the kill: a step for each volume, a line for each subject's median round."""
    rounds = {}
    for one in figures:
        if one["bench"] == "heal":
            rounds.setdefault(one["subject"], []).append(one)
    chosen = {name: sorted(found, key=lambda one: one["s"])[len(found) // 2] for name, found in rounds.items()}
    if not chosen:
        return ""
    volumes, longest = max(one["volumes"] for one in chosen.values()), max(one["s"] for one in chosen.values())
    low = min(one["s"] for found in chosen.values() for one in found["each"] if one["s"]) / 2 if any(one["s"] for found in chosen.values() for one in found["each"]) else 0.1
    x = lambda value: 70 + 800 * math.log(max(value, low) / low) / math.log(longest / low)
    y = lambda count: 260 - 220 * count / volumes
    out = ['<text x="70" y="18" font-weight="600">volumes that write again, by seconds since the kill</text>']
    tick = 10 ** math.ceil(math.log10(low))
    while tick <= longest:
        out.append('<line x1="{0:.1f}" x2="{0:.1f}" y1="40" y2="260" stroke="#eee"/><text x="{0:.1f}" y="278" text-anchor="middle">{1:g} s</text>'.format(x(tick), tick))
        tick *= 10
    for count in (0, volumes // 2, volumes):
        out.append('<line x1="70" x2="870" y1="{0:.1f}" y2="{0:.1f}" stroke="#eee"/><text x="62" y="{1:.1f}" text-anchor="end">{2}</text>'.format(y(count), y(count) + 4, count))
    last = 0.0
    for name, one in chosen.items():
        times = sorted(each["s"] for each in one["each"] if each["s"])
        path = ["%.1f,%.1f" % (x(low), y(0))]
        for count, at in enumerate(times, 1):
            path += ["%.1f,%.1f" % (x(at), y(count - 1)), "%.1f,%.1f" % (x(at), y(count))]
        path.append("%.1f,%.1f" % (x(one["s"]), y(len(times))))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (" ".join(path), COLORS.get(name, OTHER)))
        last = max(y(len(times)) + 4, last + 14)  # so that no name is on another
        out.append('<text x="880" y="%.1f" style="fill:%s">%s</text>' % (last, COLORS.get(name, OTHER), name))
    return '<svg viewBox="0 0 1000 290" width="1000" height="290">%s</svg>' % "".join(out)
