"""Saves results: first the page (I6), then the rows that name it and complete the task, in one transaction (I3).

A page with many records gives one result per record: the first belongs to the task itself, each further one to a child
task, which is completed from the start and never claimed. A child's id is derived from the record, so that it is the
same whenever the page is parsed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Encoded, Json, Page, PageRecord, Result, Task
from parcelpost.places import county_slug
from parcelpost.storage import outbox, rows, tasks, validation
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.outbox import named_by_a_result, remove_earlier
from parcelpost.storage.raw_files import NewPage, RawFiles, StoredPageFile
from parcelpost.storage.rows import new_id
from parcelpost.storage.tasks import Child, add_children

MAX_RECORDS = 50_000

_NUMBERS = ("parcel_id", "case_number", "certificate_number", "tax_account")
_MAX_PARENT_CHARS = 400


def page_records(records: Sequence[Mapping[str, Json]]) -> list[PageRecord]:
    """Returns the records of a page in its order. Raises InvalidInput if there are too many.

    Liens of one parcel are merged into one record, because an upstream keeps only the last record of a parcel.
    """
    if len(records) > MAX_RECORDS:
        raise InvalidInput(f"the page has {len(records):,} records; at most {MAX_RECORDS:,} are allowed for a task")
    by_key: dict[str, tuple[str, str, Mapping[str, Json]]] = {}
    for position, record in enumerate(records, start=1):
        number = number_of(record) or f"line {position}"
        county = county_slug(_text(record.get("county")))
        key = f"{county}/{number}"
        while key in by_key and not _are_liens(by_key[key][2], record):
            key += " again"
        data = _with_liens(by_key[key][2], record) if key in by_key else record
        by_key[key] = number, county, data
    return [
        PageRecord(key=key, parcel_id=number, county=county, data=data)
        for key, (number, county, data) in by_key.items()
    ]


def number_of(record: Mapping[str, Json]) -> str:
    """Returns the parcel id or another number that identifies the record, '' if it has none."""
    return next((text for name in _NUMBERS if (text := _text(record.get(name)))), "")


def child_id(parent_id: str, key: str) -> str:
    """Returns the task id of a further record of the parent's page, the same for every parse."""
    digest = sha256(f"{parent_id}\0{key}".encode(errors="backslashreplace")).hexdigest()
    return f"{parent_id[:_MAX_PARENT_CHARS]}~{digest[:20]}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _are_liens(first: Mapping[str, Json], second: Mapping[str, Json]) -> bool:
    return (
        first.get("record_kind") == second.get("record_kind") == "lien"
        and isinstance(first.get("liens"), list)
        and isinstance(second.get("liens"), list)
    )


def _with_liens(earlier: Mapping[str, Json], record: Mapping[str, Json]) -> Mapping[str, Json]:
    merged = {**earlier, "liens": [*earlier["liens"], *record["liens"]]}
    unreadable = {
        name for part in (earlier, record) if isinstance(names := part.get("unreadable"), list) for name in names
    }
    return merged | {"unreadable": sorted(map(str, unreadable))} if unreadable else merged


_RESULT_COLUMNS = """result_id, task_id, success, parcel_id, platform, state, county, execution_time_ms,
    idempotency_key, scraped_at, created_at, data"""
_SAVE = f"INSERT INTO results ({_RESULT_COLUMNS})"
_SAVE_WITH_FILES = f"""
INSERT INTO results ({_RESULT_COLUMNS}, json_path, html_path, screenshot_path, log_path, raw_sha256, raw_bytes,
    content_type)
"""


class ResultRow(NamedTuple):
    """The columns of a result, in the order of the INSERT."""

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
    """Raises InvalidInput that names the wrong field."""
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


def with_page(row: ResultRow, page_file: StoredPageFile, content_type: str) -> ResultRow:
    return row._replace(
        json_path=page_file.json_path,
        html_path=page_file.html_path,
        raw_sha256=page_file.sha256,
        raw_bytes=page_file.disk_bytes,
        content_type=None if content_type == _PLAIN_PAGE else validation.message(content_type, max_chars=200),
    )


def _path(field: str, value: str | None) -> str | None:
    return None if value is None else validation.text(field, value, max_chars=4_000)


class SaveRequest(NamedTuple):
    seq: int
    token: str
    row: ResultRow


def save_each(db: sqlite3.Connection, requests: list[SaveRequest]) -> list[list[str] | None]:
    """Completes each request's task and stores its record, all or nothing (I3).

    Returns None for a stale claim (I4), else the files of an earlier, delivered result of the task that this replaces.
    """
    now = requests[0].row.created_at
    if len(requests) == 1:
        (only,) = requests
        return [insert(db, only.row) if tasks.end(db, only.seq, only.token, "completed", now, None) else None]
    if not tasks.complete_each(db, {request.seq: request.token for request in requests}, now):
        raise _NotAllCurrent  # the writer then runs the requests one by one
    _store(db, [request.row for request in requests])
    return [[] for _ in requests]


class _NotAllCurrent(Exception):
    """The group contains a stale claim."""


class PathTaken(Exception):
    """Another result names this file although it is missing on disk: the page needs another name."""


def insert(db: sqlite3.Connection, row: ResultRow) -> list[str]:
    """Returns the files of an earlier, delivered result of the task, which this one replaces. Raises PathTaken."""
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
    # A row without files omits their columns: binding NULL takes sqlite3 three times as long as text, because it looks
    # for an adapter first.
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
    child_rows: Sequence[ResultRow]


def child_row(task: Task, first: ResultRow, record: PageRecord, result_id: str, data: Encoded) -> ResultRow:
    """Returns the row of a further record of the page. Raises InvalidInput."""
    task_id = child_id(task.task_id, record.key)
    return first._replace(
        result_id=result_id,
        task_id=task_id,
        parcel_id=validation.text("parcel_id", record.parcel_id),
        county=task.target.county or validation.text("county", record.county, may_be_empty=True),
        idempotency_key=f"{task_id}:{sha256(data.json).hexdigest()}",
        data=data.json.decode(),
    )


def save_multi(db: sqlite3.Connection, request: MultiRecordRequest) -> list[str] | None:
    """Saves all records of a page. Returns what `save_each` returns for one request."""
    seq, token, first = request.first
    if not tasks.end(db, seq, token, "completed", first.created_at, None):
        return None
    if first.html_path and outbox.named_by_a_result(db, [first.html_path]):
        raise PathTaken
    replaced = outbox.remove_earlier(db, first.task_id)
    child_rows = [
        row._replace(html_path=first.html_path, json_path=None, raw_sha256=first.raw_sha256, raw_bytes=0)
        for row in request.child_rows
    ]
    children = [Child(row.task_id, row.state, row.county, row.parcel_id) for row in child_rows]
    add_children(db, seq, children, first.created_at)
    insert_multi(db, [first, *child_rows])
    return replaced


def insert_multi(db: sqlite3.Connection, saved: Sequence[ResultRow]) -> None:
    shared: list[tuple[Any, ...]] = [(*row, int(row.html_path is not None)) for row in saved]
    rows.insert_many(db, _SAVE_MULTI, shared)
    added = sum(row.raw_bytes for row in saved)
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (added,))


def count_children(db: sqlite3.Connection, task_id: str) -> int:
    children: int = db.execute("SELECT count(*) FROM tasks WHERE parent_id = ?", (task_id,)).fetchone()[0]
    return children


Saved = list[str] | None
"""What `save_each` returns."""

_Store = Callable[[ResultRow, Sequence[ResultRow]], Awaitable[Saved]]
"""Stores the first row and the child rows of a page."""


class Saving:
    def __init__(self, database: LocalDatabase, raw: RawFiles, options: StoreOptions) -> None:
        self._db = database
        self._raw = raw
        self._options = options

    async def save(self, claim: Claim, result: Result, now: datetime) -> str | None:
        """Returns the id, or None for a stale claim. Raises InvalidInput."""

        async def store(row: ResultRow, child_rows: Sequence[ResultRow]) -> Saved:
            request = SaveRequest(claim.seq, claim.token, row)
            if child_rows:
                return await self._db.write(save_multi, MultiRecordRequest(request, child_rows))
            return await self._db.start_together(save_each, request)

        return await self._save(claim.task, result, now, store)

    async def add(self, task: Task, result: Result, now: datetime) -> str | None:
        """Returns the result's id, or None for a known task, which changes nothing. Raises InvalidInput."""
        if result.additional_records:
            raise InvalidInput("a record without a task cannot have further records: add each with a task of its own")
        task_row = rows.task_row(task, iso(now), self._options.max_target_bytes)
        if result.page is not None and await self._db.read(tasks.get, task.task_id) is not None:
            return None  # checked before the page is written

        def store(row: ResultRow, _child_rows: Sequence[ResultRow]) -> Awaitable[Saved]:
            return self._db.write(_add_finished, task_row, row)

        return await self._save(task, result, now, store)

    async def _save(self, task: Task, result: Result, now: datetime, store: _Store) -> str | None:
        result_id = new_id(now)
        data = encoded(result, self._options).json
        row = result_row(task, result, result_id, data, iso(now))
        child_rows = [
            child_row(task, row, record, new_id(now), encoded(record, self._options))
            for record in result.additional_records
        ]
        if result.page is None:
            saved = await store(row, child_rows)
        else:
            page = new_page(task, result.page, row, self._options.max_page_bytes)
            saved = await self._with_page(row, child_rows, page, result.page.content_type, store)
        if saved:
            await self._raw.discard(saved)
        return None if saved is None else result_id

    async def _with_page(
        self, row: ResultRow, child_rows: Sequence[ResultRow], page: NewPage, content_type: str, store: _Store
    ) -> Saved:
        """Retries once with another file name if another result has the name."""
        try:
            return await self._with_name(row, child_rows, page, content_type, store)
        except PathTaken:
            return await self._with_name(row, child_rows, page._replace(own_name=True), content_type, store)

    async def _with_name(
        self, row: ResultRow, child_rows: Sequence[ResultRow], page: NewPage, content_type: str, store: _Store
    ) -> Saved:
        page_file = await self._raw.keep(page)
        named = with_page(row, page_file, content_type)
        try:
            saved = await store(named, [child._replace(content_type=named.content_type) for child in child_rows])
        except PathTaken:
            await self._raw.discard([page_file.json_path, page_file.html_path])
            raise
        if saved is None:
            await self._raw.discard([page_file.json_path, page_file.html_path])
        return saved


def _add_finished(db: sqlite3.Connection, task_row: tuple[Any, ...], row: ResultRow) -> Saved:
    """Stores a task and its record in one transaction (I3)."""
    if not tasks.add(db, [task_row]):
        return None
    tasks.complete_new(db, row.task_id, row.created_at)
    return insert(db, row)


def encoded(record: Result | PageRecord, options: StoreOptions) -> Encoded:
    """Raises InvalidInput."""
    if isinstance(record.data, Encoded):
        return record.data
    return Encoded(validation.json_bytes("data", record.data, max_bytes=options.max_result_bytes))


def new_page(task: Task, page: Page, row: ResultRow, max_bytes: int) -> NewPage:
    """Raises InvalidInput."""
    body = page.body
    if not isinstance(body, bytes):
        raise InvalidInput(f"page body must be bytes, not {type(body).__name__}")
    if len(body) > max_bytes:
        raise InvalidInput(f"page has {len(body):,} bytes; at most {max_bytes:,} are allowed")
    target = task.target
    parcel_id = target.parcel_id or row.parcel_id
    return NewPage(task.platform, target.state, row.county, parcel_id, row.result_id, body, row.data.encode())
