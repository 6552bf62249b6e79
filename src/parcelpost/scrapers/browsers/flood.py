"""How much a page tells us: all of it passes the one driver, and the one loop, that every page of a worker needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

Kind = Literal["words", "errors", "dialogs", "windows", "frames", "workers", "requests", "messages"]

_MOST: dict[Kind, int] = {
    "words": 1_000,
    "errors": 1_000,
    "dialogs": 1_000,
    "windows": 100,
    "frames": 1_000,
    "workers": 200,
    "requests": 2_000,
    "messages": 10_000,
}
_IN_WORDS: dict[Kind, str] = {
    "words": "lines on its console",
    "errors": "script errors",
    "workers": "workers and connections",
    "messages": "messages of its connections",
}


class Flood:
    """Calls `drown` once, with what it is too much of."""

    def __init__(self, drown: Callable[[str], None]) -> None:
        self._drown = drown
        self._told: Counter[Kind] = Counter()
        self._is_over = False

    def rises(self, kind: Kind, by: int = 1) -> bool:
        """Whether it is too much by now, of whatever kind."""
        self._told[kind] += max(1, by)
        if not self._is_over and self._told[kind] > _MOST[kind]:
            self._is_over = True
            self._drown(f"more than {_MOST[kind]:,} {_IN_WORDS.get(kind, kind)}")
        return self._is_over

    def listener(self, kind: Kind) -> Callable[[object], None]:
        def told(_: object) -> None:
            self.rises(kind)

        return told
