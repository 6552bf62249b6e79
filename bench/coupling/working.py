"""A worker in on-demand mode with everything running, and how many tasks it completes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.store.ours import OPTIONS, store_path
from bench.store.work import PLATFORM, Work
from bench.timing import Run
from parcelpost.clock import SystemClock
from parcelpost.events import AttemptEnded, Event, LoopFailed
from parcelpost.model import Done, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.turns import Turns
from parcelpost.settings import Settings
from parcelpost.settings.schema import (
    CollectorSettings,
    ExecutorSettings,
    GatewaySettings,
    HeartbeatSettings,
    SyncSettings,
    WorkerSettings,
)
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.runner import OndemandRunner
from parcelpost.worker.worker import Tools, Worker

SLOTS = 8
PLATFORM_SECONDS = 0.020
WARM_UP_SECONDS = 1.0
LONGEST_ANSWER_SECONDS = 5.0


def settings(url: str) -> Settings:
    """All loops call the gateway far more often than in real life, and wait for it longer than it takes at its slowest.

    The marks are so high that the collector always asks for more.
    """
    return Settings(
        worker=WorkerSettings(platforms=(PLATFORM,)),
        gateway=GatewaySettings(url=url, timeout_seconds=LONGEST_ANSWER_SECONDS + 1),
        collector=CollectorSettings(low_water=900_000, high_water=1_000_000, poll_seconds=1.0),
        executor=ExecutorSettings(slots=SLOTS),
        sync=SyncSettings(backoff_min_seconds=0.5, backoff_max_seconds=1.0),
        heartbeat=HeartbeatSettings(seconds=1.0),
    )


class _Tally:
    def __init__(self) -> None:
        self.done = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, LoopFailed):
            raise RuntimeError(f"unexpected: {event}")
        if isinstance(event, AttemptEnded):
            self.done += event.outcome == "done" and not event.reason


async def work_for(seconds: float, folder: Path, url: str, work: Work) -> Run:
    """The tasks are in the store already, more of them than can be done in that time."""
    tally, clock, control, wanted = _Tally(), SystemClock(), Control(), settings(url)
    async with (
        LocalPersistenceManager.open(store_path(folder), options=OPTIONS, emit=tally.emit, waits=True) as lpm,
        GatewayClient.open(wanted.gateway, "token", "bench", clock.now) as upstream,
    ):
        context = Context(
            lpm,
            upstream,
            _factory(work),
            wanted,
            control=control,
            clock=clock,
            emit=tally.emit,
            worker_id="bench",
            name="bench",
        )
        tools = Tools(progress_seconds=60.0, ranking=Ranking(), turns=Turns())
        running = asyncio.create_task(OndemandRunner(Worker(context, tools)).run())
        await asyncio.wait([running], timeout=WARM_UP_SECONDS)
        before, began = tally.done, time.perf_counter()
        await asyncio.wait([running], timeout=seconds)
        run = Run(tally.done - before, time.perf_counter() - began)
        control.leave("measured", at_once=True)
        await running
    return run


def _factory(work: Work) -> ScraperFactory:
    async def scrape(task: Task) -> Done:
        await asyncio.sleep(PLATFORM_SECONDS)
        return Done(data=work.records[int(task.task_id.rpartition("-")[2])])

    factory = ScraperFactory()
    factory.register(PLATFORM, scrape)
    return factory
