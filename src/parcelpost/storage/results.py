"""Saving results: the page is on disk before the rows that name it (I6), and these close the task (I3).

A page that lists many parcels gives one result each: the first is the task's own, each further one that of a child
task, complete from the start, never claimed, and with an id that the same record gets again when the page is parsed
again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Encoded, Json, Listed, Page, Result, Task
from parcelpost.places import county_slug
from parcelpost.storage import outbox, rows, tasks, validation
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.outbox import named_by_a_result, remove_earlier
from parcelpost.storage.raw_files import KeptPage, PageToKeep, RawFiles
from parcelpost.storage.rows import new_id
from parcelpost.storage.tasks import (
    Child,
    add_children,
)

MOST_RECORDS = 50_000

_NUMBERS = ("parcel_id", "case_number", "certificate_number", "tax_account")
_MOST_PARENT_CHARS = 400


def listed(records: Sequence[Mapping[str, Json]]) -> list[Listed]:
    """In the page's order. Lines about liens of one parcel become one record with all its liens: an upstream keeps one
    record of a parcel, and each would take the place of the one before. Raises InvalidInput for too many.
    """
    if len(records) > MOST_RECORDS:
        raise InvalidInput(f"the page has {len(records):,} records; at most {MOST_RECORDS:,} are kept of one task")
    found: dict[str, Listed] = {}
    for position, record in enumerate(records, start=1):
        number = number_of(record) or f"line {position}"
        county = county_slug(_text(record.get("county")))
        key = f"{county}/{number}"
        while (earlier := found.get(key)) is not None and not _are_liens(earlier.data, record):
            key += " again"
        data = record if earlier is None else _with_liens(earlier.data, record)
        found[key] = Listed(key=key, parcel_id=number, county=county, data=data)
    return list(found.values())


def number_of(record: Mapping[str, Json]) -> str:
    """The parcel's, or what the list names instead of one; '' if it names nothing."""
    return next((text for name in _NUMBERS if (text := _text(record.get(name)))), "")


def child_id(parent_id: str, key: str) -> str:
    """The id of the task under which a further record of the parent's page is kept: the same at every reading."""
    digest = sha256(f"{parent_id}\0{key}".encode(errors="backslashreplace")).hexdigest()
    return f"{parent_id[:_MOST_PARENT_CHARS]}~{digest[:20]}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _are_liens(one: object, other: Mapping[str, Json]) -> bool:
    return (
        isinstance(one, Mapping)
        and one.get("record_kind") == other.get("record_kind") == "lien"
        and isinstance(one.get("liens"), list)
        and isinstance(other.get("liens"), list)
    )


def _with_liens(earlier: object, record: Mapping[str, Json]) -> Mapping[str, Json]:
    if not isinstance(earlier, Mapping):
        return record
    return {**earlier, "liens": [*earlier["liens"], *record["liens"]]}


_RESULT_COLUMNS = """result_id, task_id, success, parcel_id, platform, state, county, execution_time_ms,
    idempotency_key, scraped_at, created_at, data"""
_SAVE = f"INSERT INTO results ({_RESULT_COLUMNS})"
_SAVE_WITH_FILES = f"""
INSERT INTO results ({_RESULT_COLUMNS}, json_path, html_path, screenshot_path, log_path, raw_sha256, raw_bytes,
    content_type)
"""


class ResultRow(NamedTuple):
    """The columns of a record's row, in the order of the statement that stores it."""

    result_id: str
    task_id: str
    success: int
    parcel_id: str
    platform: str
    state: str
    county: str
    execution_time_ms: int
    idempotency_key: str
    scraped_at: str
    created_at: str
    data: str
    json_path: str | None
    html_path: str | None
    screenshot_path: str | None
    log_path: str | None
    raw_sha256: str | None
    raw_bytes: int
    content_type: str | None = None


_NO_FILES = (None, None, None, None, None, 0, None)
_PLAIN_PAGE = "text/html"


def result_row(task: Task, result: Result, result_id: str, data: bytes, now: str) -> ResultRow:
    """Raises InvalidInput that names the field at fault."""
    target = task.target
    return ResultRow(
        result_id,
        task.task_id,
        1,
        validation.text("parcel_id", result.parcel_id) if result.parcel_id else target.parcel_id,
        task.platform,
        target.state,
        target.county or validation.text("county", result.county, may_be_empty=True),
        validation.whole("execution_time_ms", result.execution_time_ms),
        f"{task.task_id}:{sha256(data).hexdigest()}",
        iso(result.scraped_at),
        now,
        data.decode(),
        None,
        None,
        _path("screenshot_path", result.screenshot_path),
        _path("log_path", result.log_path),
        None,
        0,
    )


def with_page(row: ResultRow, kept: KeptPage, content_type: str) -> ResultRow:
    return row._replace(
        json_path=kept.json_path,
        html_path=kept.html_path,
        raw_sha256=kept.sha256,
        raw_bytes=kept.disk_bytes,
        content_type=None if content_type == _PLAIN_PAGE else validation.message(content_type, max_chars=200),
    )


def _path(field: str, value: str | None) -> str | None:
    return None if value is None else validation.text(field, value, max_chars=4_000)


class SaveRequest(NamedTuple):
    seq: int
    token: str
    row: ResultRow


def save_each(db: sqlite3.Connection, requests: list[SaveRequest]) -> list[list[str] | None]:
    """Closes each request's task and stores its record, all or nothing (I3). None: its claim is stale (I4).

    Otherwise the answer lists the files of an earlier, delivered result of the same task that this one replaces.
    """
    now = requests[0].row.created_at
    if len(requests) == 1:
        (only,) = requests
        return [insert(db, only.row) if tasks.complete(db, only.seq, only.token, now) else None]
    if not tasks.complete_each(db, {request.seq: request.token for request in requests}, now):
        raise _NotAllCurrent  # the writer then runs them one by one, and only the stale ones are told so
    saved = [request.row for request in requests]
    _store(db, saved)
    return [[] for _ in requests]


class _NotAllCurrent(Exception):
    """Somewhere in the group is a stale claim."""


class PathTaken(Exception):
    """Another result names that file, though it is gone from the disk: the page needs another name."""


def insert(db: sqlite3.Connection, row: ResultRow) -> list[str]:
    """Answers the files of an earlier, delivered result of the same task that this one replaces. Raises PathTaken."""
    replaced: list[str] = []
    try:
        _store(db, [row])
    except sqlite3.IntegrityError:
        if row.html_path and named_by_a_result(db, [row.html_path]):
            raise PathTaken from None
        replaced = remove_earlier(db, row.task_id)
        _store(db, [row])
    return replaced


def _store(db: sqlite3.Connection, saved: Sequence[ResultRow]) -> None:
    # A row without files does not name their columns: Python's sqlite3 takes three times as long over a NULL as over a
    # text, because it asks for an adapter first.
    plain = [row[: -len(_NO_FILES)] for row in saved if row[-len(_NO_FILES) :] == _NO_FILES]
    rows.insert_many(db, _SAVE, plain)
    if len(plain) == len(saved):
        return
    with_files = [row for row in saved if row[-len(_NO_FILES) :] != _NO_FILES]
    rows.insert_many(db, _SAVE_WITH_FILES, with_files)
    added = sum(row.raw_bytes for row in with_files)
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (added,))


_SAVE_MULTI = f"INSERT INTO results ({', '.join(ResultRow._fields)}, page_shared)"


class MultiRecordRequest(NamedTuple):
    first: SaveRequest
    more: Sequence[ResultRow]


def child_row(task: Task, first: ResultRow, one: Listed, result_id: str, data: Encoded) -> ResultRow:
    """As the first, with the record's own facts. Raises InvalidInput."""
    task_id = child_id(task.task_id, one.key)
    return first._replace(
        result_id=result_id,
        task_id=task_id,
        parcel_id=validation.text("parcel_id", one.parcel_id),
        county=task.target.county or validation.text("county", one.county, may_be_empty=True),
        idempotency_key=f"{task_id}:{sha256(data.json).hexdigest()}",
        data=data.json.decode(),
    )


def save_multi(db: sqlite3.Connection, request: MultiRecordRequest) -> list[str] | None:
    """As `save_each` answers for one."""
    seq, token, first = request.first
    if not tasks.complete(db, seq, token, first.created_at):
        return None
    if first.html_path and outbox.named_by_a_result(db, [first.html_path]):
        raise PathTaken
    replaced = outbox.remove_earlier(db, first.task_id)
    others = [
        row._replace(html_path=first.html_path, json_path=None, raw_sha256=first.raw_sha256, raw_bytes=0)
        for row in request.more
    ]
    children = [Child(row.task_id, row.state, row.county, row.parcel_id) for row in others]
    add_children(db, seq, children, first.created_at)
    insert_multi(db, [first, *others])
    return replaced


def insert_multi(db: sqlite3.Connection, saved: Sequence[ResultRow]) -> None:
    shared: list[tuple[Any, ...]] = [(*row, int(row.html_path is not None)) for row in saved]
    rows.insert_many(db, _SAVE_MULTI, shared)
    added = sum(row.raw_bytes for row in saved)
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (added,))


def count_children(db: sqlite3.Connection, task_id: str) -> int:
    found: int = db.execute("SELECT count(*) FROM tasks WHERE parent_id = ?", (task_id,)).fetchone()[0]
    return found


Saved = list[str] | None
"""As `save_each` answers."""

_Store = Callable[[ResultRow, Sequence[ResultRow]], Awaitable[Saved]]
"""Stores the row and those of the further records of its page."""


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
                return self._db.write(save_multi, MultiRecordRequest(request, more))
            return self._db.start_together(save_each, request)

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
        row = result_row(task, result, result_id, data, iso(now))
        more = [child_row(task, row, one, new_id(now), encoded(one, self._options)) for one in result.more]
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
        except PathTaken:
            return await self._with_name(row, more, page._replace(own_name=True), content_type, store)

    async def _with_name(
        self, row: ResultRow, more: Sequence[ResultRow], page: PageToKeep, content_type: str, store: _Store
    ) -> Saved:
        kept = await self._raw.keep(page)
        named = with_page(row, kept, content_type)
        try:
            saved = await store(named, [one._replace(content_type=named.content_type) for one in more])
        except PathTaken:
            await self._raw.discard([kept.json_path, kept.html_path])
            raise
        if saved is None:
            await self._raw.discard([kept.json_path, kept.html_path])
        return saved


def _add_finished(db: sqlite3.Connection, task_row: tuple[Any, ...], row: ResultRow) -> Saved:
    """A task and its record at once (I3)."""
    if not tasks.add(db, [task_row]):
        return None
    tasks.complete_new(db, row.task_id, row.created_at)
    return insert(db, row)


def encoded(one: Result | Listed, options: StoreOptions) -> Encoded:
    """Raises InvalidInput."""
    if isinstance(one.data, Encoded):
        return one.data
    return Encoded(validation.json_bytes("data", one.data, max_bytes=options.max_result_bytes))


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
