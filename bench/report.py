#!/usr/bin/env python3
"""Draws what the benches found: report.py session.json [device.json] OUT.svg. A bar is a ratio; the line at 1 is the peer."""
import json
import sys

BAR, ROW, LEFT, WIDTH = 14, 22, 250, 900


def rows(entries):
    """(label, ratio to the peer, text) of each figure."""
    session = [entry for entry in entries if entry["bench"] == "session"]
    for entry in session:
        size = "%d KiB" % (entry["bytes"] // 1024)
        yield ("session %s %s, depth %d" % (entry["kind"], size, entry["depth"]), entry["corbd"] / entry["nbdkit"],
               "%.0f/s, nbdkit %.0f/s" % (entry["corbd"], entry["nbdkit"]))
    device = [entry for entry in entries if entry["bench"] == "device"]
    peers = {entry["kind"]: entry["iops"] for entry in device if entry["subject"] == "rbd-nbd"}
    for entry in device:
        yield ("device %s, %s" % (entry["kind"], entry["subject"]), entry["iops"] / peers[entry["kind"]],
               "%.0f IOPS, rbd-nbd %.0f; %.1f CPU s/GiB" % (entry["iops"], peers[entry["kind"]], entry["cpu_s_per_gib"]))


def main():
    *sources, target = sys.argv[1:]
    found = list(rows([entry for source in sources for entry in json.load(open(source))]))
    scale = (WIDTH - LEFT - 260) / max(ratio for _, ratio, _ in found)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (
        WIDTH, 60 + ROW * len(found)), '<rect width="100%" height="100%" fill="white"/>',
        '<text x="12" y="24" font-size="16">corbd beside its peers: nbdkit (session) and rbd-nbd (device); longer is faster</text>']
    for number, (label, ratio, text) in enumerate(found):
        y = 44 + ROW * number
        out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (LEFT - 8, y + BAR - 2, label))
        out.append('<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (LEFT, y, ratio * scale, BAR, "#25c" if ratio >= 1 else "#c60"))
        out.append('<text x="%.1f" y="%d">%.2f  (%s)</text>' % (LEFT + ratio * scale + 6, y + BAR - 2, ratio, text))
    out.append('<line x1="%.1f" y1="38" x2="%.1f" y2="%d" stroke="#888" stroke-dasharray="3"/>' % (
        LEFT + scale, LEFT + scale, 44 + ROW * len(found)))
    out.append("</svg>")
    with open(target, "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
