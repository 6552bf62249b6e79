"""The executor: slots that claim tasks and run them one after another, each with two loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import AttemptAbandoned
from parcelpost.model import Blocked, Claim, GiveUp, Outcome, Retry, Task
from parcelpost.scrapers.county_scraper import CountyScraper
from parcelpost.scrapers.fetch.throttle import ClosedSites, SiteAvailability
from parcelpost.scrapers.platform import Scrape
from parcelpost.worker.attempt import Attempt, AttemptRecorder
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Step
from parcelpost.worker.outcomes import encoded, guarded
from parcelpost.worker.sandbox import GRACE_SECONDS, Sandbox, Sandboxes
from parcelpost.worker.status import BrowserWait

MAX_ABANDONED = 32
_SAME_MOMENT_SECONDS = 0.01


class WakeUps:
    """Plans when idle slots try to claim again: one slot for each host whose rate limit allows the next request."""

    def __init__(self, idle_seconds: float, clock: Clock) -> None:
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._wake_at: dict[str, float] = {}
        """Monotonic time of the planned wake-up, by slot."""

    def next_in(self, slot: str, open_in: Sequence[float]) -> float:
        """Returns the seconds until this slot's next try. `open_in`: seconds until each host's next request, sorted."""
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
    """Sandboxes whose platform code did not stop in time. Those that have stopped since do not count."""

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
        """Whether the limit is reached and this platform has a share in it."""
        if len(self._sandboxes) < self._limit or self.count < self._limit:
            return False
        return any(owner == platform for owner, _ in self._sandboxes)


class _Running:
    """The slots' current steps."""

    def __init__(self) -> None:
        self.claims: dict[int, Claim] = {}
        """The claim that each step works on, until its outcome is stored."""
        self.idle = asyncio.Event()
        """Set while no step runs."""
        self.idle.set()
        self._steps = 0
        self._numbers = count(1)

    @contextlib.contextmanager
    def step(self) -> Iterator[int]:
        """Yields the step's number."""
        number = next(self._numbers)
        self._steps += 1
        self.idle.clear()
        try:
            yield number
        finally:
            self.claims.pop(number, None)
            self._steps -= 1
            if not self._steps:
                self.idle.set()


class Slot:
    """Has two loops: while one waits for its result to be durable, the other fetches the next.

    Fetching therefore does not wait for the disk. Built-in platforms fetch on the worker's event loop and parse on
    threads; all other platform code runs in a sandbox. Cancelling a step loses nothing: its claim is released, or
    recovered at the next start (I9).
    """

    def __init__(self, name: str, executor: Executor) -> None:
        self.name = name
        self._executor = executor
        self._context = executor.context
        self._lpm = executor.context.lpm
        self._limits: set[asyncio.Timeout] = set()
        """The time limits of its fetches."""
        self._is_interrupted = False
        self.released = 0
        """How many tasks were interrupted and are pending again."""

    @property
    def loops(self) -> dict[str, Step]:
        """Steps of its two loops, by name."""
        return {self.name: self.step, f"{self.name}, second loop": self.step}

    async def step(self) -> float:
        """Claims a task, runs it and stores its outcome. Returns the seconds until the next try if there is none."""
        executor = self._executor
        if executor.is_draining:
            return self._context.settings.executor.idle_seconds
        with executor.running.step() as step:
            async with executor.fetching():
                claim = await executor.next_claim(self.name)
                if not isinstance(claim, Claim):
                    return claim
                executor.running.claims[step] = claim
                attempt = Attempt(claim=claim, started=self._context.clock.monotonic())
                async with self._released_on_failure(claim):
                    try:
                        await self._lpm.artifacts.discard_superseded(claim)
                        outcome = await self._scrape(claim.task)
                    finally:
                        executor.availability.task_ended(claim.task)
            async with self._released_on_failure(claim):
                await self._store(attempt, outcome)
            return 0.0

    def interrupt(self) -> None:
        """Stops the running tasks, which are released. The slot cannot be used again."""
        self._is_interrupted = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    @contextlib.asynccontextmanager
    async def _released_on_failure(self, claim: Claim) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self._executor.release(claim)
            raise
        except BaseException:
            delay = timedelta(seconds=self._context.settings.executor.retry_min_seconds)
            await self._executor.release(claim, delay)
            raise

    async def _store(self, attempt: Attempt, outcome: Outcome | None) -> None:
        executor = self._executor
        if outcome is None:
            was_current = await self._lpm.release(attempt.claim)
            self.released += was_current
        else:
            await executor.recorder.record(attempt, outcome)

    async def _scrape(self, task: Task) -> Outcome | None:
        """Returns None if it was interrupted."""
        factory, abandoned = self._context.factory, self._executor.abandoned
        scrape = factory.scraper(task.platform)
        if scrape is None:
            return GiveUp(f"no platform named {task.platform}; known: {', '.join(factory.names())}")
        if abandoned.are_too_many(task.platform):
            return Blocked(f"{abandoned.count} threads of platform code have not returned")
        if built_in := factory.county_scraper(task.platform):
            return await self._scrape_built_in(built_in, task)
        return await self._executor.run_in(self._executor.sandboxes, scrape, task)

    async def _scrape_built_in(self, scraper: CountyScraper, task: Task) -> Outcome | None:
        """Its platform's code is ours: it may raise, and a page may make its parser hang, but fetching never blocks."""
        seconds = self._context.settings.executor.task_timeout_seconds
        limit = asyncio.timeout(seconds)

        async def parse(page: Callable[[], Outcome]) -> Outcome:
            if not self._is_interrupted:
                limit.reschedule(None)  # the thread has a limit of its own
            outcome = await self._executor.run_in(self._executor.parse_threads, lambda _: page(), task)
            return outcome or Retry("interrupted")

        self._limits.add(limit)
        try:
            async with limit:
                return await guarded(scraper.scrape(task, parse))
        except TimeoutError:
            return None if self._is_interrupted else Retry(f"took longer than {seconds:g} s")
        finally:
            self._limits.discard(limit)


class Executor:
    """The slots and what they share. Belongs to one event loop."""

    def __init__(
        self,
        context: Context,
        learning: Learning,
        availability: SiteAvailability,
        *,
        grace: float = GRACE_SECONDS,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        """`availability`: the fetcher's rate limits. `grace`: seconds that platform code has to stop at its time limit.
        At `max_abandoned` threads that did not stop, their platforms are paused.
        """
        self.context = context
        self.availability = availability
        self.grace = grace
        self.running = _Running()
        self.abandoned = AbandonedThreads(max_abandoned)
        slots = context.settings.executor.slots
        self._may_fetch = asyncio.Semaphore(slots)
        self._fetches = 0
        self.sandboxes = Sandboxes(lambda: self._new_sandbox("sandbox"), slots)
        # More parsers than processors would only disturb each other.
        self.parse_threads = Sandboxes(lambda: self._new_sandbox("parser"), os.cpu_count() or 1)
        self.recorder = AttemptRecorder(context, learning, availability)
        self._wake_ups = WakeUps(context.settings.executor.idle_seconds, context.clock)
        self._claiming = 0
        """How many claims are being made."""
        self._claim_made = asyncio.Event()
        self.is_draining = False
        self.slots = [Slot(f"slot {number}", self) for number in range(1, slots + 1)]
        self._half = {slot.name for slot in self.slots[: max(1, len(self.slots) // 2)]}
        """Slots that keep claiming when memory is tight."""

    @property
    def active(self) -> int:
        """How many tasks are running."""
        return len(self.running.claims)

    @property
    def browser_waits(self) -> Sequence[BrowserWait]:
        return self.recorder.browser_waits.current

    async def drain(self, seconds: float) -> int:
        """Starts no more tasks, waits up to that long for running ones, then interrupts the others.

        Returns how many tasks were interrupted and released, including those of an earlier drain that was cancelled.
        """
        self.is_draining = True
        idle = self.running.idle
        if not idle.is_set():
            await self.context.clock.wait(idle, seconds)
        if not idle.is_set():
            self.context.lpm.backpressure.stop_waiting()
            for slot in self.slots:
                slot.interrupt()
            self.sandboxes.interrupt()
            await idle.wait()
        return sum(slot.released for slot in self.slots)

    async def close(self) -> None:
        """Ends all threads that can end. Call it after the last step."""
        self.is_draining = True
        await asyncio.gather(self.parse_threads.close(), self.sandboxes.close())

    async def run_in(self, sandboxes: Sandboxes, scrape: Scrape, task: Task) -> Outcome | None:
        """Returns the outcome of platform code, None if it was interrupted."""
        outcome, stuck = await sandboxes.run(scrape, task, self.context.settings.executor.task_timeout_seconds)
        if stuck is not None:
            self.abandoned.add(task.platform, stuck)
            left_behind = self.abandoned.count
            self.context.emit(AttemptAbandoned(task_id=task.task_id, platform=task.platform, left_behind=left_behind))
        return outcome

    @contextlib.asynccontextmanager
    async def fetching(self) -> AsyncIterator[None]:
        """Lets as many tasks be fetched and parsed at a time as there are slots: a kill costs few unsaved pages."""
        async with self._may_fetch:
            self._fetches += 1
            try:
                yield
            finally:
                self._fetches -= 1

    async def next_claim(self, slot: str) -> Claim | float:
        """Returns the next claim for the slot, or the seconds until its next try."""
        if not self._may_claim(slot):
            return self._wake_ups.next_in(slot, ())
        closed = await self._closed_sites()
        with self._being_claimed():
            claims = await self.context.lpm.claim(
                1, platforms=self.context.chosen_platforms, exclude_sites=closed.sites
            )
            if claims and self._may_claim(slot):
                self.availability.task_claimed(claims[0].task)
                return claims[0]
        if claims:
            await self.release(claims[0])
        else:
            self.context.control.wake("collector")
        return self._wake_ups.next_in(slot, closed.opens_in)

    async def release(self, claim: Claim, delay: timedelta | None = None) -> None:
        try:
            await self.context.lpm.release(claim, delay)
        except StoreError:
            self.context.lpm.release_later(claim)

    async def _closed_sites(self) -> ClosedSites:
        """With rate limits, a claim must see which host the previous claims will use, if that makes a difference."""
        while not self._may_claim_together(closed := self.availability.closed()):
            self._claim_made.clear()
            await self._claim_made.wait()
        return closed

    def _may_claim_together(self, closed: ClosedSites) -> bool:
        """Whether the same sites would be closed wherever the claims lead that are being made."""
        return not self._claiming or self.availability.closed(self._claiming).sites == closed.sites

    @contextlib.contextmanager
    def _being_claimed(self) -> Iterator[None]:
        self._claiming += 1
        try:
            yield
        finally:
            self._claiming -= 1
            self._claim_made.set()

    def _new_sandbox(self, name: str) -> Sandbox:
        # Records can be large, so they are encoded in the sandbox's thread.
        return Sandbox(name, grace=self.grace, finish=lambda outcome: encoded(outcome, self.context.lpm.encode))

    def _may_claim(self, slot: str) -> bool:
        is_of_half = slot in self._half and self._fetches <= len(self._half)
        return not self.is_draining and self.context.control.may_claim(even_if_slow=is_of_half)
