#!/usr/bin/env python3
"""Shows what the benches found: report.py [--compare OLD.json...] FOLDER
Reads FOLDER/session.json, image.json and device.json, those that are there. Stamps each with commit, date and machine, writes all into FOLDER/report.html, which needs no
other file, and prints the ratios. --compare: the same files of an earlier run, stamped or not."""
import argparse
import html
import json
import math
import os
import platform
import subprocess
import time

GOALS = {"session": 1.0, "image": 1.2, "device": 1.5}
PEERS = {"session": "nbdkit", "image": "qemu-nbd", "device": "rbd-nbd"}
TITLES = {"session": "Session: our own code, a memory image, beside nbdkit", "image": "Image: a real cluster, no kernel, beside qemu-nbd",
          "device": "Device: /dev/nbdN and /dev/rbdN in the guest, beside rbd-nbd"}
COLORS = {"corbd": "#2457c5", "qemu-nbd": "#b3561d", "rbd-nbd": "#b3561d", "nbdkit": "#b3561d", "krbd": "#4d7c2a", "librbd": "#7a7a7a", "librados": "#b0b0b0"}
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{margin-top:2em;border-bottom:1px solid #ddd}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #eee}td:first-child,th:first-child{text-align:left}
.miss{color:#b00020;font-weight:600}.key{color:#666}svg{display:block;margin:1em 0;max-width:100%}svg text{font:12px system-ui,sans-serif;fill:#333}"""


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


def machine():
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    with open("/etc/os-release") as file:
        system = [line.split("=", 1)[1].strip().strip('"') for line in file if line.startswith("PRETTY_NAME=")]
    return "%d x %s, %s, Linux %s" % (os.cpu_count(), models[0] if models else platform.machine(), system[0] if system else "?", platform.release())


def read(path):
    """Its stamp, if any, and its figures."""
    with open(path) as file:
        found = json.load(file)
    return (found["made"], found["figures"]) if isinstance(found, dict) else ({}, found)


def stamp(path):
    made, figures = read(path)
    if not made:
        changed = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        made = {"commit": git("rev-parse", "--short=12", "HEAD") + changed, "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "machine": machine()}
        with open(path, "w") as file:
            json.dump({"made": made, "figures": figures}, file, indent=1)
    return made, figures


def place(figure):
    """What was measured, whoever it is."""
    return (figure["kind"], figure.get("bytes", 4096), figure.get("depth", 16), figure.get("volumes", 1))


def text(point):
    kind, size, depth, volumes = point
    return "%s %d KiB, depth %d%s" % (kind.replace("rand", "random "), size // 1024, depth, ", %d volumes" % volumes if volumes > 1 else "")


def table(bench, figures):
    """By place: the subjects' figures, each {iops, cpu, p50_us, p99_us, least, most}."""
    points = {}
    for one in figures:
        if one["bench"] != bench:
            continue
        row = points.setdefault(place(one), {})
        if bench == "session":
            for name in ("corbd", "nbdkit"):
                row[name] = {"iops": one[name], "cpu": one[name + "_cpu_us"], "unit": "us of the server"}
        else:
            cpu = (one["cpu_us"], "us") if bench == "image" else (one["cpu_s_per_gib"], "s/GiB, the whole guest")
            row[one["subject"]] = {"iops": one["iops"], "cpu": cpu[0], "unit": cpu[1], "p50_us": one.get("p50_us"), "p99_us": one.get("p99_us"),
                                   "least": one.get("iops_least"), "most": one.get("iops_most")}
    return points


def ratio(row, peer, what):
    return row["corbd"][what] / row[peer][what] if "corbd" in row and peer in row and row[peer][what] else None


def bars(points, peer, goal):
    rows = [(point, name, one["iops"] / row[peer]["iops"], one["iops"]) for point, row in points.items() if peer in row for name, one in row.items()]
    if not rows:
        return ""
    left, width, high = 230, 1040, 18
    scale = (width - left - 200) / max(value for _, _, value, _ in rows)
    out, y, last = [], 24, None
    for point, name, value, iops in rows:
        if point != last:
            y += 10
            out.append('<text x="%d" y="%d" text-anchor="end" font-weight="600">%s</text>' % (left - 78, y + 13, text(point)))
            last = point
        out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (left - 8, y + 13, name))
        out.append('<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>' % (left, y, max(value * scale, 1), high - 4, COLORS.get(name, "#888")))
        out.append('<text x="%.1f" y="%d">%.2f (%.0f/s)</text>' % (left + value * scale + 6, y + 13, value, iops))
        y += high
    for at, dash, label in ((1, "3", peer), (goal, "7 3", "goal %.1f" % goal)):
        x = left + at * scale
        out.append('<line x1="%.1f" x2="%.1f" y1="20" y2="%d" stroke="#666" stroke-dasharray="%s"/><text x="%.1f" y="14" text-anchor="middle">%s</text>' % (
            x, x, y, dash, x, label if at == goal or goal - 1 > 0.15 else ""))
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
                chart.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>' % (path, COLORS.get(name, "#888"), dash))
            at = row[depths[-1]].get(name)
            if at:
                chart.append('<text x="446" y="%.1f" style="fill:%s">%s</text>' % (y(at["p50_us"]) + 4, COLORS.get(name, "#888"), name))
        out.append('<svg viewBox="0 0 520 250" width="520" height="250" style="display:inline-block">%s</svg>' % "".join(chart))
    return "".join(out)


def rows_of(bench, points, before):
    """For the short table and the page: point, ratio, ratio of CPU, whether it misses the goal, the earlier ratio."""
    peer = PEERS[bench]
    for point, row in points.items():
        value = ratio(row, peer, "iops")
        if value is not None:
            yield point, value, ratio(row, peer, "cpu"), value < GOALS[bench], ratio(before.get(point, {}), peer, "iops")


def section(bench, made, points, before):
    peer = PEERS[bench]
    out = ["<h2>%s</h2>" % html.escape(TITLES[bench]), '<p class="key">%s, %s. %s. Medians of the rounds; read the ratios.</p>' % (
        made["date"], made["commit"], html.escape(made["machine"])), bars(points, peer, GOALS[bench]), curves(points) if bench == "image" else ""]
    names = list(dict.fromkeys(name for row in points.values() for name in row))
    unit = next(one["unit"] for row in points.values() for one in row.values())
    out.append("<table><tr><th>requests/s (CPU, %s)</th>%s<th>corbd / %s</th><th>CPU</th><th>before</th></tr>" % (unit, "".join("<th>%s</th>" % name for name in names), peer))
    for point, value, cpu, missed, old in rows_of(bench, points, before):
        cells = []
        for name in names:
            one = points[point].get(name)
            spread = " [%.0f-%.0f]" % (one["least"], one["most"]) if one and one.get("least") else ""
            cells.append("<td>%s</td>" % ("%.0f%s (%.1f)" % (one["iops"], spread, one["cpu"]) if one else ""))
        out.append("<tr><td>%s</td>%s<td%s>%.2f</td><td>%s</td><td>%s</td></tr>" % (
            text(point), "".join(cells), ' class="miss"' if missed else "", value, "%.2f" % cpu if cpu else "", "%.2f" % old if old else ""))
    out.append("</table>")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", nargs="*", default=[])
    parser.add_argument("folder")
    options = parser.parse_args()
    earlier = [one for path in options.compare for one in read(path)[1]]
    page = ['<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>corbd beside its peers</title><style>%s</style><h1>corbd beside its peers</h1>' % STYLE]
    for bench in TITLES:
        path = os.path.join(options.folder, bench + ".json")
        if not os.path.exists(path):
            continue
        made, figures = stamp(path)
        points, before = table(bench, figures), table(bench, earlier)
        page.append(section(bench, made, points, before))
        print("%s (goal %.1f)" % (TITLES[bench], GOALS[bench]))
        for point, value, cpu, missed, old in rows_of(bench, points, before):
            print("  %-34s %.2f%s%s%s" % (text(point), value, " CPU %.2f" % cpu if cpu else "", ", was %.2f" % old if old else "", "  missed" if missed else ""))
    with open(os.path.join(options.folder, "report.html"), "w") as file:
        file.write("\n".join(page) + "</html>\n")


if __name__ == "__main__":
    main()
