"""`python -m bench coupling`: the scraping rate of a worker with four different gateways (I7)."""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench import sink
from bench.measure import Run, add_dir_option, fresh_folder, machine, scratch
from bench.report import Goal, Report, Table, at_least, progress
from bench.store.contenders import OPTIONS, PLATFORM, Work, make_work, store_path
from parcelpost.clock import SystemClock
from parcelpost.events import AttemptEnded, Event, LoopFailed
from parcelpost.model import Done, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
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
    """All loops call the gateway far more often than usual, with a timeout above its slowest response.

    The high-water mark is never reached, so the collector always requests more tasks.
    """
    return Settings(
        worker=WorkerSettings(platforms=(PLATFORM,)),
        gateway=GatewaySettings(url=url, timeout_seconds=LONGEST_ANSWER_SECONDS + 1),
        collector=CollectorSettings(low_water=900_000, high_water=1_000_000, poll_seconds=1.0),
        executor=ExecutorSettings(slots=SLOTS),
        sync=SyncSettings(backoff_min_seconds=0.5, backoff_max_seconds=1.0),
        heartbeat=HeartbeatSettings(seconds=1.0),
    )


class _Counter:
    def __init__(self) -> None:
        self.done = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, LoopFailed):
            raise RuntimeError(f"unexpected: {event}")
        if isinstance(event, AttemptEnded):
            self.done += event.outcome == "done" and not event.reason


async def work_for(seconds: float, folder: Path, url: str, work: Work) -> Run:
    """Runs a worker for that long. The store already holds more tasks than it can complete."""
    counter, clock, control, chosen = _Counter(), SystemClock(), Control(), settings(url)
    async with (
        LocalPersistenceManager.open(store_path(folder), options=OPTIONS, emit=counter.emit, waits=True) as lpm,
        GatewayClient.open(chosen.gateway, "token", "bench", clock.now) as upstream,
    ):
        context = Context(
            lpm,
            upstream,
            _factory(work),
            chosen,
            control=control,
            clock=clock,
            emit=counter.emit,
            worker_id="bench",
            name="bench",
        )
        tools = Tools(progress_seconds=60.0, ranking=Ranking(), availability=SiteAvailability())
        running = asyncio.create_task(OndemandRunner(Worker(context, tools)).run())
        await asyncio.wait([running], timeout=WARM_UP_SECONDS)
        before, began = counter.done, time.perf_counter()
        await asyncio.wait([running], timeout=seconds)
        run = Run(counter.done - before, time.perf_counter() - began)
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


NAME = "coupling"
HELP = "scraping rate with a gateway that is fast, slow, silent or unreachable"

FAST = "responds at once"
GATEWAYS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    FAST: sink.sink,
    f"responds after {LONGEST_ANSWER_SECONDS:.0f} s": lambda: sink.sink(LONGEST_ANSWER_SECONDS),
    "never responds": sink.silent,
    "refuses connections": sink.refusing,
}
GOAL = 0.95
MOST_PER_SECOND = SLOTS / PLATFORM_SECONDS


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int
    seconds: float
    """How long a measurement takes: longer than the slow gateway takes to respond."""


_FULL = Plan(3, 12.0)
_QUICK = Plan(1, 8.0)


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        runs = asyncio.run(_measure(plan, folder))
    figures = [{"gateway": name, "per_second": [run.rate for run in repetitions]} for name, repetitions in runs.items()]
    data = {"machine": where, "plan": asdict(plan), "figures": figures}
    return Report(NAME, _targets(runs), [_table(runs)], data)


async def _measure(plan: Plan, folder: Path) -> dict[str, list[Run]]:
    work = make_work(int((plan.seconds + WARM_UP_SECONDS) * MOST_PER_SECOND * 1.2))
    template = folder / "filled"
    await _fill(template, work)
    gc.collect()
    gc.freeze()  # the inputs are the benchmark's own
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    names = list(GATEWAYS)
    for repetition in range(plan.repetitions):
        for name in [*names[repetition:], *names[:repetition]]:
            progress(f"repetition {repetition + 1} of {plan.repetitions}: a gateway that {name}")
            with GATEWAYS[name]() as url, fresh_folder(folder, template) as place:
                runs[name].append(await work_for(plan.seconds, place, url, work))
    return {name: runs[name] for name in names}


async def _fill(template: Path, work: Work) -> None:
    async with LocalPersistenceManager.open(store_path(template), options=OPTIONS) as lpm:
        await lpm.add_tasks(work.tasks)


def _ratios(runs: dict[str, list[Run]], name: str) -> list[float]:
    return [run.rate / fast.rate for run, fast in zip(runs[name], runs[FAST], strict=True)]


def _targets(runs: dict[str, list[Run]]) -> list[Goal]:
    return [
        at_least(f"a gateway that {name}: rate / one that {FAST}", GOAL, median(_ratios(runs, name)))
        for name in runs
        if name != FAST
    ]


def _table(runs: dict[str, list[Run]]) -> Table:
    def row(name: str) -> list[str]:
        rate = median(run.rate for run in runs[name])
        return [name, f"{rate:,.1f}", f"{rate / MOST_PER_SECOND:.3f}", f"{median(_ratios(runs, name)):.3f}"]

    return Table(
        f"Tasks completed per second, {SLOTS} slots, a platform of {PLATFORM_SECONDS * 1000:.0f} ms",
        ["gateway", "per second", "/ maximum", "/ fast gateway"],
        [row(name) for name in runs],
        [f"Maximum: {MOST_PER_SECOND:,.0f}, with every slot always busy."],
    )
