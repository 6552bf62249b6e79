"""`python -m bench sync`: draining the outbox against posting its bodies and doing nothing else."""

from __future__ import annotations

import argparse
import asyncio
import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.report import Report, Table, Target, at_least, at_most, progress
from bench.sink import results_taken, sink
from bench.store.disk import fresh_folder, machine, scratch
from bench.sync.draining import bodies, drain, fill, post
from bench.sync.memory import Memory, measure_memory
from bench.timing import Run

NAME = "sync"
HELP = "draining the outbox against a bare loop that posts the same bodies"

GOAL = 0.6
ANSWERS_AFTER = (0.0, 0.005)
"""Seconds. The goal is for the first; the other is as near as a gateway in another machine comes."""
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
"""By the seconds after which the gateway answers."""

_FULL = Plan(20_000, 5, 100_000)
_QUICK = Plan(20_000, 3, 20_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


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
            "drained_per_second": [pair.drained.rate for pair in found],
            "posted_per_second": [pair.posted.rate for pair in found],
        }
        for answer_after, found in pairs.items()
    ]
    data = {"machine": where, "plan": asdict(plan), "figures": figures, "memory": asdict(memory)}
    return Report(NAME, _targets(pairs, memory), [_table(pairs), _memory_table(memory)], data)


def _measure_memory(plan: Plan, folder: Path) -> Memory:
    progress(f"memory: draining {plan.memory_results:,} results")
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
        for answer_after, found in pairs.items():
            progress(
                f"repetition {repetition + 1} of {plan.repetitions}: a gateway that answers {_words(answer_after)}"
            )
            with fresh_folder(folder, template) as place, sink(answer_after) as url:
                found.append(await _pair(place, url, posted, plan.results, drain_first=bool(repetition % 2)))
    return pairs


async def _pair(folder: Path, url: str, posted: list[bytes], results: int, *, drain_first: bool) -> Pair:
    await post(posted[:20], url, 0)  # so that the gateway has warmed up for whoever comes first
    before = results_taken(url)
    if drain_first:
        drained, bare = await drain(folder, url, results), await post(posted, url, results)
    else:
        bare, drained = await post(posted, url, results), await drain(folder, url, results)
    _check(results_taken(url) - before, 2 * results)
    return Pair(drained, bare)


def _check(taken: int, expected: int) -> None:
    if taken != expected:
        raise RuntimeError(f"the gateway was sent {taken:,} results, not {expected:,}")


def _words(answer_after: float) -> str:
    return f"after {answer_after * 1000:.0f} ms" if answer_after else "at once"


def _targets(pairs: Pairs, memory: Memory) -> list[Target]:
    return [
        at_least("drain: rate / bare loop", GOAL, median(pair.ratio for pair in pairs[0.0])),
        at_most(f"MB that draining {memory.results:,} results takes", MEMORY_GOAL_MB, memory.growth_mb),
    ]


def _table(pairs: Pairs) -> Table:
    rows = [
        [
            _words(answer_after),
            f"{median(pair.drained.rate for pair in found):,.0f}",
            f"{median(pair.posted.rate for pair in found):,.0f}",
            f"{median(pair.ratio for pair in found):.2f}",
        ]
        for answer_after, found in pairs.items()
    ]
    header = ["the gateway answers", "the sync", "a bare loop", "ratio"]
    return Table("Results of 2 KB delivered per second", header, rows)


def _memory_table(memory: Memory) -> Table:
    row = [f"{memory.results:,}", f"{memory.before_mb:,.0f}", f"{memory.peak_mb:,.0f}", f"{memory.growth_mb:,.0f}"]
    return Table("Memory of a process that drains", ["results", "before, MB", "peak, MB", "growth, MB"], [row])
