"""What happened, counted in memory by minute until the ledger has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from parcelpost.clock import Clock

Counts = Mapping[tuple[str, str], int]
"""By (platform, outcome)."""

_MOST_PLATFORMS = 500
_LONGEST_NAME = 64
_MOST_MINUTES = 60


class Tally:
    """Bounded: beyond some hundred platforms all others count as `other`, and minutes of the last hour are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: dict[datetime, Counter[tuple[str, str]]] = {}
        self._platforms: set[str] = set()
        self.totals: Counter[tuple[str, str]] = Counter()
        """Since this process started."""
        self.answers: Counter[str] = Counter({"2xx": 0, "4xx": 0, "5xx": 0})
        """Since this process started, by class of status."""

    def answered(self, status: int) -> None:
        self.answers[f"{status // 100}xx"] += 1

    def count(self, platform: str, outcome: str, number: int = 1) -> None:
        if number <= 0:
            return
        key = (self._known(platform), outcome)
        minute = self._clock.now().replace(second=0, microsecond=0)
        self._minutes.setdefault(minute, Counter())[key] += number
        self.totals[key] += number

    def take(self) -> Mapping[datetime, Counts]:
        """Everything counted since the last time."""
        taken, self._minutes = self._minutes, {}
        return taken

    def put_back(self, minute: datetime, counts: Counts) -> None:
        """What could not be kept for now."""
        if minute not in self._minutes and len(self._minutes) >= _MOST_MINUTES:
            return
        self._minutes.setdefault(minute, Counter()).update(counts)

    def _known(self, platform: str) -> str:
        name = platform[:_LONGEST_NAME]
        if name not in self._platforms:
            if len(self._platforms) >= _MOST_PLATFORMS:
                return "other"
            self._platforms.add(name)
        return name
