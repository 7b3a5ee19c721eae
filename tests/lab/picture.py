"""Draws what the application saw: one panel for each event, one dot for every acknowledged write, its latency over the time since the event."""
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


def draw(journal, events, path):
    """events: pairs of a name and microseconds. Writes an SVG."""
    writes = list(entries(journal))
    height = TOP + len(events) * (PANEL + GAP)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (WIDTH, height),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="26" font-size="16">Latency of acknowledged writes around each restart of the agent</text>' % LEFT,
           '<text x="%d" y="44" fill="#666">a dot: one write, at the moment it was acknowledged</text>' % LEFT]

    def x_of(seconds):
        return LEFT + (seconds + BEFORE_S) / (BEFORE_S + AFTER_S) * (WIDTH - LEFT - 20)

    for number, (_, moment) in enumerate(events):
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
        for name, other in events:
            since = (other - moment) / 1e6
            if -BEFORE_S <= since <= AFTER_S:
                out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c00"/>' % (x_of(since), top - 6, x_of(since), top + PANEL))
                out.append('<text x="%.1f" y="%d" fill="#c00">%s</text>' % (x_of(since) + 4, top + 4, name))
        for ts_us, latency_ms, error in writes:
            since = (ts_us - moment) / 1e6
            if -BEFORE_S <= since <= AFTER_S:
                out.append('<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s"/>' % (x_of(since), y_of(latency_ms), "#c00" if error else "#25c"))
    out.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")
