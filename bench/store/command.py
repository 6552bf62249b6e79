"""`python -m bench store`: fills, measures, compares."""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report import Report, progress
from bench.store import goals, peers_queues
from bench.store.ceiling import CEILING
from bench.store.contender import Contender, Durability
from bench.store.depth import Depth, measure_depths
from bench.store.disk import fresh_folder, machine, scratch, survives_power_loss
from bench.store.goals import CLAIM_SAVE, ENQUEUE, OPERATIONS, Comparison, Operation
from bench.store.memory import measure_memory
from bench.store.ours import OURS
from bench.store.peers_plain import AIOSQLITE, STDLIB
from bench.store.work import Work, make_work
from bench.timing import Run

NAME = "store"
HELP = "the local store against other queues on SQLite"


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: int
    repetitions: int
    limit: float
    """Seconds one measurement may go on."""
    pending: list[int]
    finished: int
    rounds: int
    memory_tasks: int


_FULL = Plan(10_000, 3, 4.0, [1_000, 100_000, 1_000_000], 1_000_000, 8, 1_000_000)
_QUICK = Plan(2_000, 1, 0.5, [1_000, 20_000, 100_000], 100_000, 4, 200_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        return asyncio.run(_measure(plan, folder))


async def _measure(plan: Plan, folder: Path) -> Report:
    where = machine(folder)
    progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
    if not survives_power_loss(str(where["file_system"])):
        progress("this file system is in memory: no figure here says anything about durability")
    progress(f"memory: adding {plan.memory_tasks:,} tasks")
    with fresh_folder(folder) as place:
        memory = measure_memory(place, plan.memory_tasks)
    compared = await _compare(plan, folder)
    with fresh_folder(folder) as place:
        depths = await measure_depths(place, plan.pending, plan.finished, plan.rounds)
    tables = [
        goals.durability_table(compared, peers_queues.missing()),
        goals.rate_table(compared, plan.limit),
        goals.ratio_table(compared),
        goals.p99_table(compared),
        goals.depth_table(depths),
        goals.memory_table(memory),
    ]
    data = {
        "machine": where,
        "plan": asdict(plan),
        "contenders": [_contender_data(compared, contender) for contender in compared.contenders],
        "depth": [_depth_data(depth) for depth in depths],
        "memory": asdict(memory),
    }
    return Report(NAME, goals.store_targets(compared, depths, memory), tables, data)


async def _compare(plan: Plan, folder: Path) -> Comparison:
    """Contenders take turns within each operation, and each repetition starts with another one."""
    work = make_work(plan.tasks)
    gc.collect()
    gc.freeze()  # the inputs are the benchmark's own: no contender pays for their garbage collection
    contenders = [OURS, *AIOSQLITE, *STDLIB, CEILING, *peers_queues.installed()]
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
