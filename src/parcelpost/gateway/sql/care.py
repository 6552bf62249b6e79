"""What is removed when it is old, the same in both databases: first the moment or day, then how many at most."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

_TASKS = "DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE ended_at < ? ORDER BY ended_at LIMIT ?)"
_ACTIVITY = """
DELETE FROM activity WHERE (minute, platform, outcome) IN
    (SELECT minute, platform, outcome FROM activity WHERE minute < ? LIMIT ?)
"""
_METRICS = "DELETE FROM metrics WHERE (worker_id, at) IN (SELECT worker_id, at FROM metrics WHERE at < ? LIMIT ?)"
_SELECTORS = """
DELETE FROM selector_stats WHERE (day, platform, field, selector, selector_type) IN
    (SELECT day, platform, field, selector, selector_type FROM selector_stats WHERE day < ? LIMIT ?)
"""


_COMMANDS = """
DELETE FROM commands WHERE command_id IN (SELECT command_id FROM commands WHERE ordered_at < ? LIMIT ?)
"""
_WORKERS = """
DELETE FROM workers WHERE worker_id IN (
    SELECT w.worker_id FROM workers w WHERE w.last_seen_at < ?
    AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.worker_id = w.worker_id)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = w.worker_id AND l.ended_at IS NULL)
    LIMIT ?)
"""


_WORKER_IDS = """
DELETE FROM worker_ids WHERE worker_id IN (
    SELECT i.worker_id FROM worker_ids i WHERE i.used_at < ?
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = i.worker_id AND l.ended_at IS NULL)
    LIMIT ?)
"""


def prunings(before: datetime, silent_before: datetime) -> Sequence[tuple[str, Any]]:
    """Statements, each with its first parameter. A task's leases go with it; a command that was delivered is gone."""
    day = before.date().isoformat()
    return (
        (_TASKS, before),
        (_ACTIVITY, before),
        (_METRICS, before),
        (_SELECTORS, day),
        (_COMMANDS, before),
        (_WORKERS, silent_before),
        (_WORKER_IDS, silent_before),
    )
