#!/usr/bin/env python3
"""Shows what the benches found: report.py [--compare OLD.json...] FOLDER
Reads FOLDER/*.json of the benches session, image, io, node, heal and scale, those that are there. Stamps each with commit, date and machine, writes all into FOLDER/report.html, which needs no
other file, and prints the ratios. --compare: the same files of an earlier run, stamped or not."""
import argparse
import sys
import html
import json
import os
import platform
import statistics
import subprocess
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import goals  # noqa: E402
from charts import bars, curves, recovery, text  # noqa: E402

GOALS = {"session": 1.0, "image": 1.2, "io": 1.5}
PEERS = {"session": "nbdkit", "image": "qemu-nbd", "io": "rbd-nbd"}
TITLES = {"session": "Session: our own code, a memory image, beside nbdkit", "image": "Image: a real cluster, no kernel, beside qemu-nbd",
          "io": "Device: /dev/nbdN and /dev/rbdN in the guest, beside rbd-nbd"}
NODE = {"node": "Node: the calls of many volumes", "heal": "Heal: the server is killed under a writer on every volume",
        "scale": "Scale: the real control plane on a fake kernel and cluster"}
STYLE = """body{font:14px/1.5 system-ui,sans-serif;max-width:1160px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{margin-top:2em;border-bottom:1px solid #ddd}table{border-collapse:collapse;margin:1em 0;font-size:12.5px;font-variant-numeric:tabular-nums}
td,th{padding:.15em .45em;text-align:right;border-bottom:1px solid #eee}td:first-child,th:first-child{text-align:left}td{white-space:nowrap}
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
        elif bench == "io":
            row.setdefault(one["subject"], []).append(one)
        else:
            cpu = (one["cpu_us"], "us")
            row[one["subject"]] = {"iops": one["iops"], "cpu": cpu[0], "unit": cpu[1], "p50_us": one.get("p50_us"), "p99_us": one.get("p99_us"),
                                   "least": one.get("iops_least"), "most": one.get("iops_most")}
    if bench == "io":
        for row in points.values():
            row.update({name: middle(rounds) for name, rounds in row.items()})
    return points


def middle(rounds):
    """Of the rounds of one point and subject."""
    at = lambda key: statistics.median(one[key] for one in rounds)
    iops = [one["iops"] for one in rounds]
    return {"iops": at("iops"), "cpu": at("cpu_s_per_gib"), "unit": "s/GiB, the whole guest", "p50_us": at("p50_us"), "p99_us": at("p99_us"),
            "least": min(iops), "most": max(iops)}


def ratio(row, peer, what):
    return row["corbd"][what] / row[peer][what] if "corbd" in row and peer in row and row[peer][what] else None


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
        made["date"], made["commit"], html.escape(made["machine"])), bars(points, peer, GOALS[bench]), curves(points) if bench != "session" else ""]
    names = list(dict.fromkeys(name for row in points.values() for name in row))
    names = sorted(names, key=lambda name: (name != "corbd", name != peer))
    unit = next(one["unit"] for row in points.values() for one in row.values())
    out.append("<table><tr><th>requests/s (CPU, %s)</th>%s<th>corbd / %s</th><th>CPU</th><th>before</th></tr>" % (unit, "".join("<th>%s</th>" % name for name in names), peer))
    for point, value, cpu, missed, old in rows_of(bench, points, before):
        cells = []
        for name in names:
            one = points[point].get(name)
            spread = " [%.0f-%.0f]" % (one["least"], one["most"]) if one and one.get("least") else ""
            cells.append("<td>%s</td>" % ("%.0f%s (%.*f)" % (one["iops"], spread, 0 if one["cpu"] >= 100 else 1, one["cpu"]) if one else ""))
        out.append("<tr><td>%s</td>%s<td%s>%.2f</td><td>%s</td><td>%s</td></tr>" % (
            text(point), "".join(cells), ' class="miss"' if missed else "", value, "%.2f" % cpu if cpu else "", "%.2f" % old if old else ""))
    out.append("</table>")
    return "\n".join(out)


def merged(figures, sums=()):
    """One of each kind, subject and number of volumes: the medians of its rounds, and of some the sum."""
    groups = {}
    for one in figures:
        groups.setdefault((one["kind"], one["subject"], one.get("served")), []).append(one)
    for rounds in groups.values():
        out = dict(rounds[0])
        for key, value in rounds[0].items():
            found = [one[key] for one in rounds if isinstance(one.get(key), (int, float))]
            if found and isinstance(value, (int, float)):
                out[key] = sum(found) if key in sums else statistics.median(found)
        yield out


def calls_section(bench, made, figures):
    """What took how long, by subject, and what failed."""
    out = ["<h2>%s</h2>" % html.escape(NODE[bench]), '<p class="key">%s, %s. %s.</p>' % (made["date"], made["commit"], html.escape(made["machine"]))]
    if bench == "heal":
        out.append(recovery(figures))
        out.append("<table><tr><th>subject</th><th>volumes</th><th>last first write</th><th>never in time</th><th>I/O errors</th><th>lost writes</th></tr>")
        for one in figures:
            out.append("<tr><td>%s</td><td>%d</td><td>%s%.2f s</td><td>%d</td><td>%d</td><td%s>%d</td></tr>" % (
                one["subject"], one["volumes"], "more than " if one["bound"] else "", one["s"], one["missing"], one["errors"], ' class="miss"' if one["lost"] else "",
                one["lost"]))
        return "\n".join(out + ["</table>"])
    out.append("<table><tr><th>call</th><th>by</th><th>calls</th><th>failed</th><th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>longest ms</th></tr>")
    for one in merged([one for one in figures if "calls" in one], sums=("calls", "failed")):
        times = "".join("<td>%s</td>" % ("%.1f" % one[key] if key in one else "-") for key in ("p50_ms", "p90_ms", "p99_ms", "longest_ms"))
        out.append("<tr><td>%s</td><td>%s</td><td>%d</td><td%s>%d</td>%s</tr>" % (one["kind"], one["subject"], one["calls"], ' class="miss"' if one["failed"] else "",
                                                                               one["failed"], times))
    out.append("</table><table><tr><th>cost</th><th>volumes</th><th>processes</th><th>threads</th><th>RSS MiB</th><th>PSS MiB</th><th>descriptors</th></tr>")
    for one in merged([one for one in figures if one["kind"] == "cost"]):
        out.append("<tr><td>%s</td><td>%d</td><td>%d</td><td>%d</td><td>%.1f</td><td>%.1f</td><td>%d</td></tr>" % (
            one["subject"], one["served"], one["processes"], one["threads"], one["rss_kib"] / 1024, one["pss_kib"] / 1024, one["descriptors"]))
    return "\n".join(out + ["</table>"])


def goals_section(found, before):
    """The page's table of goals; an earlier run's ratio beside each."""
    old = {(one["what"], one["peer"]): one["ratio"] for one in goals.rows(before)}
    out = ["<h2>Goals</h2><table><tr><th>goal</th><th>corbd</th><th>peer</th><th>of the peer</th><th>ratio</th><th>goal</th><th>before</th></tr>"]
    for one in found:
        ratio = "-" if one["ratio"] is None else ("&gt; " if one["bound"] else "") + "%.3g" % one["ratio"]
        before_this = old.get((one["what"], one["peer"]))
        out.append("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td%s>%s</td><td>%s %.2g</td><td>%s</td></tr>" % (
            html.escape(one["what"]), one["ours"], one["peer"], one["theirs"], ' class="miss"' if one["missed"] else "", ratio, "&ge;" if one["least"] else "&le;", one["goal"],
            "%.3g" % before_this if before_this is not None else ""))
    return "\n".join(out + ["</table>"])


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
    figures = []
    for bench in NODE:
        path = os.path.join(options.folder, bench + ".json")
        if os.path.exists(path):
            made, more = stamp(path)
            page.append(calls_section(bench, made, more))
            figures += more
    io = os.path.join(options.folder, "io.json")
    figures += read(io)[1] if os.path.exists(io) else []
    found = list(goals.rows(figures))
    if found:
        page.insert(1, goals_section(found, earlier))
        print("Goals")
        for one in found:
            print("  " + goals.line(one))
    with open(os.path.join(options.folder, "report.html"), "w") as file:
        file.write("\n".join(page) + "</html>\n")


if __name__ == "__main__":
    main()
