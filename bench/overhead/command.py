"""`python -m bench overhead`: the same executor with the store and with nothing behind it."""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.overhead.discarding import discarding
from bench.overhead.executing import SLOTS, WARM_UP, execute, platform
from bench.overhead.pages import Pages
from bench.overhead.place import fresh, spreading
from bench.report import Report, Table, Target, at_least, progress
from bench.store.disk import machine
from bench.store.ours import OPTIONS, OURS, store_path
from bench.store.work import Work, make_work
from bench.timing import Run
from parcelpost.scrapers.platform import Scrape
from parcelpost.storage.lpm import LocalPersistenceManager

NAME = "overhead"
HELP = "a worker with the store against the same one with its results thrown away"

STORE, NOTHING, BARE_STORE = "with the store", "results thrown away", "claim + save alone"
GOALS = {0.050: 0.99, 0.020: 0.95}
"""Seconds that the platform takes -> the least share of the rate without a store."""
BARE_GOAL = 0.5
"""The least share of the rate of claim + save alone, where the platform takes no time."""


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int
    seconds: float
    """How long a measurement at 50 and 20 ms takes at least."""
    tasks: int
    """How many tasks are worked through where the platform takes no time."""


_FULL = Plan(3, 6.0, 10_000)
_QUICK = Plan(3, 3.0, 4_000)

Runs = defaultdict[tuple[float, str], list[Run]]
"""By what the platform takes, and what is behind the executor."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with spreading(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        runs = asyncio.run(_measure(plan, folder))
    data = {
        "machine": where,
        "plan": asdict(plan),
        "figures": [
            {"platform_seconds": delay, "behind": behind, "per_second": [run.rate for run in found]}
            for (delay, behind), found in runs.items()
        ],
    }
    return Report(NAME, _targets(runs), [_table(runs)], data)


async def _measure(plan: Plan, folder: Path) -> Runs:
    """Each repetition goes once over everything, so that what else the machine does hits all alike."""
    counts = {delay: WARM_UP + int(SLOTS * plan.seconds / delay) for delay in GOALS} | {0.0: WARM_UP + plan.tasks}
    work, pages = make_work(max(counts.values())), Pages()
    gc.collect()
    gc.freeze()  # the inputs are the benchmark's own
    runs: Runs = defaultdict(list)
    for repetition in range(plan.repetitions):
        for delay, count in counts.items():
            progress(f"repetition {repetition + 1} of {plan.repetitions}: a platform of {delay * 1000:.0f} ms")
            scrape, part = platform(work, pages, delay), _first(work, count)
            for behind in (STORE, NOTHING) if repetition % 2 else (NOTHING, STORE):
                runs[delay, behind].append(await _execute(behind, folder, scrape, part))
        runs[0.0, BARE_STORE].append(await _claim_and_save(folder, _first(work, plan.tasks)))
    return runs


async def _execute(behind: str, folder: Path, scrape: Scrape, work: Work) -> Run:
    gc.collect()
    if behind == NOTHING:
        return await execute(discarding(work.tasks), scrape, len(work))
    async with LocalPersistenceManager.open(store_path(fresh(folder)), options=OPTIONS) as lpm:
        await lpm.add_tasks(work.tasks)
        return await execute(lpm, scrape, len(work))


async def _claim_and_save(folder: Path, work: Work) -> Run:
    """What `bench store` measures with as many callers as there are slots: results of 2 KB, no pages."""
    async with OURS.open(fresh(folder), work) as session:
        await session.enqueue_bulk()
        return await session.claim_and_save(SLOTS, limit=float("inf"))


def _first(work: Work, count: int) -> Work:
    return Work(work.tasks[:count], work.results[:count], work.targets[:count], work.records[:count])


def _ratio(runs: Runs, delay: float, behind: str) -> float:
    """Of the store's rate to the other one: the median of the repetitions."""
    pairs = zip(runs[delay, STORE], runs[delay, behind], strict=True)
    return median(ours.rate / other.rate for ours, other in pairs)


def _targets(runs: Runs) -> list[Target]:
    thrown_away = [
        at_least(f"platform of {delay * 1000:.0f} ms: rate / {NOTHING}", goal, _ratio(runs, delay, NOTHING))
        for delay, goal in GOALS.items()
    ]
    return [*thrown_away, at_least(f"platform of 0 ms: rate / {BARE_STORE}", BARE_GOAL, _ratio(runs, 0.0, BARE_STORE))]


def _table(runs: Runs) -> Table:
    rows = [
        [f"{delay * 1000:.0f} ms", behind, f"{median(run.rate for run in found):,.0f}", f"{found[-1].seconds:.1f}"]
        for (delay, behind), found in runs.items()
    ]
    return Table(
        f"Tasks per second, {SLOTS} slots, records of 2 KB with pages of 20 KB",
        ["platform", "behind the executor", "per second", "seconds"],
        rows,
        [f"{BARE_STORE}: {SLOTS} callers, no platform, no pages, as in `bench store`."],
        left=2,
    )
