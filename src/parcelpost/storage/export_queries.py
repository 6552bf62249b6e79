"""Results for exports: sorted by place and parcel, of each parcel the newest or all, and where the last export ended.

Every query of the store is short, so that the WAL is not held back. What was found is kept in a temporary database of
our own, on disk: a name for each result, to read it by. A result that is replaced meanwhile is read as it is then, one
that is removed is left out.
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
from parcelpost.storage import durable_files, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import UNREADABLE, is_unreadable, translated

_LOOK = 5_000
"""Rows that one look passes over."""
_PAGE = 250
_PAGE_BYTES = 4 * 1024 * 1024
"""Of records, in memory at once, or one that is larger."""

_AHEAD = """
SELECT seq, platform, state, county, parcel_id, task_id, success, scraped_at, created_at, data IS NOT NULL AS has_data
FROM results NOT INDEXED WHERE seq > :after ORDER BY seq LIMIT :look
"""
_REACHED = f"SELECT max(seq), max(created_at) FROM ({_AHEAD})"
_FOUND = f"""
SELECT platform, state, county, parcel_id, iif(:every_version, seq, 0), task_id FROM ({_AHEAD})
WHERE ((:records AND has_data) OR (:not_found AND success AND NOT has_data) OR (:failed AND NOT success))
    AND (:platforms IS NULL OR platform COLLATE NOCASE IN (SELECT value FROM json_each(:platforms)))
    AND (:states IS NULL OR state COLLATE NOCASE IN (SELECT value FROM json_each(:states)))
    AND (:counties IS NULL OR county COLLATE NOCASE IN (SELECT value FROM json_each(:counties)))
    AND (:parcels IS NULL OR parcel_id IN (SELECT value FROM json_each(:parcels)))
    AND (:scraped_since IS NULL OR scraped_at >= :scraped_since)
    AND (:scraped_before IS NULL OR scraped_at < :scraped_before)
    AND (:changed_since IS NULL OR created_at >= :changed_since)
    AND (:mark_seq IS NULL OR seq > :mark_seq OR created_at > :mark_at)
ORDER BY seq
"""
_INDEX = """
CREATE TABLE found (platform TEXT, state TEXT, county TEXT, parcel_id TEXT, version INTEGER, task_id TEXT NOT NULL,
    PRIMARY KEY (platform, state, county, parcel_id, version)) WITHOUT ROWID
"""
_PUT = """
INSERT INTO found VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (platform, state, county, parcel_id, version) DO UPDATE SET task_id = excluded.task_id
"""


class ExportCursor(Struct, frozen=True):
    """How far somebody has seen the store: results after it are new or have changed.

    Neither is enough alone: clocks are set back, and a store whose last rows were removed counts from there again.
    """

    seq: int
    stored_at: datetime


class ExportFilter(Struct, frozen=True, kw_only=True):
    """An empty tuple asks for all; platform, state and county in capitals or not."""

    platforms: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    counties: tuple[str, ...] = ()
    parcels: tuple[str, ...] = ()
    records: bool = True
    not_found: bool = False
    """Ends without a record: the site has no such parcel."""
    failed: bool = False
    """Reports of tasks that failed or expired."""
    scraped_since: datetime | None = None
    scraped_before: datetime | None = None
    changed_since: datetime | None = None
    """Stored, or read again with another outcome."""
    after: ExportCursor | None = None
    every_version: bool = False
    """False: of each parcel only the result that was stored last."""


class Selected:
    """Made by `select`."""

    def __init__(self, database: LocalDatabase, index: sqlite3.Connection, mark: ExportCursor) -> None:
        self.mark = mark
        """Where the next selection may begin that asks for what is new."""
        self.count = int(index.execute("SELECT count(*) FROM found").fetchone()[0])
        self.unreadable: list[str] = []
        """Tasks whose results are damaged and were passed over so far."""
        self._database = database
        self._index = index

    async def pages(self) -> AsyncIterator[list[OutboxEntry]]:
        waiting: list[str] = []
        for task_id in self._task_ids():
            waiting.append(task_id)
            if len(waiting) == _PAGE:
                yield await self._page(waiting)
        while waiting:
            yield await self._page(waiting)

    async def _page(self, waiting: list[str]) -> list[OutboxEntry]:
        """As many of the first as are read at once; they wait no more."""
        looked = await self._database.read(_look, waiting)
        del waiting[: looked.passed]
        self.unreadable += looked.unreadable
        return looked.found

    def _task_ids(self) -> Iterator[str]:
        order = "SELECT task_id FROM found ORDER BY platform, state, county, parcel_id, version"
        return (task_id for (task_id,) in self._index.execute(order))


@asynccontextmanager
async def select(database: LocalDatabase, wanted: ExportFilter, clock: Clock) -> AsyncIterator[Selected]:
    filters = _filters(wanted)
    seq, stored_at = 0, ""
    with closing(sqlite3.connect("", isolation_level=None)) as index:  # SQLite's own temporary file, gone with it
        index.execute(_INDEX)
        while True:
            found, reached = await database.read(_ahead, filters, seq)
            if reached is None:
                break
            seq, stored_at = reached.seq, max(stored_at, reached.stored_at)
            with translated(Path(tempfile.gettempdir())):
                _put(index, found)
        now = clock.now()  # a row from the future, of a clock that was wrong, does not count
        at = min(from_iso(stored_at), now) if stored_at else now
        yield Selected(database, index, ExportCursor(seq, at))


class _Reached(NamedTuple):
    seq: int
    stored_at: str


class _Looked(NamedTuple):
    found: list[OutboxEntry]
    unreadable: list[str]
    passed: int


def _ahead(
    db: sqlite3.Connection, filters: dict[str, Any], after: int
) -> tuple[list[tuple[Any, ...]], _Reached | None]:
    bounds = {"after": after, "look": _LOOK}
    seq, stored_at = db.execute(_REACHED, bounds).fetchone()
    if seq is None:
        return [], None
    return db.execute(_FOUND, filters | bounds).fetchall(), _Reached(seq, stored_at)


def _put(index: sqlite3.Connection, found: Sequence[tuple[Any, ...]]) -> None:
    index.execute("BEGIN")
    index.executemany(_PUT, found)
    index.execute("COMMIT")


def _look(db: sqlite3.Connection, task_ids: Sequence[str]) -> _Looked:
    looked, room = _Looked([], [], 0), _PAGE_BYTES
    for passed, task_id in enumerate(task_ids, start=1):
        entry = None
        try:
            entry = outbox.get(db, task_id)
        except (sqlite3.OperationalError, *UNREADABLE) as error:
            if not is_unreadable(error):
                raise
            looked.unreadable.append(task_id)
        if entry is not None:
            looked.found.append(entry)
            room -= len(entry.data or b"")
        if room < 0 or passed == len(task_ids):
            return looked._replace(passed=passed)
    return looked


def _filters(wanted: ExportFilter) -> dict[str, Any]:
    lists = {name: getattr(wanted, name) for name in ("platforms", "states", "counties", "parcels")}
    moments = {name: getattr(wanted, name) for name in ("scraped_since", "scraped_before", "changed_since")}
    flags = {name: getattr(wanted, name) for name in ("records", "not_found", "failed", "every_version")}
    mark = wanted.after
    return {
        **{name: encode(values).decode() if values else None for name, values in lists.items()},
        **{name: None if moment is None else iso(moment) for name, moment in moments.items()},
        **{name: int(value) for name, value in flags.items()},
        "mark_seq": None if mark is None else mark.seq,
        "mark_at": None if mark is None else iso(mark.stored_at),
    }


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class LastExport(Struct, frozen=True, kw_only=True):
    mark: ExportCursor
    wanted: ExportFilter
    """What was asked for, but for the mark: what is new for one question is not all that is new for another."""
    at: datetime


def file_of(store: Path, receiver: str) -> Path:
    """Raises InvalidInput."""
    if not _NAME.fullmatch(receiver):
        raise InvalidInput(f"{receiver!r} is no name for who gets the export", hint="use letters, digits, _ and -")
    store = store.resolve()
    return store.with_name(f"{store.name}-exports") / f"{receiver}.json"


def load(file: Path) -> LastExport | None:
    """None: nothing was handed over yet. Raises InvalidInput."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=LastExport)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error}", hint="remove it; the next export with --new then has everything"
        ) from error


def keep(file: Path, done: LastExport) -> None:
    durable_files.replace(file, msgspec.json.encode(done) + b"\n")
