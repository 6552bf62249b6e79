"""An executor on a real store, with what it reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from parcelpost.clock import Clock, ManualClock
from parcelpost.events import Emit, Event, StoreNotWritable
from parcelpost.model import Task, TaskStatus
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platform import Scrape
from parcelpost.settings import Settings
from parcelpost.settings.schema import ExecutorSettings, StorageSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Loop
from tests.storage.factories import the_task
from tests.worker.rig import a_context

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
        busy_seconds: float,
        grace: float,
        max_abandoned: int,
        availability: SiteAvailability,
    ) -> None:
        self.lpm = lpm
        self.clock = clock
        self.factory = factory
        self.control = Control()
        self.events: list[Event] = []
        self.reported = asyncio.Event()
        """Set by every event."""
        self.woken: list[str] = []
        self.control.wake = lambda *names: self.woken.extend(names)
        context = a_context(
            lpm,
            NullUpstream(),
            clock,
            self._emit,
            Settings(executor=settings, storage=StorageSettings(busy_timeout_seconds=busy_seconds)),
            factory=factory,
            control=self.control,
        )
        self.learning = Learning(context, Ranking())
        self.executor = Executor(context, self.learning, availability, grace=grace, max_abandoned=max_abandoned)

    async def set_level(self, level: Level) -> None:
        usage = await self.lpm.maintenance.usage()
        self.control.usage = replace(usage, level=level)

    @property
    def saved(self) -> int:
        """How often there was something new to deliver."""
        return self.woken.count("sync")

    @property
    def ran_dry(self) -> int:
        """How often there was nothing to claim."""
        return self.woken.count("collector")

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
        steps = [of_loop for slot in self.executor.slots for of_loop in slot.loops.items()]
        loops = [Loop(name, step, self.clock, self._emit) for name, step in steps]
        running = [asyncio.create_task(loop.run()) for loop in loops]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    def _emit_trouble(self, event: Event) -> None:
        if isinstance(event, StoreNotWritable):
            self._emit(event)

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.reported.set()


@asynccontextmanager
async def at_work(
    folder: Path,
    clock: Clock | None = None,
    *,
    options: StoreOptions = StoreOptions(),
    installed: Callable[[], Iterable[EntryPoint]] = list,
    grace: float = 0.05,
    max_abandoned: int = 32,
    availability: SiteAvailability | None = None,
    sites: CountySites | None = None,
    **settings: Any,
) -> AsyncIterator[Works]:
    clock = clock or ManualClock()
    listeners: list[Emit] = []

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    store = LocalPersistenceManager.open(folder / "store.db", clock=clock, options=options, emit=emit, waits=True)
    async with store as lpm:
        factory = ScraperFactory(clock, sites=sites, installed=installed)
        of_ours = ExecutorSettings(**settings)
        known = availability or SiteAvailability()
        works = Works(
            lpm,
            clock,
            factory,
            of_ours,
            busy_seconds=options.busy_timeout_seconds,
            grace=grace,
            max_abandoned=max_abandoned,
            availability=known,
        )
        listeners.append(works._emit_trouble)
        try:
            yield works
        finally:
            await works.executor.close()
