"""What a story expects, waits for and says."""
import time


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def long(story):
    """Not in every CI run, which has no time for it: `scripts/test --long`, or by name."""
    story.long = True
    return story


def check(condition, message):
    if not condition:
        raise Failed(message)


def say(text):
    print("# " + text, flush=True)


def now_us():
    return time.time_ns() // 1000


def wait_for(what, condition, timeout=60, pause=0.05):
    """The first true value of condition(); Failed after timeout seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed("%s: not within %g s" % (what, timeout))
        time.sleep(pause)
