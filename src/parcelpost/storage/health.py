"""Health of the store: sizes, free space, age, and which loops may run (I8)."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from parcelpost.clock import from_iso
from parcelpost.storage import artifacts, backup, cache, durable_files, migrations
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions

_COLLECTOR_SHARE = 0.9


class Level(StrEnum):
    """I8: near the size limit the collector stops first, then the executor."""

    FINE = "fine"
    COLLECTOR_STOPS = "collector must stop"
    EXECUTOR_STOPS = "executor must stop"


class Usage(Struct, frozen=True, kw_only=True):
    """Sizes in bytes."""

    database: int
    """Pages in use, without free pages inside the file."""
    wal: int
    raw: int
    journal: int
    total: int
    max_bytes: int
    disk_free: int
    min_free_bytes: int
    free_inodes: int
    min_free_inodes: int
    level: Level

    @property
    def lacks_disk(self) -> bool:
        """Whether the disk is nearly full, regardless of the store's own size limit."""
        return self.disk_free < 2 * self.min_free_bytes

    @property
    def lacks_inodes(self) -> bool:
        """Whether the disk is nearly out of inodes."""
        return self.free_inodes < 2 * self.min_free_inodes


class Health(Struct, frozen=True, kw_only=True):
    schema_version: int
    usage: Usage
    cache_bytes: int
    artifact_bytes: int
    last_change: str
    age_seconds: float
    """Time since the store was created."""
    newest_backup: str | None
    newest_backup_age_seconds: float | None


async def usage(database: LocalDatabase, live: Path, options: StoreOptions) -> Usage:
    in_use, raw = await database.read(_sizes)
    path = database.path
    wal = _size(path.with_name(path.name + "-wal"))
    journal = sum(_size(segment) for segment in live.glob("*.raw"))
    total = in_use + wal + raw + journal
    room = durable_files.room(path.parent)
    return Usage(
        database=in_use,
        wal=wal,
        raw=raw,
        journal=journal,
        total=total,
        max_bytes=options.max_bytes,
        disk_free=room.free_bytes,
        min_free_bytes=options.min_free_bytes,
        free_inodes=room.free_inodes,
        min_free_inodes=options.min_free_inodes,
        level=_level(total, room, options),
    )


async def health(database: LocalDatabase, live: Path, options: StoreOptions, now: datetime) -> Health:
    backups = backup.list_backups(database.path)
    newest = backups[-1] if backups else None
    made_at = await database.read(_made_at)
    return Health(
        schema_version=await database.read(migrations.version),
        usage=await usage(database, live, options),
        cache_bytes=await database.read(cache.size),
        artifact_bytes=await database.read(artifacts.size),
        last_change=await database.read(backup.last_change),
        age_seconds=max(0.0, (now - from_iso(made_at)).total_seconds()),
        newest_backup=str(newest) if newest else None,
        newest_backup_age_seconds=now.timestamp() - newest.stat().st_mtime if newest else None,
    )


def _level(total: int, room: durable_files.Room, options: StoreOptions) -> Level:
    least_bytes, least_inodes = options.min_free_bytes, options.min_free_inodes
    if total >= options.max_bytes or room.free_bytes < least_bytes or room.free_inodes < least_inodes:
        return Level.EXECUTOR_STOPS
    if (
        total >= options.max_bytes * _COLLECTOR_SHARE
        or room.free_bytes < 2 * least_bytes
        or room.free_inodes < 2 * least_inodes
    ):
        return Level.COLLECTOR_STOPS
    return Level.FINE


def _sizes(db: sqlite3.Connection) -> tuple[int, int]:
    pragmas = ("page_count", "freelist_count", "page_size")
    pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    raw = db.execute("SELECT bytes FROM storage_usage WHERE kind = 'raw'").fetchone()[0]
    return (pages - free) * size, raw


def _made_at(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT min(applied_at) FROM schema_version").fetchone()[0])


def newest_moment(db: sqlite3.Connection) -> str:
    """Returns the newest time in the store, '' if it is empty."""
    rounds = db.execute("SELECT coalesce(max(created_at), '') FROM sync_log").fetchone()[0]
    samples = db.execute("SELECT coalesce(max(timestamp), '') FROM agent_metrics").fetchone()[0]
    return max(backup.last_change(db), str(rounds), str(samples))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
