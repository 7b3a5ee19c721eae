"""Draws what the application saw: one panel for each kill, one dot for every acknowledged write, its latency over the time since the kill."""
import math
import struct

BEFORE_S, AFTER_S = 2.0, 8.0
WIDTH, PANEL, LEFT, TOP, GAP = 900, 170, 70, 60, 46
LOW_MS, HIGH_MS = 0.1, 30000.0


def entries(journal):
    """Yields (microseconds of the acknowledgement, latency in ms, errno) for every write in corbd-writer's journal."""
    with open(journal, "rb") as file:
        data = file.read()
    for place in range(0, len(data) - len(data) % 32, 32):
        _, _, ts_us, latency_us, error = struct.unpack_from("=QQQII", data, place)
        yield ts_us, latency_us / 1000, error


def draw(journal, kills, path):
    """kills: microseconds. Writes an SVG."""
    writes = list(entries(journal))
    height = TOP + len(kills) * (PANEL + GAP)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (WIDTH, height),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="26" font-size="16">Latency of acknowledged writes around each kill -9 of the agent</text>' % LEFT,
           '<text x="%d" y="44" fill="#666">a dot: one write, at the moment it was acknowledged</text>' % LEFT]

    def x_of(seconds):
        return LEFT + (seconds + BEFORE_S) / (BEFORE_S + AFTER_S) * (WIDTH - LEFT - 20)

    for number, kill in enumerate(kills):
        top = TOP + number * (PANEL + GAP)

        def y_of(ms):
            share = math.log(max(LOW_MS, min(HIGH_MS, ms)) / LOW_MS) / math.log(HIGH_MS / LOW_MS)
            return top + PANEL - share * PANEL
        for ms in (0.1, 1, 10, 100, 1000, 10000):
            out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#eee"/>' % (LEFT, y_of(ms), WIDTH - 20, y_of(ms)))
            out.append('<text x="%d" y="%.1f" text-anchor="end" fill="#666">%s</text>' % (
                LEFT - 6, y_of(ms) + 4, "%g ms" % ms if ms < 1000 else "%g s" % (ms / 1000)))
        for second in range(int(-BEFORE_S), int(AFTER_S) + 1):
            out.append('<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%+d s</text>' % (x_of(second), top + PANEL + 16, second))
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c00"/>' % (x_of(0), top - 6, x_of(0), top + PANEL))
        out.append('<text x="%.1f" y="%d" fill="#c00">kill -9, number %d</text>' % (x_of(0) + 4, top + 4, number + 1))
        for ts_us, latency_ms, error in writes:
            since = (ts_us - kill) / 1e6
            if -BEFORE_S <= since <= AFTER_S:
                out.append('<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s"/>' % (x_of(since), y_of(latency_ms), "#c00" if error else "#25c"))
    out.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")
