"""Platforms whose tasks wait for a browser, as the store's workers said it."""

from __future__ import annotations

from pathlib import Path

from parcelpost.cli.running import CLOCK, looking, openers
from parcelpost.cli.status_report import Problem, is_worker
from parcelpost.clock import iso
from parcelpost.storage import queries
from parcelpost.storage.state import WorkerState
from parcelpost.worker.status import STATE, BrowserWait, still

_WAITING = frozenset({"pending", "delayed", "processing"})


async def browser_waits(store: Path) -> list[BrowserWait]:
    """Not long ago, of tasks that are still to do. While a worker is there, what others said before it is over."""
    async with looking(store) as database:
        told = still(await WorkerState(database, CLOCK).list(STATE, BrowserWait), CLOCK.now())
        counts = await database.read(queries.counts, iso(CLOCK.now())) if told else {}
    waiting = [one for one in told if any(counts.get(one.platform, {}).get(state) for state in _WAITING)]
    if not waiting:
        return []
    workers = {one.id for one in (await openers(store))[0] if is_worker(one)}
    return [one for one in waiting if not workers or one.owner in workers]


def wait_problems(waits: list[BrowserWait]) -> list[Problem]:
    told = "'parcelpost browser doctor' says what is missing"
    return [Problem(one.text, one.remedy or told, "browser") for one in waits]
