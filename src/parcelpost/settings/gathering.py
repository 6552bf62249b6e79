"""What the sources gave so far: later ones go over earlier ones, and what is wrong is collected, not raised."""

from __future__ import annotations

import difflib
import re
from typing import Any

from msgspec import Struct

from parcelpost.settings.forms import KEYS, Key, form, from_text, from_toml, shown
from parcelpost.settings.keys import FieldMapSettings, PlatformSettings

_SECRET = re.compile(r"(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
_MOST_SHOWN = 80
_NEAR = 0.8
"""How alike a name without its section must be: `batchsize` is meant to be `batch_size`, `nosection` not `seconds`."""
SEE_PAGE = "'parcelpost init' writes a file with every key and what it means"


class Problem(Struct, frozen=True, kw_only=True):
    """Why these settings cannot be used, and what to do about it."""

    what: str
    remedy: str


class Gathering:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.origins: dict[str, str] = dict.fromkeys(KEYS, "default")
        self.platforms: dict[str, PlatformSettings] = {}
        self.field_maps: dict[str, FieldMapSettings] = {}
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def text(self, name: str, text: str, origin: str) -> None:
        """A value from the environment or a flag."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_text(key, text), origin)
        except ValueError:
            self._bad(key, form(key), shown(key, text), origin)

    def toml(self, name: str, value: Any, origin: str) -> None:
        """A value from the file."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_toml(key, value), origin)
        except ValueError:
            self._bad(key, form(key, in_file=True), shown(key, value), origin)

    def problem(self, what: str, remedy: str) -> None:
        self.problems.append(Problem(what=what, remedy=remedy))

    def _set(self, key: Key, value: Any, origin: str) -> None:
        self.values[key.name] = value
        self.origins[key.name] = origin

    def _bad(self, key: Key, right: str, given: str, origin: str) -> None:
        but = f", not {given}" if given else ""
        self.problem(f"{origin}: {key.name} must be {right}{but}", SEE_PAGE)

    def _unknown(self, name: str, origin: str) -> None:
        short = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
        if _SECRET.search(name):
            self.problem(
                f"{origin}: {short} looks like a secret, and secrets are no settings",
                "take it out, and put the token into PARCELPOST_GATEWAY_TOKEN or into the file that "
                "gateway.token_file names; change it if others could read it here",
            )
            return
        close = nearest(name)
        self.problem(
            f"{origin}: there is no setting {short}" + (f"; the nearest is {close}" if close else ""), SEE_PAGE
        )


def nearest(name: str) -> str:
    """The key that was probably meant, or ''. The same name in another section comes first."""
    _, _, field = name.rpartition(".")
    same = [key.name for key in KEYS.values() if key.field == field]
    close = difflib.get_close_matches(name, same or KEYS, n=1, cutoff=0.0 if same else 0.6)
    if not close and (
        fields := difflib.get_close_matches(field, [key.field for key in KEYS.values()], n=1, cutoff=_NEAR)
    ):
        close = [key.name for key in KEYS.values() if key.field == fields[0]]
    return close[0] if close else ""
