"""A slot: takes one task after the other, each a turn of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from itertools import count

from parcelpost.clock import Clock
from parcelpost.events import AttemptAbandoned, Emit
from parcelpost.model import Blocked, Claim, GiveUp, Outcome, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.turns import Turns
from parcelpost.settings.keys import ExecutorSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.ending import Attempt, Ending
from parcelpost.worker.giving_back import GivingBack
from parcelpost.worker.loop import Step
from parcelpost.worker.outcomes import encoded
from parcelpost.worker.stage import Stage

NextClaim = Callable[[str], Awaitable[Claim | float]]
"""By the slot's name: the next task to run there, or in how many seconds to ask again."""


class LeftBehind:
    """Stages on which platform code did not stop. One that comes back is no longer counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stages: list[tuple[str, Stage]] = []

    @property
    def count(self) -> int:
        self._stages = [(platform, stage) for platform, stage in self._stages if stage.is_stuck]
        return len(self._stages)

    def add(self, platform: str, stage: Stage) -> None:
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
        left_behind: LeftBehind,
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

    def _new_stage(self) -> Stage:
        # A record may be large: it is encoded where it was made, or the loop would stand still for it.
        return Stage(self.name, grace=self._grace, finish=lambda outcome: encoded(outcome, self._lpm.encode))

    def _replace_stage(self, task: Task) -> None:
        self._left_behind.add(task.platform, self._stage)
        self._stage = self._new_stage()
        left = self._left_behind.count
        self._emit(AttemptAbandoned(task_id=task.task_id, platform=task.platform, left_behind=left))
