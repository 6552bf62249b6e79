"""An executor at work as in a worker: each slot with its loops, platform code in its sandbox thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.overhead.pages import Pages
from bench.store.work import PLATFORM, Work
from bench.timing import Run
from parcelpost.clock import Clock, SystemClock
from parcelpost.events import AttemptEnded, Emit, Event
from parcelpost.model import Done, Page, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.platform import Scrape
from parcelpost.scrapers.turns import Turns
from parcelpost.settings import Settings
from parcelpost.settings.schema import ExecutorSettings, WorkerSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Loop

SLOTS = 16
WARM_UP = 4 * SLOTS
"""Tasks that are not counted: threads and connections are made with the first."""


def platform(work: Work, pages: Pages, delay: float) -> Scrape:
    """Takes `delay` seconds, and then has the record of 2 KB and the page of 20 KB that belong to the task."""

    async def scrape(task: Task) -> Done:
        if delay:
            await asyncio.sleep(delay)
        number = int(task.task_id.rpartition("-")[2])
        return Done(data=work.records[number], page=Page(body=pages.page(number)))

    return scrape


class _Tally:
    def __init__(self, last: int) -> None:
        self._last = last
        self._ended = 0
        self.began = self.ended = 0.0
        self.all_ended = asyncio.Event()

    def emit(self, event: Event) -> None:
        if not isinstance(event, AttemptEnded):
            raise RuntimeError(f"unexpected: {event}")
        if event.outcome != "done" or event.reason:
            raise RuntimeError(f"a task was not done: {event}")
        self._ended += 1
        if self._ended == WARM_UP:
            self.began = time.perf_counter()
        if self._ended == self._last:
            self.ended = time.perf_counter()
            self.all_ended.set()


async def execute(lpm: LocalPersistenceManager, scrape: Scrape, tasks: int) -> Run:
    """Works through that many tasks, which the store has."""
    tally, clock = _Tally(tasks), SystemClock()
    executor = _executor(lpm, scrape, tally.emit, clock)
    steps = {name: step for slot in executor.slots for name, step in slot.loops.items()}
    running = [asyncio.create_task(Loop(name, step, clock, tally.emit).run()) for name, step in steps.items()]
    try:
        await _until(tally.all_ended, running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await executor.close()
    return Run(tasks - WARM_UP, tally.ended - tally.began)


def _executor(lpm: LocalPersistenceManager, scrape: Scrape, emit: Emit, clock: Clock) -> Executor:
    factory = ScraperFactory(clock)
    factory.register(PLATFORM, scrape)
    settings = Settings(worker=WorkerSettings(platforms=(PLATFORM,)), executor=ExecutorSettings(slots=SLOTS))
    context = Context(lpm, NullUpstream(), factory, settings, control=Control(), clock=clock, emit=emit)
    return Executor(context, Learning(context, Ranking()), Turns())


async def _until(event: asyncio.Event, running: Sequence[asyncio.Task[None]]) -> None:
    """Raises what a loop failed with."""
    waiting = asyncio.create_task(event.wait())
    ended, _ = await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in ended:
        task.result()
