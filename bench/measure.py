"""Helpers for measuring: folders on the disk, concurrent callers, time and memory."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def add_dir_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Run:
    """How many operations were done in how many seconds, and the latency of each."""

    done: int
    seconds: float
    latencies: Sequence[float] = ()

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.done / self.seconds

    @property
    def p99(self) -> float:
        """Seconds."""
        return percentile(self.latencies, 0.99) if self.latencies else math.nan


async def run_coroutines(callers: int, jobs: int, limit: float, job: Callable[[int], Awaitable[object]]) -> Run:
    """Runs jobs 0..jobs-1 in `callers` coroutines; none is started after `limit` seconds."""
    numbers = iter(range(jobs))
    latencies: list[float] = []

    async def caller() -> None:
        for number in numbers:
            began = time.perf_counter()
            await job(number)
            ended = time.perf_counter()
            latencies.append(ended - began)
            if ended > deadline:
                return

    start = time.perf_counter()
    deadline = start + limit
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return Run(len(latencies), time.perf_counter() - start, latencies)


def run_threads(callers: int, jobs: int, limit: float, job: Callable[[int], object]) -> Run:
    """The same with threads. A single caller runs on the calling thread."""
    numbers = iter(range(jobs))
    latencies: list[float] = []
    failures: list[Exception] = []
    begin = threading.Event()

    def caller() -> None:
        begin.wait()
        for number in numbers:
            began = time.perf_counter()
            job(number)
            ended = time.perf_counter()
            latencies.append(ended - began)
            if ended > deadline or failures:
                return

    def guarded() -> None:
        try:
            caller()
        except Exception as failure:  # noqa: BLE001 - raised by the starting thread
            failures.append(failure)

    threads = [threading.Thread(target=guarded) for _ in range(callers)] if callers > 1 else []
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    deadline = start + limit
    begin.set()
    if not threads:
        caller()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Run(len(latencies), time.perf_counter() - start, latencies)


_IN_MEMORY = {"tmpfs", "ramfs"}


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yields a temporary folder on the parent's file system."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


@contextmanager
def fresh_folder(parent: Path, template: Path | None = None) -> Iterator[Path]:
    """Yields a new folder, or a copy of the template, after everything has been written to disk."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        if template is not None:
            shutil.copytree(template, folder, dirs_exist_ok=True)
        os.sync()
        yield folder


def file_system(folder: Path) -> str:
    """Returns the type of the folder's file system."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    mounted = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    holding = [(place, kind) for place, kind in mounted if folder.resolve().is_relative_to(place)]
    return max(holding, key=lambda mount: len(mount[0]))[1]


def survives_power_loss(kind: str) -> bool:
    return kind not in _IN_MEMORY


def machine(folder: Path) -> dict[str, str | int | float]:
    """Describes the machine. A `load` above about 0.1 at the start means that other programs disturb the figures."""
    return {
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 2),
        "platform": sys.platform,
        "file_system": file_system(folder),
    }


MB = 1_000_000


def peak_bytes() -> int:
    """Returns the peak resident memory of this process.

    Linux keeps ru_maxrss across exec, so a child would start with its parent's peak; VmHWM is reset.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
