"""Runs schedules: starts what is due, and queues a run's tasks as its window and the site's pace allow.

Tasks are queued just in time, so the queue holds few of them: one that is paused, or whose site blocks the workers,
stops within moments, and after an outage a run goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from parcelpost.events import RunSkipped, RunStarted
from parcelpost.gateway.context import Context
from parcelpost.gateway.models import RunRow, ScheduleRow, WorkerRow
from parcelpost.schedule import next_run

_MAX_OPEN_TASKS = 500
"""Of a run: while no worker takes them, no more are queued."""


class ScheduleRunner:
    """Any number of gateways may run schedules of one ledger."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    async def step(self) -> None:
        now = self._context.clock.now()
        rows = [row for row in await self._ledger.schedules() if row.paused_at is None]
        for row in rows:
            await self._start_if_due(row, now)
        running = [row for row in rows if row.run is not None]
        workers = await self._ledger.workers() if running else ()
        for row in running:
            if not blocked_workers(row, workers, now):
                await self._extend(row, now)

    async def _start_if_due(self, row: ScheduleRow, now: datetime) -> None:
        """What was missed while no gateway ran is made up for once."""
        schedule = row.schedule
        following = next_run(schedule.timing, schedule.created_at, now)
        if row.next_run_at <= now:
            total = 0 if row.run else await self._ledger.run_total(row, now)
            if await self._ledger.start_run(row, total, now, following):
                skipped = RunSkipped(schedule=schedule.name, late_seconds=_late(row, now))
                started = RunStarted(schedule=schedule.name, tasks=total, late_seconds=_late(row, now))
                self._context.emit(skipped if row.run else started)
        elif row.next_run_at > following:  # the clock was ahead when it was set
            await self._ledger.set_next_run(row.schedule_no, row.next_run_at, following)

    async def _extend(self, row: ScheduleRow, now: datetime) -> None:
        run = row.run
        if run is None:
            return
        most = 0 if run.all_added else _allowed(row, run, now)
        if most or run.all_added:
            pace = timedelta(seconds=row.schedule.pace_seconds)
            last_added_at = max(run.last_added_at + most * pace, now - pace)
            await self._ledger.extend_run(row, most, now, last_added_at)


def _allowed(row: ScheduleRow, run: RunRow, now: datetime) -> int:
    """How many tasks may be queued now: as many as the window and the pace want, and few enough to wait."""
    schedule = row.schedule
    spacing = max(schedule.pace_seconds, schedule.window_seconds / max(1, run.total))
    due = math.floor((now - run.started_at).total_seconds() / spacing) + 1 - run.added
    by_pace = math.floor((now - run.last_added_at).total_seconds() / schedule.pace_seconds)
    if not run.added:
        by_pace = max(1, by_pace)
    return max(0, min(due, by_pace, _MAX_OPEN_TASKS - row.open_tasks))


def _late(row: ScheduleRow, now: datetime) -> float:
    return max(0.0, (now - row.next_run_at).total_seconds())


def blocked_workers(row: ScheduleRow, workers: Iterable[WorkerRow], now: datetime) -> Sequence[str]:
    """Returns the workers of the schedule's platform if sites of it block all that are alive; else none."""
    platform = row.schedule.platform
    able = [
        worker.heartbeat
        for worker in workers
        if worker.is_alive(now) and (not worker.heartbeat.platforms or platform in worker.heartbeat.platforms)
    ]
    if all(platform in heartbeat.blocked for heartbeat in able):
        return sorted(heartbeat.worker_id for heartbeat in able)
    return ()
