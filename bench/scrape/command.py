"""`python -m bench scrape`: a county's site scraped by Parcelpost, Scrapy, Crawlee and a plain loop, all durable."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import MB, machine, scratch
from bench.report import Goal, Report, Table, at_least, at_most, progress
from bench.scrape import runs
from bench.scrape.contenders import CONTENDERS, CRAWLEE, SCRAPY, STANDALONE, TWO_PROCESSES, Contender
from bench.scrape.peers.fields import CONCURRENCY
from bench.scrape.runs import Cost, Killed, Part

NAME = "scrape"
HELP = "whole runs against one county site, compared with Scrapy, Crawlee and a plain loop; killed runs"

SMALL, LARGE = 6_000, 80_000
DELAY = 0.05
WORKLOADS = ((SMALL, 0.0), (SMALL, DELAY), (LARGE, 0.0), (LARGE, DELAY))
MANY_TASKS = 100_000
GROWTH = 1.15


@dataclass(frozen=True, slots=True)
class Plan:
    pages: int
    repetitions: int
    depths: Sequence[int]
    """Tasks in the store."""
    sites: Sequence[int]
    first: int
    last: int
    """The cost per page, at a depth or with several sites, is measured between these numbers of served pages."""


_FULL = Plan(2_000, 3, (1_000, 100_000, 1_000_000), (1, 4, 16), 200, 950)
_QUICK = Plan(1_000, 1, (1_000, 100_000), (1, 4, 16), 200, 950)

Costs = dict[tuple[int, float], dict[str, list[Cost]]]
"""By workload, and by contender."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The parts that were measured, as many as there are repetitions."""

    depths: dict[int, list[Part]]
    """By tasks in the store."""
    sites: dict[int, list[Part]]
    scrapy: list[Part]
    """With `MANY_TASKS`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        costs = _costs(plan, folder.resolve())
        killed = _kills(plan, folder.resolve())
        growth = _growth(plan, folder.resolve())
    report = report_on(costs, killed, growth)
    return replace(report, data={"machine": where, "plan": asdict(plan), **report.data})


def report_on(costs: Costs, killed: dict[str, list[Killed]], growth: Growth) -> Report:
    tables = [*_cost_tables(costs), _killed_table(killed), _growth_table(growth)]
    data = {"costs": _figures(costs), "growth": asdict(growth)}
    data["killed"] = {name: [asdict(run) for run in repetitions] for name, repetitions in killed.items()}
    return Report(NAME, _targets(costs, killed, growth), tables, data)


def _costs(plan: Plan, folder: Path) -> Costs:
    """Each repetition measures everything once, so that other load affects all alike."""
    costs: Costs = {workload: defaultdict(list) for workload in WORKLOADS}
    for repetition in range(plan.repetitions):
        for (size, delay), measured in costs.items():
            for contender in contenders((size, delay)):
                progress(
                    f"repetition {repetition + 1} of {plan.repetitions}: {_workload(size, delay)}, {contender.name}"
                )
                with runs.site(plan.pages, size, delay) as ports:
                    measured[contender.name].append(runs.run(contender, folder, ports, plan.pages))
    return costs


def contenders(workload: tuple[int, float]) -> Sequence[Contender]:
    return [*CONTENDERS, TWO_PROCESSES] if workload == (LARGE, 0.0) else CONTENDERS


def _kills(plan: Plan, folder: Path) -> dict[str, list[Killed]]:
    killed: dict[str, list[Killed]] = defaultdict(list)
    for repetition in range(plan.repetitions):
        for contender in CONTENDERS:
            progress(f"repetition {repetition + 1} of {plan.repetitions}: kill -9, {contender.name}")
            with runs.site(plan.pages, SMALL) as ports:
                killed[contender.name].append(runs.kill_in_the_middle(contender, folder, ports, plan.pages))
    return killed


def _growth(plan: Plan, folder: Path) -> Growth:
    growth = Growth({depth: [] for depth in plan.depths}, {count: [] for count in plan.sites}, [])
    for repetition in range(plan.repetitions):
        turn = f"repetition {repetition + 1} of {plan.repetitions}"
        for depth, parts in growth.depths.items():
            progress(f"{turn}: {depth:,} tasks in the store")
            parts.append(_part(STANDALONE, plan, folder, tasks=depth))
        for count, parts in growth.sites.items():
            progress(f"{turn}: {count} sites")
            parts.append(_part(STANDALONE, plan, folder, sites=count))
        progress(f"{turn}: {MANY_TASKS:,} tasks, {SCRAPY.name}")
        growth.scrapy.append(_part(SCRAPY, plan, folder, tasks=MANY_TASKS))
    return growth


def _part(contender: Contender, plan: Plan, folder: Path, tasks: int = 0, sites: int = 1) -> Part:
    """Without `tasks` there is one for each page."""
    pages = plan.last + 50
    with (
        runs.site(pages // sites + 1, SMALL, sites=sites) as ports,
        runs.job(folder, ports, tasks or pages // sites + 1, contender) as job,
    ):
        *before, scrape = contender.commands(job)
        for command in before:
            runs.finish(command, job)
        return runs.cost_of_part(scrape, job, plan.first, plan.last)


def _targets(costs: Costs, killed: dict[str, list[Killed]], growth: Growth) -> list[Goal]:
    ours = STANDALONE.name
    latency_allows = CONCURRENCY / DELAY
    at_latency = median(cost.rate for cost in costs[SMALL, DELAY][ours]) / latency_allows
    goals = [
        at_most("6 KB: processor time per page / Scrapy", 0.5, _ratio(costs[SMALL, 0.0], SCRAPY)),
        at_most("6 KB: processor time per page / Crawlee", 0.3, _ratio(costs[SMALL, 0.0], CRAWLEE)),
        at_most("80 KB: processor time per page / Scrapy", 0.6, _ratio(costs[LARGE, 0.0], SCRAPY)),
        at_least("6 KB after 50 ms: pages per second / what latency allows", 0.97, at_latency),
    ]
    rates = zip(costs[LARGE, 0.0][TWO_PROCESSES.name], costs[LARGE, 0.0][ours], strict=True)
    faster = median(two.rate / one.rate for two, one in rates)
    goals.append(at_least("80 KB: pages per second of two processes / one", 1.6, faster))
    for name in (contender.name for contender in CONTENDERS if contender.name.startswith("Parcelpost")):
        goals += [
            at_most(f"{name}, kill -9: pages lost", 0, max(run.lost for run in killed[name])),
            at_most(f"{name}, kill -9: pages fetched twice", CONCURRENCY, max(run.twice for run in killed[name])),
        ]
    for what, measured in (("tasks in the store", growth.depths), ("sites", growth.sites)):
        (least, base), *others = measured.items()
        for count, parts in others:
            name = f"at {count:,} {what} / at {least:,}"
            goals += [
                at_most(f"processor time per page {name}", GROWTH, _cpu(parts) / _cpu(base)),
                at_most(f"peak memory {name}", GROWTH, _peak(parts) / _peak(base)),
            ]
    peak = _peak(growth.depths[MANY_TASKS])
    goals += [
        at_most(f"peak memory at {MANY_TASKS:,} tasks, MB", 120, peak / MB),
        at_most(f"peak memory at {MANY_TASKS:,} tasks / Scrapy", 1, peak / _peak(growth.scrapy)),
    ]
    return goals


def _cpu(parts: Sequence[Part]) -> float:
    return median(part.cpu_per_page for part in parts)


def _peak(parts: Sequence[Part]) -> int:
    return max(part.peak_bytes for part in parts)


def _ratio(costs: dict[str, list[Cost]], peer: Contender) -> float:
    """Median over the repetitions."""
    pairs = zip(costs[STANDALONE.name], costs[peer.name], strict=True)
    return median(ours.cpu_seconds / other.cpu_seconds for ours, other in pairs)


def _workload(size: int, delay: float) -> str:
    return f"pages of {size // 1000} KB" + (f" after {delay * 1000:.0f} ms" if delay else " at once")


def _cost_tables(costs: Costs) -> list[Table]:
    header = ["contender", "pages per second", "processor ms per page", "peak MB", "lost"]
    return [
        Table(
            f"P{_workload(size, delay)[1:]}, {CONCURRENCY} requests at a time",
            header,
            [
                [
                    name,
                    f"{median(cost.rate for cost in repetitions):.0f}",
                    f"{median(cost.cpu_per_page for cost in repetitions):.2f}",
                    f"{max(cost.peak_bytes for cost in repetitions) / MB:.0f}",
                    f"{max(cost.lost for cost in repetitions)}",
                ]
                for name, repetitions in measured.items()
            ],
            ["Processor time of the whole run, from the start of the program that adds the tasks to the end."],
        )
        for (size, delay), measured in costs.items()
    ]


def _killed_table(killed: dict[str, list[Killed]]) -> Table:
    rows = [
        [
            name,
            f"{repetitions[0].pages:,}",
            f"{max(run.lost for run in repetitions)}",
            f"{max(run.twice for run in repetitions)}",
        ]
        for name, repetitions in killed.items()
    ]
    return Table(
        "kill -9 when half of the pages have been served, then a restart",
        ["contender", "pages", "lost", "fetched twice"],
        rows,
        ["The most of all repetitions."],
    )


def _growth_table(growth: Growth) -> Table:
    measured = [
        *((f"{STANDALONE.name}, {depth:,} tasks in the store", parts) for depth, parts in growth.depths.items()),
        *((f"{STANDALONE.name}, {count} sites", parts) for count, parts in growth.sites.items()),
        (f"{SCRAPY.name}, {MANY_TASKS:,} tasks", growth.scrapy),
    ]
    return Table(
        "Growth: pages of 6 KB at once, without the start",
        ["", "processor ms per page", "peak MB"],
        [[name, f"{_cpu(parts):.2f}", f"{_peak(parts) / MB:.0f}"] for name, parts in measured],
    )


def _figures(costs: Costs) -> list[dict[str, Any]]:
    return [
        {"bytes": size, "delay": delay, "contender": name, "runs": [asdict(cost) for cost in repetitions]}
        for (size, delay), measured in costs.items()
        for name, repetitions in measured.items()
    ]
