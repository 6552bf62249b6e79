"""How long a ledger takes to hand out 50 tasks, with few and with many in its queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.opening import open_ledger
from parcelpost.model import Priority, Target, Task

TASKS = 50

_PLATFORMS = ("vgsi", "beacon", "qpublic", "devnet")
_ASKED_FOR = _PLATFORMS[:2]
_CHUNK = 5_000
_GRANTS = 8
_ROUNDS = 5
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LEASE = timedelta(minutes=15)
_MANY = 10_000


async def fill(database: str, queued: int) -> None:
    """Tasks of four platforms and all priorities, mixed."""
    async with open_ledger(database, 1_000, SystemClock()) as ledger:
        for first in range(0, queued, _CHUNK):
            await ledger.add_tasks(list(_tasks(first, min(first + _CHUNK, queued))), _NOW)


async def measure(databases: dict[int, str]) -> dict[int, list[float]]:
    """Seconds of each grant, by how many tasks were queued. Rounds go in turn, and each begins with all of them."""
    seconds: dict[int, list[float]] = {queued: [] for queued in databases}
    for number in range(_ROUNDS + 1):
        for queued, database in databases.items():
            async with open_ledger(database, 1_000, SystemClock()) as ledger:
                taken = await _round(ledger, _NOW + number * 2 * _LEASE)
            if number:  # the first warms up
                seconds[queued] += taken
    return seconds


async def _round(ledger: Ledger, now: datetime) -> list[float]:
    taken = []
    for number in range(_GRANTS):
        start = time.perf_counter()
        granted = await ledger.grant(f"bench-{number}", _ASKED_FOR, TASKS, now, now + _LEASE)
        taken.append(time.perf_counter() - start)
        if len(granted) != TASKS:
            raise RuntimeError(f"{len(granted)} tasks were granted, not {TASKS}")
    await ledger.bring_back(now + 1.5 * _LEASE, _MANY)
    return taken[1:]  # a new connection's first call prepares its statements


def _tasks(first: int, last: int) -> Iterator[Task]:
    priorities = list(Priority)
    for number in range(first, last):
        target = Target(parcel_id=f"{number:08}", state="CT", county="hartford", url=f"https://example.org/{number}")
        yield Task(
            task_id=f"task-{number:08}",
            platform=_PLATFORMS[number % len(_PLATFORMS)],
            target=target,
            priority=priorities[number // len(_PLATFORMS) % len(priorities)],
        )
