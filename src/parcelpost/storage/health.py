"""Health of the store: sizes, free space, age, integrity, and whether the loops may go on."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from parcelpost.clock import from_iso
from parcelpost.storage import artifacts, backup, durable_files, migrations, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.snapshot import integrity_problems

_COLLECTOR_SHARE = 0.9


class Level(StrEnum):
    """I8: at the cap the collector stops first, then the executor."""

    FINE = "fine"
    COLLECTOR_STOPS = "collector must stop"
    EXECUTOR_STOPS = "executor must stop"


class Usage(Struct, frozen=True, kw_only=True):
    """Sizes in bytes."""

    database: int
    """Pages in use; free pages inside the file do not count."""
    wal: int
    raw: int
    journal: int
    total: int
    max_bytes: int
    disk_free: int
    min_free_bytes: int
    free_inodes: int
    """On the disk."""
    min_free_inodes: int
    level: Level

    @property
    def lacks_disk(self) -> bool:
        """The disk is nearly full, whatever the store's own cap says."""
        return self.disk_free < 2 * self.min_free_bytes

    @property
    def lacks_inodes(self) -> bool:
        """The disk is nearly out of inodes."""
        return self.free_inodes < 2 * self.min_free_inodes


class Health(Struct, frozen=True, kw_only=True):
    path: str
    schema_version: int
    usage: Usage
    file_bytes: int
    page_size: int
    pages: int
    free_pages: int
    cache_bytes: int
    artifact_bytes: int
    oldest_unsynced_seconds: float
    last_change: str
    age_seconds: float
    """Since the store was created."""
    newest_backup: str | None
    newest_backup_age_seconds: float | None
    problems: list[str] | None
    """Found by the integrity check; None: not checked."""


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


async def health(
    database: LocalDatabase, live: Path, options: StoreOptions, now: datetime, *, check: bool = False
) -> Health:
    path = database.path
    values = await database.read(_read_values)
    backups = backup.list_backups(path)
    newest = backups[-1] if backups else None
    oldest = values["oldest_unsynced"]
    return Health(
        path=str(path),
        schema_version=values["schema_version"],
        usage=await usage(database, live, options),
        file_bytes=_size(path),
        page_size=values["page_size"],
        pages=values["pages"],
        free_pages=values["free_pages"],
        cache_bytes=values["cache_bytes"],
        artifact_bytes=values["artifact_bytes"],
        oldest_unsynced_seconds=max(0.0, (now - from_iso(oldest)).total_seconds()) if oldest else 0.0,
        last_change=values["last_change"],
        age_seconds=max(0.0, (now - from_iso(values["made_at"])).total_seconds()),
        newest_backup=str(newest) if newest else None,
        newest_backup_age_seconds=now.timestamp() - newest.stat().st_mtime if newest else None,
        problems=await database.read(integrity_problems) if check else None,
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


def _read_values(db: sqlite3.Connection) -> dict[str, Any]:
    return {
        "schema_version": migrations.version(db),
        "pages": db.execute("PRAGMA page_count").fetchone()[0],
        "free_pages": db.execute("PRAGMA freelist_count").fetchone()[0],
        "page_size": db.execute("PRAGMA page_size").fetchone()[0],
        "cache_bytes": db.execute("SELECT bytes FROM storage_usage WHERE kind = 'cache'").fetchone()[0],
        "artifact_bytes": artifacts.size(db),
        "oldest_unsynced": outbox.depth(db)[2],
        "last_change": backup.last_change(db),
        "made_at": db.execute("SELECT min(applied_at) FROM schema_version").fetchone()[0],
    }


def newest_moment(db: sqlite3.Connection) -> str:
    """Returns the newest time in the store, '' in an empty one."""
    rounds = db.execute("SELECT coalesce(max(created_at), '') FROM sync_log").fetchone()[0]
    samples = db.execute("SELECT coalesce(max(timestamp), '') FROM agent_metrics").fetchone()[0]
    return max(backup.last_change(db), str(rounds), str(samples))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
