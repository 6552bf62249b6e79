"""Selector stats: the recent and long-term success rate of one selector on one site."""

from __future__ import annotations

from datetime import datetime

from parcelpost.model import Broken
from parcelpost.scrapers.html.selectors import Selector

_QUICK, _SLOW = 0.12, 0.01
"""The weight of one attempt in the recent rate, which orders selectors, and at least in the usual rate."""
FAILING_RATE = 0.5
ENOUGH_PAGES = 20
_MIN_MISSES = 3


class SelectorStats:
    __slots__ = ("attempts", "example", "misses", "score", "selector", "since", "usual_rate")

    def __init__(self, selector: Selector, score: float) -> None:
        self.selector = selector
        self.score = self.usual_rate = score
        self.attempts = 0
        self.misses = 0
        """Consecutive pages on which another selector found the field and this one did not."""
        self.since: datetime | None = None
        """The time of the first miss."""
        self.example = ""
        """The task of the last miss."""

    @property
    def is_broken(self) -> bool:
        return self.attempts >= ENOUGH_PAGES and self.usual_rate >= FAILING_RATE and self.misses >= _MIN_MISSES

    def note(self, success: bool) -> None:
        self.note_times(success, 1)
        if success:
            self.misses, self.since = 0, None

    def note_times(self, success: bool, times: int) -> None:
        """Counts several attempts with the same result."""
        self.score = updated_rate(self.score, success, times)
        self.usual_rate = updated_slow_rate(self.usual_rate, success, self.attempts, times)
        self.attempts += times

    def mark_broken(self, report: Broken) -> None:
        """Restores the state that was reported."""
        self.attempts, self.misses = max(self.attempts, ENOUGH_PAGES), max(self.misses, _MIN_MISSES)
        self.score, self.usual_rate = 0.0, max(self.usual_rate, report.used_to, FAILING_RATE)
        self.since, self.example = report.since, report.example

    def miss(self, task_id: str, at: datetime | None) -> None:
        self.misses += 1
        self.since = self.since or at
        self.example = task_id


def updated_rate(rate: float, success: bool, times: int) -> float:
    """The rate after several attempts with the same result, each weighing _QUICK."""
    return success + (rate - success) * (1 - _QUICK) ** times


def updated_slow_rate(rate: float, success: bool, before: int, times: int) -> float:
    """The rate after several attempts with the same result, the n-th weighing 1/n but at least _SLOW."""
    early = min(times, max(0, round(1 / _SLOW) - before))
    left = before / (before + early) if early else 1.0
    return success + (rate - success) * left * (1 - _SLOW) ** (times - early)
