"""Queries for exports: results sorted by site and parcel, the newest of each parcel or all, and the export cursor.

Every query is short, so that checkpoints of the WAL are not blocked. A temporary database on disk has the ids of the
matching results. A result that is replaced during the export is exported in its new version; a deleted one is left out.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.json import encode

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry
from parcelpost.places import parcel_norm
from parcelpost.storage import durable_files, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import translated

_SCAN_ROWS = 5_000
"""Rows that one query scans."""
_PAGE = 250
_PAGE_BYTES = 4 * 1024 * 1024
"""Records in memory at once; a single record may be larger."""

_SCAN = """
SELECT seq, platform, state, county, parcel_id, task_id, success, scraped_at, created_at, data IS NOT NULL AS has_data
FROM results NOT INDEXED WHERE seq > :after ORDER BY seq LIMIT :scan_rows
"""
_LAST_SCANNED = f"SELECT max(seq), max(created_at) FROM ({_SCAN})"
_MATCHING = f"""
SELECT platform, state, county, parcel_id, iif(:every_version, seq, 0), task_id FROM ({_SCAN})
WHERE ((:records AND has_data) OR (:not_found AND success AND NOT has_data) OR (:failed AND NOT success))
    AND (:platforms IS NULL OR platform COLLATE NOCASE IN (SELECT value FROM json_each(:platforms)))
    AND (:states IS NULL OR state COLLATE NOCASE IN (SELECT value FROM json_each(:states)))
    AND (:counties IS NULL OR county COLLATE NOCASE IN (SELECT value FROM json_each(:counties)))
    AND (:parcels IS NULL OR parcel_id IN (SELECT value FROM json_each(:parcels)))
    AND (:scraped_since IS NULL OR scraped_at >= :scraped_since)
    AND (:scraped_before IS NULL OR scraped_at < :scraped_before)
    AND (:changed_since IS NULL OR created_at >= :changed_since)
    AND (:after_seq IS NULL OR seq > :after_seq OR created_at > :after_time)
ORDER BY seq
"""
_DELIVERS = "SELECT EXISTS (SELECT 1 FROM results WHERE synced = 1) OR EXISTS (SELECT 1 FROM sync_log)"
_INDEX = """
CREATE TABLE matching (platform TEXT, state TEXT, county TEXT, parcel_id TEXT, version INTEGER, task_id TEXT NOT NULL,
    PRIMARY KEY (platform, state, county, parcel_id, version)) WITHOUT ROWID
"""
_BY_PLATFORM = "platform, state, county, parcel_id, version"
_BY_PARCEL = "state, county, parcel_norm(parcel_id), version"
_PUT = """
INSERT INTO matching VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (platform, state, county, parcel_id, version) DO UPDATE SET task_id = excluded.task_id
"""


class ExportCursor(Struct, frozen=True):
    """How far a recipient has seen the store: later results are new or have changed.

    Both fields are needed, because clocks may be set back, and SQLite reuses the seq of a deleted last row.
    """

    seq: int
    stored_at: datetime


class ExportFilter(Struct, frozen=True, kw_only=True):
    """An empty tuple matches all. Platform, state and county are case-insensitive."""

    platforms: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    counties: tuple[str, ...] = ()
    parcels: tuple[str, ...] = ()
    records: bool = True
    not_found: bool = False
    """Tasks that ended without a record because the site has no such parcel."""
    failed: bool = False
    """Reports of tasks that failed or expired."""
    scraped_since: datetime | None = None
    scraped_before: datetime | None = None
    changed_since: datetime | None = None
    """Stored or re-parsed since."""
    after: ExportCursor | None = None
    every_version: bool = False
    """False: only the last result of each parcel."""


class Selected:
    """The matching results, returned by `select`."""

    def __init__(self, database: LocalDatabase, index: sqlite3.Connection, cursor: ExportCursor) -> None:
        self.cursor = cursor
        """Where the next export of new results starts."""
        self.count = int(index.execute("SELECT count(*) FROM matching").fetchone()[0])
        self._database = database
        self._index = index

    async def pages(self, *, by_parcel: bool = False) -> AsyncIterator[list[OutboxEntry]]:
        """`by_parcel`: all platforms of a parcel after each other, and its versions as they were stored."""
        waiting: list[str] = []
        for task_id in self._task_ids(_BY_PARCEL if by_parcel else _BY_PLATFORM):
            waiting.append(task_id)
            if len(waiting) == _PAGE:
                yield await self._page(waiting)
        while waiting:
            yield await self._page(waiting)

    async def _page(self, waiting: list[str]) -> list[OutboxEntry]:
        """Reads the first results that fit into one page, and removes them from `waiting`."""
        entries, done = await self._database.read(_read_page, waiting)
        del waiting[:done]
        return entries

    def _task_ids(self, order: str) -> Iterator[str]:
        rows = self._index.execute(f"SELECT task_id FROM matching ORDER BY {order}")
        return (task_id for (task_id,) in rows)


@asynccontextmanager
async def select(database: LocalDatabase, wanted: ExportFilter, clock: Clock) -> AsyncIterator[Selected]:
    filters = _filters(wanted)
    seq, stored_at = 0, ""
    with closing(sqlite3.connect("", isolation_level=None)) as index:  # a temporary file of SQLite, deleted on close
        index.execute(_INDEX)
        index.create_function("parcel_norm", 1, parcel_norm, deterministic=True)
        while True:
            matching, last = await database.read(_scan, filters, seq)
            if last is None:
                break
            seq, stored_at = last.seq, max(stored_at, last.stored_at)
            with translated(Path(tempfile.gettempdir())):
                _add_to_index(index, matching)
        now = clock.now()  # ignores times in the future, written by a wrong clock
        at = min(from_iso(stored_at), now) if stored_at else now
        yield Selected(database, index, ExportCursor(seq, at))


async def delivers(database: LocalDatabase) -> bool:
    """Whether the store has delivered results: then it has deleted some, or will."""
    return await database.read(_delivers)


def _delivers(db: sqlite3.Connection) -> bool:
    return bool(db.execute(_DELIVERS).fetchone()[0])


class _LastScanned(NamedTuple):
    seq: int
    stored_at: str


def _scan(
    db: sqlite3.Connection, filters: dict[str, Any], after: int
) -> tuple[list[tuple[Any, ...]], _LastScanned | None]:
    bounds = {"after": after, "scan_rows": _SCAN_ROWS}
    seq, stored_at = db.execute(_LAST_SCANNED, bounds).fetchone()
    if seq is None:
        return [], None
    return db.execute(_MATCHING, filters | bounds).fetchall(), _LastScanned(seq, stored_at)


def _add_to_index(index: sqlite3.Connection, matching: Sequence[tuple[Any, ...]]) -> None:
    index.execute("BEGIN")
    index.executemany(_PUT, matching)
    index.execute("COMMIT")


def _read_page(db: sqlite3.Connection, task_ids: Sequence[str]) -> tuple[list[OutboxEntry], int]:
    """Returns entries, and how many of the tasks they cover: some results may have been deleted meanwhile."""
    entries: list[OutboxEntry] = []
    bytes_left = _PAGE_BYTES
    for done, task_id in enumerate(task_ids, start=1):
        if (entry := outbox.get(db, task_id)) is not None:
            entries.append(entry)
            bytes_left -= len(entry.data or b"")
        if bytes_left < 0:
            return entries, done
    return entries, len(task_ids)


def _filters(wanted: ExportFilter) -> dict[str, Any]:
    lists = {name: getattr(wanted, name) for name in ("platforms", "states", "counties", "parcels")}
    moments = {name: getattr(wanted, name) for name in ("scraped_since", "scraped_before", "changed_since")}
    flags = {name: getattr(wanted, name) for name in ("records", "not_found", "failed", "every_version")}
    cursor = wanted.after
    return {
        **{name: encode(values).decode() if values else None for name, values in lists.items()},
        **{name: None if moment is None else iso(moment) for name, moment in moments.items()},
        **{name: int(value) for name, value in flags.items()},
        "after_seq": None if cursor is None else cursor.seq,
        "after_time": None if cursor is None else iso(cursor.stored_at),
    }


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class LastExport(Struct, frozen=True, kw_only=True):
    cursor: ExportCursor
    wanted: ExportFilter
    """The filter without its `after`. A different filter starts from the beginning."""
    at: datetime


def file_of(store: Path, receiver: str) -> Path:
    """Raises InvalidInput."""
    if not _NAME.fullmatch(receiver):
        raise InvalidInput(
            f"{receiver!r} is not a valid name for the recipient of an export", hint="use letters, digits, _ and -"
        )
    store = store.resolve()
    return store.with_name(f"{store.name}-exports") / f"{receiver}.json"


def load(file: Path) -> LastExport | None:
    """Returns None before the first export. Raises InvalidInput."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=LastExport)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error}", hint="delete it; the next export with --new then includes everything"
        ) from error


def save(file: Path, done: LastExport) -> None:
    durable_files.replace(file, msgspec.json.encode(done) + b"\n")
