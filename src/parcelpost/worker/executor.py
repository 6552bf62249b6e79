"""The executor: N slots that work through the queue side by side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.model import Claim, Signal
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.turns import Turns
from parcelpost.settings.keys import ExecutorSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.browser_waits import BrowserWait
from parcelpost.worker.control import Control
from parcelpost.worker.ending import Ending
from parcelpost.worker.giving_back import GivingBack
from parcelpost.worker.openings import Openings
from parcelpost.worker.pressure import Pressure
from parcelpost.worker.slot import LeftBehind, Running, Slot
from parcelpost.worker.stage import GRACE_SECONDS

MAX_LEFT_BEHIND = 32


class Executor:
    """Each of its `slots` has a `step()` for a Loop of its own. Belongs to one event loop."""

    def __init__(
        self,
        lpm: LocalPersistenceManager,
        factory: ScraperFactory,
        settings: ExecutorSettings,
        control: Control,
        *,
        platforms: Callable[[], Collection[str] | None],
        level: Callable[[], Level],
        saved: Callable[[], None],
        ran_dry: Callable[[], None],
        clock: Clock,
        emit: Emit,
        pressure: Callable[[], Pressure] = lambda: Pressure.FINE,
        turns: Turns = Turns(),  # noqa: B008 - nobody fetches, and all sites are open
        learn: Callable[[Sequence[Signal]], None] = lambda _: None,
        grace: float = GRACE_SECONDS,
        max_left_behind: int = MAX_LEFT_BEHIND,
    ) -> None:
        """`platforms`: whose tasks are taken, None for everybody's. `saved` is called when there is something new to
        deliver, `ran_dry` when there was nothing to claim, `learn` with what an attempt told of its selectors. Under
        `pressure` fewer slots claim, or none. `turns` knows whose tasks are passed over for now. `grace`: the seconds
        that platform code has to stop when its time is up. At `max_left_behind` threads that did not, the platforms
        they belong to are paused.
        """
        self._lpm = lpm
        self._control = control
        self._platforms = platforms
        self._level = level
        self._pressure = pressure
        self._ran_dry = ran_dry
        self._turns = turns
        self._clock = clock
        self._openings = Openings(settings.idle_seconds, clock)
        self._one_by_one = asyncio.Lock()
        self._draining = False
        self._running = Running()
        self._left_behind = LeftBehind(max_left_behind)
        self._giving_back = GivingBack(lpm)
        self._ending = ending = Ending(lpm, settings, clock, emit, saved, level, learn)
        self.slots = [
            Slot(
                f"slot {number}",
                self._next_claim,
                lpm,
                factory,
                settings,
                turns=turns,
                ending=ending,
                running=self._running,
                left_behind=self._left_behind,
                giving_back=self._giving_back,
                grace=grace,
                clock=clock,
                emit=emit,
            )
            for number in range(1, settings.slots + 1)
        ]
        self._half = {slot.name for slot in self.slots[: max(1, len(self.slots) // 2)]}
        """Those that go on claiming when memory says slow."""

    @property
    def active(self) -> int:
        """How many tasks are being worked on."""
        return len(self._running.claims)

    @property
    def left_behind(self) -> int:
        """How many threads platform code holds after its time was up."""
        return self._left_behind.count

    @property
    def holds_unstored(self) -> bool:
        """Whether ended attempts wait for a store that cannot be written for now."""
        return self._ending.unstored > 0

    @property
    def browser_waits(self) -> list[BrowserWait]:
        """Whose tasks wait for a browser, and why."""
        return self._ending.browser_waits.current

    async def drain(self, seconds: float) -> int:
        """Starts nothing more and waits for what runs, then gives back the rest.

        Answers how many were given back, also by an earlier drain that was cancelled.
        """
        self._draining = True
        nothing = self._running.nothing
        if not nothing.is_set():
            await self._clock.wait(nothing, seconds)
        if not nothing.is_set():
            for slot in self.slots:
                slot.interrupt()
            await nothing.wait()
        return sum(slot.released for slot in self.slots)

    async def close(self) -> None:
        """Ends all threads that end: to be called when no slot takes turns any more."""
        self._draining = True
        await asyncio.gather(*(slot.close() for slot in self.slots))

    async def _next_claim(self, slot: str) -> Claim | float:
        await self._giving_back.settle()
        if not self._may_start(slot):
            return self._openings.back_in(slot, ())
        # Where sites have turns, each caller must see whom the one before it has sent on the way.
        async with self._one_by_one if self._turns.are_known else contextlib.nullcontext():
            closed = self._turns.closed()
            found = await self._lpm.claim(1, platforms=self._platforms(), but=closed.sites)
            if found and self._may_start(slot):
                self._turns.sets_out(found[0].task)
                return found[0]
        if found:
            await self._giving_back.release(found[0])
        else:
            self._ran_dry()
        return self._openings.back_in(slot, closed.opens_in)

    def _may_start(self, slot: str) -> bool:
        if not self._control.may_start or self._draining or self._level() is Level.EXECUTOR_STOPS:
            return False
        pressure = self._pressure()
        return pressure is Pressure.FINE or (pressure is Pressure.SLOW and slot in self._half)
