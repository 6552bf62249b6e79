"""`python -m bench gateway`: the gateway compared with bare inserts and a plain handler; leasing from a long queue."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.gateway import client, ledgers
from bench.gateway.ledgers import Metered, Trio
from bench.measure import fresh_folder, machine, scratch
from bench.report import Goal, Report, Table, at_least, at_most, progress

NAME = "gateway"
HELP = "storing results, compared with bare inserts and a plain handler; leasing from a long queue"

BARE_GOALS = {"SQLite": 0.6, "PostgreSQL": 0.65}
SEVERAL_GOAL = 1.5
SEVERAL_COST = 1.2
PEER_GOAL = 10
GRANT_GOAL = 1.5
CHANGES_GOAL = 0.9

Trios = dict[str, list[Trio]]
"""By database."""
Grants = dict[str, dict[int, list[float]]]
"""Seconds of each grant, by database and tasks queued."""


@dataclass(frozen=True, slots=True)
class Plan:
    batches: int
    peer_batches: int
    repetitions: int
    shallow: int
    deep: int


_FULL = Plan(batches=600, peer_batches=40, repetitions=3, shallow=1_000, deep=1_000_000)
_QUICK = Plan(batches=300, peer_batches=16, repetitions=3, shallow=1_000, deep=100_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder, client.postgres(arguments.dir) as server:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        trios = _store(plan, folder, server)
        grants = asyncio.run(_grant(plan, folder, server))
    tables = [_stored_table(trios), processor_table(trios), _compared_table(trios), _grants_table(grants)]
    data = {"machine": where, "plan": asdict(plan), "stored": _stored(trios), "grants": _granted(grants)}
    return Report(NAME, _targets(trios, grants, plan), tables, data)


def _store(plan: Plan, folder: Path, server: str) -> Trios:
    trios: Trios = {"SQLite": [], "PostgreSQL": []}
    for number in range(plan.repetitions):
        for name, measured in trios.items():
            progress(f"repetition {number + 1} of {plan.repetitions}: storing results in {name}")
            with fresh_folder(folder) as place:
                if name == "SQLite":
                    measured.append(ledgers.store_on_sqlite(place, plan.batches, plan.peer_batches))
                else:
                    measured.append(ledgers.store_on_postgres(server, place, plan.batches, plan.peer_batches))
    return trios


async def _grant(plan: Plan, folder: Path, server: str) -> Grants:
    grants: Grants = {}
    for name in ("SQLite", "PostgreSQL"):
        databases = {}
        for queued in (plan.shallow, plan.deep):
            progress(f"leases: queueing {queued:,} tasks in {name}")
            if name == "SQLite":
                databases[queued] = str(folder / f"queue-{queued}.db")
            else:
                databases[queued] = await client.fresh_database(server, f"queue-{queued}")
            await ledgers.fill_queue(databases[queued], queued)
        grants[name] = await ledgers.measure_grants(databases)
    return grants


def _targets(trios: Trios, grants: Grants, plan: Plan) -> list[Goal]:
    goals = []
    for name, runs in trios.items():
        goals += [
            at_least(
                f"{name}: results stored / bare bulk insert", BARE_GOALS[name], median(trio.to_bare for trio in runs)
            ),
            at_least(f"{name}: results stored / plain handler", PEER_GOAL, median(trio.to_peer for trio in runs)),
            at_least(
                f"{name}: results stored / without a look for changes",
                CHANGES_GOAL,
                median(trio.to_without_changes for trio in runs),
            ),
        ]
    runs = trios["PostgreSQL"]
    name = f"PostgreSQL: results stored by {ledgers.GATEWAYS} gateways / by one"
    goals.append(at_least(name, SEVERAL_GOAL, median(trio.several_to_one for trio in runs)))
    name = f"PostgreSQL: processor time per result, {ledgers.GATEWAYS} gateways / one"
    goals.append(at_most(name, SEVERAL_COST, median(trio.several_cost_to_one for trio in runs)))
    for name, seconds in grants.items():
        ratio = median(seconds[plan.deep]) / median(seconds[plan.shallow])
        goals.append(at_most(f"{name}: a lease at {plan.deep:,} queued / at {plan.shallow:,}", GRANT_GOAL, ratio))
    return goals


def _stored_table(trios: Trios) -> Table:
    rows = [
        [
            name,
            f"{median(trio.ours.run.rate for trio in runs):,.0f}",
            f"{median(trio.bare.rate for trio in runs):,.0f}",
            f"{median(trio.peer.rate for trio in runs):,.0f}",
            f"{median(trio.without_changes.run.rate for trio in runs):,.0f}",
            f"{median(trio.several.run.rate for trio in runs if trio.several):,.0f}" if runs[0].several else "",
            f"{median(trio.to_bare for trio in runs):.2f}",
            f"{median(trio.to_peer for trio in runs):.1f}",
            f"{median(trio.to_without_changes for trio in runs):.2f}",
        ]
        for name, runs in trios.items()
    ]
    header = ["database", "the gateway", "bare insert", "plain handler", "without changes"]
    header.append(f"{ledgers.GATEWAYS} gateways")
    header += ["/ bare insert", "/ plain handler", "/ without changes"]
    return Table("Results of 2 KB stored per second, 100 per batch", header, rows)


_PARTS: Mapping[str, Callable[[Trio], Metered]] = {
    "stored": lambda trio: trio.ours,
    "stored only": lambda trio: trio.without_changes,
    "looking for changes": lambda trio: trio.compared,
    "showing it in the search": lambda trio: trio.indexed,
}


def processor_table(trios: Trios) -> Table:
    rows = [
        [
            f"{name}: {part}",
            f"{median(metered(trio).gateway_ms for trio in runs):.3f}",
            f"{median(metered(trio).postgres_ms for trio in runs):.3f}" if runs[0].several else "",
        ]
        for name, runs in trios.items()
        for part, metered in _PARTS.items()
    ]
    several = [trio.several for trio in trios["PostgreSQL"] if trio.several]
    if several:
        gateway_ms, postgres_ms = (
            median(getattr(run, name) for run in several) for name in ("gateway_ms", "postgres_ms")
        )
        rows.append([f"PostgreSQL: stored by {ledgers.GATEWAYS} gateways", f"{gateway_ms:.3f}", f"{postgres_ms:.3f}"])
    cores = os.cpu_count() or 1
    most = cores * 1000 / median(trio.ours.processor_ms for trio in trios["PostgreSQL"])
    notes = [
        "What is stored is looked at for changes and shown in the search a little at a time; the rest afterwards.",
        f"{cores} cores can store {most:,.0f} results per second in PostgreSQL, by however many gateways.",
    ]
    return Table("Processor time per result, ms", ["", "gateway", "PostgreSQL"], rows, notes)


def _compared_table(trios: Trios) -> Table:
    rows = [
        [
            name,
            f"{median(trio.ours.run.done for trio in runs):,.0f}",
            f"{median(trio.left.done for trio in runs):,.0f}",
            f"{median(trio.left.rate for trio in runs):,.0f}",
        ]
        for name, runs in trios.items()
    ]
    header = ["database", "stored", "left when all were stored", "compared per second afterwards"]
    return Table("Looking for changes", header, rows)


def _grants_table(grants: Grants) -> Table:
    rows = [
        [name, f"{queued:,}", f"{median(seconds) * 1000:.2f}"]
        for name, seconds_by_depth in grants.items()
        for queued, seconds in seconds_by_depth.items()
    ]
    return Table(f"Leasing {ledgers.TASKS} tasks", ["database", "queued", "ms"], rows)


def _stored(trios: Trios) -> list[dict[str, Any]]:
    return [
        {
            "database": name,
            "gateway_per_second": [trio.ours.run.rate for trio in runs],
            "bare_per_second": [trio.bare.rate for trio in runs],
            "handler_per_second": [trio.peer.rate for trio in runs],
            "several_gateways_per_second": [trio.several.run.rate for trio in runs if trio.several],
            "without_changes_per_second": [trio.without_changes.run.rate for trio in runs],
            "left_to_compare": [trio.left.done for trio in runs],
            "compared_per_second": [trio.left.rate for trio in runs],
            "processor_ms": {
                part: [[metered(trio).gateway_ms, metered(trio).postgres_ms] for trio in runs]
                for part, metered in _PARTS.items()
            },
        }
        for name, runs in trios.items()
    ]


def _granted(grants: Grants) -> list[dict[str, Any]]:
    return [
        {"database": name, "queued": queued, "seconds": seconds}
        for name, seconds_by_depth in grants.items()
        for queued, seconds in seconds_by_depth.items()
    ]
