"""Several records of one task, stored with its end in one transaction (I3).

The first is the task's own result. Each further one is the result of a child task: complete from the start, never
claimed, and of an id that the same record gets again when the page is read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.json import encode

from parcelpost.model import Encoded, Listed, Task
from parcelpost.storage import checks, multi_row, outbox
from parcelpost.storage.listing import child_id
from parcelpost.storage.outbox import ResultRow, SaveRequest

_ADD_CHILDREN = """
INSERT INTO tasks (task_id, source, type, platform, state, county, parcel_id, target_json, priority, status,
    max_retries, created_at, updated_at, completed_at, parent_id)
"""
_SAVE = f"INSERT INTO results ({', '.join(ResultRow._fields)}, page_shared)"


class Child(NamedTuple):
    """The columns of a child task that are not its parent's."""

    task_id: str
    state: str
    county: str
    parcel_id: str


class SeveralRequest(NamedTuple):
    first: SaveRequest
    more: Sequence[ResultRow]


def child_row(task: Task, first: ResultRow, one: Listed, result_id: str, data: Encoded) -> ResultRow:
    """As the first, with the record's own facts. Raises InvalidInput."""
    task_id = child_id(task.task_id, one.key)
    return first._replace(
        result_id=result_id,
        task_id=task_id,
        parcel_id=checks.text("parcel_id", one.parcel_id),
        county=task.target.county or checks.text("county", one.county, may_be_empty=True),
        idempotency_key=f"{task_id}:{sha256(data.json).hexdigest()}",
        data=data.json.decode(),
    )


def save(db: sqlite3.Connection, request: SeveralRequest) -> list[str] | None:
    """As `outbox.save_each` answers for one."""
    seq, token, first = request.first
    if not outbox.complete_one(db, seq, token, first.created_at):
        return None
    if first.html_path and outbox.named_by_a_result(db, [first.html_path]):
        raise outbox.PathTaken
    replaced = outbox.remove_earlier(db, first.task_id)
    others = [
        row._replace(html_path=first.html_path, json_path=None, raw_sha256=first.raw_sha256, raw_bytes=0)
        for row in request.more
    ]
    children = [Child(row.task_id, row.state, row.county, row.parcel_id) for row in others]
    add_children(db, seq, children, first.created_at)
    insert(db, [first, *others])
    return replaced


def add_children(db: sqlite3.Connection, parent_seq: int, children: Sequence[Child], now: str) -> None:
    parent = "SELECT source, type, platform, priority, max_retries, task_id FROM tasks WHERE seq = ?"
    source, kind, platform, priority, max_retries, parent_id = db.execute(parent, (parent_seq,)).fetchone()
    added = [
        (
            *(one.task_id, source, kind, platform, one.state, one.county, one.parcel_id, _target(one)),
            *(priority, "completed", max_retries, now, now, now, parent_id),
        )
        for one in children
    ]
    # A child whose result was delivered and removed may still be here.
    again = "ON CONFLICT (task_id) DO UPDATE SET completed_at = excluded.completed_at, updated_at = excluded.updated_at"
    multi_row.insert(db, _ADD_CHILDREN, added, again)


def insert(db: sqlite3.Connection, saved: Sequence[ResultRow]) -> None:
    shared: list[tuple[Any, ...]] = [(*row, int(row.html_path is not None)) for row in saved]
    multi_row.insert(db, _SAVE, shared)
    added = sum(row.raw_bytes for row in saved)
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (added,))


def _target(child: Child) -> str:
    return encode({"parcel_id": child.parcel_id, "state": child.state, "county": child.county}).decode()


def count_children(db: sqlite3.Connection, task_id: str) -> int:
    found: int = db.execute("SELECT count(*) FROM tasks WHERE parent_id = ?", (task_id,)).fetchone()[0]
    return found
