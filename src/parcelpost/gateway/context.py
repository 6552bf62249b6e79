"""What every route needs: ledger, raw store, settings, tokens, clock, events and counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.gateway.auth import Tokens
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.model import Task
from parcelpost.raw_store import RawStore
from parcelpost.settings.schema import ServerSettings

Counts = Mapping[tuple[str, str], int]
"""By (platform, outcome)."""

_MOST_PLATFORMS = 500
_LONGEST_NAME = 64
_MOST_MINUTES = 60


class Counters:
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


class Platforms(Protocol):
    """The platforms and counties that are known. A gateway knows none itself: whoever starts it does."""

    @property
    def names(self) -> Collection[str]: ...

    def checked(self, task: Task, reported: Collection[str]) -> Task:
        """The task with its platform in its one spelling; a platform that workers have `reported` is known, too.

        Raises InvalidInput with a hint for a platform that nobody knows, and for a county that it does not serve.
        """


class Context(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    raw_store: RawStore
    settings: ServerSettings
    tokens: Tokens
    clock: Clock
    emit: Emit
    tally: Counters
    version: str
    stopping: asyncio.Event
    """Set when the gateway is told to stop: an answer that goes on for long ends then."""
    platforms: Platforms | None = None
    """None: tasks of any platform are queued."""
