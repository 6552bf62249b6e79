"""What is done for browsers now and then: they are measured and asked how they are, and the dead are cleared away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit
from parcelpost.scrapers.browsers import orphans
from parcelpost.scrapers.browsers.bounded import NotDone
from parcelpost.scrapers.browsers.ledger import BrowserLedger
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.place import Place

_LONGEST_SECONDS = 2.0
_CHECK_EVERY_SECONDS = 10.0
_ORPHANS_EVERY_SECONDS = 60.0


class Tending:
    def __init__(self, options: BrowserOptions, ledger: BrowserLedger, clock: Clock, emit: Emit) -> None:
        self._options = options
        self._ledger = ledger
        self._clock = clock
        self._emit = emit
        self.memory_per_browser: int | None = None
        """Bytes, the mean of those that run, or ran last; None: nothing was measured yet."""
        self._orphans_at = clock.monotonic()
        self.seconds = min(_LONGEST_SECONDS, options.idle_seconds / 2, options.max_age_seconds / 2)
        """From one look to the next."""

    def why_retire(self, place: Place) -> str:
        """'': it may go on."""
        if place.tasks >= self._options.tasks_per_browser:
            return f"it has done {place.tasks} tasks"
        if self._clock.monotonic() - place.started_at > self._options.max_age_seconds:
            return f"it is older than {self._options.max_age_seconds:g} s"
        if (place.memory or 0) > self._options.max_browser_bytes:
            return f"it has {(place.memory or 0) / 1024**2:.0f} MiB of memory"
        return ""

    def is_idle_for_long(self, place: Place) -> bool:
        return self._clock.monotonic() - place.idle_since > self._options.idle_seconds

    async def look_after(self, places: Sequence[Place]) -> bool:
        """Measures all, and asks those that are idle how they are. Whether one said that it is well."""
        for place in places:
            await self._measure(place)
        if found := [place.memory for place in places if place.memory is not None]:
            self.memory_per_browser = sum(found) // len(found)
        due = [place for place in places if place.is_idle and self._is_due(place)]
        answers = await asyncio.gather(*(self._check(place) for place in due))
        if self._clock.monotonic() - self._orphans_at > _ORPHANS_EVERY_SECONDS:
            self._orphans_at = self._clock.monotonic()
            with suppress(StoreError):
                await orphans.remove(self._ledger, self._clock, self._emit)
        return any(answers)

    def _is_due(self, place: Place) -> bool:
        return self._clock.monotonic() - place.checked_at > _CHECK_EVERY_SECONDS

    async def _measure(self, place: Place) -> None:
        chromium = place.chromium
        if chromium is None:
            return
        found = await asyncio.to_thread(chromium.memory)
        if place.chromium is chromium and not chromium.over.done():
            place.memory = found
            await place.note(memory_mb=found // 1024**2)

    async def _check(self, place: Place) -> bool:
        chromium = place.chromium
        if chromium is None:
            return False
        place.checked_at = self._clock.monotonic()
        try:
            await chromium.answers()
        except NotDone as error:
            chromium.end(str(error))
            return False
        await place.note(last_health_check=self._clock.now())
        return True
