"""Schedules and their runs, in SQL that SQLite and PostgreSQL share.

Every change is one statement that can be repeated: a run is known by when it was due, its tasks by the run and their
parcels. So several gateways may do this at once, and one that is killed between two statements loses and repeats
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import Conditions, Queries, refresh_conditions
from parcelpost.gateway.ledger.rows import QueuedTask
from parcelpost.gateway.models import (
    Freshness,
    ParcelFilter,
    RefreshFilter,
    RunRow,
    Schedule,
    ScheduleRow,
    Scope,
)
from parcelpost.model import REFRESH, Priority, Site, Target, Task
from parcelpost.places import parcel_norm

MAX_RETRIES = 3
"""Of a task that scrapes a known parcel again."""
PRIORITY = Priority.BATCH
"""Of scheduled tasks: whatever else is queued goes first."""

_WITH_TARGETS = (Scope.FILE, Scope.LIST)

ADD_SCHEDULE = f"""
INSERT INTO schedules ({rows.SCHEDULE_COLUMNS}, targets, next_run_at)
VALUES ({", ".join("?" * 14)}) ON CONFLICT (name) DO NOTHING RETURNING schedule_no
"""
ADD_TARGET = "INSERT INTO schedule_targets (schedule_no, position, parcel_norm, target) VALUES (?, ?, ?, ?)"
_SCHEDULES = f"""
SELECT {rows.SCHEDULE_COLUMNS}, s.schedule_no, paused_at, next_run_at, error, failing_since, targets,
       (SELECT count(*) FROM tasks t WHERE t.run_no = open.run_no AND t.state IN ('queued', 'leased')),
       open.run_no,
       (SELECT max(last.run_no) FROM schedule_runs last
        WHERE last.schedule_no = s.schedule_no AND last.outcome = 'ended'),
       (SELECT max(last.run_no) FROM schedule_runs last
        WHERE last.schedule_no = s.schedule_no AND last.outcome = 'skipped')
FROM schedules s
LEFT JOIN (SELECT schedule_no AS of_schedule, run_no FROM schedule_runs WHERE ended_at IS NULL) open
     ON open.of_schedule = s.schedule_no
WHERE ? IN (s.name, '') ORDER BY s.name
"""
_RUNS_BY_NUMBER = f"SELECT run_no, {rows.RUN_COLUMNS} FROM schedule_runs WHERE run_no IN ({{}})"
_RUNS = f"SELECT {rows.RUN_COLUMNS} FROM schedule_runs WHERE schedule_no = ? ORDER BY run_no DESC LIMIT ?"
_SET_PAUSED = "UPDATE schedules SET paused_at = ? WHERE schedule_no = ?"
_SET_ERROR = """
UPDATE schedules SET error = ?, failing_since = CASE WHEN ? = '' THEN NULL ELSE coalesce(failing_since, ?) END
WHERE schedule_no = ?
"""
_SET_NEXT_RUN = "UPDATE schedules SET next_run_at = ? WHERE schedule_no = ? AND next_run_at = ?"
_RUN_NUMBERS = "SELECT run_no FROM schedule_runs WHERE schedule_no = ?"
_DELETE_TASKS = """
DELETE FROM tasks
WHERE state = 'queued' AND run_no = ? AND NOT EXISTS (SELECT 1 FROM schedule_runs r WHERE r.run_no = tasks.run_no)
"""
"""Of a run whose schedule was deleted."""
_DELETE = "DELETE FROM schedules WHERE schedule_no = ?"

_START_RUN = """
INSERT INTO schedule_runs (schedule_no, due_at, started_at, ended_at, outcome, total, last_added_at)
SELECT s.schedule_no, s.next_run_at, ?, CASE WHEN open.run_no IS NULL THEN open.ended_at ELSE ? END,
       CASE WHEN open.run_no IS NULL THEN 'running' ELSE 'skipped' END, ?, ?
FROM schedules s LEFT JOIN schedule_runs open ON open.schedule_no = s.schedule_no AND open.ended_at IS NULL
WHERE s.schedule_no = ? AND s.next_run_at = ? AND s.paused_at IS NULL
ON CONFLICT DO NOTHING
"""
_EXTEND_RUN = """
UPDATE schedule_runs SET added = ?, after_norm = ?, all_added = ?, last_added_at = ?
WHERE run_no = ? AND added = ? AND after_norm = ?
"""
_END_RUN = """
UPDATE schedule_runs
SET ended_at = ?, outcome = 'ended',
    added = (SELECT count(*) FROM tasks t WHERE t.run_no = schedule_runs.run_no),
    done = (SELECT count(*) FROM tasks t WHERE t.run_no = schedule_runs.run_no AND t.state IN ('done', 'not_found')),
    failed = (SELECT count(*) FROM tasks t WHERE t.run_no = schedule_runs.run_no AND t.state IN ('failed', 'dead'))
WHERE run_no = ? AND ended_at IS NULL AND all_added
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.run_no = schedule_runs.run_no AND t.state IN ('queued', 'leased'))
"""
"""Decides itself whether the run is over: another gateway may have queued its last tasks meanwhile. Tasks that a
gateway queued just before it was killed are counted now, as they may have ended before they were found again.
"""

_NEXT_KNOWN = """
SELECT s.source_no, s.target, p.parcel_norm FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no WHERE {}
ORDER BY p.parcel_norm LIMIT ?
"""
_NEXT_TARGETS = """
SELECT position, target FROM schedule_targets WHERE schedule_no = ? AND position > ? ORDER BY position LIMIT ?
"""
_NOT_FOUND = """
SELECT {} AS {}, max(t.ended_at) AS ended_at FROM tasks t
WHERE t.state = 'not_found' AND t.run_no IN (SELECT max(run_no) FROM schedule_runs
    WHERE schedule_no = ? AND outcome <> 'skipped' GROUP BY outcome)
GROUP BY 1
"""
"""Of the run in progress and the last one that ended: pruning leaves these tasks."""
_COUNT_FRESH = """
SELECT count(*) - count(gone_at), count(CASE WHEN gone_at IS NULL AND scraped_at >= ? THEN 1 END),
       min(CASE WHEN gone_at IS NULL THEN scraped_at END), count(gone_at),
       count(CASE WHEN gone_at IS NULL THEN scraped_at END)
FROM ({}) counted
"""
_SCRAPED = (
    "s.scraped_at, CASE WHEN s.scraped_at IS NULL OR s.scraped_at < gone.ended_at THEN gone.ended_at END AS gone_at"
)
_FRESH_KNOWN = _COUNT_FRESH.format(f"""
SELECT {_SCRAPED} FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no
LEFT JOIN ({_NOT_FOUND.format("t.refresh_of", "source_no")}) gone ON gone.source_no = s.source_no WHERE {{}}
""")
_POSITION = f"CAST(substr(t.task_id, length('{REFRESH}-r' || t.run_no || '-') + 1) AS INTEGER)"
_FRESH_TARGETS = _COUNT_FRESH.format(f"""
SELECT {_SCRAPED} FROM schedule_targets w
LEFT JOIN parcels p ON p.parcel_norm = w.parcel_norm AND p.state = ? AND p.county = ?
LEFT JOIN sources s ON s.parcel_no = p.parcel_no AND s.platform = ?
LEFT JOIN ({_NOT_FOUND.format(_POSITION, "position")}) gone ON gone.position = w.position
WHERE w.schedule_no = ?
""")
_HAS_PARCELS = """
SELECT 1 FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no
WHERE p.state = ? AND p.county = ? AND s.platform = ? LIMIT 1
"""
_LISTED = "SELECT count(*) FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no WHERE {}"
_LAST_LISTED = """
SELECT max(ended_at) FROM schedule_runs WHERE schedule_no = ? AND outcome = 'ended' AND done > 0 AND failed = 0
"""


class ScheduleQueries(Queries, Protocol):
    async def _queue(self, added: Sequence[QueuedTask], now: datetime) -> int:
        """Queues those that are not known, in their order, each at the next turn of its site. Returns how many."""

    async def _add_schedule(self, values: Sequence[Any], targets: Sequence[tuple[int, str, str]]) -> bool:
        """Stores a schedule and its targets in one transaction. Returns False if its name is taken."""

    async def add_schedule(self, schedule: Schedule, targets: Sequence[Target], next_run_at: datetime) -> bool:
        texts = ((parcel_norm(target.parcel_id), rows.encode(target).decode()) for target in targets)
        values = (*rows.schedule_values(schedule), len(targets), next_run_at)
        return await self._add_schedule(values, [(position, *text) for position, text in enumerate(texts, 1)])

    async def schedules(self, name: str = "") -> Sequence[ScheduleRow]:
        schedules = await self._find(_SCHEDULES, name)
        numbers = [number for row in schedules for number in row[-3:] if number is not None]
        by_number = await self._find_by_number(_RUNS_BY_NUMBER, numbers)
        runs = {number: rows.run(of[0]) for number, of in by_number.items()}
        return [rows.schedule(row[:-3], *map(runs.get, row[-3:])) for row in schedules]

    async def schedule_runs(self, schedule_no: int, most: int) -> Sequence[RunRow]:
        return [rows.run(row) for row in await self._find(_RUNS, schedule_no, most)]

    async def has_parcels(self, site: Site) -> bool:
        return bool(await self._find(_HAS_PARCELS, site.state, site.county, site.platform))

    async def set_paused(self, schedule_no: int, paused_at: datetime | None) -> None:
        await self._change(_SET_PAUSED, paused_at, schedule_no)

    async def set_error(self, schedule_no: int, error: str, now: datetime) -> None:
        await self._change(_SET_ERROR, error, error, now, schedule_no)

    async def set_next_run(self, schedule_no: int, expected: datetime, next_run_at: datetime) -> bool:
        return bool(await self._change(_SET_NEXT_RUN, next_run_at, schedule_no, expected))

    async def delete_schedule(self, schedule_no: int) -> bool:
        runs = await self._find(_RUN_NUMBERS, schedule_no)
        is_deleted = bool(await self._change(_DELETE, schedule_no))
        if runs:
            await self._run_all(_DELETE_TASKS, runs)
        return is_deleted

    async def start_run(self, row: ScheduleRow, total: int, now: datetime, next_run_at: datetime) -> bool:
        due_at = row.next_run_at
        last_added_at = now - timedelta(seconds=row.schedule.pace_seconds)  # the first task need not wait
        started = await self._change(_START_RUN, now, now, total, last_added_at, row.schedule_no, due_at)
        await self._change(_SET_NEXT_RUN, next_run_at, row.schedule_no, due_at)
        return bool(started)

    async def extend_run(self, row: ScheduleRow, most: int, now: datetime, last_added_at: datetime) -> int:
        run = row.run
        if run is None:
            return 0
        if run.all_added:
            if not row.open_tasks:
                await self._change(_END_RUN, now, run.run_no)
            return 0
        tasks = await self._next_tasks(row, run, most + 1)
        chosen = tasks[:most]
        after_norm = chosen[-1][1] if chosen else run.after_norm
        if chosen:
            await self._queue([task for task, _ in chosen], now)
        progress = (run.added + len(chosen), after_norm, len(tasks) <= most, last_added_at)
        if not await self._change(_EXTEND_RUN, *progress, run.run_no, run.added, run.after_norm):
            await self._change(_DELETE_TASKS, run.run_no)  # its schedule may have been deleted meanwhile
        return len(chosen)

    async def _next_tasks(self, row: ScheduleRow, run: RunRow, most: int) -> list[tuple[QueuedTask, str]]:
        """Returns the next tasks, each with its parcel."""
        schedule, number = row.schedule, run.run_no
        if schedule.scope in _WITH_TARGETS:
            targets = await self._find(_NEXT_TARGETS, row.schedule_no, run.added, most)
            return [(_of_target(schedule, number, position, target), "") for position, target in targets]
        conditions = refresh_conditions(_known_parcels(schedule, run.started_at), number)
        conditions.add("p.parcel_norm > ?", run.after_norm)
        known = await self._find(_NEXT_KNOWN.format(conditions), *conditions.args, most)
        return [(_of_source(schedule, number, source_no, target), norm) for source_no, target, norm in known]

    async def run_total(self, row: ScheduleRow, now: datetime) -> int:
        if row.schedule.scope in _WITH_TARGETS:
            return row.targets
        conditions = refresh_conditions(_known_parcels(row.schedule, now))
        ((number,),) = await self._find(_LISTED.format(conditions), *conditions.args)
        return int(number)

    async def freshness(self, row: ScheduleRow, since: datetime) -> Freshness:
        schedule = row.schedule
        if schedule.scope is Scope.LIST:
            return await self._freshness_of_list(row, since)
        if row.schedule.scope in _WITH_TARGETS:
            place = (schedule.state, schedule.county, schedule.platform)
            counted = await self._find(_FRESH_TARGETS, since, *place, row.schedule_no, row.schedule_no)
        else:
            conditions = _conditions(schedule)
            conditions.add("s.target <> ''")
            counted = await self._find(_FRESH_KNOWN.format(conditions), since, row.schedule_no, *conditions.args)
        ((parcels, fresh, oldest, not_found, scraped),) = counted
        oldest_at = rows.timestamp_or_none(oldest) if scraped == parcels else None
        return Freshness(parcels=parcels, fresh=fresh, oldest_at=oldest_at, not_found=not_found)

    async def _freshness_of_list(self, row: ScheduleRow, since: datetime) -> Freshness:
        """As a whole: a parcel that is on the list no longer cannot be scraped with it again."""
        conditions = _conditions(row.schedule)
        ((parcels,),) = await self._find(_LISTED.format(conditions), *conditions.args)
        ((last,),) = await self._find(_LAST_LISTED, row.schedule_no)
        last_at = rows.timestamp_or_none(last)
        is_fresh = last_at is not None and last_at >= since
        return Freshness(parcels=parcels, fresh=parcels if is_fresh else 0, oldest_at=last_at)


def _known_parcels(schedule: Schedule, scraped_before: datetime) -> RefreshFilter:
    return RefreshFilter(parcels=_filter(schedule), scraped_before=scraped_before)


def _filter(schedule: Schedule) -> ParcelFilter:
    return ParcelFilter(
        platform=schedule.platform,
        state=schedule.state,
        county=schedule.county,
        delinquent=True if schedule.scope is Scope.DELINQUENT else None,
    )


def _conditions(schedule: Schedule) -> Conditions:
    wanted = _filter(schedule)
    conditions = Conditions()
    conditions.add("p.state = ? AND p.county = ? AND s.platform = ?", wanted.state, wanted.county, wanted.platform)
    if wanted.delinquent:
        conditions.add("p.delinquent = ?", wanted.delinquent)
    return conditions


def _of_source(schedule: Schedule, run_no: int, source_no: int, target: str) -> QueuedTask:
    site = rows.site_text(schedule.platform, schedule.state, schedule.county)
    task_id = f"{REFRESH}-{source_no}-r{run_no}"
    return QueuedTask(
        task_id, schedule.platform, REFRESH, PRIORITY, target, MAX_RETRIES, site, refresh_of=source_no, run_no=run_no
    )


def _of_target(schedule: Schedule, run_no: int, position: int, target: str) -> QueuedTask:
    task = Task(
        task_id=f"{REFRESH}-r{run_no}-{position}",
        platform=schedule.platform,
        target=rows.read_target(target),
        type=REFRESH,
        priority=PRIORITY,
        max_retries=MAX_RETRIES,
    )
    return rows.queued_task(task, run_no)
