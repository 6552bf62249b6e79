"""A task that is known here and comes again under a lease: the upstream has heard of its last end, or of none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from parcelpost.model import TaskInfo
from parcelpost.storage import rows, tasks

_OF_A_ROW = (
    *("task_id", "source", "type", "platform", "state", "county", "parcel_id", "target", "priority", "max_retries"),
    *("created_at", "now", "lease", "lease_id"),
)
_IS_NEW = "(lease_expires_at < :lease OR lease_id IS NOT :lease_id)"
"""A lease with another name is a new one, whatever our clock makes of its end."""
# The delay of a waiting task begins at its `updated_at` (future_times): a lease does not change when.
_LONGER = f"""
UPDATE tasks SET lease_expires_at = :lease, lease_id = :lease_id,
    updated_at = iif(available_at IS NULL, :now, updated_at)
WHERE task_id = :task_id AND status IN ('pending', 'processing') AND {_IS_NEW}
"""
_NOT_HEARD_OF = f"""
DELETE FROM results WHERE task_id = :task_id AND success = 0 AND synced = 0
    AND EXISTS (SELECT 1 FROM tasks WHERE task_id = :task_id AND status = 'expired' AND {_IS_NEW})
"""
_IS_ANOTHER_ORDER = "(status IN ('completed', 'not_found') AND :lease_id IS NOT NULL AND lease_id IS NOT :lease_id)"
"""Where leases have names, a result that was taken has ended its task: who hands it out again wants it anew."""
_NO_RESULT = """
    NOT EXISTS (SELECT 1 FROM results AS r WHERE r.task_id = tasks.task_id AND {0})
    AND NOT EXISTS (SELECT 1 FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND {0})
"""
_IS_DELIVERED = _NO_RESULT.format("r.synced = 0 AND (r.rejected_at IS NULL OR r.data IS NOT NULL)")
"""A rejected record is kept for a person: it is not replaced by another try. A rejected report can be."""
_IS_SETTLED = _NO_RESULT.format("r.synced = 0 AND r.rejected_at IS NULL")
_REJECTION = """coalesce(
    (SELECT coalesce(r.last_error, '') FROM results AS r
        WHERE r.task_id = tasks.task_id AND r.rejected_at IS NOT NULL),
    (SELECT coalesce(r.last_error, '') FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND r.rejected_at IS NOT NULL ORDER BY r.seq LIMIT 1))"""
_AGAIN = f"""
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = :lease,
    lease_id = :lease_id, started_at = NULL, completed_at = NULL, error = NULL, created_at = :now, updated_at = :now,
    type = :type, platform = :platform, state = :state, county = :county, parcel_id = :parcel_id,
    target_json = :target, priority = :priority, max_retries = :max_retries, ask_site = 0
WHERE task_id = :task_id AND {_IS_DELIVERED}
    AND ((status IN ('failed', 'expired') AND (:lease IS NULL OR {_IS_NEW})) OR {_IS_ANOTHER_ORDER})
"""
_ANSWER = f"""
UPDATE tasks SET answer_due_at = :now, lease_id = coalesce(:lease_id, lease_id),
    lease_expires_at = coalesce(:lease, lease_expires_at)
WHERE task_id = :task_id AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
"""


def add(db: sqlite3.Connection, task_rows: Sequence[tuple[Any, ...]]) -> int:
    """How many there are to do by this: new ones, and known ones that are to be done once more.

    One that is open here has the new lease. One that expired, or failed and was reported, is pending as if new: the
    upstream would wait for it in vain, as nobody else has its lease. A completed one stays: its result says enough, or,
    where that was delivered already, the upstream is told once more that the task is done (`to_answer`), or, where it
    was rejected, that the task has failed. Only where the lease has another name, and no record was rejected, it is
    ordered again, perhaps with another target.
    """
    new = tasks.add(db, task_rows)
    return new if new == len(task_rows) else new + sum(_again(db, row) for row in task_rows)


def _again(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    values = dict(zip(_OF_A_ROW, row, strict=True))
    if db.execute(_LONGER, values).rowcount:
        return 0
    db.execute(_NOT_HEARD_OF, values)
    if again := db.execute(_AGAIN, values).rowcount:
        return again
    db.execute(_ANSWER, values)
    return 0


def to_answer(db: sqlite3.Connection, limit: int) -> list[tuple[TaskInfo, str | None]]:
    """Tasks that were completed or not found, and handed out again after their end was delivered or rejected.

    With each the reason why a result of it was rejected, None where none was.
    """
    due = f"""SELECT {rows.INFO_COLUMNS}, {_REJECTION} FROM tasks INDEXED BY tasks_to_answer
              WHERE answer_due_at IS NOT NULL AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
              ORDER BY answer_due_at LIMIT ?"""
    return [(rows.info(row), row[-1]) for row in db.execute(due, (limit,))]


def mark_answered(db: sqlite3.Connection, seqs: Sequence[int]) -> int:
    change = "UPDATE tasks SET answer_due_at = NULL WHERE seq = ?"
    return db.executemany(change, [(seq,) for seq in seqs]).rowcount
