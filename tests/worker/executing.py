"""An executor on a real store, with what it reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from parcelpost.clock import Clock, ManualClock
from parcelpost.events import Event
from parcelpost.model import Signal, Task, TaskStatus
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.platform import Scrape
from parcelpost.scrapers.turns import Turns
from parcelpost.settings.schema import ExecutorSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.loop import Loop
from parcelpost.worker.status import Pressure
from tests.storage.making import the_task

E = TypeVar("E", bound=Event)


class Works:
    """Everything around an executor, and the executor."""

    def __init__(
        self,
        lpm: LocalPersistenceManager,
        clock: Clock,
        factory: ScraperFactory,
        settings: ExecutorSettings,
        *,
        grace: float,
        max_left_behind: int,
        turns: Turns,
    ) -> None:
        self.lpm = lpm
        self.clock = clock
        self.control = Control()
        self.factory = factory
        self.level = Level.FINE
        self.pressure = Pressure.FINE
        self.feel: Callable[[], Pressure] = lambda: self.pressure
        self.look: Callable[[], Level] = lambda: self.level
        self.platforms: frozenset[str] | None = None
        self.events: list[Event] = []
        self.reported = asyncio.Event()
        """Set by every event."""
        self.saved = 0
        self.ran_dry = 0
        self.learned: list[Signal] = []
        self.executor = Executor(
            lpm,
            self.factory,
            settings,
            self.control,
            platforms=lambda: self.platforms,
            level=self._level,
            saved=lambda: self._count("saved"),
            ran_dry=lambda: self._count("ran_dry"),
            clock=clock,
            emit=self._emit,
            pressure=self._pressure,
            turns=turns,
            learn=self.learned.extend,
            grace=grace,
            max_left_behind=max_left_behind,
        )

    async def add(self, task: Task, scrape: Scrape | None = None) -> None:
        """A task, and how its platform works if that is not known yet."""
        if scrape is not None:
            self.factory.register(task.platform, scrape)
        await self.lpm.add_task(task)

    async def step(self, slot: int = 0) -> float:
        return await asyncio.wait_for(self.executor.slots[slot].step(), 60)

    def start(self, slot: int = 0) -> asyncio.Task[float]:
        return asyncio.create_task(self.executor.slots[slot].step())

    async def status(self, task_id: str = "t1") -> TaskStatus:
        return (await the_task(self.lpm, task_id)).status

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until_seen(self, kind: type[E]) -> E:
        async with asyncio.timeout(60):
            while not self.seen(kind):
                self.reported.clear()
                await self.reported.wait()
        return self.seen(kind)[-1]

    @asynccontextmanager
    async def looping(self) -> AsyncIterator[None]:
        """All slots at work, as in a worker."""
        loops = [Loop(slot.name, slot.step, self.clock, self._emit) for slot in self.executor.slots]
        running = [asyncio.create_task(loop.run()) for loop in loops]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.reported.set()

    def _level(self) -> Level:
        return self.look()

    def _pressure(self) -> Pressure:
        return self.feel()

    def _count(self, what: str) -> None:
        setattr(self, what, getattr(self, what) + 1)


@asynccontextmanager
async def at_work(
    folder: Path,
    clock: Clock | None = None,
    *,
    options: StoreOptions = StoreOptions(),
    installed: Callable[[], Iterable[EntryPoint]] = list,
    grace: float = 0.05,
    max_left_behind: int = 32,
    turns: Turns = Turns(),  # noqa: B008 - nobody fetches
    **settings: Any,
) -> AsyncIterator[Works]:
    clock = clock or ManualClock()
    async with LocalPersistenceManager.open(folder / "store.db", clock=clock, options=options) as lpm:
        factory = ScraperFactory(clock, installed=installed)
        of_ours = ExecutorSettings(**settings)
        works = Works(lpm, clock, factory, of_ours, grace=grace, max_left_behind=max_left_behind, turns=turns)
        try:
            yield works
        finally:
            await works.executor.close()
