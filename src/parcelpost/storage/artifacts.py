"""Failure artifacts: the last page that a task's last failed attempt saw, and its screenshot and log in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.errors import InvalidInput, StoreError
from parcelpost.model import Claim
from parcelpost.storage import durable_files
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.raw_files import inside, on_disk, safe_name

_BATCH = 500

_ADD = """
INSERT INTO artifacts (task_id, screenshot_path, log_path, page_path, bytes, created_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM tasks WHERE task_id = ?1)
"""
_DELETE = "DELETE FROM artifacts WHERE task_id = ? RETURNING screenshot_path, log_path, page_path"

_OLD = "SELECT task_id FROM artifacts WHERE created_at < ? ORDER BY created_at LIMIT ?"
_ANY = "SELECT task_id FROM artifacts LIMIT ?"
_SUPERSEDED = """
SELECT a.task_id FROM artifacts AS a JOIN results AS r ON r.task_id = a.task_id JOIN tasks AS t ON t.task_id = a.task_id
WHERE t.status = 'completed' AND r.data IS NOT NULL LIMIT ?
"""


def add(db: sqlite3.Connection, row: tuple[Any, ...]) -> list[str] | None:
    """Returns the files of the task's earlier artifacts, None if there is no such task."""
    replaced = delete(db, row[0])
    return replaced if db.execute(_ADD, row).rowcount else None


def delete(db: sqlite3.Connection, task_id: str) -> list[str]:
    """Returns the files, which no row names any more."""
    # Paths in the row of a record are not failure artifacts.
    clear_paths = "UPDATE results SET screenshot_path = NULL, log_path = NULL WHERE task_id = ? AND data IS NULL"
    deleted = db.execute(_DELETE, (task_id,)).fetchall()
    if deleted:
        db.execute(clear_paths, (task_id,))
    return [path for row in deleted for path in row if path]


def delete_batch(db: sqlite3.Connection, before: str | None) -> list[list[str]]:
    """Deletes artifacts older than `before` (None: all) or superseded by a record. Returns the files of each task."""
    old = db.execute(_ANY, (_BATCH,)) if before is None else db.execute(_OLD, (before, _BATCH))
    ids = old.fetchall() or db.execute(_SUPERSEDED, (_BATCH,)).fetchall()
    return [delete(db, task_id) for (task_id,) in ids]


def get(db: sqlite3.Connection, task_id: str) -> StoredArtifacts | None:
    query = "SELECT screenshot_path, log_path, page_path, created_at FROM artifacts WHERE task_id = ?"
    row = db.execute(query, (task_id,)).fetchone()
    if row is None:
        return None
    return StoredArtifacts(screenshot_path=row[0], log_path=row[1], page_path=row[2], created_at=from_iso(row[3]))


def all_paths(db: sqlite3.Connection) -> set[str]:
    stored = db.execute("SELECT screenshot_path, log_path, page_path FROM artifacts")
    return {path for row in stored for path in row if path}


def size(db: sqlite3.Connection) -> int:
    """Returns the bytes on disk of all artifacts."""
    total: int = db.execute("SELECT coalesce(sum(bytes), 0) FROM artifacts").fetchone()[0]
    return total


MAX_SCREENSHOT_BYTES = 4 * 1024**2
MAX_LOG_BYTES = 256 * 1024
MAX_PAGE_BYTES = 4 * 1024**2
"""Of a compressed page."""

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpg"}
_FOLDER = "artifacts"
_PAGE = "html.gz"
_ENDINGS = (".png", ".jpg", ".log", ".gz", ".partial")


class StoredArtifacts(Struct, frozen=True, kw_only=True):
    """Paths are relative to the raw folder."""

    screenshot_path: str | None
    log_path: str | None
    page_path: str | None
    """Compressed with gzip."""
    created_at: datetime


class Artifacts:
    """The artifacts of each task's last failed attempt, until it has a record, they expire, or the store is full."""

    def __init__(self, database: LocalDatabase, root: Path, clock: Clock) -> None:
        self._db = database
        self._root = root
        self._clock = clock
        self._added: set[str] = set()
        """Tasks whose artifacts this process has stored: their claims may be older."""

    async def put(self, task_id: str, screenshot: bytes | None, log: str, page: bytes = b"") -> bool:
        """Replaces the task's earlier artifacts. Returns False if there is nothing to store, or no such task.

        A screenshot above MAX_SCREENSHOT_BYTES and a page above MAX_PAGE_BYTES are left out, a log above MAX_LOG_BYTES
        loses its middle. Raises InvalidInput for a screenshot that is neither PNG nor JPEG, and a StoreError.
        """
        contents = _contents(screenshot, log)
        if page and len(packed := await asyncio.to_thread(gzip.compress, page, mtime=0)) <= MAX_PAGE_BYTES:
            contents[_PAGE] = packed
        if not contents:
            return False
        paths = {ending: f"{_FOLDER}/{_name(task_id)}.{ending}" for ending in contents}
        image = next((path for ending, path in paths.items() if ending in _KINDS.values()), None)
        size = sum(map(on_disk, contents.values()))
        row = (task_id, image, paths.get("log"), paths.get(_PAGE), size, iso(self._clock.now()))
        await asyncio.to_thread(self._write, {paths[ending]: content for ending, content in contents.items()})
        replaced = await self._db.write_lossy(add, row)
        if replaced is None:
            await self.discard(paths.values())
            return False
        await self.discard(set(replaced) - set(paths.values()))
        self._added.add(task_id)
        return True

    async def get(self, task_id: str) -> StoredArtifacts | None:
        return await self._db.read(get, task_id)

    async def discard_superseded(self, claim: Claim) -> None:
        """Deletes the artifacts of failed attempts. Call it when the next one begins, and when there is a record."""
        task_id = claim.task.task_id
        with contextlib.suppress(StoreError):  # the next clean-up deletes those of a task with a record
            if claim.has_artifacts or task_id in self._added:
                self._added.discard(task_id)
                await self.discard(await self._db.write_lossy(delete, task_id))

    async def remove(self, before: datetime | None) -> int:
        """Deletes artifacts older than `before` (None: all) or superseded by a record. Returns the number of tasks."""
        moment = None if before is None else iso(before)
        total = 0
        while deleted := await self._db.write(delete_batch, moment):
            await self.discard(path for paths in deleted for path in paths)
            total += len(deleted)
        self._added.clear()
        return total

    async def remove_orphans(self, before: datetime) -> int:
        """Deletes older files that no row names, left by a crash or a restore. Returns how many."""
        old = await asyncio.to_thread(self._files, before.timestamp())
        if not old:
            return 0
        orphans = set(old) - await self._db.read(all_paths)
        await self.discard(orphans)
        return len(orphans)

    async def discard(self, paths: Iterable[str]) -> None:
        if unused := list(paths):
            await asyncio.to_thread(self._unlink, unused)

    def _write(self, contents: dict[str, bytes]) -> None:
        try:
            for path, content in contents.items():
                durable_files.replace(inside(self._root, path), content)
        except OSError as error:
            raise os_error(error, self._root / _FOLDER) from error

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                inside(self._root, path).unlink(missing_ok=True)

    def _files(self, before: float) -> list[str]:
        files = []
        for path in (self._root / _FOLDER).glob("*"):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if path.suffix in _ENDINGS and path.stat().st_mtime < before:
                    files.append(f"{_FOLDER}/{path.name}")
        return files


def _contents(screenshot: bytes | None, log: str) -> dict[str, bytes]:
    """Returns contents by file ending. Raises InvalidInput."""
    contents: dict[str, bytes] = {}
    if screenshot is not None:
        ending = next((ending for start, ending in _KINDS.items() if screenshot.startswith(start)), None)
        if ending is None:
            raise InvalidInput("a screenshot must be a PNG or a JPEG")
        if len(screenshot) <= MAX_SCREENSHOT_BYTES:
            contents[ending] = screenshot
        else:
            log += f"\n(the screenshot has {len(screenshot):,} bytes and was not kept)\n"
    if log:
        contents["log"] = _shortened(log.encode(errors="replace"))
    return contents


def _shortened(log: bytes) -> bytes:
    if len(log) <= MAX_LOG_BYTES:
        return log
    left_out = b"\n(... %d bytes are left out ...)\n" % (len(log) - MAX_LOG_BYTES)
    half = (MAX_LOG_BYTES - len(left_out)) // 2
    return log[:half] + left_out + log[-half:]


def _name(task_id: str) -> str:
    """Returns a file name that is unique even if the file system ignores case."""
    return f"{safe_name(task_id)}~{hashlib.sha256(task_id.encode(errors='replace')).hexdigest()[:8]}"
