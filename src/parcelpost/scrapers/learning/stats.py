"""Selector stats: the recent and long-term success rate of one selector on one site."""

from __future__ import annotations

from datetime import datetime

from parcelpost.model import Broken
from parcelpost.scrapers.html.selectors import Selector

_QUICK, _SLOW = 0.12, 0.01
"""How much a try weighs against all before it: for the ways' order, and for what a field is used to."""
FAILING_RATE = 0.5
ENOUGH_PAGES = 20
_MISSED = 3


class SelectorStats:
    __slots__ = ("example", "missed", "score", "since", "tries", "used_to", "way")

    def __init__(self, way: Selector, score: float) -> None:
        self.way = way
        self.score = self.used_to = score
        self.tries = 0
        self.missed = 0
        """Pages in a row on which another way led to the field, and this one did not."""
        self.since: datetime | None = None
        """Of the first of them."""
        self.example = ""
        """The task of the last of them."""

    @property
    def is_fallen(self) -> bool:
        return self.tries >= ENOUGH_PAGES and self.used_to >= FAILING_RATE and self.missed >= _MISSED

    def note(self, success: bool) -> None:
        self.note_again(success, 1)
        if success:
            self.missed, self.since = 0, None

    def note_again(self, success: bool, times: int) -> None:
        """As that many tries with the same result."""
        self.score = updated_rate(self.score, success, times)
        self.used_to = updated_slow_rate(self.used_to, success, self.tries, times)
        self.tries += times

    def fall(self, one: Broken) -> None:
        """As it had fallen when it was told so."""
        self.tries, self.missed = max(self.tries, ENOUGH_PAGES), max(self.missed, _MISSED)
        self.score, self.used_to = 0.0, max(self.used_to, one.used_to, FAILING_RATE)
        self.since, self.example = one.since, one.example

    def miss(self, task_id: str, at: datetime | None) -> None:
        self.missed += 1
        self.since = self.since or at
        self.example = task_id


def updated_rate(rate: float, success: bool, times: int) -> float:
    """After that many tries with the same result, each of which weighs _QUICK."""
    return success + (rate - success) * (1 - _QUICK) ** times


def updated_slow_rate(rate: float, success: bool, before: int, times: int) -> float:
    """After that many tries with the same result, the n-th of all weighing 1/n, and never less than _SLOW."""
    early = min(times, max(0, round(1 / _SLOW) - before))
    left = before / (before + early) if early else 1.0
    return success + (rate - success) * left * (1 - _SLOW) ** (times - early)
