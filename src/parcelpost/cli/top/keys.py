"""What a pressed key means."""

from __future__ import annotations

from msgspec.structs import replace

from parcelpost.cli.top.how import VIEWS, How

QUIT = frozenset({"q", "Q", "\x03", "\x04"})
LOOK = frozenset({"r", "R", "\x0c"})

_ESCAPES = {"\x1b[C": "\t", "\x1bOC": "\t", "\x1b[D": "back", "\x1bOD": "back", "\x1b[Z": "back"}


def split(given: str) -> list[str]:
    """Single keys; of those that send several letters only the known ones."""
    found: list[str] = []
    while given:
        known = next((code for code in _ESCAPES if given.startswith(code)), None)
        if known:
            found.append(_ESCAPES[known])
            given = given[len(known) :]
        elif given[0] == "\x1b" and len(given) > 1:
            return found  # some other key, or what a terminal says of itself
        else:
            found.append(given[0])
            given = given[1:]
    return found


def changed(how: How, key: str) -> How:
    """How the screen is to look after this key."""
    if key in ("p", "P", " "):
        return replace(how, paused=not how.paused)
    if key in ("?", "h", "H"):
        return replace(how, helps=not how.helps)
    if key == "\x1b":
        return replace(how, helps=False)
    step = {"\t": 1, "back": -1}.get(key, 0)
    if step:
        return replace(how, helps=False, view=VIEWS[(VIEWS.index(how.view) + step) % len(VIEWS)])
    if key.isdecimal() and key.isascii() and 1 <= int(key) <= len(VIEWS):
        return replace(how, helps=False, view=VIEWS[int(key) - 1])
    return how
