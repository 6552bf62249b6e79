"""A task that is known here and comes again under a lease: the upstream has heard of its last end, or of none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from parcelpost.storage import tasks

_IS_NEW = "(lease_expires_at < :lease OR lease_id IS NOT :lease_id)"
"""A lease with another name is a new one, whatever our clock makes of its end."""
_LONGER = f"""
UPDATE tasks SET lease_expires_at = :lease, lease_id = :lease_id, updated_at = :now
WHERE task_id = :task_id AND status IN ('pending', 'processing') AND {_IS_NEW}
"""
_NOT_HEARD_OF = f"""
DELETE FROM results WHERE task_id = :task_id AND success = 0 AND synced = 0
    AND EXISTS (SELECT 1 FROM tasks WHERE task_id = :task_id AND status = 'expired' AND {_IS_NEW})
"""
_AGAIN = f"""
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = :lease,
    lease_id = :lease_id, started_at = NULL, completed_at = NULL, error = NULL, created_at = :now, updated_at = :now
WHERE task_id = :task_id AND status IN ('failed', 'expired') AND {_IS_NEW}
    AND NOT EXISTS (SELECT 1 FROM results AS r WHERE r.task_id = :task_id AND r.synced = 0)
"""


def add(db: sqlite3.Connection, task_rows: Sequence[tuple[Any, ...]]) -> int:
    """How many there are to do by this: new ones, and known ones that are to be done once more.

    One that is open here has the new lease. One that expired, or failed and was reported, is pending as if new: the
    upstream would wait for it in vain, as nobody else has its lease. A completed one stays: its result says enough.
    """
    new = tasks.add(db, task_rows)
    return new if new == len(task_rows) else new + sum(_again(db, row) for row in task_rows)


def _again(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    values = {"task_id": row[0], "now": row[-3], "lease": row[-2], "lease_id": row[-1]}
    if db.execute(_LONGER, values).rowcount:
        return 0
    db.execute(_NOT_HEARD_OF, values)
    return db.execute(_AGAIN, values).rowcount
