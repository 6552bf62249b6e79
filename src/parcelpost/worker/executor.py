"""The executor: slots that work on one task after another, each with two loops and a sandbox thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from itertools import count

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import AttemptAbandoned
from parcelpost.model import Blocked, Claim, GiveUp, Outcome, Task
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.worker.attempt import Attempt, AttemptRecorder
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Step
from parcelpost.worker.outcomes import encoded
from parcelpost.worker.sandbox import GRACE_SECONDS, Sandbox
from parcelpost.worker.status import BrowserWait

MAX_ABANDONED = 32
_SAME_MOMENT_SECONDS = 0.01


class WakeUps:
    """When an idle slot looks for a task again: one slot for each host whose rate limit allows the next request."""

    def __init__(self, idle_seconds: float, clock: Clock) -> None:
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._wake_at: dict[str, float] = {}
        """By slot: the wake-up it was given."""

    def next_in(self, slot: str, open_in: Sequence[float]) -> float:
        """Returns the seconds until this slot looks again. `open_in`: until each host may be asked, soonest first."""
        now = self._clock.monotonic()
        self._wake_at.pop(slot, None)
        planned = [at - now for at in self._wake_at.values() if at > now]
        for place, seconds in enumerate(open_in):
            if seconds >= self._idle_seconds:
                break
            if sum(other <= seconds + _SAME_MOMENT_SECONDS for other in planned) <= place:
                self._wake_at[slot] = now + seconds
                return seconds
        return self._idle_seconds


class AbandonedThreads:
    """Sandboxes whose platform code did not stop. One that ends after all is no longer counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sandboxes: list[tuple[str, Sandbox]] = []

    @property
    def count(self) -> int:
        self._sandboxes = [(platform, sandbox) for platform, sandbox in self._sandboxes if sandbox.is_stuck]
        return len(self._sandboxes)

    def add(self, platform: str, sandbox: Sandbox) -> None:
        self._sandboxes.append((platform, sandbox))

    def are_too_many(self, platform: str) -> bool:
        """Whether the limit is reached, with threads of this platform among them."""
        if len(self._sandboxes) < self._limit or self.count < self._limit:
            return False
        return any(owner == platform for owner, _ in self._sandboxes)


class _Running:
    """The steps that slots are in."""

    def __init__(self) -> None:
        self.claims: dict[int, Claim] = {}
        """By step: the task it works on, until its end is stored."""
        self.nothing = asyncio.Event()
        """Set while no slot is in a step."""
        self.nothing.set()
        self._steps = 0
        self._numbers = count(1)

    @contextlib.contextmanager
    def step(self) -> Iterator[int]:
        """Yields its number."""
        number = next(self._numbers)
        self._steps += 1
        self.nothing.clear()
        try:
            yield number
        finally:
            self.claims.pop(number, None)
            self._steps -= 1
            if not self._steps:
                self.nothing.set()


class Slot:
    """Two loops serve it: while one waits for its result to be on disk, the other works on the next task.

    So scraping does not wait for the store, and at most two scraped tasks are not stored yet. Cancelling a step at any
    moment loses nothing: its claim is released, or recovered by I9.
    """

    def __init__(self, name: str, executor: Executor) -> None:
        self.name = name
        self._executor = executor
        self._context = executor.context
        self._lpm = executor.context.lpm
        self._sandbox = self._new_sandbox()
        self._scraping = asyncio.Lock()
        """Held by the step whose task is in the sandbox."""
        self.released = 0
        """Tasks that were interrupted and are pending again."""

    @property
    def loops(self) -> dict[str, Step]:
        """By name. One loop alone works too, but waits for the disk."""
        return {self.name: self.step, f"{self.name}, second loop": self.step}

    async def step(self) -> float:
        """One task, from its claim until its end is stored."""
        executor = self._executor
        with executor.running.step() as step:
            async with self._scraping:
                claim = await executor.next_claim(self.name)
                if not isinstance(claim, Claim):
                    return claim
                executor.running.claims[step] = claim
                attempt = Attempt(claim=claim, started=self._context.clock.monotonic())
                async with self._released_on_failure(claim):
                    try:
                        outcome = await self._scrape(claim.task)
                    finally:
                        executor.availability.task_ended(claim.task)
            async with self._released_on_failure(claim):
                if outcome is None:
                    self.released += await self._lpm.release(claim)
                else:
                    await executor.recorder.record(attempt, outcome)
            return 0.0

    def interrupt(self) -> None:
        """Stops what runs; its task is released. The slot is not used again."""
        self._sandbox.interrupt()

    async def close(self) -> None:
        """Ends its thread, unless platform code holds it."""
        await self._sandbox.close()

    @contextlib.asynccontextmanager
    async def _released_on_failure(self, claim: Claim) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self._release(claim, None)
            raise
        except BaseException:
            await self._release(claim, timedelta(seconds=self._context.settings.executor.retry_min_seconds))
            raise

    async def _release(self, claim: Claim, delay: timedelta | None) -> None:
        try:
            await self._lpm.release(claim, delay)
        except StoreError:
            self._lpm.release_later(claim)

    async def _scrape(self, task: Task) -> Outcome | None:
        """Returns None if it was interrupted."""
        factory, abandoned = self._context.factory, self._executor.abandoned
        scrape = factory.scraper(task.platform)
        if scrape is None:
            return GiveUp(f"no platform named {task.platform}; known: {', '.join(factory.names())}")
        if abandoned.are_too_many(task.platform):
            return Blocked(f"{abandoned.count} threads of platform code have not returned")
        outcome = await self._sandbox.run(scrape, task, self._context.settings.executor.task_timeout_seconds)
        if outcome is not None and not self._sandbox.is_free:
            self._replace_sandbox(task)
        return outcome

    def _new_sandbox(self) -> Sandbox:
        # A record may be large: it is encoded in the sandbox's thread, not on the event loop.
        return Sandbox(self.name, grace=self._executor.grace, finish=lambda outcome: encoded(outcome, self._lpm.encode))

    def _replace_sandbox(self, task: Task) -> None:
        abandoned = self._executor.abandoned
        abandoned.add(task.platform, self._sandbox)
        self._sandbox = self._new_sandbox()
        self._context.emit(AttemptAbandoned(task_id=task.task_id, platform=task.platform, left_behind=abandoned.count))


class Executor:
    """Each slot's `step` is run by loops of its own. Belongs to one event loop."""

    def __init__(
        self,
        context: Context,
        learning: Learning,
        availability: SiteAvailability,
        *,
        grace: float = GRACE_SECONDS,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        """`availability`: the fetcher's rate limits. `grace`: seconds that platform code has to stop when its time is
        up. At `max_abandoned` threads that did not stop, their platforms are paused.
        """
        self.context = context
        self.availability = availability
        self.grace = grace
        self.running = _Running()
        self.abandoned = AbandonedThreads(max_abandoned)
        self.recorder = AttemptRecorder(context, learning)
        self._wake_ups = WakeUps(context.settings.executor.idle_seconds, context.clock)
        self._one_by_one = asyncio.Lock()
        self._is_draining = False
        self.slots = [Slot(f"slot {number}", self) for number in range(1, context.settings.executor.slots + 1)]
        self._half = {slot.name for slot in self.slots[: max(1, len(self.slots) // 2)]}
        """Those that go on claiming when memory is short."""

    @property
    def active(self) -> int:
        """How many tasks are being worked on."""
        return len(self.running.claims)

    @property
    def browser_waits(self) -> Sequence[BrowserWait]:
        return self.recorder.browser_waits.current

    async def drain(self, seconds: float) -> int:
        """Starts nothing more, waits that long for what runs, then interrupts the rest.

        Returns how many tasks were interrupted and released, also by an earlier drain that was cancelled.
        """
        self._is_draining = True
        nothing = self.running.nothing
        if not nothing.is_set():
            await self.context.clock.wait(nothing, seconds)
        if not nothing.is_set():
            self.context.lpm.backpressure.stop_waiting()
            for slot in self.slots:
                slot.interrupt()
            await nothing.wait()
        return sum(slot.released for slot in self.slots)

    async def close(self) -> None:
        """Ends all threads that can end. Call it when no slot takes another step."""
        self._is_draining = True
        await asyncio.gather(*(slot.close() for slot in self.slots))

    async def next_claim(self, slot: str) -> Claim | float:
        """Returns the next task for the slot, or the seconds until it should look again."""
        if not self._may_claim(slot):
            return self._wake_ups.next_in(slot, ())
        # Where hosts have rate limits, each caller must see which host the one before it will ask.
        async with self._one_by_one if self.availability.knows_sites else contextlib.nullcontext():
            closed = self.availability.closed()
            platforms = self.context.chosen_platforms
            claims = await self.context.lpm.claim(1, platforms=platforms, exclude_sites=closed.sites)
            if claims and self._may_claim(slot):
                self.availability.task_claimed(claims[0].task)
                return claims[0]
        if claims:
            await self.context.lpm.release(claims[0])
        else:
            self.context.control.wake("collector")
        return self._wake_ups.next_in(slot, closed.opens_in)

    def _may_claim(self, slot: str) -> bool:
        return not self._is_draining and self.context.control.may_claim(even_if_slow=slot in self._half)
