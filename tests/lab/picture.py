"""Draws what the application saw: the latency of every acknowledged write around each event (draw), or the longest ones over the whole time (drawn_whole)."""
import math
import struct

BEFORE_S, AFTER_S = 2.0, 8.0
WIDTH, PANEL, LEFT, TOP, GAP = 900, 170, 70, 60, 46
LOW_MS, HIGH_MS = 0.1, 30000.0
ROW_S = 300.0  # of drawn_whole


def entries(journal):
    """Yields (microseconds of the acknowledgement, latency in ms, errno) for every write in corbd-writer's journal."""
    with open(journal, "rb") as file:
        data = file.read()
    for place in range(0, len(data) - len(data) % 32, 32):
        _, _, ts_us, latency_us, error = struct.unpack_from("=QQQII", data, place)
        yield ts_us, latency_us / 1000, error


def y_in(top, ms):
    share = math.log(max(LOW_MS, min(HIGH_MS, ms)) / LOW_MS) / math.log(HIGH_MS / LOW_MS)
    return top + PANEL - share * PANEL


def grid(top, width):
    out = []
    for ms in (0.1, 1, 10, 100, 1000, 10000):
        out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#eee"/>' % (LEFT, y_in(top, ms), width - 20, y_in(top, ms)))
        out.append('<text x="%d" y="%.1f" text-anchor="end" fill="#666">%s</text>' % (
            LEFT - 6, y_in(top, ms) + 4, "%g ms" % ms if ms < 1000 else "%g s" % (ms / 1000)))
    return out


def page(width, height, title, remark):
    return ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, height),
            '<rect width="100%" height="100%" fill="white"/>',
            '<text x="%d" y="26" font-size="16">%s</text>' % (LEFT, title),
            '<text x="%d" y="44" fill="#666">%s</text>' % (LEFT, remark)]


def whole(out):
    return "\n".join([*out, "</svg>"]) + "\n"


def drawn_whole(journal, events):
    """An SVG: rows of ROW_S seconds. For each column of pixels, a bar from the shortest to the longest latency; a write with an error is red. events: as for draw()."""
    width = 1600
    writes = list(entries(journal))
    begin = min(ts_us - latency_ms * 1000 for ts_us, latency_ms, _ in writes)
    rows = int((max(ts_us for ts_us, _, _ in writes) - begin) / 1e6 / ROW_S) + 1
    out = page(width, TOP + rows * (PANEL + GAP), "Latency of acknowledged writes", "a bar: the writes that were acknowledged at that moment; a red line: a disturbance begins")
    scale = (width - LEFT - 20) / ROW_S
    columns = {}

    def place_of(ts_us):
        since = (ts_us - begin) / 1e6
        return int(since // ROW_S), LEFT + (since % ROW_S) * scale

    for ts_us, latency_ms, error in writes:
        row, x = place_of(ts_us)
        low, high, failed = columns.get((row, int(x)), (latency_ms, latency_ms, False))
        columns[row, int(x)] = min(low, latency_ms), max(high, latency_ms), failed or error != 0
    for row in range(rows):
        top = TOP + row * (PANEL + GAP)
        out += grid(top, width)
        for second in range(0, int(ROW_S) + 1, 30):
            out.append('<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%d s</text>' % (LEFT + second * scale, top + PANEL + 16, row * ROW_S + second))
    for number, (name, moment) in enumerate(events):
        row, x = place_of(moment)
        top = TOP + row * (PANEL + GAP)
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c00" stroke-width="0.6"/>' % (x, top - 6, x, top + PANEL))
        out.append('<text x="%.1f" y="%d" fill="#c00" font-size="10">%s</text>' % (x + 2, top + 2 + 10 * (number % 3), name))
    for (row, x), (low, high, failed) in columns.items():
        top = TOP + row * (PANEL + GAP)
        out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>' % (x, y_in(top, low) + 1, x, y_in(top, high) - 1, "#c00" if failed else "#25c"))
    return whole(out)


def draw(journal, events, path):
    """events: pairs of a name and microseconds. Writes an SVG."""
    writes = list(entries(journal))
    height = TOP + len(events) * (PANEL + GAP)
    out = page(WIDTH, height, "Latency of acknowledged writes around each restart of the agent", "a dot: one write, at the moment it was acknowledged")

    def x_of(seconds):
        return LEFT + (seconds + BEFORE_S) / (BEFORE_S + AFTER_S) * (WIDTH - LEFT - 20)

    for number, (_, moment) in enumerate(events):
        top = TOP + number * (PANEL + GAP)
        out += grid(top, WIDTH)
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
                out.append('<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s"/>' % (x_of(since), y_in(top, latency_ms), "#c00" if error else "#25c"))
    with open(path, "w") as file:
        file.write(whole(out))
