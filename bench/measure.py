"""Where and how things are measured: folders on the disk, callers in turn, time and memory."""

from __future__ import annotations

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


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Run:
    """Operations done, in how many seconds, and how long each took as its caller saw it."""

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
    """`callers` coroutines share the jobs 0..jobs-1; nobody starts another one after `limit` seconds."""
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
    """The same with threads. A single caller is the calling thread itself."""
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
        except Exception as failure:  # noqa: BLE001 - carried to the starting thread, which raises it
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
    """A folder on the parent's file system, gone afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


@contextmanager
def fresh_folder(parent: Path, template: Path | None = None) -> Iterator[Path]:
    """A new folder, or a copy of one, with nothing left for the kernel to write when it is handed out."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        if template is not None:
            shutil.copytree(template, folder, dirs_exist_ok=True)
        os.sync()
        yield folder


def file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, as the kernel names it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    holding = [(place, kind) for place, kind in found if folder.resolve().is_relative_to(place)]
    return max(holding, key=lambda mount: len(mount[0]))[1]


def survives_power_loss(kind: str) -> bool:
    return kind not in _IN_MEMORY


def machine(folder: Path) -> dict[str, str | int | float]:
    """`load` is the mean of the last minute: above a tenth or so, something else runs here and the figures suffer."""
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
    """The most memory this process has had in RAM.

    Linux keeps ru_maxrss across exec, so that a child starts with its parent's peak: VmHWM starts anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
