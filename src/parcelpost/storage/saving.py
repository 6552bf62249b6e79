"""Saving a result: its page, if it has one, is on disk before the row that names it (I6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Encoded, Page, Result, Task
from parcelpost.storage import checks, outbox, rows, tasks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.ids import new_id
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.raw_files import PageToKeep, RawFiles

_Store = Callable[[outbox.ResultRow], Awaitable[list[str] | None]]
"""Stores the row, as `outbox.save_each` answers."""

_FINISHED = "UPDATE tasks SET status = 'completed', started_at = ?1, completed_at = ?1 WHERE task_id = ?2"


async def save(
    database: LocalDatabase, raw: RawFiles, options: StoreOptions, claim: Claim, result: Result, now: datetime
) -> str | None:
    """The result's id. None: the claim is stale (I4)."""

    def store(row: outbox.ResultRow) -> Awaitable[list[str] | None]:
        return database.start_together(outbox.save_each, outbox.SaveRequest(claim.seq, claim.token, row))

    return await _save(raw, options, claim.task, result, now, store)


async def add(
    database: LocalDatabase, raw: RawFiles, options: StoreOptions, task: Task, result: Result, now: datetime
) -> str | None:
    """The result's id. None: a task of that id is known, and nothing changed."""
    task_row = rows.task_row(task, iso(now), options.max_target_bytes)
    if result.page is not None and await database.read(tasks.get, task.task_id) is not None:
        return None  # before its page is written for nothing

    def store(row: outbox.ResultRow) -> Awaitable[list[str] | None]:
        return database.write(_add_finished, task_row, row)

    return await _save(raw, options, task, result, now, store)


def _add_finished(db: sqlite3.Connection, task_row: tuple[Any, ...], row: outbox.ResultRow) -> list[str] | None:
    """A task and its record at once (I3)."""
    if not tasks.add(db, [task_row]):
        return None
    db.execute(_FINISHED, (row.created_at, row.task_id))
    return outbox.insert(db, row)


async def _save(
    raw: RawFiles, options: StoreOptions, task: Task, result: Result, now: datetime, store: _Store
) -> str | None:
    result_id = new_id(now)
    if isinstance(result.data, Encoded):
        data = result.data.json
    else:
        data = checks.json_bytes("data", result.data, max_bytes=options.max_result_bytes)
    row = outbox.result_row(task, result, result_id, data, iso(now))
    if result.page is None:
        saved = await store(row)
    else:
        page = _page_to_keep(task, result.page, result_id, data, options.max_page_bytes)
        saved = await _with_page(raw, row, page, store)
    if saved:
        await raw.discard(saved)
    return None if saved is None else result_id


def _page_to_keep(task: Task, page: Page, result_id: str, data: bytes, max_bytes: int) -> PageToKeep:
    """Raises InvalidInput."""
    body = page.body
    if not isinstance(body, bytes):
        raise InvalidInput(f"page body must be bytes, not {type(body).__name__}")
    if len(body) > max_bytes:
        raise InvalidInput(f"page has {len(body):,} bytes; at most {max_bytes:,} are kept")
    target = task.target
    return PageToKeep(task.platform, target.state, target.county, target.parcel_id, result_id, body, data)


async def _with_page(raw: RawFiles, row: outbox.ResultRow, page: PageToKeep, store: _Store) -> list[str] | None:
    """A name that another result has already is changed, once."""
    try:
        return await _with_name(raw, row, page, store)
    except outbox.PathTaken:
        return await _with_name(raw, row, page._replace(own_name=True), store)


async def _with_name(raw: RawFiles, row: outbox.ResultRow, page: PageToKeep, store: _Store) -> list[str] | None:
    kept = await raw.keep(page)
    try:
        saved = await store(outbox.with_page(row, kept))
    except outbox.PathTaken:
        await raw.discard([kept.json_path, kept.html_path])
        raise
    if saved is None:
        await raw.discard([kept.json_path, kept.html_path])
    return saved
