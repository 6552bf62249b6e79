"""The benchmark's site and contenders: each peer scrapes all pages of the site and stores them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.report import Goal, Report
from bench.scrape import command, runs
from bench.scrape.contenders import CONTENDERS, STANDALONE, TWO_PROCESSES, Contender, standalone_commands
from bench.scrape.runs import Cost, Killed, Part

MB = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("contender", (*CONTENDERS, TWO_PROCESSES), ids=lambda contender: contender.name)
def test_every_contender_scrapes_and_stores_all_pages(tmp_path: Path, contender: Contender) -> None:
    with runs.site(5, 8_000) as ports:
        cost = runs.run(contender, tmp_path, ports, 5)
    assert cost.lost == 0
    assert cost.cpu_seconds > 0


@pytest.mark.slow
def test_a_contender_that_does_not_read_robots_txt_is_no_contender(tmp_path: Path) -> None:
    impolite = replace(STANDALONE, commands=lambda job: standalone_commands(job, "--set", "fetch.obey_robots=false"))
    with runs.site(5, 8_000) as ports, pytest.raises(RuntimeError, match=r"5 pages .* before robots\.txt"):
        runs.run(impolite, tmp_path, ports, 5)


def _report(growth: command.Growth) -> Report:
    """Of contenders that cost the same. Two processes are twice as fast as one."""
    costs: command.Costs = {}
    for workload in command.WORKLOADS:
        names = [contender.name for contender in command.contenders(workload)]
        costs[workload] = {name: [Cost(100, 1.0, 2.0 / (1 + (name == TWO_PROCESSES.name)), MB, 0)] for name in names}
    killed = {contender.name: [Killed(100, 0, 0)] for contender in CONTENDERS}
    return command.report_on(costs, killed, growth)


def _goals(growth: command.Growth) -> dict[str, Goal]:
    return {goal.name: goal for goal in _report(growth).targets}


def _growth(depths: list[tuple[float, int]], sites: list[float]) -> command.Growth:
    return command.Growth(
        {depth: [Part(cpu, mb * MB)] for depth, (cpu, mb) in zip((1_000, 100_000, 1_000_000), depths, strict=True)},
        {count: [Part(cpu, 50 * MB)] for count, cpu in zip((1, 4, 16), sites, strict=True)},
        [Part(1.0, 100 * MB)],
    )


def test_a_report_shows_all_that_was_measured() -> None:
    report = _report(_growth([(1.0, 50), (1.0, 51), (1.0, 52)], [1.0] * 3))
    assert "1,000,000 tasks in the store" in report.as_text()
    shown = json.loads(report.as_json())
    assert {"costs", "killed", "growth"} <= shown.keys()


def test_two_processes_are_measured_where_they_are_judged() -> None:
    goals = _goals(_growth([(1.0, 50)] * 3, [1.0] * 3))
    assert goals["80 KB: pages per second of two processes / one"].measured == 2.0
    assert all(goal.met for name, goal in goals.items() if "at 1,000" in name or "sites" in name)


@pytest.mark.parametrize(
    ("growth", "missed"),
    [
        (_growth([(1.0, 50), (2.0, 50), (1.0, 50)], [1.0] * 3), "processor time per page at 100,000 tasks"),
        (_growth([(1.0, 50), (1.0, 50), (1.0, 90)], [1.0] * 3), "peak memory at 1,000,000 tasks"),
        (_growth([(1.0, 50)] * 3, [1.0, 2.0, 1.0]), "processor time per page at 4 sites"),
    ],
)
def test_every_size_is_judged_by_the_smallest(growth: command.Growth, missed: str) -> None:
    grown = [goal for goal in _goals(growth).values() if " / at " in goal.name]
    assert [goal.name.startswith(missed) for goal in grown if not goal.met] == [True]
