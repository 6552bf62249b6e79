"""Platforms whose tasks wait for a browser, as the store's workers said it."""

from __future__ import annotations

from pathlib import Path

from parcelpost.cli.running import CLOCK, looking, openers
from parcelpost.cli.status_report import Problem, is_worker
from parcelpost.clock import iso
from parcelpost.storage import queries
from parcelpost.storage.state import WorkerState
from parcelpost.worker.status import BrowserWait, is_current, read_statuses

_WAITING = frozenset({"pending", "delayed", "processing"})


async def browser_waits(store: Path) -> list[BrowserWait]:
    """Recent ones, of platforms that have tasks to do. While a worker runs, only what the running ones published."""
    now = CLOCK.now()
    workers = {one.id for one in (await openers(store))[0] if is_worker(one)}
    async with looking(store) as database:
        statuses = await read_statuses(WorkerState(database, CLOCK))
        counts = await database.read(queries.counts, iso(now)) if statuses else {}
    waits = [
        wait
        for status in statuses
        if not workers or status.owner in workers
        for wait in status.browser_waits
        if is_current(wait, now) and any(counts.get(wait.platform, {}).get(state) for state in _WAITING)
    ]
    newest = {wait.platform: wait for wait in sorted(waits, key=lambda wait: wait.at)}
    return list(newest.values())


def wait_problems(waits: list[BrowserWait]) -> list[Problem]:
    told = "'parcelpost browser doctor' says what is missing"
    return [Problem(one.text, one.remedy or told, "browser") for one in waits]
