"""Saving a result: its page is on disk before the rows that name it (I6), and these close its task (I3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Encoded, Listed, Page, Result, Task
from parcelpost.storage import checks, outbox, rows, several, tasks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.ids import new_id
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.outbox import ResultRow, SaveRequest
from parcelpost.storage.raw_files import PageToKeep, RawFiles

Saved = list[str] | None
"""As `outbox.save_each` answers."""

_Store = Callable[[ResultRow, Sequence[ResultRow]], Awaitable[Saved]]
"""Stores the row and those of the further records of its page."""

_FINISHED = "UPDATE tasks SET status = 'completed', started_at = ?1, completed_at = ?1 WHERE task_id = ?2"


class Saving:
    def __init__(self, database: LocalDatabase, raw: RawFiles, options: StoreOptions) -> None:
        self._db = database
        self._raw = raw
        self._options = options

    async def save(self, claim: Claim, result: Result, now: datetime) -> str | None:
        """The result's id; None: the claim is stale. Raises InvalidInput."""

        def store(row: ResultRow, more: Sequence[ResultRow]) -> Awaitable[Saved]:
            request = SaveRequest(claim.seq, claim.token, row)
            if more:
                return self._db.write(several.save, several.SeveralRequest(request, more))
            return self._db.start_together(outbox.save_each, request)

        return await self._save(claim.task, result, now, store)

    async def add(self, task: Task, result: Result, now: datetime) -> str | None:
        """The result's id; None: a task of that id is known, and nothing changed. Raises InvalidInput."""
        if result.more:
            raise InvalidInput("a record that nobody asked for comes alone: add each with a task of its own")
        task_row = rows.task_row(task, iso(now), self._options.max_target_bytes)
        if result.page is not None and await self._db.read(tasks.get, task.task_id) is not None:
            return None  # before its page is written for nothing

        def store(row: ResultRow, _more: Sequence[ResultRow]) -> Awaitable[Saved]:
            return self._db.write(_add_finished, task_row, row)

        return await self._save(task, result, now, store)

    async def _save(self, task: Task, result: Result, now: datetime, store: _Store) -> str | None:
        result_id = new_id(now)
        data = encoded(result, self._options).json
        row = outbox.result_row(task, result, result_id, data, iso(now))
        more = [several.child_row(task, row, one, new_id(now), encoded(one, self._options)) for one in result.more]
        if result.page is None:
            saved = await store(row, more)
        else:
            kept = page_to_keep(task, result.page, row, self._options.max_page_bytes)
            saved = await self._with_page(row, more, kept, result.page.content_type, store)
        if saved:
            await self._raw.discard(saved)
        return None if saved is None else result_id

    async def _with_page(
        self, row: ResultRow, more: Sequence[ResultRow], page: PageToKeep, content_type: str, store: _Store
    ) -> Saved:
        """A name that another result has already is changed, once."""
        try:
            return await self._with_name(row, more, page, content_type, store)
        except outbox.PathTaken:
            return await self._with_name(row, more, page._replace(own_name=True), content_type, store)

    async def _with_name(
        self, row: ResultRow, more: Sequence[ResultRow], page: PageToKeep, content_type: str, store: _Store
    ) -> Saved:
        kept = await self._raw.keep(page)
        named = outbox.with_page(row, kept, content_type)
        try:
            saved = await store(named, [one._replace(content_type=named.content_type) for one in more])
        except outbox.PathTaken:
            await self._raw.discard([kept.json_path, kept.html_path])
            raise
        if saved is None:
            await self._raw.discard([kept.json_path, kept.html_path])
        return saved


def _add_finished(db: sqlite3.Connection, task_row: tuple[Any, ...], row: ResultRow) -> Saved:
    """A task and its record at once (I3)."""
    if not tasks.add(db, [task_row]):
        return None
    db.execute(_FINISHED, (row.created_at, row.task_id))
    return outbox.insert(db, row)


def encoded(one: Result | Listed, options: StoreOptions) -> Encoded:
    """Raises InvalidInput."""
    if isinstance(one.data, Encoded):
        return one.data
    return Encoded(checks.json_bytes("data", one.data, max_bytes=options.max_result_bytes))


def page_to_keep(task: Task, page: Page, row: ResultRow, max_bytes: int) -> PageToKeep:
    """Raises InvalidInput."""
    body = page.body
    if not isinstance(body, bytes):
        raise InvalidInput(f"page body must be bytes, not {type(body).__name__}")
    if len(body) > max_bytes:
        raise InvalidInput(f"page has {len(body):,} bytes; at most {max_bytes:,} are kept")
    target = task.target
    parcel_id = target.parcel_id or row.parcel_id
    return PageToKeep(task.platform, target.state, row.county, parcel_id, row.result_id, body, row.data.encode())
