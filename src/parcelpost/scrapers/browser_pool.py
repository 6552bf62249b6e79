"""BrowserPool: pages in real browsers, lent one at a time, by as many browsers as the work and the machine allow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from parcelpost import events
from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit
from parcelpost.scrapers.browsers import orphans
from parcelpost.scrapers.browsers.bounded import NotDone
from parcelpost.scrapers.browsers.browser import Chromium
from parcelpost.scrapers.browsers.deaths import Deaths
from parcelpost.scrapers.browsers.ledger import BrowserLedger
from parcelpost.scrapers.browsers.lent import Lent
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.place import Place
from parcelpost.scrapers.browsers.starting import Starting
from parcelpost.scrapers.browsers.tending import Tending
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
        self._ledger = ledger
        self._owner = owner
        self._clock = clock
        self._emit = emit
        self._allowed = options.most
        self._starting = Starting(options, clock, emit)
        self._tending = Tending(options, ledger, clock, emit)
        self._deaths = Deaths()
        self._places: list[Place] = []
        self._line: deque[asyncio.Future[Place]] = deque()
        """Who waits for a page, in order of arrival."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._restarts = 0
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
            pool._begin(pool._tend())
            yield pool
        finally:
            await pool._close()

    @asynccontextmanager
    async def lend(self, task_id: str, *, patience: float = 5.0, **context_options: Any) -> AsyncIterator[Lent]:
        """A page in a fresh context, for one task.

        Raises NoTurn if all browsers are busy for longer than `patience` seconds, NoBrowser if none can be had,
        BrowserDied if it died, and TryLater where the task's page has killed one browser after the other.
        """
        place = await self._turn(patience)
        chromium, lent = place.chromium, None
        began = self._clock.monotonic()
        if chromium is None or chromium.over.done():
            raise BrowserDied("the browser died before it could be used")
        try:
            await place.lend(task_id)
            lent = await self._open_page(place, chromium, context_options)
            with self._deaths.counted(task_id, lent):
                yield lent
        finally:
            self._takes += _NEWS * (self._clock.monotonic() - began - self._takes)
            await asyncio.shield(self._begin(self._take_back(place, chromium, task_id, lent)))

    def allow(self, most: int) -> None:
        """How many browsers are safe now: none is started above it, and those above it end when they are idle."""
        self._allowed = max(0, most)
        self._shrink()

    async def stop_largest(self) -> bool:
        """Memory is out: ends the browser that has most of it, in the middle of a task too. False: there is none."""
        running = [place for place in self._places if place.chromium is not None]
        if not running:
            return False
        largest = max(running, key=lambda place: place.memory or 0)
        largest.is_given_up = True
        if largest.chromium is not None:
            largest.chromium.end("the machine is out of memory")
            largest.chromium.kill()
        return True

    def opens_in(self) -> float:
        """0: a page would be lent at once, or as soon as a browser has started. Else seconds to the next look."""
        if not self._most:
            return _NOT_ALLOWED_SECONDS
        again_in = self._starting.again_in
        if again_in and not self._places:
            return again_in
        can_start = 0 if again_in else self._most - len(self._places)
        ready = sum(place.is_idle or place.is_coming for place in self._places)
        if ready + can_start > len(self._line):
            return 0.0
        return max(_SOONEST_LOOK_SECONDS, self._takes / max(1, len(self._places)))

    @property
    def figures(self) -> PoolFigures:
        running = [place for place in self._places if place.chromium is not None]
        return PoolFigures(
            browsers=len(running),
            busy=sum(place.is_lent for place in running),
            waiting=len(self._line),
            restarts=self._restarts,
            pss_bytes=sum(place.memory or 0 for place in running),
            pss_per_browser=self._tending.memory_per_browser,
            problem="" if running else self._problem,
        )

    @property
    def _most(self) -> int:
        return min(self._options.most, self._allowed)

    @property
    def _problem(self) -> str:
        if not self._options.most:
            return "browser.most is 0"
        return self._starting.problem if self._allowed else "there is no memory for a browser"

    # Lending

    async def _turn(self, patience: float) -> Place:
        self._refuse(patience)
        idle = [place for place in self._places if place.is_idle]
        if idle and not self._line:
            place = max(idle, key=lambda one: one.idle_since)  # the others may become idle enough to be stopped
            place.is_lent = True
            return place
        waiting: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._line.append(waiting)
        self._grow()
        try:
            await asyncio.wait({waiting}, timeout=patience)
        except BaseException:
            if waiting.done() and waiting.exception() is None:
                self._offer(waiting.result())
            raise
        finally:
            with suppress(ValueError):
                self._line.remove(waiting)
        if waiting.done():
            return waiting.result()
        self._refuse(0.0)
        busy = sum(place.is_lent for place in self._places)
        raise NoTurn(f"{busy} of {len(self._places)} browsers are busy", max(_SOONEST_LOOK_SECONDS, self.opens_in()))

    def _refuse(self, patience: float) -> None:
        """Raises NoBrowser where none will be had within that time."""
        if not self._most:
            raise NoBrowser(self._problem, _NOT_ALLOWED_SECONDS)
        if not self._places and self._starting.again_in > patience:
            raise NoBrowser(self._starting.problem, self._starting.again_in)

    def _offer(self, place: Place) -> None:
        """To whoever waits longest."""
        place.is_lent = False
        while self._line and place.is_idle:
            waiting = self._line.popleft()
            if not waiting.done():
                place.is_lent = True
                waiting.set_result(place)

    async def _open_page(self, place: Place, chromium: Chromium, context_options: dict[str, Any]) -> Lent:
        try:
            context, page = await chromium.fresh_page(**context_options)
        except NotDone as error:
            chromium.end(str(error))
            raise BrowserDied(str(error)) from error
        self._starting.worked()
        if place.chromium is chromium:
            place.was_of_use = True
        return Lent(place.browser_id, chromium, context, page)

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
        is_too_many = len(self._places) > self._most
        if reason := "fewer are safe now" if is_too_many else self._tending.why_retire(place):
            self._retire(place, reason)
        else:
            self._offer(place)

    # Growing and shrinking

    def _grow(self) -> None:
        if self._starting.again_in:
            return
        starting = sum(place.is_coming for place in self._places)
        for _ in range(min(len(self._line) - starting, self._most - len(self._places))):
            place = Place(self._ledger, self._owner, self._clock)
            self._places.append(place)
            self._begin(self._keep(place))

    def _shrink(self) -> None:
        idle = sorted((place for place in self._places if place.is_idle), key=lambda one: one.idle_since)
        for place in idle[: max(0, len(self._places) - self._most)]:
            place.is_given_up = True
            self._retire(place, "fewer are safe now")
        for place in self._places:
            if place.is_idle and (reason := self._tending.why_retire(place)):
                self._retire(place, reason)
            elif place.is_idle and self._tending.is_idle_for_long(place):
                place.is_given_up = True
                self._retire(place, "nobody needed it")

    def _retire(self, place: Place, reason: str) -> None:
        if place.chromium is not None:
            place.retiring = reason
            place.chromium.end(reason)

    async def _keep(self, place: Place) -> None:
        """Has a browser run in the place, one after the other, for as long as the place is wanted."""
        is_gone = True
        try:
            while await self._start(place):
                is_gone = False
                if place.chromium is not None:
                    await asyncio.wait({place.chromium.over})
                is_gone = await self._end(place)
                if not is_gone or place.is_given_up or len(self._places) > self._most or self._starting.again_in:
                    break
                self._restarts += 1
        finally:
            if place.chromium is not None:
                is_gone = await place.chromium.close(kindly=True)
            self._places.remove(place)
            if is_gone:  # else what is written down stays, for whoever comes after us
                await place.forget()
            self._grow()

    async def _start(self, place: Place) -> bool:
        try:
            await self._starting.start(place)
        except (NotDone, StoreError) as error:
            self._starting.failed(str(error), error.hint if isinstance(error, NotDone) else "")
            if not any(one.chromium for one in self._places):
                self._disappoint()
            return False
        self._offer(place)
        return True

    async def _end(self, place: Place) -> bool:
        """Whether nothing is left of the browser."""
        chromium = place.chromium
        if chromium is None:
            return True
        reason = chromium.over.result()
        if place.retiring:
            self._emit(events.BrowserRetired(browser_id=place.browser_id, reason=reason, tasks=place.tasks))
            await place.note(status="restarting", current_task_id=None)
        else:
            self._emit(events.BrowserDied(browser_id=place.browser_id, reason=reason, tasks=place.tasks))
            await place.note(status="crashed", current_task_id=None)
        is_gone = await chromium.close(kindly=bool(place.retiring))
        place.chromium = None
        if not (place.was_of_use or place.retiring or place.is_given_up):
            self._starting.died_young(reason)
        return is_gone

    def _disappoint(self) -> None:
        """Who waits is told why there is none, and when to come back."""
        while self._line:
            waiting = self._line.popleft()
            if not waiting.done():
                waiting.set_exception(NoBrowser(self._starting.problem, self._starting.again_in))

    # Its own loop, and its end

    async def _tend(self) -> None:
        while True:
            await self._clock.sleep(self._tending.seconds)
            self._shrink()
            self._grow()
            if await self._tending.look_after([place for place in self._places if place.chromium is not None]):
                self._starting.worked()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self) -> None:
        self._allowed = 0
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._starting.stop()
            with suppress(StoreError):
                await orphans.forget_own(self._ledger, self._owner)
