"""Failure artifacts: the screenshot and the log of a task's last attempt in a browser."""

from __future__ import annotations

import asyncio
import contextlib
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
INSERT INTO evidence (task_id, screenshot_path, log_path, bytes, created_at)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM tasks WHERE task_id = ?1)
"""
_DROP = "DELETE FROM evidence WHERE task_id = ? RETURNING screenshot_path, log_path"

_OLD = "SELECT task_id FROM evidence WHERE created_at < ? ORDER BY created_at LIMIT ?"
_ANY = "SELECT task_id FROM evidence LIMIT ?"
_OUTLIVED = """
SELECT e.task_id FROM evidence AS e JOIN results AS r ON r.task_id = e.task_id JOIN tasks AS t ON t.task_id = e.task_id
WHERE t.status = 'completed' AND r.data IS NOT NULL LIMIT ?
"""


def add(db: sqlite3.Connection, row: tuple[Any, ...]) -> list[str] | None:
    """Answers the files that the task had before. None: there is no such task."""
    before = drop_of(db, row[0])
    return before if db.execute(_ADD, row).rowcount else None


def drop_of(db: sqlite3.Connection, task_id: str) -> list[str]:
    """Answers the files, which nothing names any more."""
    # A record's own paths are not evidence, and stay.
    forget = "UPDATE results SET screenshot_path = NULL, log_path = NULL WHERE task_id = ? AND data IS NULL"
    gone = db.execute(_DROP, (task_id,)).fetchall()
    if gone:
        db.execute(forget, (task_id,))
    return [path for row in gone for path in row if path]


def drop(db: sqlite3.Connection, before: str | None) -> list[list[str]]:
    """A batch of what is older (None: of all) or has been outlived by a record: the files of each task."""
    old = db.execute(_ANY, (_BATCH,)) if before is None else db.execute(_OLD, (before, _BATCH))
    found = old.fetchall() or db.execute(_OUTLIVED, (_BATCH,)).fetchall()
    return [drop_of(db, task_id) for (task_id,) in found]


def get(db: sqlite3.Connection, task_id: str) -> tuple[str | None, str | None, str] | None:
    found = "SELECT screenshot_path, log_path, created_at FROM evidence WHERE task_id = ?"
    row: tuple[str | None, str | None, str] | None = db.execute(found, (task_id,)).fetchone()
    return row


def named(db: sqlite3.Connection) -> set[str]:
    """The files of all tasks."""
    return {path for row in db.execute("SELECT screenshot_path, log_path FROM evidence") for path in row if path}


def task_ids(db: sqlite3.Connection) -> set[str]:
    return {task_id for (task_id,) in db.execute("SELECT task_id FROM evidence")}


def size(db: sqlite3.Connection) -> int:
    """What all of it takes on disk."""
    total: int = db.execute("SELECT coalesce(sum(bytes), 0) FROM evidence").fetchone()[0]
    return total


MAX_SCREENSHOT_BYTES = 4 * 1024**2
MAX_LOG_BYTES = 256 * 1024

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpg"}
_FOLDER = "evidence"
_ENDINGS = (".png", ".jpg", ".log", ".partial")


class KeptArtifacts(Struct, frozen=True, kw_only=True):
    """Paths below the data folder."""

    screenshot_path: str | None
    log_path: str | None
    created_at: datetime


class Artifacts:
    """The last of each task. A record of the task, its time, or the storage cap makes an end of it."""

    def __init__(self, database: LocalDatabase, root: Path, clock: Clock) -> None:
        self._db = database
        self._root = root
        self._clock = clock
        self._known: set[str] | None = None

    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> bool:
        """Takes the place of what was kept of this task. False: there is nothing to keep, or no such task.

        A screenshot above MAX_SCREENSHOT_BYTES is left out, a log above MAX_LOG_BYTES loses its middle. Raises
        InvalidInput for a screenshot that is neither PNG nor JPEG, and a StoreError.
        """
        contents = _contents(screenshot, log)
        if not contents:
            return False
        paths = {ending: f"{_FOLDER}/{_name(task_id)}.{ending}" for ending in contents}
        image = next((path for ending, path in paths.items() if ending != "log"), None)
        size = sum(map(on_disk, contents.values()))
        row = (task_id, image, paths.get("log"), size, iso(self._clock.now()))
        await asyncio.to_thread(self._write, {paths[ending]: content for ending, content in contents.items()})
        replaced = await self._db.write_lossy(add, row)
        if replaced is None:
            await self.discard(paths.values())
            return False
        await self.discard(set(replaced) - set(paths.values()))
        (await self._load()).add(task_id)
        return True

    async def get(self, task_id: str) -> KeptArtifacts | None:
        return await self._db.read(artifact_paths, task_id)

    async def outlived_by(self, claim: Claim) -> None:
        """The task has its record: what its failures looked like is of no more use."""
        task_id = claim.task.task_id
        with contextlib.suppress(StoreError):  # then the next clean-up removes it
            known = await self._load() if self._known is None else self._known
            if claim.retries or task_id in known:  # with retries, a sister process may have put some
                known.discard(task_id)
                await self.discard(await self._db.write_lossy(drop_of, task_id))

    async def remove(self, before: datetime | None) -> int:
        """Of how many tasks: what was put before that moment (None: all), and what a record has outlived."""
        moment = None if before is None else iso(before)
        total = 0
        while gone := await self._db.write(drop, moment):
            await self.discard(path for paths in gone for path in paths)
            total += len(gone)
        self._known = None
        return total

    async def remove_orphans(self, before: datetime) -> int:
        """Files from before that moment that no row names: of a crash, or of a store that was restored."""
        old = await asyncio.to_thread(self._files, before.timestamp())
        if not old:
            return 0
        orphans = set(old) - await self._db.read(named)
        await self.discard(orphans)
        return len(orphans)

    async def discard(self, paths: Iterable[str]) -> None:
        if gone := list(paths):
            await asyncio.to_thread(self._unlink, gone)

    async def _load(self) -> set[str]:
        if self._known is None:
            self._known = await self._db.read(task_ids)
        return self._known

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
        found = []
        for path in (self._root / _FOLDER).glob("*"):
            with contextlib.suppress(FileNotFoundError):  # it may go while it is looked at
                if path.suffix in _ENDINGS and path.stat().st_mtime < before:
                    found.append(f"{_FOLDER}/{path.name}")
        return found


def artifact_paths(db: sqlite3.Connection, task_id: str) -> KeptArtifacts | None:
    row = get(db, task_id)
    return row and KeptArtifacts(screenshot_path=row[0], log_path=row[1], created_at=from_iso(row[2]))


def _contents(screenshot: bytes | None, log: str) -> dict[str, bytes]:
    """By file ending. Raises InvalidInput."""
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
    """Also where a file system does not tell capitals from small letters."""
    return f"{safe_name(task_id)}~{hashlib.sha256(task_id.encode(errors='replace')).hexdigest()[:8]}"
