"""BrowserPool: leases pages in real browsers, one page per browser, with as many browsers as the machine allows."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import BrowserDied, BrowserRetired, Emit, LoopFailed
from parcelpost.scrapers.browser import slots
from parcelpost.scrapers.browser.base import BrowserOptions, BrowserStore
from parcelpost.scrapers.browser.browser import BrowserCallFailed, Chromium, ChromiumPage
from parcelpost.scrapers.browser.slots import BrowserSlot, HealthChecks, Launcher, WaitQueue
from parcelpost.scrapers.fetch.errors import BrowserCrashed, BrowserUnavailable, HostBusy, RetryLater

_MOST_CRASHES = 5
_MOST_TASKS = 10_000


class CrashCounts:
    """A death costs the task nothing, unless its page is the cause, or it is there at one death after the other."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, int] = OrderedDict()

    @contextmanager
    def counted(self, task_id: str, chromium: Chromium) -> Iterator[None]:
        """Raises TryLater in the place of a BrowserDied that the page has caused, and of the sixth in a row."""
        try:
            yield
        except BrowserCrashed as error:
            if chromium.cause == "page":
                raise RetryLater(str(error)) from error
            if self._is_too_often(task_id, chromium):
                raise RetryLater(f"{error}, as {_MOST_CRASHES} times before with this task") from error
            raise
        self._of.pop(task_id, None)

    def _is_too_often(self, task_id: str, chromium: Chromium) -> bool:
        if chromium.cause == "ours" or not chromium.driver.is_running:
            return False  # no page can help that; the driver dies under all of them at once
        count = self._of.pop(task_id, 0) + 1
        if count > _MOST_CRASHES:
            return True
        self._of[task_id] = count
        while len(self._of) > _MOST_TASKS:
            self._of.popitem(last=False)
        return False


_LONGEST_PAUSE = 60.0
_LONGEST_REASON = 300


class BrowserSlots:
    def __init__(
        self, options: BrowserOptions, ledger: BrowserStore, owner: str, clock: Clock, emit: Emit, line: WaitQueue
    ) -> None:
        self.starting = Launcher(options, clock, emit)
        self.allowed = options.most
        self.restarts = 0
        self._options = options
        self._ledger = ledger
        self._owner = owner
        self._clock = clock
        self._emit = emit
        self._line = line
        self._tending = HealthChecks(options, ledger, clock, emit)
        self._places: list[BrowserSlot] = []
        self._keepers: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[BrowserSlot]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def most(self) -> int:
        return min(self._options.most, self.allowed)

    @property
    def running(self) -> list[BrowserSlot]:
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
                await slots.delete_states(self._ledger, self.starting.token)

    def grow(self) -> None:
        """For those in the line who have no browser coming."""
        if self.starting.again_in:
            return
        coming = sum(place.is_coming for place in self._places)
        for _ in range(min(len(self._line) - coming, self.most - len(self._places))):
            place = BrowserSlot(self._ledger, self._owner, self._clock)
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

    def free(self, place: BrowserSlot) -> None:
        """A page was given back: the browser is for the next in line, unless it is to end."""
        if self._too_many > 0:
            _give_up(place, "fewer are safe now")
        elif reason := self._tending.why_retire(place):
            _retire(place, reason)
        else:
            self._line.serve(place)

    async def _keep(self, place: BrowserSlot) -> None:
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

    async def _leave(self, place: BrowserSlot, *, is_gone: bool) -> None:
        try:
            if place.chromium is not None:
                is_gone = await place.chromium.close(kindly=True)
        finally:
            self._places.remove(place)
        if is_gone:  # else what is written down stays, for whoever comes after us
            await place.forget()
        self.grow()

    async def _start(self, place: BrowserSlot) -> bool:
        try:
            await self.starting.start(place)
        except (BrowserCallFailed, StoreError) as error:
            self._fail(str(error), error.hint)
            return False
        self._line.serve(place)
        return True

    def _fail(self, reason: str, hint: str = "") -> None:
        self.starting.failed(reason, hint)
        if not self.running:
            self._line.disappoint(self.starting.problem, self.starting.again_in)

    async def _end(self, place: BrowserSlot) -> bool:
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


def _retire(place: BrowserSlot, reason: str) -> None:
    if place.chromium is not None:
        place.retiring = reason
        place.chromium.end(reason)


def _give_up(place: BrowserSlot, reason: str) -> None:
    place.is_given_up = True
    _retire(place, reason)


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

    def __init__(self, options: BrowserOptions, ledger: BrowserStore, owner: str, clock: Clock, emit: Emit) -> None:
        self._options = options
        self._clock = clock
        self._line = WaitQueue()
        self._places = BrowserSlots(options, ledger, owner, clock, emit, self._line)
        self._deaths = CrashCounts()
        self._returns: set[asyncio.Task[None]] = set()
        self._takes = 0.0
        """How long a page is lent, lately."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: BrowserOptions, ledger: BrowserStore, *, owner: str, clock: Clock, emit: Emit
    ) -> AsyncIterator[BrowserPool]:
        """Ends what dead predecessors left, and starts nothing yet. On leaving, no process of ours is left.

        May raise a StoreError.
        """
        await slots.remove_orphans(ledger, clock, emit)
        pool = cls(options, ledger, owner, clock, emit)
        try:
            pool._places.open()
            yield pool
        finally:
            await pool._places.close()
            await asyncio.gather(*pool._returns)

    @asynccontextmanager
    async def lend(self, task_id: str, *, patience: float = 5.0, **context_options: Any) -> AsyncIterator[ChromiumPage]:
        """A page in a fresh context, for one task.

        Raises NoTurn if all browsers are busy for longer than `patience` seconds, NoBrowser if none can be had,
        BrowserDied if it died, and TryLater where the page is the cause or has lost one browser after the other.
        """
        place = await self._turn(patience)
        chromium, lent = place.chromium, None
        if chromium is None or chromium.over.done():
            raise BrowserCrashed("the browser died before it could be used")
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

    async def _turn(self, patience: float) -> BrowserSlot:
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
        raise HostBusy(f"{busy} of {len(self._places)} browsers are busy", max(_SOONEST_LOOK_SECONDS, self.opens_in()))

    def _refuse(self, patience: float) -> None:
        """Raises NoBrowser where none will be had within that time."""
        if not self._places.most:
            remedy = "" if self._options.most else "set browser.most to 1 or more"
            raise BrowserUnavailable(self._problem, _NOT_ALLOWED_SECONDS, remedy)
        again_in = self._places.starting.again_in
        if not len(self._places) and again_in > patience:
            raise BrowserUnavailable(self._problem, again_in)

    async def _open_page(self, place: BrowserSlot, chromium: Chromium, context_options: dict[str, Any]) -> ChromiumPage:
        try:
            context, page = await chromium.fresh_page(**context_options)
        except BrowserCallFailed as error:
            if error.is_late or not chromium.is_running:
                chromium.end(str(error))
            raise BrowserCrashed(str(error)) from error
        self._places.starting.worked()
        if place.chromium is chromium:
            place.was_of_use = True
        return ChromiumPage(place.browser_id, chromium, context, page)

    async def _give_back(self, place: BrowserSlot, chromium: Chromium, task_id: str, lent: ChromiumPage | None) -> None:
        """Goes on to its end even if the borrower is cancelled meanwhile."""
        task = asyncio.get_running_loop().create_task(self._take_back(place, chromium, task_id, lent))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        await asyncio.shield(task)

    async def _take_back(self, place: BrowserSlot, chromium: Chromium, task_id: str, lent: ChromiumPage | None) -> None:
        await place.unassign(task_id)
        was_good = lent is not None and not lent.death
        try:
            await chromium.close_pages()
        except BrowserCallFailed as error:
            chromium.end(str(error))
        if chromium.over.done() or place.chromium is not chromium:
            return  # whoever keeps the place sees to it
        await place.take_back(was_good=was_good)
        self._places.free(place)
