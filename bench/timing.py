"""Running one operation many times with some number of callers, and what that took."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


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
