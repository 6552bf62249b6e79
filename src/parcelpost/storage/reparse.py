"""Re-parsed pages: replaces the records of their results, which are then delivered again.

A replaced result gets a new id and moves to the end of the outbox, so that a late receipt for the old record does not
count for the new one (I2). Later results of the same parcel move behind it, so that an upstream that keeps the last
record keeps the newest scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.model import Page, Target
from parcelpost.storage import durable_files, results, rows, tasks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import RawFiles, on_disk
from parcelpost.storage.results import ResultRow, child_id
from parcelpost.storage.rows import new_id

_PAGES = """
SELECT r.seq, r.html_path, r.json_path, r.raw_sha256, r.content_type, r.scraped_at, t.seq, t.task_id, t.platform,
    t.target_json
FROM results AS r NOT INDEXED JOIN tasks AS t ON t.task_id = r.task_id
WHERE r.seq > :after AND r.created_at < :before AND r.json_path IS NOT NULL AND t.status = 'completed'
    AND (:platform IS NULL OR r.platform = :platform)
    AND (:state IS NULL OR r.state = :state)
    AND (:county IS NULL OR r.county = :county)
    AND (:since IS NULL OR r.scraped_at >= :since)
ORDER BY r.seq LIMIT :limit
"""
_RECORD = """
SELECT r.result_id, r.task_id, r.county, r.parcel_id, r.idempotency_key, r.data
FROM results AS r JOIN tasks AS t ON t.task_id = r.task_id WHERE r.html_path = ? AND r.data IS NOT NULL
"""
_OWNER, _SHARERS = f"{_RECORD} AND r.json_path IS NOT NULL", f"{_RECORD} AND r.json_path IS NULL ORDER BY t.seq"
_LATER = """
SELECT r.seq, r.result_id, r.platform, r.state, r.county, r.parcel_id
FROM results AS r NOT INDEXED JOIN tasks AS t ON t.task_id = r.task_id
WHERE r.seq > ? AND r.parcel_id IN (SELECT value FROM json_each(?)) AND t.status = 'completed' AND r.data IS NOT NULL
"""
_SHARE = """
UPDATE results SET synced = 0, synced_at = NULL, raw_synced_at = NULL, page_shared = 1 WHERE result_id = ?
"""
_MOVE = """
UPDATE results SET seq = (SELECT max(seq) + 1 FROM results), result_id = ?, synced = 0, synced_at = NULL,
    rejected_at = NULL, rejected_by = NULL, sync_attempts = 0, last_error = NULL
WHERE result_id = ?
"""
_REPLACE = """
UPDATE results SET county = ?, parcel_id = ?, data = ?, idempotency_key = ?, created_at = ?, raw_bytes = raw_bytes + ?
WHERE result_id = ?
"""


class Filters(Struct, frozen=True, kw_only=True):
    platform: str | None = None
    state: str | None = None
    county: str | None = None
    since: datetime | None = None


class StoredRecord(Struct, frozen=True, kw_only=True, gc=False):
    result_id: str
    task_id: str
    county: str
    parcel_id: str
    idempotency_key: str
    data: bytes


class StoredPage(Struct, frozen=True, kw_only=True):
    seq: int
    """The seq of the result that owns the page; pass it as `after` for the next pages."""
    task_seq: int
    task_id: str
    platform: str
    target: Target
    html_path: str
    json_path: str
    sha256: str
    content_type: str
    scraped_at: datetime
    records: tuple[StoredRecord, ...]
    """The task's own record first, then the others in page order."""


class NewRecord(Struct, frozen=True, kw_only=True):
    """A record that is new on a page, or differs from the stored one."""

    replaces: StoredRecord | None
    """None for an additional record of the page."""
    key: str
    parcel_id: str
    county: str
    data: bytes


Change = tuple[StoredPage, Sequence[NewRecord]]
_Written = Mapping[int, tuple[Path, Path]]
"""By the page's seq: the new file of a record, and its final path."""


class StoredPages:
    def __init__(self, database: LocalDatabase, raw: RawFiles, clock: Clock) -> None:
        self._db = database
        self._raw = raw
        self._clock = clock

    async def pages(self, filters: Filters, before: datetime, after: int, limit: int) -> list[StoredPage]:
        """Returns pages of results stored before this time, in the order stored."""
        return await self._db.read(_pages, filters, iso(before), after, limit)

    def page(self, stored: StoredPage) -> Page | None:
        """Returns None if the file is missing or does not match its hash. Blocking: call it on a thread."""
        try:
            body = gzip.decompress(self._raw.path(stored.html_path).read_bytes())
        except (OSError, EOFError, zlib.error):
            return None
        if hashlib.sha256(body).hexdigest() != stored.sha256:
            return None
        return Page(body=body, content_type=stored.content_type)

    async def replace(self, changes: Sequence[Change]) -> list[bool]:
        """Replaces records in one transaction. Returns False for pages whose results have changed in the meantime."""
        written = await asyncio.to_thread(self._write_records, changes)
        return await self._db.write(_replace, changes, written, self._clock.now())

    def _write_records(self, changes: Sequence[Change]) -> _Written:
        """Writes new files next to the old ones, which they replace if the change is still valid."""
        written: dict[int, tuple[Path, Path]] = {}
        for stored, new in changes:
            own = next((record for record in new if record.replaces is stored.records[0]), None)
            if own is not None:
                path = self._raw.path(stored.json_path)
                beside = path.with_name(f"{path.name}.new")
                durable_files.replace(beside, own.data)
                written[stored.seq] = beside, path
        return written


def _pages(db: sqlite3.Connection, filters: Filters, before: str, after: int, limit: int) -> list[StoredPage]:
    since = iso(filters.since) if filters.since else None
    site = {"platform": filters.platform, "state": filters.state, "county": filters.county, "since": since}
    page_rows = db.execute(_PAGES, {**site, "before": before, "after": after, "limit": limit}).fetchall()
    return [_page(db, row) for row in page_rows]


def _page(db: sqlite3.Connection, row: Sequence[Any]) -> StoredPage:
    seq, html_path, json_path, sha256, content_type, scraped_at, task_seq, task_id, platform, target = row
    records = [*db.execute(_OWNER, (html_path,)), *db.execute(_SHARERS, (html_path,))]
    return StoredPage(
        seq=seq,
        task_seq=task_seq,
        task_id=task_id,
        platform=platform,
        target=rows.target(target),
        html_path=html_path,
        json_path=json_path,
        sha256=sha256,
        content_type=content_type or "text/html",
        scraped_at=from_iso(scraped_at),
        records=tuple(
            StoredRecord(
                result_id=result_id,
                task_id=name,
                county=county,
                parcel_id=number,
                idempotency_key=key,
                data=data.encode(),
            )
            for result_id, name, county, number, key, data in records
        ),
    )


def _replace(db: sqlite3.Connection, changes: Sequence[Change], written: _Written, now: datetime) -> list[bool]:
    unchanged = [_is_unchanged(db, stored) for stored, _ in changes]
    changed: dict[str, NewRecord] = {}
    owners: set[str] = set()
    for (stored, new), is_unchanged in zip(changes, unchanged, strict=True):
        if is_unchanged:
            owners.add(stored.records[0].result_id)
            changed |= {record.replaces.result_id: record for record in new if record.replaces is not None}
            added = [record for record in new if record.replaces is None]
            if added:
                _share(db, stored.records[0], changed)
                _add(db, stored, added, now)
    for result_id in _with_later(db, changed):
        fresh = new_id(now)
        db.execute(_MOVE, (fresh, result_id))
        if result_id in changed:
            _replace_record(db, fresh, changed[result_id], iso(now), is_owner=result_id in owners)
    for (stored, _), is_unchanged in zip(changes, unchanged, strict=True):
        if stored.seq in written:
            _put_in_place(*written[stored.seq], is_valid=is_unchanged)
    return unchanged


def _put_in_place(beside: Path, path: Path, *, is_valid: bool) -> None:
    """Runs before the commit. After a crash in between, file and row differ until the next re-parse."""
    with contextlib.suppress(FileNotFoundError):  # the change may run twice
        if is_valid:
            beside.replace(path)
        else:
            beside.unlink()


def _share(db: sqlite3.Connection, owner: StoredRecord, changed: dict[str, NewRecord]) -> None:
    """Marks the page as shared: it is sent again, under a name that fits all its records."""
    query = "SELECT page_shared FROM results WHERE result_id = ?"
    if not db.execute(query, (owner.result_id,)).fetchone()[0]:
        db.execute(_SHARE, (owner.result_id,))
        same = NewRecord(replaces=owner, key="", parcel_id=owner.parcel_id, county=owner.county, data=owner.data)
        changed.setdefault(owner.result_id, same)


def _is_unchanged(db: sqlite3.Connection, stored: StoredPage) -> bool:
    query = """SELECT 1 FROM results AS r JOIN tasks AS t ON t.task_id = ? AND t.status = 'completed'
               WHERE r.result_id = ? AND r.idempotency_key = ?"""
    return all(
        db.execute(query, (stored.task_id, record.result_id, record.idempotency_key)).fetchone()
        for record in stored.records
    )


def _with_later(db: sqlite3.Connection, changed: Mapping[str, NewRecord]) -> list[str]:
    """Returns these results and later ones of their parcels, old and new, in the order stored."""
    query = "SELECT seq, result_id, platform, state, county, parcel_id FROM results WHERE result_id = ?"
    moved = [db.execute(query, (result_id,)).fetchone() for result_id in changed]
    first: dict[tuple[Any, ...], int] = {}
    for seq, result_id, platform, state, *before in moved:
        now = changed[result_id].county, changed[result_id].parcel_id
        for parcel in ((platform, state, *before), (platform, state, *now)):
            first[parcel] = min(seq, first.get(parcel, seq))
    numbers = encode([parcel[-1] for parcel in first]).decode()
    later = db.execute(_LATER, (min(first.values(), default=0), numbers)).fetchall()
    moved += [row for row in later if row[0] > first.get(tuple(row[2:]), row[0])]
    return list(dict.fromkeys(row[1] for row in sorted(moved)))


def _replace_record(db: sqlite3.Connection, result_id: str, new: NewRecord, now: str, *, is_owner: bool) -> None:
    if new.replaces is None:
        return
    key = f"{new.replaces.task_id}:{hashlib.sha256(new.data).hexdigest()}"
    grown = on_disk(new.data) - on_disk(new.replaces.data) if is_owner else 0
    db.execute(_REPLACE, (new.county, new.parcel_id, new.data.decode(), key, now, grown, result_id))
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (grown,))


def _add(db: sqlite3.Connection, stored: StoredPage, added: Sequence[NewRecord], now: datetime) -> None:
    query = f"SELECT {', '.join(ResultRow._fields)} FROM results WHERE result_id = ?"
    owner = ResultRow(*db.execute(query, (stored.records[0].result_id,)).fetchone())
    new = [
        owner._replace(
            result_id=new_id(now),
            task_id=child_id(stored.task_id, record.key),
            parcel_id=record.parcel_id,
            county=record.county,
            idempotency_key=f"{child_id(stored.task_id, record.key)}:{hashlib.sha256(record.data).hexdigest()}",
            created_at=iso(now),
            data=record.data.decode(),
            json_path=None,
            raw_bytes=0,
        )
        for record in added
    ]
    children = [tasks.Child(row.task_id, row.state, row.county, row.parcel_id) for row in new]
    tasks.add_children(db, stored.task_seq, children, iso(now))
    results.insert_multi(db, new)
