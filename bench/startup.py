"""`python -m bench startup`: the processor time of commands that people type often."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.measure import add_dir_option, machine, scratch
from bench.report import Goal, Report, Table, at_most, progress
from bench.store.contenders import make_tasks
from parcelpost.storage.lpm import LocalPersistenceManager

NAME = "startup"
HELP = "processor time of --help and status, compared with an empty Python"

GOAL_SECONDS = 0.4
TASKS = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int


_FULL = Plan(20)
_QUICK = Plan(5)

Runs = dict[str, list[float]]
"""Seconds of processor time, user and system, by command."""


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        runs = measure(plan, folder)
    figures = [{"command": name, "cpu_seconds": seconds} for name, seconds in runs.items()]
    return Report(NAME, _targets(runs), [_table(runs)], {"machine": where, "plan": asdict(plan), "figures": figures})


def measure(plan: Plan, folder: Path) -> Runs:
    store = folder / "parcelpost.db"
    asyncio.run(_fill(store))
    runs: defaultdict[str, list[float]] = defaultdict(list)
    for repetition in range(plan.repetitions + 1):
        for name, command in _commands(store).items():
            seconds = _cpu_seconds(command)
            if repetition:  # the first run compiles and fills the page cache
                runs[name].append(seconds)
    return dict(runs)


async def _fill(store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(make_tasks(TASKS))


def _commands(store: Path) -> dict[str, Sequence[str]]:
    ours = str(Path(sys.executable).with_name("parcelpost"))
    return {
        "parcelpost --help": [ours, "--help"],
        "parcelpost status": [ours, "status", "--store", str(store)],
        "parcelpost --version": [ours, "--version"],
        "import parcelpost": [sys.executable, "-c", "import parcelpost"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }


def _cpu_seconds(command: Sequence[str]) -> float:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # the default: keep compiled files
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def _targets(runs: Runs) -> list[Goal]:
    commands = ("parcelpost --help", "parcelpost status")
    return [at_most(f"{name}: seconds of CPU, the best run", GOAL_SECONDS, min(runs[name])) for name in commands]


def _table(runs: Runs) -> Table:
    rows = [
        [name, f"{min(seconds):.3f}", f"{median(seconds):.3f}", f"{max(seconds):.3f}"] for name, seconds in runs.items()
    ]
    return Table(
        "Seconds of CPU (user and system), each in a new process",
        ["command", "best", "median", "worst"],
        rows,
        [f"The store of `status` has {TASKS:,} tasks."],
    )
