"""`python -m bench store`: the store, compared with other queues on SQLite."""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Run, add_dir_option, fresh_folder, machine, scratch, survives_power_loss
from bench.report import Goal, Report, Table, at_least, at_most, progress
from bench.store import peers
from bench.store.contenders import CEILING, OURS, Contender, Durability, Work, make_work
from bench.store.depth import Depth, Memory, measure_depths, measure_memory
from bench.store.peers import AIOSQLITE, STDLIB

OURS_NAME, CEILING_NAME = "parcelpost", "sqlite3 ceiling"
PLAIN = ("plain aiosqlite", "plain aiosqlite, WAL")
STDLIB_NAME = ("stdlib sqlite3", "stdlib sqlite3, WAL")
CALLERS = (1, 16, 256)


@dataclass(frozen=True, slots=True, order=True)
class Operation:
    """`callers` is 0 for bulk."""

    kind: str
    callers: int

    def __str__(self) -> str:
        return f"{self.kind} @{self.callers}" if self.callers else self.kind


ENQUEUE, CLAIM_SAVE = "enqueue", "claim+save"
BULK = Operation("enqueue bulk", 0)
OPERATIONS = (
    *(Operation(ENQUEUE, callers) for callers in CALLERS),
    BULK,
    *(Operation(CLAIM_SAVE, callers) for callers in CALLERS),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs by contender's name and operation; each list is as long as there were repetitions."""

    runs: Mapping[tuple[str, Operation], list[Run]]
    durability: Mapping[str, Durability]
    contenders: list[Contender]

    def rate(self, name: str, operation: Operation) -> float | None:
        """Operations per second: the median of the repetitions."""
        runs = self.runs.get((name, operation))
        return median(run.rate for run in runs) if runs else None

    def p99(self, name: str, operation: Operation) -> float:
        """Seconds: the median of the repetitions."""
        return median(run.p99 for run in self.runs[name, operation])

    def ratio(self, operation: Operation, name: str) -> float:
        ours, theirs = self.rate(OURS_NAME, operation), self.rate(name, operation)
        assert ours is not None and theirs is not None
        return ours / theirs

    def durable_peers(self) -> list[str]:
        return [c.name for c in self.contenders if c.peer and self.durability[c.name].survives_power_loss]


def store_targets(compared: Comparison, depths: list[Depth], memory: Memory) -> list[Goal]:
    return [*rate_goals(compared), *_depth_targets(depths), _memory_target(memory)]


def rate_goals(compared: Comparison) -> list[Goal]:
    def over(goal: float, operation: Operation, *names: str) -> list[Goal]:
        return [at_least(f"{operation}: rate / {n}", goal, compared.ratio(operation, n)) for n in names]

    peers, paired = compared.durable_peers(), Operation(CLAIM_SAVE, 16)
    p99 = compared.p99(OURS_NAME, paired)
    return [
        *over(20, paired, PLAIN[0]),
        *over(15, paired, PLAIN[1]),
        *over(5, paired, *peers),
        *(at_most(f"{paired}: p99 / {n}", 0.2, p99 / compared.p99(n, paired)) for n in (*PLAIN, *peers)),
        *over(10, Operation(ENQUEUE, 16), *PLAIN),
        *over(5, Operation(ENQUEUE, 16), *peers),
        *over(2.3, Operation(CLAIM_SAVE, 1), *PLAIN),
        *over(1.2, Operation(CLAIM_SAVE, 1), *peers),
        *over(1.2, Operation(ENQUEUE, 1), *PLAIN),
        *over(0.6, Operation(CLAIM_SAVE, 256), CEILING_NAME),
        *over(1 / 3, Operation(ENQUEUE, 256), CEILING_NAME),
        *over(1.0, BULK, *STDLIB_NAME),
    ]


def _depth_targets(depths: list[Depth]) -> list[Goal]:
    least, deepest, kept = depths[0], depths[-2], depths[-1]
    return [
        at_most(f"{operation}: {name} / {least.name}", 1.3, measured / base)
        for operation, base, figures in (
            ("claim", least.claim_mean, ((deepest.name, deepest.claim_mean), (kept.name, kept.claim_mean))),
            ("open", least.open_median, ((deepest.name, deepest.open_median), (kept.name, kept.open_median))),
        )
        for name, measured in figures
    ]


def _memory_target(memory: Memory) -> Goal:
    return at_most(f"adding {memory.tasks:,} tasks: resident MB", 150, memory.peak_mb)


def durability_table(compared: Comparison, missing: list[str]) -> Table:
    rows = []
    for contender in compared.contenders:
        durability = compared.durability[contender.name]
        survives = "yes" if durability.survives_power_loss else "no"
        rows.append([contender.name, str(durability), survives, contender.callers, contender.after_kill])
    notes = [f"not installed, not measured (pip install parcelpost[bench]): {', '.join(missing)}"] if missing else []
    header = ["contender", "journal/sync", "survives power loss", "callers", "a claimed task after kill -9"]
    return Table("Durability, as read from each live connection", header, rows, notes, left=5)


def rate_table(compared: Comparison, limit: float) -> Table:
    rows = [
        [
            c.name,
            str(compared.durability[c.name]),
            *(_rate(compared.rate(c.name, operation)) for operation in OPERATIONS),
        ]
        for c in compared.contenders
    ]
    note = f"Medians. Each measurement ends after {limit:g} s; -: the library has no such call."
    return Table(
        "Operations per second (@ callers)", ["contender", "durability", *map(str, OPERATIONS)], rows, [note], 2
    )


def ratio_table(compared: Comparison) -> Table:
    rows = []
    for contender in compared.contenders[1:]:
        ratios = [
            f"{compared.ratio(operation, contender.name):.2f}" if compared.rate(contender.name, operation) else "-"
            for operation in OPERATIONS
        ]
        rows.append([contender.name, str(compared.durability[contender.name]), *ratios])
    return Table("Parcelpost's rate / theirs", ["contender", "durability", *map(str, OPERATIONS)], rows, left=2)


def p99_table(compared: Comparison) -> Table:
    timed = [operation for operation in OPERATIONS if operation.callers]
    rows = [
        [c.name, *(f"{compared.p99(c.name, operation) * 1000:.2f}" for operation in timed)]
        for c in compared.contenders
        if c.name != CEILING_NAME
    ]
    return Table("p99 latency of one operation, ms", ["contender", *map(str, timed)], rows)


def depth_table(depths: list[Depth]) -> Table:
    rows = [
        [
            depth.name,
            f"{depth.open_median * 1000:.2f}",
            *(f"{value * 1e6:.0f}" for value in (depth.claim_mean, depth.claim_median, depth.claim_p99)),
        ]
        for depth in depths
    ]
    note = f"{len(depths[0].opens)} opens and {sum(map(len, depths[0].claims)):,} claims of one task each, one caller."
    header = ["parcelpost with", "open ms", "claim us: mean", "median", "p99"]
    return Table("Depth", header, rows, [note])


def memory_table(memory: Memory) -> Table:
    row = [f"{memory.tasks:,}", f"{memory.peak_mb:.0f}", f"{memory.before_mb:.0f}", f"{memory.seconds:.1f}"]
    header = ["tasks from an iterator", "peak resident MB", "before opening MB", "seconds"]
    return Table("Memory, in a fresh process", header, [row])


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


NAME = "store"
HELP = "the local store, compared with other queues on SQLite"


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: int
    repetitions: int
    limit: float
    """Maximum seconds of one measurement."""
    pending: list[int]
    finished: int
    rounds: int
    memory_tasks: int


_FULL = Plan(10_000, 3, 4.0, [1_000, 100_000, 1_000_000], 1_000_000, 8, 1_000_000)
_QUICK = Plan(2_000, 1, 0.5, [1_000, 20_000, 100_000], 100_000, 4, 200_000)


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        return asyncio.run(_measure(plan, folder))


async def _measure(plan: Plan, folder: Path) -> Report:
    where = machine(folder)
    progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
    if not survives_power_loss(str(where["file_system"])):
        progress("this file system is in memory: the figures say nothing about durability")
    progress(f"memory: adding {plan.memory_tasks:,} tasks")
    with fresh_folder(folder) as place:
        memory = measure_memory(place, plan.memory_tasks)
    compared = await _compare(plan, folder)
    with fresh_folder(folder) as place:
        depths = await measure_depths(place, plan.pending, plan.finished, plan.rounds)
    tables = [
        durability_table(compared, peers.missing()),
        rate_table(compared, plan.limit),
        ratio_table(compared),
        p99_table(compared),
        depth_table(depths),
        memory_table(memory),
    ]
    data = {
        "machine": where,
        "plan": asdict(plan),
        "contenders": [_contender_data(compared, contender) for contender in compared.contenders],
        "depth": [_depth_data(depth) for depth in depths],
        "memory": asdict(memory),
    }
    return Report(NAME, store_targets(compared, depths, memory), tables, data)


async def _compare(plan: Plan, folder: Path) -> Comparison:
    """Contenders take turns within each operation, and each repetition starts with another one."""
    work = make_work(plan.tasks)
    gc.collect()
    gc.freeze()  # no contender pays for collecting the inputs
    contenders = [OURS, *AIOSQLITE, *STDLIB, CEILING, *peers.installed()]
    durability: dict[str, Durability] = {}
    for contender in contenders:
        progress(f"filling {contender.name}")
        durability[contender.name] = await _fill(contender, work, _template(folder, contender))
    runs: defaultdict[tuple[str, Operation], list[Run]] = defaultdict(list)
    for repetition in range(plan.repetitions):
        turn = repetition % len(contenders)
        for operation in OPERATIONS:
            progress(f"repetition {repetition + 1} of {plan.repetitions}: {operation}")
            for contender in [*contenders[turn:], *contenders[:turn]]:
                run = await _measure_one(contender, work, operation, plan.limit, folder)
                if run is not None:
                    runs[contender.name, operation].append(run)
    return Comparison(runs, durability, contenders)


def _template(folder: Path, contender: Contender) -> Path:
    return folder / f"filled-{contender.name.replace(' ', '-')}"


async def _fill(contender: Contender, work: Work, template: Path) -> Durability:
    """A queue with all tasks pending, once: claiming starts from copies of it."""
    template.mkdir()
    async with contender.open(template, work) as session:
        await session.enqueue(1, limit=float("inf"))
        return await session.durability()


async def _measure_one(
    contender: Contender, work: Work, operation: Operation, limit: float, folder: Path
) -> Run | None:
    template = _template(folder, contender) if operation.kind == CLAIM_SAVE else None
    with fresh_folder(folder, template) as place:
        async with contender.open(place, work) as session:
            gc.collect()
            if operation.kind == CLAIM_SAVE:
                return await session.claim_and_save(operation.callers, limit)
            if operation.kind == ENQUEUE:
                return await session.enqueue(operation.callers, limit)
            return await session.enqueue_bulk()


def _contender_data(compared: Comparison, contender: Contender) -> dict[str, Any]:
    durability = compared.durability[contender.name]
    figures = [
        {
            "operation": operation.kind,
            "callers": operation.callers or None,
            "per_second": [run.rate for run in compared.runs[contender.name, operation]],
            "p99_seconds": [run.p99 for run in compared.runs[contender.name, operation] if run.latencies],
        }
        for operation in OPERATIONS
        if (contender.name, operation) in compared.runs
    ]
    return {
        "name": contender.name,
        "durability": str(durability),
        "survives_power_loss": durability.survives_power_loss,
        "claimed_task_after_kill": contender.after_kill,
        "figures": figures,
    }


def _depth_data(depth: Depth) -> dict[str, Any]:
    return {
        "pending": depth.pending,
        "finished": depth.finished,
        "open_seconds": depth.open_median,
        "claim_mean_seconds": depth.claim_mean,
        "claim_median_seconds": depth.claim_median,
        "claim_p99_seconds": depth.claim_p99,
    }
