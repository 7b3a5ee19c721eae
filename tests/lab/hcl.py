"""Reads as much of HCL as deploy/nomad has: blocks with labels, texts, numbers, lists and maps."""
import re

TOKEN = re.compile(r'\s+|#[^\n]*|"((?:[^"\\]|\\.)*)"|([\w.-]+)|([={}\[\],])')


def parse(text):
    """{name: value} of what is set, and {name: [(labels, body), ...]} of each kind of block."""
    tokens, at = [], 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise ValueError("line %d is not understood" % (text.count("\n", 0, at) + 1))
        at = found.end()
        if found.lastindex:
            tokens.append((found.lastindex, found.group(found.lastindex)))
    tokens.append((3, "}"))
    return _body(iter(tokens))


def _body(tokens):
    into = {}
    for kind, name in tokens:
        if (kind, name) == (3, "}"):
            return into
        labels = []
        for kind, word in tokens:
            if (kind, word) == (3, "="):
                into[name] = _value(tokens, next(tokens))
                break
            if (kind, word) == (3, "{"):
                into.setdefault(name, []).append((labels, _body(tokens)))
                break
            labels.append(word)
    raise ValueError("a block has no end")


def _value(tokens, token):
    kind, text = token
    if kind == 1:
        return text
    if kind == 2:
        return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)
    if text == "{":
        return _body(tokens)
    items = []
    for token in tokens:
        if token == (3, "]"):
            return items
        if token != (3, ","):
            items.append(_value(tokens, token))
    raise ValueError("a list has no end")
