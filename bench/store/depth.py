"""How long opening the store and claiming a task take, by number of stored tasks, and the memory of adding them.

Each depth has its own store, and rounds alternate between them. A round opens the store (timed), claims 250 tasks one
after the other (each timed), releases them and closes. The figure for claims is the mean over all rounds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import mean, median

from bench.measure import MB, peak_bytes, percentile
from bench.report import progress
from bench.store.contenders import OPTIONS, PLATFORM, make_tasks, store_path
from parcelpost.clock import SystemClock, iso
from parcelpost.storage.lpm import LocalPersistenceManager

_CLAIMS_A_ROUND = 250

_NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
_FINISHED_TASKS = (
    _NUMBERS
    + """
INSERT INTO tasks (task_id, source, type, platform, state, county, parcel_id, target_json, priority, status,
                   max_retries, created_at, updated_at, started_at, completed_at)
SELECT 'done-' || n, 'gateway', 'scrape', :platform, 'CT', 'hartford', n || '-000', :target, 3, 'completed',
       3, :now, :now, :now, :now FROM numbers
"""
)
_FINISHED_RESULTS = (
    _NUMBERS
    + """
INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, idempotency_key, scraped_at,
                     synced, synced_at, created_at, data)
SELECT 'result-' || n, 'done-' || n, 1, n || '-000', :platform, 'CT', 'hartford', 'key-' || n, :now,
       1, :now, :now, :data FROM numbers
"""
)


@dataclass(frozen=True, slots=True)
class Depth:
    """Times in seconds."""

    pending: int
    finished: int
    opens: list[float] = field(default_factory=list)
    claims: list[list[float]] = field(default_factory=list)
    """By round."""

    @property
    def name(self) -> str:
        return f"{self.pending:,} pending" + (f", {self.finished:,} finished" if self.finished else "")

    @property
    def open_median(self) -> float:
        return median(self.opens)

    @property
    def claim_mean(self) -> float:
        return mean(chain.from_iterable(self.claims))

    @property
    def claim_median(self) -> float:
        return median(chain.from_iterable(self.claims))

    @property
    def claim_p99(self) -> float:
        return percentile(list(chain.from_iterable(self.claims)), 0.99)


async def measure_depths(folder: Path, pending: list[int], finished: int, rounds: int) -> list[Depth]:
    """Measures the depths in this order, then the smallest one again with finished rows."""
    depths = [*(Depth(count, 0) for count in pending), Depth(min(pending), finished)]
    folders = [folder / str(number) for number in range(len(depths))]
    for depth, place in zip(depths, folders, strict=True):
        progress(f"depth: filling {depth.name}")
        await _fill(place, depth)
    os.sync()
    for number in range(rounds + 1):
        progress(f"depth: round {number} of {rounds}")
        for depth, place in zip(depths, folders, strict=True):
            opened, claims = await _measure_round(place)
            if number > 0:  # the first one warms up
                depth.opens.append(opened)
                depth.claims.append(claims)
    return depths


async def _fill(folder: Path, depth: Depth) -> None:
    if depth.finished:
        async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS):
            pass
        _add_finished(store_path(folder), depth.finished)
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        await lpm.add_tasks(make_tasks(depth.pending))


def _add_finished(path: Path, count: int) -> None:
    """Completed tasks with their synced results, 300 bytes each so that a million of them fit on a small disk."""
    values = {
        "count": count,
        "platform": PLATFORM,
        "now": iso(SystemClock().now()),
        "target": '{"note":"' + "n" * 289 + '"}',
        "data": '{"legal":"' + "l" * 288 + '"}',
    }
    db = sqlite3.connect(path)
    try:
        with db:
            db.execute(_FINISHED_TASKS, values)
            db.execute(_FINISHED_RESULTS, values)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()


async def _measure_round(folder: Path) -> tuple[float, list[float]]:
    gc.collect()
    start = time.perf_counter()
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        opened = time.perf_counter() - start
        times, claimed = [], []
        for _ in range(_CLAIMS_A_ROUND):
            began = time.perf_counter()
            (claim,) = await lpm.claim(1)
            times.append(time.perf_counter() - began)
            claimed.append(claim)
        for claim in claimed:
            await lpm.release(claim)
    return opened, times


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of adding many tasks from an iterator, in a new process."""

    tasks: int
    peak_mb: float
    before_mb: float
    """With everything imported and nothing open."""
    seconds: float


def measure_memory(folder: Path, tasks: int) -> Memory:
    command = [sys.executable, "-m", "bench.store.depth", str(folder), str(tasks)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Memory(**json.loads(printed))


async def _add_tasks(folder: Path, count: int) -> Memory:
    before = peak_bytes()
    start = time.perf_counter()
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        added = await lpm.add_tasks(make_tasks(count))
    if added.new != count:
        raise RuntimeError(f"{added.new} of {count} tasks were added")
    return Memory(count, peak_bytes() / MB, before / MB, time.perf_counter() - start)


def main() -> None:
    folder, count = sys.argv[1:]
    memory = asyncio.run(_add_tasks(Path(folder), int(count)))
    print(json.dumps(asdict(memory)))


if __name__ == "__main__":
    main()
