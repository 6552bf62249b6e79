"""Tasks and their leases. Each function is one change, run by the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from parcelpost.clock import iso
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.endings import NEVER_ANSWERED, Ending
from parcelpost.gateway.sql.rows import TASK_COLUMNS
from parcelpost.gateway.words import Added, BroughtBack, Ended, Grant, LeaseEnd, TaskState
from parcelpost.model import Task

_ADD = """
INSERT INTO tasks (task_id, platform, type, priority, target, max_retries, max_attempts, created_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued') ON CONFLICT (task_id) DO NOTHING
"""

_NEXT = f"""
SELECT {TASK_COLUMNS}, seq FROM tasks
WHERE state = 'queued' AND platform = ? ORDER BY priority, seq LIMIT ?
"""
_LEASE = "UPDATE tasks SET state = 'leased', attempts = attempts + 1 WHERE seq = ?"
_OPEN_LEASE = "INSERT INTO leases (task_id, worker_id, granted_at, expires_at) VALUES (?, ?, ?, ?)"

_OVER = """
SELECT l.lease_id, l.task_id, t.platform, t.attempts < t.max_attempts
FROM leases l JOIN tasks t ON t.task_id = l.task_id
WHERE l.ended_at IS NULL AND l.expires_at <= ? ORDER BY l.expires_at LIMIT ?
"""
_HELD = """
SELECT l.lease_id, t.platform, t.attempts < t.max_attempts FROM leases l JOIN tasks t ON t.task_id = l.task_id
WHERE l.ended_at IS NULL AND l.task_id = ? AND l.worker_id = ?
"""
_END_LEASE = "UPDATE leases SET ended_at = ?, ended_as = ? WHERE lease_id = ?"
_QUEUE_AGAIN = "UPDATE tasks SET state = 'queued', error = ? WHERE task_id = ?"
_END = "UPDATE tasks SET state = ?, ended_at = ?, error = ? WHERE task_id = ?"

_REQUEUE = """
UPDATE tasks SET state = 'queued', attempts = 0, ended_at = NULL, error = NULL
WHERE ended_at IS NOT NULL AND state = ? AND (? = '' OR platform = ?)
"""


def add(db: sqlite3.Connection, tasks: Sequence[Task], max_attempts: int, now: datetime) -> Added:
    at = iso(now)
    new = db.executemany(_ADD, [(*rows.task_values(task), max_attempts, at) for task in tasks]).rowcount
    return Added(new, len(tasks) - new)


def grant(
    db: sqlite3.Connection, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
) -> list[Grant]:
    found = [row for platform in set(platforms) for row in db.execute(_NEXT, (platform, capacity))]
    found.sort(key=lambda row: (row[3], row[-1]))
    taken = found[:capacity]
    granted_at, expires_at = iso(now), iso(until)
    db.executemany(_LEASE, [(row[-1],) for row in taken])
    db.executemany(_OPEN_LEASE, [(row[0], worker_id, granted_at, expires_at) for row in taken])
    return [rows.grant(row, row[6] + 1, until) for row in taken]


def bring_back(db: sqlite3.Connection, now: datetime, most: int) -> BroughtBack:
    at = iso(now)
    over = db.execute(_OVER, (at, most)).fetchall()
    again = [(task_id, platform) for _, task_id, platform, may_try in over if may_try]
    dead = [(task_id, platform) for _, task_id, platform, may_try in over if not may_try]
    db.executemany(_END_LEASE, [(at, LeaseEnd.EXPIRED, lease_id) for lease_id, *_ in over])
    db.executemany(_QUEUE_AGAIN, [(None, task_id) for task_id, _ in again])
    db.executemany(_END, [(TaskState.DEAD, at, NEVER_ANSWERED, task_id) for task_id, _ in dead])
    return BroughtBack([platform for _, platform in again], [platform for _, platform in dead])


def end(
    db: sqlite3.Connection, task_id: str, worker_id: str, error: str | None, how: Ending, now: datetime
) -> Ended | None:
    held = db.execute(_HELD, (task_id, worker_id)).fetchone()
    if held is None:
        return None
    at = iso(now)
    lease_id, platform, may_try = held
    state = how.task if may_try else how.last_task
    db.execute(_END_LEASE, (at, how.lease, lease_id))
    if state is TaskState.QUEUED:
        db.execute(_QUEUE_AGAIN, (error, task_id))
    else:
        db.execute(_END, (state, at, error, task_id))
    return Ended(platform, state)


def requeue(db: sqlite3.Connection, states: Sequence[str], platform: str) -> int:
    return sum(db.execute(_REQUEUE, (state, platform, platform)).rowcount for state in sorted(set(states)))
