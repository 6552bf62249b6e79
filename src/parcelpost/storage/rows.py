"""Converts between rows and the model; new ids; inserts of many rows in one statement."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from parcelpost.clock import from_iso, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Json, OutboxEntry, Priority, Source, Target, Task, TaskInfo, TaskStatus
from parcelpost.storage import validation


def new_id(now: datetime) -> str:
    """Returns 32 hex digits: 48 bits of milliseconds, 80 random bits."""
    return f"{int(now.timestamp() * 1000):012x}{random.getrandbits(80):020x}"


_MAX_ROWS = 128


def insert_many(db: sqlite3.Connection, head: str, rows: Sequence[Sequence[Any]], tail: str = "") -> int:
    """Runs `head VALUES (...), (...) tail` for all rows, in order. Returns how many rows were changed."""
    changed, start = 0, 0
    while start < len(rows):
        size = min(
            _MAX_ROWS, 1 << (len(rows) - start).bit_length() - 1
        )  # powers of two: few different statements to cache
        part = rows[start : start + size]
        changed += db.execute(_statement(head, len(part[0]), size, tail), list(chain.from_iterable(part))).rowcount
        start += size
    return changed


@cache
def _statement(head: str, width: int, size: int, tail: str) -> str:
    row = f"({', '.join('?' * width)})"
    return f"{head} VALUES {', '.join([row] * size)} {tail}"


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_SOURCES = {source.value: source for source in Source}
_FIELDS = frozenset({"parcel_id", "state", "county", "url"})
_PRIORITIES = {int(priority): priority for priority in Priority}

CLAIM_COLUMNS = """task_id, platform, source, type, priority, max_retries, lease_expires_at, target_json,
    seq, retries, created_at, lease_id, skip_cache"""
INFO_COLUMNS = f"""{CLAIM_COLUMNS}, status, recoveries, available_at, claimed_by, assigned_browser, updated_at,
    started_at, completed_at, error, parent_id, ended_by"""
_TASK_FIELDS = {"source", "status", "retries", "recoveries", "lease_id", "lease_expires_at", "ended_by"}
ENTRY_COLUMNS = {
    **{name: f"{'t' if name in _TASK_FIELDS else 'r'}.{name}" for name in OutboxEntry.__struct_fields__},
    "data": "CAST(r.data AS BLOB)",
    "multi_record": "r.parcel_id <> t.parcel_id",
}
"""Fields of an entry -> SQL over results `r` and tasks `t`."""
ENTRY_SELECT = f"SELECT {', '.join(ENTRY_COLUMNS.values())}"


def reason_text(decided_by: str, reason: str) -> str:
    """Returns `model.reason_text` as SQL over two columns, '' if there is no reason."""
    return f"iif({decided_by} IS NULL, '', 'by the ' || {decided_by} || ': ') || coalesce({reason}, '')"


def target_fields(target: Target) -> dict[str, Json]:
    """Returns the fields of `tasks.target_json`."""
    fields = {**target.extra, "parcel_id": target.parcel_id, "state": target.state, "county": target.county}
    return fields | {"url": target.url} if target.url else fields


def task_row(task: Task, now: str, max_target_bytes: int) -> tuple[Any, ...]:
    """Returns the row that `tasks.add` stores. Raises InvalidInput that names the bad field."""
    target = task.target
    if task.source not in _SOURCES:
        raise InvalidInput(f"source {task.source!r} is not one of {', '.join(_SOURCES)}")
    if task.priority not in _PRIORITIES:
        raise InvalidInput(f"priority {task.priority!r} is not one of 1 (urgent) to 4 (batch)")
    if task.lease_expires_at is not None and not isinstance(task.lease_expires_at, datetime):
        raise InvalidInput("lease_expires_at must be a datetime")
    if not _FIELDS.isdisjoint(target.extra):
        raise InvalidInput(
            f"target.extra contains {', '.join(sorted(_FIELDS & set(target.extra)))}, which has its own field"
        )
    if target.url:
        validation.text("target.url", target.url, max_chars=8_000)
    return (
        validation.text("task_id", task.task_id),
        str(task.source),  # for an enum, sqlite3 would look for an adapter
        validation.text("type", task.type),
        validation.text("platform", task.platform),
        validation.text("target.state", target.state, may_be_empty=True),
        validation.text("target.county", target.county, may_be_empty=True),
        validation.text("target.parcel_id", target.parcel_id, may_be_empty=True),
        validation.json_bytes("target", target_fields(target), max_bytes=max_target_bytes).decode(),
        int(task.priority),
        validation.whole("max_retries", task.max_retries, maximum=1_000),
        now,
        now,
        iso(task.lease_expires_at) if task.lease_expires_at else None,
        validation.text("lease_id", task.lease_id) if task.lease_id else None,
    )


def claim(row: Sequence[Any], token: str) -> Claim:
    return Claim(
        task=_task(row),
        token=token,
        seq=row[8],
        retries=row[9],
        created_at=from_iso(row[10]),
        has_artifacts=bool(row[13]),
    )


def info(row: Sequence[Any]) -> TaskInfo:
    return TaskInfo(
        task=_task(row),
        seq=row[8],
        retries=row[9],
        created_at=from_iso(row[10]),
        status=TaskStatus(row[13]),
        recoveries=row[14],
        available_at=moment(row[15]),
        claimed_by=row[16],
        assigned_browser=row[17],
        updated_at=from_iso(row[18]),
        started_at=moment(row[19]),
        completed_at=moment(row[20]),
        error=row[21],
        parent_id=row[22],
        ended_by=row[23],
    )


def entry(row: Sequence[Any]) -> OutboxEntry:
    """Converts the columns of ENTRY_SELECT. Raises UnicodeDecodeError for a damaged record."""
    stored = msgspec.convert(row, OutboxEntry, strict=False)
    if stored.data is not None and not stored.data.isascii():
        stored.data.decode()
    return stored


def moment(value: str | None) -> datetime | None:
    return None if value is None else from_iso(value)


def target(stored: str) -> Target:
    fields = _decode(stored)
    return Target(
        parcel_id=fields.pop("parcel_id"),
        state=fields.pop("state"),
        county=fields.pop("county"),
        url=fields.pop("url", ""),
        extra=fields,
    )


def _task(row: Sequence[Any]) -> Task:
    return Task(
        task_id=row[0],
        platform=row[1],
        target=target(row[7]),
        source=_SOURCES[row[2]],
        type=row[3],
        priority=_PRIORITIES[row[4]],
        max_retries=row[5],
        lease_expires_at=moment(row[6]),
        lease_id=row[11] or "",
        skip_cache=bool(row[12]),
    )
