"""The executor: slots that claim tasks and run them one after another, each with two loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import AttemptAbandoned
from parcelpost.model import Blocked, Claim, GiveUp, Outcome, Retry, Task
from parcelpost.scrapers.county_scraper import CountyScraper
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.worker.attempt import Attempt, AttemptRecorder
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Step
from parcelpost.worker.sandbox import GRACE_SECONDS, ParseThreads, Sandbox, encoded, guarded
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


class _FetchTurn:
    """The right of one of a slot's loops to fetch. The other one may take its turn as soon as it has ended."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._is_held = False

    async def __aenter__(self) -> _FetchTurn:
        await self._lock.acquire()
        self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lock.release()


class Slot:
    """Has two loops: while one parses its page and waits for its result to be durable, the other fetches the next.

    Fetching therefore does not wait for the disk. Built-in platforms fetch on the worker's event loop and parse on
    `ParseThreads`; all other platform code runs in the slot's sandbox, the other loop waiting until it has ended.
    Cancelling a step loses nothing: its claim is released, or recovered at the next start (I9).
    """

    def __init__(self, name: str, executor: Executor) -> None:
        self.name = name
        self._executor = executor
        self._context = executor.context
        self._lpm = executor.context.lpm
        self._sandbox = executor.new_sandbox(name)
        self._fetching = asyncio.Lock()
        """Locked by the loop that fetches, or uses the sandbox."""
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
        with executor.running.step() as step:
            async with _FetchTurn(self._fetching) as turn:
                claim = await executor.next_claim(self.name)
                if not isinstance(claim, Claim):
                    return claim
                executor.running.claims[step] = claim
                try:
                    await self._work_on(claim, turn)
                except asyncio.CancelledError:
                    await self._release(claim, None)
                    raise
                except BaseException:
                    await self._release(claim, timedelta(seconds=self._context.settings.executor.retry_min_seconds))
                    raise
            return 0.0

    def interrupt(self) -> None:
        """Stops the running tasks, which are released. The slot cannot be used again."""
        self._is_interrupted = True
        self._sandbox.interrupt()
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Ends its thread, unless platform code does not return."""
        await self._sandbox.close()

    async def _work_on(self, claim: Claim, turn: _FetchTurn) -> None:
        executor = self._executor
        attempt = Attempt(claim=claim, started=self._context.clock.monotonic())
        try:
            outcome = await self._scrape(claim.task, turn)
        finally:
            executor.availability.task_ended(claim.task)
        turn.end()
        if outcome is None:
            self.released += await self._lpm.release(claim)
        else:
            await executor.recorder.record(attempt, outcome)

    async def _release(self, claim: Claim, delay: timedelta | None) -> None:
        try:
            await self._lpm.release(claim, delay)
        except StoreError:
            self._lpm.release_later(claim)

    async def _scrape(self, task: Task, turn: _FetchTurn) -> Outcome | None:
        """Returns None if it was interrupted."""
        factory, abandoned = self._context.factory, self._executor.abandoned
        scrape = factory.scraper(task.platform)
        if scrape is None:
            return GiveUp(f"no platform named {task.platform}; known: {', '.join(factory.names())}")
        if abandoned.are_too_many(task.platform):
            return Blocked(f"{abandoned.count} threads of platform code have not returned")
        if built_in := factory.county_scraper(task.platform):
            return await self._scrape_built_in(built_in, task, turn)
        outcome = await self._sandbox.run(scrape, task, self._time_limit)
        if outcome is not None and not self._sandbox.is_free:
            self._executor.abandon(self._sandbox, task)
            self._sandbox = self._executor.new_sandbox(self.name)
        return outcome

    async def _scrape_built_in(self, scraper: CountyScraper, task: Task, turn: _FetchTurn) -> Outcome | None:
        """Its platform's code is ours: it may raise, and a page may make its parser hang, but fetching never blocks."""
        limit = asyncio.timeout(self._time_limit)

        async def parse(page: Callable[[], Outcome]) -> Outcome:
            turn.end()
            limit.reschedule(None)  # the thread has a limit of its own
            outcome, stuck = await self._executor.parse_threads.run(lambda _: page(), task, self._time_limit)
            if stuck is not None:
                self._executor.abandon(stuck, task)
            return outcome

        self._limits.add(limit)
        try:
            async with limit:
                return await guarded(scraper.scrape(task, parse))
        except TimeoutError:
            return None if self._is_interrupted else Retry(f"took longer than {self._time_limit:g} s")
        finally:
            self._limits.discard(limit)

    @property
    def _time_limit(self) -> float:
        return self._context.settings.executor.task_timeout_seconds


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
        self.parse_threads = ParseThreads(lambda: self.new_sandbox("parse"))
        self.recorder = AttemptRecorder(context, learning, availability)
        self._wake_ups = WakeUps(context.settings.executor.idle_seconds, context.clock)
        self._one_by_one = asyncio.Lock()
        self._is_draining = False
        self.slots = [Slot(f"slot {number}", self) for number in range(1, context.settings.executor.slots + 1)]
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
        self._is_draining = True
        idle = self.running.idle
        if not idle.is_set():
            await self.context.clock.wait(idle, seconds)
        if not idle.is_set():
            self.context.lpm.backpressure.stop_waiting()
            for slot in self.slots:
                slot.interrupt()
            await idle.wait()
        return sum(slot.released for slot in self.slots)

    async def close(self) -> None:
        """Ends all threads that can end. Call it after the last step."""
        self._is_draining = True
        await asyncio.gather(self.parse_threads.close(), *(slot.close() for slot in self.slots))

    def new_sandbox(self, name: str) -> Sandbox:
        # Records can be large, so they are encoded in the sandbox's thread.
        return Sandbox(name, grace=self.grace, finish=lambda outcome: encoded(outcome, self.context.lpm.encode))

    def abandon(self, sandbox: Sandbox, task: Task) -> None:
        """Leaves a sandbox behind whose platform code did not stop."""
        self.abandoned.add(task.platform, sandbox)
        left_behind = self.abandoned.count
        self.context.emit(AttemptAbandoned(task_id=task.task_id, platform=task.platform, left_behind=left_behind))

    async def next_claim(self, slot: str) -> Claim | float:
        """Returns the next claim for the slot, or the seconds until its next try."""
        if not self._may_claim(slot):
            return self._wake_ups.next_in(slot, ())
        # With rate limits, each caller must see which host the previous claim will use.
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
