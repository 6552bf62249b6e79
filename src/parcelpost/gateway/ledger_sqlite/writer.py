"""The one writer of this process: a thread with a connection. What waits is written in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct

from parcelpost.errors import LedgerUnavailable
from parcelpost.gateway.ledger_sqlite.connecting import connect, translate

P = ParamSpec("P")
T = TypeVar("T")

_MAX_GROUP = 64


class _Job(Struct):
    change: Callable[..., Any]
    args: tuple[Any, ...]
    future: asyncio.Future[Any]
    answer: Any = None


class Writer:
    """Group commit: one transaction and one fsync for all that wait. A change that fails fails alone."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="ledger writer", daemon=True)
        self._thread.start()

    async def run(self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """What `change(db, ...)` returned, once that is on disk. A cancelled caller leaves all of its change or none.

        The change touches nothing but the database.
        """
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        job = _Job(change, args, self._loop.create_future())
        self._jobs.put(job)
        return cast(T, await job.future)

    async def close(self) -> None:
        """Writes what waits, then ends."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        while group := self._next_group():
            self._write(group)
            self._loop.call_soon_threadsafe(_deliver, group)
        if self._db is not None:
            self._db.close()

    def _next_group(self) -> list[_Job]:
        group: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == _MAX_GROUP or self._jobs.empty():  # nobody else takes from it
                return group
            job = self._jobs.get()
        if group:
            self._jobs.put(None)
        return group

    def _write(self, group: list[_Job]) -> None:
        try:
            db = self._db = self._db or connect(self._path, self._busy_seconds)
            if not self._write_all(db, group):
                self._write_each(db, group)
        except Exception as error:  # noqa: BLE001 - nothing of the group was written: each of its callers is told
            self._drop_connection()
            for job in group:
                job.answer = translate(error, self._path)

    def _write_all(self, db: sqlite3.Connection, group: list[_Job]) -> bool:
        """False, and nothing was written, where a change fails."""
        db.execute("BEGIN IMMEDIATE")
        try:
            for job in group:
                job.answer = job.change(db, *job.args)
        except Exception:
            if not db.in_transaction:  # SQLite has rolled back everything by itself: a full or failing disk
                raise
            db.execute("ROLLBACK")
            return False
        db.execute("COMMIT")
        return True

    def _write_each(self, db: sqlite3.Connection, group: list[_Job]) -> None:
        """The same once more, and what fails is left out. Savepoints all along would cost every job two statements."""
        db.execute("BEGIN IMMEDIATE")
        for job in group:
            db.execute("SAVEPOINT job")
            try:
                job.answer = job.change(db, *job.args)
            except Exception as error:
                if not db.in_transaction:
                    raise
                db.execute("ROLLBACK TO job")
                job.answer = translate(error, self._path)
            db.execute("RELEASE job")
        db.execute("COMMIT")

    def _drop_connection(self) -> None:
        """After a failed commit nothing of this connection's state is trusted: the next group opens another."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _deliver(group: list[_Job]) -> None:
    for job in group:
        if job.future.done():
            continue  # its caller was cancelled
        if isinstance(job.answer, BaseException):
            job.future.set_exception(job.answer)
        else:
            job.future.set_result(job.answer)
