"""The places of a pool: as many as the line needs and the machine allows, each with a browser that is well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import BrowserDied, BrowserRetired, Emit, LoopFailed
from parcelpost.scrapers.browsers import orphans
from parcelpost.scrapers.browsers.bounded import NotDone
from parcelpost.scrapers.browsers.ledger import BrowserLedger
from parcelpost.scrapers.browsers.line import Line
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.place import Place
from parcelpost.scrapers.browsers.starting import Starting
from parcelpost.scrapers.browsers.tending import Tending

_LONGEST_PAUSE = 60.0
_LONGEST_REASON = 300


class Places:
    def __init__(
        self, options: BrowserOptions, ledger: BrowserLedger, owner: str, clock: Clock, emit: Emit, line: Line
    ) -> None:
        self.starting = Starting(options, clock, emit)
        self.allowed = options.most
        self.restarts = 0
        self._options = options
        self._ledger = ledger
        self._owner = owner
        self._clock = clock
        self._emit = emit
        self._line = line
        self._tending = Tending(options, ledger, clock, emit)
        self._places: list[Place] = []
        self._keepers: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def most(self) -> int:
        return min(self._options.most, self.allowed)

    @property
    def running(self) -> list[Place]:
        return [place for place in self._places if place.chromium is not None]

    @property
    def _too_many(self) -> int:
        return sum(not place.is_given_up for place in self._places) - self.most

    @property
    def memory_per_browser(self) -> int | None:
        return self._tending.memory_per_browser

    def open(self) -> None:
        self._keepers.add(asyncio.get_running_loop().create_task(self._tend()))

    async def close(self) -> None:
        """No process is left, whatever happens."""
        self.allowed = 0
        for keeper in self._keepers:
            keeper.cancel()
        try:
            await asyncio.gather(*self._keepers, return_exceptions=True)
        finally:
            await self.starting.stop()
            with suppress(StoreError):
                await orphans.forget(self._ledger, self.starting.token)

    def grow(self) -> None:
        """For those in the line who have no browser coming."""
        if self.starting.again_in:
            return
        coming = sum(place.is_coming for place in self._places)
        for _ in range(min(len(self._line) - coming, self.most - len(self._places))):
            place = Place(self._ledger, self._owner, self._clock)
            self._places.append(place)
            keeper = asyncio.get_running_loop().create_task(self._keep(place))
            self._keepers.add(keeper)
            keeper.add_done_callback(self._keepers.discard)

    def shrink(self) -> None:
        """Idle ones that are too many, that nobody needed for long, or whose time is over."""
        idle = sorted((place for place in self._places if place.is_idle), key=lambda one: one.idle_since)
        for place in idle[: max(0, self._too_many)]:
            _give_up(place, "fewer are safe now")
        for place in self._places:
            if place.is_idle and (reason := self._tending.why_retire(place)):
                _retire(place, reason)
            elif place.is_idle and self._tending.is_idle_for_long(place):
                _give_up(place, "nobody needed it")

    def free(self, place: Place) -> None:
        """A page was given back: the browser is for the next in line, unless it is to end."""
        if self._too_many > 0:
            _give_up(place, "fewer are safe now")
        elif reason := self._tending.why_retire(place):
            _retire(place, reason)
        else:
            self._line.serve(place)

    async def _keep(self, place: Place) -> None:
        """Has a browser run in the place, one after the other, for as long as the place is wanted."""
        is_gone = True
        try:
            while await self._start(place):
                is_gone = False
                if place.chromium is not None:
                    await asyncio.wait({place.chromium.over})
                is_gone = await self._end(place)
                if not is_gone or place.is_given_up or self._too_many > 0 or self.starting.again_in:
                    break
                self.restarts += 1
        except Exception as error:  # noqa: BLE001 - who waits is told, and it is tried again
            self._fail(f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
        finally:
            await self._leave(place, is_gone=is_gone)

    async def _leave(self, place: Place, *, is_gone: bool) -> None:
        try:
            if place.chromium is not None:
                is_gone = await place.chromium.close(kindly=True)
        finally:
            self._places.remove(place)
        if is_gone:  # else what is written down stays, for whoever comes after us
            await place.forget()
        self.grow()

    async def _start(self, place: Place) -> bool:
        try:
            await self.starting.start(place)
        except (NotDone, StoreError) as error:
            self._fail(str(error), error.hint)
            return False
        self._line.serve(place)
        return True

    def _fail(self, reason: str, hint: str = "") -> None:
        self.starting.failed(reason, hint)
        if not self.running:
            self._line.disappoint(self.starting.problem, self.starting.again_in)

    async def _end(self, place: Place) -> bool:
        """Whether nothing is left of the browser."""
        chromium = place.chromium
        if chromium is None:
            return True
        reason = chromium.over.result()
        if place.retiring:
            self._emit(BrowserRetired(browser_id=place.browser_id, reason=reason, tasks=place.tasks))
            await place.note(status="restarting", current_task_id=None)
        else:
            self._emit(BrowserDied(browser_id=place.browser_id, reason=reason, tasks=place.tasks))
            await place.note(status="crashed", current_task_id=None)
        is_gone = await chromium.close(kindly=bool(place.retiring))
        place.chromium = None
        if not (place.was_of_use or place.retiring or place.is_given_up):
            self.starting.died_young(reason)
        return is_gone

    async def _tend(self) -> None:
        failures, pause = 0, self._tending.seconds
        while True:
            await self._clock.sleep(pause)
            try:
                await self._look_after_all()
            except Exception as error:  # noqa: BLE001 - reported, and done again
                failures += 1
                pause = min(_LONGEST_PAUSE, self._tending.seconds * 2 ** min(failures, 10))
                message = f"{type(error).__name__}: {error}"
                self._emit(LoopFailed(loop="browsers", error=message, in_a_row=failures, next_in_seconds=pause))
            else:
                failures, pause = 0, self._tending.seconds

    async def _look_after_all(self) -> None:
        self.shrink()
        self.grow()
        if await self._tending.look_after(self.running):
            self.starting.worked()


def _retire(place: Place, reason: str) -> None:
    if place.chromium is not None:
        place.retiring = reason
        place.chromium.end(reason)


def _give_up(place: Place, reason: str) -> None:
    place.is_given_up = True
    _retire(place, reason)
