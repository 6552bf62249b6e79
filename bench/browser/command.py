"""`python -m bench browser`: pages per second of the pool and of what people write, and what the pool's memory does."""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median

from bench.browser.memory import FIRST, Growth, grow
from bench.browser.site import site
from bench.browser.ways import CALLERS, FRESH, POOL, WAYS
from bench.report import Report, Table, Target, at_least, at_most, progress
from bench.store.disk import fresh_folder, machine, scratch
from bench.timing import Run, run_coroutines

NAME = "browser"
HELP = "pages per second of the browser pool against a fresh browser per page and one shared context; its memory"

FRESH_GOAL = 2.0
"""Times the rate of a fresh browser per page. Against one shared context there is none: it keeps no pages apart."""
MEMORY_GOAL = 1.3
_WARM_UP = 2 * CALLERS


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int
    pages: int
    """Had in each way, each time."""
    memory_pages: int


_FULL = Plan(3, 40, 500)
_QUICK = Plan(1, 20, 100)

Runs = defaultdict[str, list[Run]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where the stores are kept (default: the current folder's disk)"
    )


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder, site() as address:
        where = machine(folder)
        progress(f"measuring in {folder}, load {where['load']}")
        runs = asyncio.run(_measure(plan, folder, address))
        with fresh_folder(folder) as place:
            growth = asyncio.run(grow(place, address, plan.memory_pages))
    data = {
        "machine": where,
        "plan": asdict(plan),
        "figures": [{"way": way, "per_second": [run.rate for run in found]} for way, found in runs.items()],
        "memory": {"bytes_at": growth.bytes_at},
    }
    return Report(NAME, _targets(runs, growth), [_rates(runs), _memory(growth)], data)


async def _measure(plan: Plan, folder: Path, address: str) -> Runs:
    """Each repetition goes once over all ways, so that what else the machine does hits all alike."""
    runs: Runs = defaultdict(list)
    for repetition in range(plan.repetitions):
        for way in WAYS:
            progress(f"repetition {repetition + 1} of {plan.repetitions}: {way}")
            with fresh_folder(folder) as place:
                async with WAYS[way](place, address) as have:
                    await run_coroutines(CALLERS, _WARM_UP, inf, have)
                    runs[way].append(await run_coroutines(CALLERS, plan.pages, inf, have))
    return runs


def _ratio(runs: Runs, way: str) -> float:
    return median(ours.rate / other.rate for ours, other in zip(runs[POOL], runs[way], strict=True))


def _targets(runs: Runs, growth: Growth) -> list[Target]:
    return [
        at_least(f"pages per second / {FRESH}", FRESH_GOAL, _ratio(runs, FRESH)),
        at_most(
            f"memory after {growth.pages} pages / after the first {FIRST}", MEMORY_GOAL, growth.last / growth.first
        ),
    ]


def _rates(runs: Runs) -> Table:
    rows = [
        [way, f"{median(run.rate for run in found):.2f}", f"{_ratio(runs, way):.2f}", f"{found[-1].p99 * 1000:,.0f}"]
        for way, found in runs.items()
    ]
    return Table(
        f"Pages per second, {CALLERS} callers, a page that a script makes of 30 KB of data",
        ["way", "per second", "the pool / it", "p99 ms"],
        rows,
    )


def _memory(growth: Growth) -> Table:
    def row(name: str, found: int) -> list[str]:
        return [name, f"{found / 1024**2:,.0f}", f"{found / growth.first:.2f}"]

    return Table(
        f"Memory (PSS) of the pool's {CALLERS} browsers, its driver and our process, while pages are open",
        ["when", "MiB", "/ first"],
        [
            row(f"after the first {FIRST} pages", growth.first),
            row("at its most", growth.most),
            row(f"in the last {FIRST} of {growth.pages} pages, at its most", growth.last),
        ],
    )
