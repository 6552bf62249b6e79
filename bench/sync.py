"""`python -m bench sync`: delivering the outbox, compared with a bare loop that posts the same bodies."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.measure import MB, Run, add_dir_option, fresh_folder, machine, peak_bytes, run_coroutines, scratch
from bench.report import Goal, Report, Table, at_least, at_most, progress
from bench.sink import results_taken, sink
from bench.store.contenders import OPTIONS, make_tasks, make_work, store_path
from parcelpost.clock import SystemClock
from parcelpost.events import ignore
from parcelpost.protocol import client
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.http import open_client
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.sync import SyncManager

_SETTINGS = Settings()
_TOKEN, _WORKER = "token", "bench"
_CALLERS = 256
_RECORDS = 1_000


async def fill(folder: Path, results: int) -> None:
    """Fills a store with completed tasks of different parcels and undelivered records of 2 KB."""
    records = make_work(_RECORDS).results
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        await lpm.add_tasks(make_tasks(results))

        async def save(number: int) -> None:
            (claim,) = await lpm.claim(1)
            await lpm.save_result(claim, records[number % _RECORDS])

        await run_coroutines(_CALLERS, results, float("inf"), save)


async def bodies(folder: Path) -> list[bytes]:
    """Returns the bodies that the sync would post, encoded before anything is timed."""
    encoded: list[bytes] = []
    after, now, most = 0, SystemClock().now(), _SETTINGS.sync
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        while batch := await lpm.get_unsynced_results(most.batch_size, most.batch_bytes, after=after):
            encoded.append(client.results_body(batch, now))
            after = batch[-1].seq
    return encoded


async def post(posted: Sequence[bytes], url: str, results: int) -> Run:
    """The bare loop: posts one body after the other with the worker's HTTP client."""
    async with open_client(_TOKEN, _WORKER) as client:
        start = time.perf_counter()
        for body in posted:
            headers = {"Content-Type": "application/json"}
            answer = await client.post(f"{url}/internal/results", content=body, headers=headers)
            answer.raise_for_status()
        return Run(results, time.perf_counter() - start)


async def drain(folder: Path, url: str, results: int) -> Run:
    """Runs the sync from its first step until the outbox is empty."""
    clock = SystemClock()
    async with (
        LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm,
        GatewayClient.open(GatewaySettings(url=url), _TOKEN, _WORKER, clock.now) as upstream,
    ):
        context = Context(lpm, upstream, ScraperFactory(clock), _SETTINGS, control=Control(), clock=clock, emit=ignore)
        sync = SyncManager(context)
        start = time.perf_counter()
        while await sync.step() == 0:
            pass
        run = Run(results, time.perf_counter() - start)
        if await lpm.get_unsynced_results(1):
            raise RuntimeError(f"not everything was delivered: {context.upstream_state.outages}")
    return run


@dataclass(frozen=True, slots=True)
class Memory:
    results: int
    peak_mb: float
    before_mb: float
    """With everything imported and nothing open."""
    per_second: float

    @property
    def growth_mb(self) -> float:
        return self.peak_mb - self.before_mb


def measure_memory(folder: Path, url: str, results: int) -> Memory:
    command = [sys.executable, "-m", "bench.sync", str(folder), url, str(results)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Memory(**json.loads(printed))


async def _drain(folder: Path, url: str, results: int) -> Memory:
    before = peak_bytes()
    run = await drain(folder, url, results)
    return Memory(results, peak_bytes() / MB, before / MB, run.rate)


def main() -> None:
    folder, url, results = sys.argv[1:]
    print(json.dumps(asdict(asyncio.run(_drain(Path(folder), url, int(results))))))


NAME = "sync"
HELP = "delivering the outbox, compared with a bare loop that posts the same bodies"

GOAL = 0.6
ANSWERS_AFTER = (0.0, 0.005)
"""Seconds. The goal applies to the first; the second stands for a gateway on another machine."""
MEMORY_GOAL_MB = 100


@dataclass(frozen=True, slots=True)
class Plan:
    results: int
    repetitions: int
    memory_results: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Measured one right after the other."""

    drained: Run
    posted: Run

    @property
    def ratio(self) -> float:
        return self.drained.rate / self.posted.rate


Pairs = dict[float, list[Pair]]
"""By the seconds after which the gateway responds."""

_FULL = Plan(20_000, 5, 100_000)
_QUICK = Plan(20_000, 3, 20_000)


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        memory = _measure_memory(plan, folder)
        pairs = asyncio.run(_measure(plan, folder))
    figures = [
        {
            "answers_after_seconds": answer_after,
            "drained_per_second": [pair.drained.rate for pair in repetitions],
            "posted_per_second": [pair.posted.rate for pair in repetitions],
        }
        for answer_after, repetitions in pairs.items()
    ]
    data = {"machine": where, "plan": asdict(plan), "figures": figures, "memory": asdict(memory)}
    return Report(NAME, _targets(pairs, memory), [_table(pairs), _memory_table(memory)], data)


def _measure_memory(plan: Plan, folder: Path) -> Memory:
    progress(f"memory: delivering {plan.memory_results:,} results")
    with fresh_folder(folder) as place, sink() as url:
        asyncio.run(fill(place, plan.memory_results))
        memory = measure_memory(place, url, plan.memory_results)
        _check(results_taken(url), plan.memory_results)
    return memory


async def _measure(plan: Plan, folder: Path) -> Pairs:
    template = folder / "filled"
    progress(f"filling an outbox with {plan.results:,} results")
    await fill(template, plan.results)
    posted = await bodies(template)
    gc.collect()
    gc.freeze()  # the bodies are the benchmark's own
    pairs: Pairs = {answer_after: [] for answer_after in ANSWERS_AFTER}
    for repetition in range(plan.repetitions):
        for answer_after, repetitions in pairs.items():
            gateway = f"a gateway that responds {_delay_text(answer_after)}"
            progress(f"repetition {repetition + 1} of {plan.repetitions}: {gateway}")
            with fresh_folder(folder, template) as place, sink(answer_after) as url:
                repetitions.append(await _pair(place, url, posted, plan.results, drain_first=bool(repetition % 2)))
    return pairs


async def _pair(folder: Path, url: str, posted: list[bytes], results: int, *, drain_first: bool) -> Pair:
    await post(posted[:20], url, 0)  # warms up the gateway
    before = results_taken(url)
    if drain_first:
        drained, bare = await drain(folder, url, results), await post(posted, url, results)
    else:
        bare, drained = await post(posted, url, results), await drain(folder, url, results)
    _check(results_taken(url) - before, 2 * results)
    return Pair(drained, bare)


def _check(taken: int, expected: int) -> None:
    if taken != expected:
        raise RuntimeError(f"the gateway received {taken:,} results instead of {expected:,}")


def _delay_text(answer_after: float) -> str:
    return f"after {answer_after * 1000:.0f} ms" if answer_after else "at once"


def _targets(pairs: Pairs, memory: Memory) -> list[Goal]:
    return [
        at_least("delivery: rate / bare loop", GOAL, median(pair.ratio for pair in pairs[0.0])),
        at_most(f"MB used by delivering {memory.results:,} results", MEMORY_GOAL_MB, memory.growth_mb),
    ]


def _table(pairs: Pairs) -> Table:
    rows = [
        [
            _delay_text(answer_after),
            f"{median(pair.drained.rate for pair in repetitions):,.0f}",
            f"{median(pair.posted.rate for pair in repetitions):,.0f}",
            f"{median(pair.ratio for pair in repetitions):.2f}",
        ]
        for answer_after, repetitions in pairs.items()
    ]
    header = ["the gateway responds", "the sync", "a bare loop", "ratio"]
    return Table("Results of 2 KB delivered per second", header, rows)


def _memory_table(memory: Memory) -> Table:
    row = [f"{memory.results:,}", f"{memory.before_mb:,.0f}", f"{memory.peak_mb:,.0f}", f"{memory.growth_mb:,.0f}"]
    return Table(
        "Memory of a process that delivers the outbox", ["results", "before, MB", "peak, MB", "growth, MB"], [row]
    )


if __name__ == "__main__":
    main()
