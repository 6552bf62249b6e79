"""Which view of the screen is shown, and the keys that change it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.top.text import clean, in_ascii

View = Literal["all", "slots", "platforms", "browsers", "errors", "attention"]

VIEWS: tuple[View, ...] = ("all", "slots", "platforms", "browsers", "errors", "attention")


class ViewState(Struct, frozen=True, kw_only=True):
    view: View = "all"
    ascii_only: bool = False
    paused: bool = False
    """The person has stopped the looking."""
    helps: bool = False
    is_live: bool = True
    """Keys can be pressed."""
    interval: float = 1.0

    def text(self, given: str) -> str:
        """Text from anywhere, fit to be shown."""
        harmless = clean(given)
        return in_ascii(harmless) if self.ascii_only else harmless

    def either(self, letters: str, ascii_letters: str) -> str:
        return ascii_letters if self.ascii_only else letters

    @property
    def dot(self) -> str:
        """Between two facts."""
        return self.either(" · ", ", ")


QUIT_KEYS = frozenset({"q", "Q", "\x03", "\x04"})
REFRESH_KEYS = frozenset({"r", "R", "\x0c"})

_ESCAPES = {"\x1b[C": "\t", "\x1bOC": "\t", "\x1b[D": "back", "\x1bOD": "back", "\x1b[Z": "back"}


def split_keys(given: str) -> list[str]:
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


def apply_key(how: ViewState, key: str) -> ViewState:
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
