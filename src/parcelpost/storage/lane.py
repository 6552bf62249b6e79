"""One SQLite connection on one thread of aiosqlite's, on which functions of ours run.

aiosqlite has no public call that runs a function on its thread, but it calls `commit()` of a connection class that we
may choose: `Lane` makes that call run the next function. A whole function costs one hop between threads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from parcelpost.storage.sqlite_errors import translated

T = TypeVar("T")

PRAGMAS = (
    "PRAGMA foreign_keys = ON",  # a result without its task cannot be stored
    "PRAGMA temp_store = MEMORY",  # sorting never needs room on a full disk
    "PRAGMA secure_delete = OFF",  # Debian's default writes zeros over everything deleted
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves the bytes in the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA trusted_schema = OFF",  # a file from elsewhere runs no functions of its own
)


class Lane:
    """Functions run one after the other, in the order of the calls. Close it: its thread keeps the process alive."""

    def __init__(self, connection: aiosqlite.Connection, jobs: deque[Callable[[sqlite3.Connection], None]]) -> None:
        self._is_stopped = False
        self._connection = connection
        self._jobs = jobs

    @classmethod
    async def open(
        cls, path: Path, *, busy_timeout: float, pragmas: tuple[str, ...] = (), how: str = "mode=rw"
    ) -> Lane:
        """`how`: as a URI says it. Raises a StoreError that says what is wrong with the file."""
        jobs: deque[Callable[[sqlite3.Connection], None]] = deque()
        uri = f"{path.absolute().as_uri()}?{how}"

        class LaneConnection(sqlite3.Connection):
            def __init__(self, *_: Any, **kwargs: Any) -> None:
                super().__init__(":memory:", **kwargs)

            def commit(self) -> None:
                jobs.popleft()(self)

        def connect(db: sqlite3.Connection) -> None:
            # Here and not by aiosqlite: when connecting fails there, its thread outlives the call that failed.
            try:
                sqlite3.Connection.__init__(
                    db, uri, uri=True, timeout=busy_timeout, isolation_level=None, cached_statements=256
                )
            except sqlite3.Error:
                sqlite3.Connection.__init__(db, ":memory:")  # or it could not be closed
                raise
            for pragma in (*PRAGMAS, *pragmas):
                db.execute(pragma)

        lane = cls(await aiosqlite.connect(":memory:", factory=LaneConnection), jobs)
        try:
            with translated(path):
                await lane.run(connect)
        except BaseException:
            await lane.close()
            raise
        return lane

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        answer: list[T] = []
        self._jobs.append(lambda db: answer.append(function(db)))
        await self._connection.commit()
        return answer[0]

    async def close(self) -> None:
        if self._is_stopped:
            return
        try:
            await self._connection.close()
        except asyncio.CancelledError:
            self.stop()
            raise

    def stop(self) -> None:
        """Lets the thread close the connection and end, without waiting for it."""
        self._is_stopped = True
        self._connection.stop()
