"""What the screen shows: everything of one moment, as data."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from msgspec import Struct

from parcelpost.cli.browser_seen import SeenBrowser
from parcelpost.cli.overview import Overview
from parcelpost.model import QueueDepth
from parcelpost.storage.history import TimedSample
from parcelpost.storage.queries import RecentError, RunningTask
from parcelpost.worker.status import WorkerStatus

MOST_ROWS = 60
"""Of what runs, of errors, of samples."""


class Rates(Struct, frozen=True, kw_only=True):
    """How much in each ten seconds of the last ten minutes, the oldest first."""

    completed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    """Failed or expired."""
    delivered: tuple[int, ...] = ()
    fetched: tuple[int, ...] = ()


class Problem(Struct, frozen=True, kw_only=True):
    """Why the store cannot be looked at."""

    error: str
    hint: str
    since: datetime
    is_missing: bool = False
    """There is no store yet."""


class Seen(Struct, frozen=True, kw_only=True):
    """Without an overview: nothing could be seen yet."""

    at: datetime
    store: str
    start: str
    """The command that starts a worker."""
    problem: Problem | None = None
    """While there is one, the rest is what was seen last."""
    overview: Overview | None = None
    overview_at: datetime | None = None
    queue: QueueDepth = QueueDepth()
    platforms: dict[str, dict[str, int]] = {}
    statuses: tuple[WorkerStatus, ...] = ()
    """Of the workers that live."""
    running: tuple[RunningTask, ...] = ()
    browsers: tuple[SeenBrowser, ...] = ()
    rates: Rates = Rates()
    samples: tuple[TimedSample, ...] = ()
    """Of the last hour, one a minute."""
    troubles: tuple[RecentError, ...] = ()

    @property
    def held(self) -> int:
        """How many tasks run: those that are shown, or, where there are more, as many as were counted last."""
        return len(self.running) if len(self.running) < MOST_ROWS else max(self.queue.processing, MOST_ROWS)

    @property
    def busy_slots(self) -> int:
        """Of the workers that live. A program beside them, or one that died, may hold tasks, too."""
        if len(self.running) >= MOST_ROWS:
            return min(self.held, sum(one.slots for one in self.statuses))
        held = Counter(one.claimed_by for one in self.running)
        return sum(min(held[one.owner], one.slots) for one in self.statuses)

    def held_of(self, platform: str) -> int:
        if len(self.running) < MOST_ROWS:
            return sum(one.platform == platform for one in self.running)
        return self.platforms.get(platform, {}).get("processing", 0)
