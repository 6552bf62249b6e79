"""What every route needs: ledger, raw store, settings, tokens, clock, events and counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.gateway.auth import Tokens
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.map_layers import MapLayers
from parcelpost.gateway.schedules import FreshnessCache
from parcelpost.model import Site, Target, Task
from parcelpost.object_store import RawStore
from parcelpost.settings.schema import ServerSettings

Counts = Mapping[tuple[str, str], int]
"""Counts by (platform, outcome)."""

_MAX_PLATFORMS = 500
_MAX_NAME_CHARS = 64
_MAX_MINUTES = 60


class Counters:
    """Counts outcomes by platform and minute. Bounded: beyond 500 platforms all others count as `other`, and at most an
    hour of minutes waits to be written.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: dict[datetime, Counter[tuple[str, str]]] = {}
        self._platforms: set[str] = set()
        self.totals: Counter[tuple[str, str]] = Counter()
        """Counts since this process started."""
        self.responses: Counter[str] = Counter({"2xx": 0, "4xx": 0, "5xx": 0})
        """Responses since this process started, by status class."""

        self.webhooks: Counter[tuple[str, str]] = Counter()
        """Since this process started, by webhook and outcome."""

    def count_response(self, status: int) -> None:
        self.responses[f"{status // 100}xx"] += 1

    def count(self, platform: str, outcome: str, number: int = 1) -> None:
        if number <= 0:
            return
        key = (self._known(platform), outcome)
        minute = self._clock.now().replace(second=0, microsecond=0)
        self._minutes.setdefault(minute, Counter())[key] += number
        self.totals[key] += number

    def take(self) -> Mapping[datetime, Counts]:
        """Returns everything counted since the last call."""
        taken, self._minutes = self._minutes, {}
        return taken

    def put_back(self, minute: datetime, counts: Counts) -> None:
        """Takes back counts that could not be written."""
        if minute not in self._minutes and len(self._minutes) >= _MAX_MINUTES:
            return
        self._minutes.setdefault(minute, Counter()).update(counts)

    def _known(self, platform: str) -> str:
        name = platform[:_MAX_NAME_CHARS]
        if name not in self._platforms:
            if len(self._platforms) >= _MAX_PLATFORMS:
                return "other"
            self._platforms.add(name)
        return name


class Platforms(Protocol):
    """The known platforms and counties. The gateway gets them from whoever starts it."""

    @property
    def names(self) -> Collection[str]: ...

    def checked(self, task: Task, reported: Collection[str]) -> Task:
        """Returns the task with its platform in canonical spelling. Platforms `reported` by workers are known, too.

        Raises InvalidInput with a hint for an unknown platform, or a county that the platform does not cover.
        """

    def check_list(self, platform: str, target: Target) -> None:
        """Raises InvalidInput for a platform that has no lists."""

    def check_url(self, url: str) -> None:
        """Raises InvalidInput for a URL that workers refuse."""

    def pace_seconds(self, site: Site) -> float:
        """Returns how long workers wait between two requests to the site, as far as the settings say."""


class Context(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    raw_store: RawStore
    settings: ServerSettings
    tokens: Tokens
    clock: Clock
    emit: Emit
    counters: Counters
    version: str
    stopping: asyncio.Event
    """Set when the gateway shuts down: long responses end then."""
    freshness: FreshnessCache = field(default_factory=FreshnessCache)
    map_layers: MapLayers = MapLayers()
    platforms: Platforms | None = None
    """None: tasks for any platform are accepted."""
