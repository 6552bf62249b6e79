"""BrowserPool: pages in real browsers, lent one at a time, by as many browsers as the work and the machine allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.scrapers.browsers import orphans
from parcelpost.scrapers.browsers.bounded import NotDone
from parcelpost.scrapers.browsers.browser import Chromium
from parcelpost.scrapers.browsers.deaths import Deaths
from parcelpost.scrapers.browsers.ledger import BrowserLedger
from parcelpost.scrapers.browsers.lent import Lent
from parcelpost.scrapers.browsers.line import Line
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.place import Place
from parcelpost.scrapers.browsers.places import Places
from parcelpost.scrapers.fetch_errors import BrowserDied, NoBrowser, NoTurn

_SOONEST_LOOK_SECONDS = 0.1
_NOT_ALLOWED_SECONDS = 5.0
_NEWS = 0.2


class PoolFigures(Struct, frozen=True, kw_only=True):
    browsers: int
    busy: int
    waiting: int
    """Who wants a page and has none yet."""
    restarts: int
    """Of browsers that died or were retired."""
    pss_bytes: int
    """Of all browsers, as last measured."""
    pss_per_browser: int | None
    """None: nothing was measured yet."""
    problem: str
    """Why no browser can be had; '': one can."""


class BrowserPool:
    """Belongs to one event loop. Every browser has one page at a time, in a context that nobody had before."""

    def __init__(self, options: BrowserOptions, ledger: BrowserLedger, owner: str, clock: Clock, emit: Emit) -> None:
        self._options = options
        self._clock = clock
        self._line = Line()
        self._places = Places(options, ledger, owner, clock, emit, self._line)
        self._deaths = Deaths()
        self._returns: set[asyncio.Task[None]] = set()
        self._takes = 0.0
        """How long a page is lent, lately."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: BrowserOptions, ledger: BrowserLedger, *, owner: str, clock: Clock, emit: Emit
    ) -> AsyncIterator[BrowserPool]:
        """Ends what dead predecessors left, and starts nothing yet. On leaving, no process of ours is left.

        May raise a StoreError.
        """
        await orphans.remove(ledger, clock, emit)
        pool = cls(options, ledger, owner, clock, emit)
        try:
            pool._places.open()
            yield pool
        finally:
            await pool._places.close()
            await asyncio.gather(*pool._returns)

    @asynccontextmanager
    async def lend(self, task_id: str, *, patience: float = 5.0, **context_options: Any) -> AsyncIterator[Lent]:
        """A page in a fresh context, for one task.

        Raises NoTurn if all browsers are busy for longer than `patience` seconds, NoBrowser if none can be had,
        BrowserDied if it died, and TryLater where the page is the cause or has lost one browser after the other.
        """
        place = await self._turn(patience)
        chromium, lent = place.chromium, None
        if chromium is None or chromium.over.done():
            raise BrowserDied("the browser died before it could be used")
        began = self._clock.monotonic()
        try:
            await place.lend(task_id)
            with self._deaths.counted(task_id, chromium):
                lent = await self._open_page(place, chromium, context_options)
                yield lent
        finally:
            self._takes += _NEWS * (self._clock.monotonic() - began - self._takes)
            await self._give_back(place, chromium, task_id, lent)

    def allow(self, most: int) -> None:
        """How many browsers are safe now: none is started above it, and those above it end when they are idle."""
        self._places.allowed = max(0, most)
        self._places.shrink()
        self._places.grow()

    async def stop_largest(self) -> bool:
        """Memory is out: ends the browser that has most of it, in the middle of a task too. False: there is none."""
        largest = max(self._places.running, key=lambda place: place.memory or 0, default=None)
        if largest is None or largest.chromium is None:
            return False
        largest.is_given_up = True
        is_page = (largest.memory or 0) > self._options.max_browser_bytes  # or it would come back at no cost for ever
        largest.chromium.end("the machine is out of memory", "page" if is_page else "ours")
        largest.chromium.kill()
        return True

    def opens_in(self) -> float:
        """0: a page would be lent at once, or as soon as a browser has started. Else seconds to the next look."""
        if not self._places.most:
            return _NOT_ALLOWED_SECONDS
        again_in = self._places.starting.again_in
        if again_in and not len(self._places):
            return again_in
        can_start = 0 if again_in else self._places.most - len(self._places)
        ready = sum(place.is_idle or place.is_coming for place in self._places)
        if ready + can_start > len(self._line):
            return 0.0
        return max(_SOONEST_LOOK_SECONDS, self._takes / max(1, len(self._places)))

    @property
    def figures(self) -> PoolFigures:
        running = self._places.running
        return PoolFigures(
            browsers=len(running),
            busy=sum(place.is_lent for place in running),
            waiting=len(self._line),
            restarts=self._places.restarts,
            pss_bytes=sum(place.memory or 0 for place in running),
            pss_per_browser=self._places.memory_per_browser,
            problem="" if running else self._problem,
        )

    @property
    def _problem(self) -> str:
        if not self._options.most:
            return "browser.most is 0"
        return self._places.starting.problem if self._places.allowed else "there is no memory for a browser"

    async def _turn(self, patience: float) -> Place:
        self._refuse(patience)
        idle = [place for place in self._places if place.is_idle]
        if idle and not len(self._line):
            place = max(idle, key=lambda one: one.idle_since)  # the others may become idle enough to be stopped
            place.is_lent = True
            return place
        found = await self._line.stand(patience, self._places.grow)
        if found is not None:
            return found
        self._refuse(0.0)
        busy = sum(place.is_lent for place in self._places)
        raise NoTurn(f"{busy} of {len(self._places)} browsers are busy", max(_SOONEST_LOOK_SECONDS, self.opens_in()))

    def _refuse(self, patience: float) -> None:
        """Raises NoBrowser where none will be had within that time."""
        if not self._places.most:
            remedy = "" if self._options.most else "set browser.most to 1 or more"
            raise NoBrowser(self._problem, _NOT_ALLOWED_SECONDS, remedy)
        again_in = self._places.starting.again_in
        if not len(self._places) and again_in > patience:
            raise NoBrowser(self._problem, again_in)

    async def _open_page(self, place: Place, chromium: Chromium, context_options: dict[str, Any]) -> Lent:
        try:
            context, page = await chromium.fresh_page(**context_options)
        except NotDone as error:
            if error.is_late or not chromium.is_running:
                chromium.end(str(error))
            raise BrowserDied(str(error)) from error
        self._places.starting.worked()
        if place.chromium is chromium:
            place.was_of_use = True
        return Lent(place.browser_id, chromium, context, page)

    async def _give_back(self, place: Place, chromium: Chromium, task_id: str, lent: Lent | None) -> None:
        """Goes on to its end even if the borrower is cancelled meanwhile."""
        task = asyncio.get_running_loop().create_task(self._take_back(place, chromium, task_id, lent))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        await asyncio.shield(task)

    async def _take_back(self, place: Place, chromium: Chromium, task_id: str, lent: Lent | None) -> None:
        await place.unassign(task_id)
        was_good = lent is not None and not lent.death
        try:
            await chromium.close_pages()
        except NotDone as error:
            chromium.end(str(error))
        if chromium.over.done() or place.chromium is not chromium:
            return  # whoever keeps the place sees to it
        await place.take_back(was_good=was_good)
        self._places.free(place)
