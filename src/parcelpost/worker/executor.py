"""The executor: slots that take one task after another, each with two loops and a sandbox thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from datetime import timedelta
from itertools import count

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import AttemptAbandoned, Emit
from parcelpost.model import Blocked, Claim, GiveUp, Outcome, Signal, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.turns import Turns
from parcelpost.settings.schema import ExecutorSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.attempt import Attempt, Ending
from parcelpost.worker.control import Control
from parcelpost.worker.loop import Step
from parcelpost.worker.outcomes import encoded
from parcelpost.worker.sandbox import GRACE_SECONDS, Sandbox
from parcelpost.worker.status import BrowserWait, Pressure

_SAME_MOMENT_SECONDS = 0.01


class Openings:
    """One idle slot comes back for each host that opens: all of them at once would find one task between them."""

    def __init__(self, idle_seconds: float, clock: Clock) -> None:
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._back_at: dict[str, float] = {}
        """Slot -> the moment for which it promised to be back."""

    def back_in(self, slot: str, opens_in: Sequence[float]) -> float:
        """The seconds until this slot looks again. `opens_in`: until each host opens, soonest first."""
        now = self._clock.monotonic()
        self._back_at.pop(slot, None)
        promised = [at - now for at in self._back_at.values() if at > now]
        for place, seconds in enumerate(opens_in):
            if seconds >= self._idle_seconds:
                break
            if sum(other <= seconds + _SAME_MOMENT_SECONDS for other in promised) <= place:
                self._back_at[slot] = now + seconds
                return seconds
        return self._idle_seconds


class GivingBack:
    """Shared by the slots of one executor. While this process lives nobody else brings back what it holds (I9)."""

    def __init__(self, lpm: LocalPersistenceManager) -> None:
        self._lpm = lpm
        self._owed: deque[Claim] = deque()

    async def release(self, claim: Claim, delay: timedelta | None = None) -> bool:
        """Whether it is back in the queue by this. What the store does not take is owed."""
        try:
            return await self._lpm.release(claim, delay)
        except StoreError:
            self._owed.append(claim)
            return False

    async def settle(self) -> None:
        """What is owed goes back. Raises a StoreError: it stays owed."""
        while self._owed:
            claim = self._owed.popleft()
            try:
                await self._lpm.release(claim)
            except BaseException:
                self._owed.append(claim)
                raise


NextClaim = Callable[[str], Awaitable[Claim | float]]
"""By the slot's name: the next task to run there, or in how many seconds to ask again."""


class AbandonedThreads:
    """Stages on which platform code did not stop. One that comes back is no longer counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stages: list[tuple[str, Sandbox]] = []

    @property
    def count(self) -> int:
        self._stages = [(platform, stage) for platform, stage in self._stages if stage.is_stuck]
        return len(self._stages)

    def add(self, platform: str, stage: Sandbox) -> None:
        self._stages.append((platform, stage))

    def are_too_many(self, platform: str) -> bool:
        """Whether the limit is reached, and this platform has a part in it."""
        if len(self._stages) < self._limit or self.count < self._limit:
            return False
        return any(owner == platform for owner, _ in self._stages)


class Running:
    """What the slots are doing."""

    def __init__(self) -> None:
        self.claims: dict[int, Claim] = {}
        """Turn -> the task it is about, until its end is stored."""
        self.nothing = asyncio.Event()
        """Set while no slot is in the middle of a turn."""
        self.nothing.set()
        self._turns = 0
        self._numbers = count(1)

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        """Its number."""
        number = next(self._numbers)
        self._turns += 1
        self.nothing.clear()
        try:
            yield number
        finally:
            self.claims.pop(number, None)
            self._turns -= 1
            if not self._turns:
                self.nothing.set()


class Slot:
    """Two loops serve it: while one waits for the disk to have what it brought, the other takes the next task.

    So scraping does not wait for the store, and what is scraped but not stored yet is two tasks at most. Cancelling a
    turn, at whatever moment, loses nothing: its claim is released, or comes back by I9.
    """

    def __init__(
        self,
        name: str,
        next_claim: NextClaim,
        lpm: LocalPersistenceManager,
        factory: ScraperFactory,
        settings: ExecutorSettings,
        *,
        turns: Turns,
        ending: Ending,
        running: Running,
        left_behind: AbandonedThreads,
        giving_back: GivingBack,
        grace: float,
        clock: Clock,
        emit: Emit,
    ) -> None:
        self.name = name
        self._next_claim = next_claim
        self._lpm = lpm
        self._factory = factory
        self._settings = settings
        self._turns = turns
        self._ending = ending
        self._running = running
        self._left_behind = left_behind
        self._giving_back = giving_back
        self._grace = grace
        self._clock = clock
        self._emit = emit
        self._stage = self._new_stage()
        self._scraping = asyncio.Lock()
        """Held by the turn whose task is on the stage."""
        self._stopping = asyncio.Event()
        self.released = 0
        """Tasks that went back to the queue because they were interrupted."""

    @property
    def loops(self) -> dict[str, Step]:
        """What a worker runs a loop for, by name. One of them alone works too, but waits for the disk."""
        return {self.name: self.step, f"{self.name}, other hand": self.step}

    async def step(self) -> float:
        """One task, from its claim until its end is stored."""
        with self._running.turn() as turn:
            async with self._scraping:
                claim = await self._next_claim(self.name)
                if not isinstance(claim, Claim):
                    return claim
                self._running.claims[turn] = claim
                attempt = Attempt(slot=self.name, claim=claim, started=self._clock.monotonic(), stopping=self._stopping)
                async with self._or_given_back(claim):
                    try:
                        outcome = await self._outcome(claim.task)
                    finally:
                        self._turns.came(claim.task)
            async with self._or_given_back(claim):
                await self._end(attempt, outcome)
            return 0.0

    def interrupt(self) -> None:
        """What runs is given back. This slot is not used again."""
        self._stopping.set()
        self._stage.interrupt()

    async def close(self) -> None:
        """Ends its thread, if platform code lets it."""
        await self._stage.close()

    @contextlib.asynccontextmanager
    async def _or_given_back(self, claim: Claim) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self._giving_back.release(claim)
            raise
        except BaseException:
            await self._giving_back.release(claim, timedelta(seconds=self._settings.retry_min_seconds))
            raise

    async def _end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        if outcome is None:
            self.released += await self._giving_back.release(attempt.claim)
        else:
            await self._ending.end(attempt, outcome)

    async def _outcome(self, task: Task) -> Outcome | None:
        """None: interrupted."""
        scrape = self._factory.scraper(task.platform)
        if scrape is None:
            known = ", ".join(self._factory.names())
            return GiveUp(f"no platform named {task.platform}; known: {known}")
        if self._left_behind.are_too_many(task.platform):
            return Blocked(f"{self._left_behind.count} threads of platform code have not come back")
        outcome = await self._stage.run(scrape, task, self._settings.task_timeout_seconds)
        if outcome is not None and not self._stage.is_free:
            self._replace_stage(task)
        return outcome

    def _new_stage(self) -> Sandbox:
        # A record may be large: it is encoded where it was made, or the loop would stand still for it.
        return Sandbox(self.name, grace=self._grace, finish=lambda outcome: encoded(outcome, self._lpm.encode))

    def _replace_stage(self, task: Task) -> None:
        self._left_behind.add(task.platform, self._stage)
        self._stage = self._new_stage()
        left = self._left_behind.count
        self._emit(AttemptAbandoned(task_id=task.task_id, platform=task.platform, left_behind=left))


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
        self._left_behind = AbandonedThreads(max_left_behind)
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
            found = await self._lpm.claim(1, platforms=self._platforms(), exclude_sites=closed.sites)
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
