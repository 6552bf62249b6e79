"""Lists, groups and operator actions on tasks, for SQLite and PostgreSQL; and whose turn a task takes in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import Conditions, Queries, like_pattern
from parcelpost.gateway.ledger.rows import TASK_COLUMNS
from parcelpost.gateway.models import FailureGroup, SiteParcels, SiteTasks, TaskFilter, TaskRow, TaskState

HEAD_TURN = """
WITH RECURSIVE p (platform) AS (
    SELECT min(platform) FROM tasks WHERE state = 'queued'
    UNION ALL
    SELECT (SELECT min(platform) FROM tasks WHERE state = 'queued' AND platform > p.platform)
    FROM p WHERE p.platform IS NOT NULL
)
SELECT coalesce(min((SELECT min(q.turn) FROM tasks q
                     WHERE q.state = 'queued' AND q.platform = p.platform AND q.priority = {})), 0)
FROM p WHERE p.platform IS NOT NULL
"""
"""Of a priority. A site that has nothing queued starts there, beside the others, and does not wait behind them."""
SITE_TURN = """(SELECT coalesce(max(q.turn) + 1, 0) FROM tasks q
    WHERE q.state = 'queued' AND q.priority = {} AND q.site = {})"""

_HEAD_OF_PLATFORM = """(SELECT min(q.turn) FROM tasks q
    WHERE q.state = 'queued' AND q.platform = {0}.platform AND q.priority = {0}.priority)"""
TURN_AGAIN = f"CASE WHEN {{0}}.turn < {_HEAD_OF_PLATFORM} THEN {_HEAD_OF_PLATFORM} ELSE {{0}}.turn END"
"""Of a task that returns to the queue: it goes first, and counts as waiting only from now on."""

_REQUEUE = f"""
UPDATE tasks SET state = 'queued', attempts = 0, ended_at = NULL, error = NULL, reason = NULL,
       turn = {TURN_AGAIN.format("tasks")}
WHERE ended_at IS NOT NULL AND state <> 'done' AND """
_DELETE = "DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE state <> 'leased' AND {} LIMIT ?)"
_DELETED_AT_ONCE = 5_000
"""Others write in between."""

_TASK_ROW = f"{TASK_COLUMNS}, state, max_attempts, ended_at, error, seq"
_TASK = f"SELECT {_TASK_ROW} FROM tasks WHERE task_id = ?"
_LEASES = """
SELECT worker_id, granted_at, expires_at, ended_at, ended_as, error
FROM leases WHERE task_id = ? ORDER BY lease_id
"""
_WITHOUT_RECORD = "state IN ('not_found', 'failed', 'dead')"  # the condition of two indexes
_LEASED = "task_id IN (SELECT task_id FROM leases WHERE ended_at IS NULL)"
_QUEUED_BY_SITE = "SELECT site, count(*) FROM tasks WHERE state = 'queued' GROUP BY site"
_ENDED_BY_SITE = """
SELECT site, state, count(*), sum(CASE WHEN ended_at >= ? THEN 1 ELSE 0 END)
FROM tasks WHERE ended_at >= ? GROUP BY site, state
"""
_SITE_PARCELS = """
SELECT s.platform, p.state, p.county, count(*), max(s.scraped_at), min(s.scraped_at)
FROM sources s JOIN parcels p ON p.parcel_no = s.parcel_no GROUP BY s.platform, p.state, p.county
"""
_SITE_CHANGES = """
SELECT s.platform, p.state, p.county, max(c.found_at)
FROM (SELECT parcel_no, source_no, found_at FROM changes ORDER BY change_no DESC LIMIT 20000) c
JOIN parcels p ON p.parcel_no = c.parcel_no JOIN sources s ON s.source_no = c.source_no
GROUP BY s.platform, p.state, p.county
"""
_FAILURES = f"""
SELECT g.state, g.reason, g.tasks, g.last_ended_at, t.platform, t.target, t.task_id, t.error
FROM (SELECT state, reason, site, count(*) AS tasks, max(ended_at) AS last_ended_at, max(seq) AS newest
      FROM tasks WHERE {_WITHOUT_RECORD} AND {{}} GROUP BY state, reason, site
      ORDER BY count(*) DESC, max(seq) DESC LIMIT ?) g
JOIN tasks t ON t.seq = g.newest ORDER BY g.tasks DESC, g.newest DESC
"""


def task_list(
    wanted: TaskFilter, most: int, before: tuple[datetime | None, int] | None = None
) -> tuple[str, list[Any]]:
    """The statement that lists tasks of one state, and its arguments: those that ended, the most recent first; others,
    those added last.
    """
    conditions = task_conditions(wanted)
    ended_at, seq = before or (None, None)
    has_ended = set(wanted.states) <= _ENDED
    if ended_at is not None:
        conditions.add("(ended_at, seq) < (?, ?)", ended_at, seq)
    elif seq is not None:
        conditions.add("seq < ?", seq)
    order = "ended_at DESC, seq DESC" if has_ended else "seq DESC"
    return f"SELECT {_TASK_ROW} FROM tasks WHERE {conditions} ORDER BY {order} LIMIT ?", [*conditions.args, most]


_ENDED = frozenset(TaskState) - {TaskState.QUEUED, TaskState.LEASED}
_WITH_REASON = _ENDED - {TaskState.DONE}


def task_conditions(wanted: TaskFilter) -> Conditions:
    conditions = Conditions()
    _add_states(conditions, set(wanted.states))
    if wanted.task_ids is not None:
        conditions.add(f"task_id IN ({', '.join('?' * len(wanted.task_ids)) or 'NULL'})", *wanted.task_ids)
    if wanted.platform:
        conditions.add("platform = ?", wanted.platform)
    if wanted.site and wanted.platform:
        conditions.add("site = ?", f"{wanted.platform}/{wanted.site}".lower())
    elif wanted.site:
        conditions.add("site LIKE ? ESCAPE '!'", like_pattern(f"/{wanted.site}").removesuffix("%"))
    if wanted.reason is not None:
        conditions.add("coalesce(reason, '') = ?", wanted.reason)
    return conditions


def _add_states(conditions: Conditions, states: set[TaskState]) -> None:
    if not states:
        return
    if states <= _WITH_REASON:
        conditions.add(_WITHOUT_RECORD)
    elif states <= _ENDED:
        conditions.add("ended_at IS NOT NULL")
    elif states == {TaskState.LEASED}:
        conditions.add(_LEASED)
    conditions.add(f"state IN ({', '.join('?' * len(states))})", *sorted(states))


class TaskQueries(Queries, Protocol):
    """Lists, groups and operator actions on tasks."""

    async def task(self, task_id: str) -> TaskRow | None:
        tasks = await self._find(_TASK, task_id)
        leases = await self._find(_LEASES, task_id)
        return rows.task_row(tasks[0], [rows.lease(row) for row in leases]) if tasks else None

    async def tasks(
        self, wanted: TaskFilter, most: int, before: tuple[datetime | None, int] | None = None
    ) -> Sequence[TaskRow]:
        sql, args = task_list(wanted, most, before)
        return [rows.task_row(row) for row in await self._find(sql, *args)]

    async def count_tasks(self, wanted: TaskFilter) -> int:
        conditions = task_conditions(wanted)
        counted = await self._find(f"SELECT count(*) FROM tasks WHERE {conditions}", *conditions.args)
        return int(counted[0][0]) if counted else 0

    async def failures(self, wanted: TaskFilter, most: int) -> Sequence[FailureGroup]:
        conditions = task_conditions(wanted)
        found = await self._find(_FAILURES.format(conditions), *conditions.args, most)
        return [rows.failure_group(row) for row in found]

    async def site_parcels(self) -> Sequence[SiteParcels]:
        changed = {tuple(row[:3]): rows.timestamp(row[3]) for row in await self._find(_SITE_CHANGES)}
        return [
            SiteParcels(
                platform=row[0],
                state=row[1],
                county=row[2],
                parcels=row[3],
                newest_at=rows.timestamp(row[4]),
                oldest_at=rows.timestamp(row[5]),
                changed_at=changed.get(tuple(row[:3])),
            )
            for row in await self._find(_SITE_PARCELS)
        ]

    async def ended_by_site(self, since: datetime, hour: datetime) -> Sequence[SiteTasks]:
        found = await self._find(_ENDED_BY_SITE, hour, since)
        return [SiteTasks(site=row[0], state=TaskState(row[1]), tasks=row[2], since_hour=row[3]) for row in found]

    async def queued_by_site(self) -> Mapping[str, int]:
        return {row[0]: row[1] for row in await self._find(_QUEUED_BY_SITE)}

    async def requeue(self, wanted: TaskFilter) -> int:
        conditions = task_conditions(wanted)
        return await self._change(f"{_REQUEUE}{conditions}", *conditions.args)

    async def delete_tasks(self, wanted: TaskFilter) -> int:
        conditions = task_conditions(wanted)
        deleted = removed = await self._change(_DELETE.format(conditions), *conditions.args, _DELETED_AT_ONCE)
        while removed == _DELETED_AT_ONCE:
            removed = await self._change(_DELETE.format(conditions), *conditions.args, _DELETED_AT_ONCE)
            deleted += removed
        return deleted
