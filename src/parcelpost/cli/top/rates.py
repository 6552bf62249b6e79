"""Ten minutes in parts of ten seconds: what is over is remembered, so that each look counts the last part only."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from parcelpost.cli.top.seen import Rates
from parcelpost.clock import iso
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.queries import PART_CHARS, Throughput, throughput_since

PARTS = 60
PART_SECONDS = 10

_NAMES = ("completed", "failed", "delivered", "fetched")


class RateBook:
    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _NAMES}
        self._known_to: datetime | None = None
        """Where a part begins, before which everything is counted."""

    async def look(self, database: LocalDatabase, now: datetime) -> Rates:
        first = part_start(now) - timedelta(seconds=PART_SECONDS * (PARTS - 1))
        since = self._known_to
        if since is None or not first <= since <= now:  # the first look, a long pause, or a clock that was set back
            self._counts = {name: Counter() for name in _NAMES}
            since = first
        self._take(await database.read(throughput_since, since), since)
        # What ends now may be committed a little later: the part before is counted once more.
        self._known_to = max(first, part_start(now) - timedelta(seconds=PART_SECONDS))
        return self._rates(first)

    def _take(self, done: Throughput, since: datetime) -> None:
        again = iso(since)[:PART_CHARS]
        for name, counts in self._counts.items():
            for part in [part for part in counts if part >= again]:
                del counts[part]
            counts.update(getattr(done, name))

    def _rates(self, first: datetime) -> Rates:
        parts = [iso(first + timedelta(seconds=PART_SECONDS * n))[:PART_CHARS] for n in range(PARTS)]
        for counts in self._counts.values():
            for old in [part for part in counts if part < parts[0]]:
                del counts[old]
        return Rates(**{name: tuple(counts[part] for part in parts) for name, counts in self._counts.items()})


def part_start(now: datetime) -> datetime:
    return now.replace(second=now.second - now.second % PART_SECONDS, microsecond=0)
