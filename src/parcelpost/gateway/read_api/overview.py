"""Everything the dashboard's live part shows, in one answer that is not made anew for each who looks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from parcelpost.gateway.parts import Parts
from parcelpost.gateway.read_api.answers import queue_answer
from parcelpost.gateway.read_api.fleet_answers import (
    Overview,
    activity_of,
    health_of,
    outcomes_of,
    sync_of,
    worker_answer,
)

BUCKET_SECONDS = {1: 60, 3: 120, 6: 300, 24: 900}
"""By the hours that are shown."""

_FRESH_SECONDS = 1.0
_DAY_FRESH_SECONDS = 60.0
_FORGOTTEN_AFTER = timedelta(days=7)
_MOST_WORKERS = 500


class OverviewDesk:
    """Asks the ledger at most once a second for all who look, and for the last day's sums once a minute."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._made: dict[int, tuple[float, Overview]] = {}
        self._day_at = float("-inf")
        self._outcomes: Mapping[str, Counter[str]] = {}

    async def overview(self, hours: int) -> Overview:
        async with self._lock:
            now = self._parts.clock.monotonic()
            made_at, made = self._made.get(hours, (float("-inf"), None))
            if made is None or now - made_at >= _FRESH_SECONDS:
                made = await self._make(hours)
                self._made[hours] = (now, made)
            return made

    async def _make(self, hours: int) -> Overview:
        ledger, now = self._parts.ledger, self._parts.clock.now()
        bucket = BUCKET_SECONDS[hours]
        buckets = hours * 3_600 // bucket
        last = int(now.timestamp() // bucket) * bucket
        since = now.fromtimestamp(last - (buckets - 1) * bucket, now.tzinfo)
        await self._sum_up_the_day()
        rows = await ledger.workers(_MOST_WORKERS)
        workers = [worker_answer(row, now) for row in rows if now - row.last_seen_at <= _FORGOTTEN_AFTER]
        return Overview(
            now=now,
            version=self._parts.version,
            counts=await ledger.counts(),
            workers=workers,
            queue=[queue_answer(row, now) for row in await ledger.queue()],
            activity=activity_of(await ledger.activity(since), since, buckets, bucket),
            sync=sync_of(workers),
            platforms=health_of(self._outcomes, workers),
        )

    async def _sum_up_the_day(self) -> None:
        if self._parts.clock.monotonic() - self._day_at < _DAY_FRESH_SECONDS:
            return
        since = self._parts.clock.now() - timedelta(days=1)
        self._outcomes = outcomes_of(await self._parts.ledger.activity(since))
        self._day_at = self._parts.clock.monotonic()
