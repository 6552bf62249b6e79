"""The page cache: within its time to live, a page is not fetched from the site again."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from isal import igzip
from msgspec import Struct

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.storage import validation
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions

_MAX_HEADER = 1_000
_LARGE = 64 * 1024
"""Larger pages are compressed and decompressed on another thread."""


class CachedPage(Struct, frozen=True, kw_only=True):
    data: bytes
    data_type: str
    etag: str | None
    last_modified: str | None
    created_at: datetime
    expires_at: datetime
    is_fresh: bool
    """False: expired, but its etag may still save a download."""


class Cache:
    """Bounded by `cache_max_bytes`: the least recently used pages are deleted first."""

    def __init__(self, database: LocalDatabase, options: StoreOptions, clock: Clock) -> None:
        self._db = database
        self._options = options
        self._clock = clock
        self._hits = 0
        self._misses = 0
        self._unwritten: dict[str, tuple[Any, ...]] = {}
        """The newest row of each page that is being stored."""

    async def get(self, key: str, data_type: str | None = None, *, stale: bool = False) -> CachedPage | None:
        """Returns the page if it is fresh; with `stale`, also an expired one."""
        now = iso(self._clock.now())
        row: tuple[Any, ...] | None
        if (unwritten := self._unwritten.get(key)) and data_type in (None, unwritten[1]):
            row = (unwritten[8], unwritten[1], *unwritten[3:7])
        else:
            row = await self._db.read(_find, key, data_type)
        if row is None or (row[5] <= now and not stale):
            self._misses += 1
            return None
        data = await _on_thread(gzip.decompress, row[0])
        self._hits += 1
        self._db.write_soon(_touch, key, now)
        return CachedPage(
            data=data,
            data_type=row[1],
            etag=row[2],
            last_modified=row[3],
            created_at=from_iso(row[4]),
            expires_at=from_iso(row[5]),
            is_fresh=row[5] > now,
        )

    async def put(
        self,
        key: str,
        data: bytes,
        *,
        data_type: str = "html",
        ttl: timedelta | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> bool:
        """Returns False if the page is too large to cache. Does not wait until it is stored: a kill may lose it."""
        validation.text("cache key", key, max_chars=8_000)
        validation.text("data_type", data_type)
        if len(data) > self._options.max_page_bytes:
            return False
        compressed = await _on_thread(_compress, data)
        if len(compressed) > self._options.cache_max_bytes:
            return False
        now = self._clock.now()
        expires_at = iso(now + (timedelta(hours=self._options.cache_ttl_hours) if ttl is None else ttl))
        row = (
            key,
            data_type,
            len(compressed),
            _header(etag),
            _header(last_modified),
            iso(now),
            expires_at,
            iso(now),
            compressed,
        )
        self._unwritten[key] = row
        writing = self._db.write_soon(_put, row, self._options.cache_max_bytes)
        writing.add_done_callback(lambda _: self._unwritten.pop(key) if self._unwritten.get(key) is row else None)
        return True

    async def delete(self, key: str) -> int:
        self._unwritten.pop(key, None)
        return await self._db.write_lossy(_delete, key)

    @property
    def hit_rate(self) -> float | None:
        """The hit rate since this process opened the store; None before the first request."""
        requests = self._hits + self._misses
        return self._hits / requests if requests else None


def shrink(db: sqlite3.Connection, max_bytes: int, keep: str = "") -> int:
    """Deletes the least recently used pages except `keep` until the cache fits. Returns how many."""
    removed = 0
    oldest = """DELETE FROM cache WHERE cache_key =
                    (SELECT cache_key FROM cache WHERE cache_key <> ? ORDER BY last_accessed, rowid LIMIT 1)"""
    while size(db) > max_bytes and db.execute(oldest, (keep,)).rowcount:
        removed += 1
    return removed


async def _on_thread(convert: Callable[[bytes], bytes], data: bytes) -> bytes:
    return await asyncio.to_thread(convert, data) if len(data) >= _LARGE else convert(data)


def _compress(data: bytes) -> bytes:
    return igzip.compress(data, 1, mtime=0)


def _header(value: str | None) -> str | None:
    """Returns the header as the site sent it, None if it cannot be sent back."""
    return value if value is not None and value.isascii() and "\0" not in value and len(value) <= _MAX_HEADER else None


def size(db: sqlite3.Connection) -> int:
    """Returns the compressed size of all cached pages."""
    size: int = db.execute("SELECT bytes FROM storage_usage WHERE kind = 'cache'").fetchone()[0]
    return size


def _find(db: sqlite3.Connection, key: str, data_type: str | None) -> tuple[bytes, str, str, str, str, str] | None:
    query = """SELECT data, data_type, etag, last_modified, created_at, expires_at FROM cache
               WHERE cache_key = ? AND data_type = coalesce(?, data_type)"""
    row: tuple[bytes, str, str, str, str, str] | None = db.execute(query, (key, data_type)).fetchone()
    return row


def _touch(db: sqlite3.Connection, key: str, now: str) -> None:
    db.execute("UPDATE cache SET access_count = access_count + 1, last_accessed = ? WHERE cache_key = ?", (now, key))


def _put(db: sqlite3.Connection, row: tuple[object, ...], max_bytes: int) -> None:
    change = """
    INSERT INTO cache
        (cache_key, data_type, size_bytes, etag, last_modified, created_at, expires_at, last_accessed, data)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (cache_key) DO UPDATE SET data_type = excluded.data_type, size_bytes = excluded.size_bytes,
        etag = excluded.etag, last_modified = excluded.last_modified, created_at = excluded.created_at,
        expires_at = excluded.expires_at, last_accessed = excluded.last_accessed, data = excluded.data"""
    db.execute(change, row)
    shrink(db, max_bytes, keep=str(row[0]))


def _delete(db: sqlite3.Connection, key: str) -> int:
    return db.execute("DELETE FROM cache WHERE cache_key = ?", (key,)).rowcount
