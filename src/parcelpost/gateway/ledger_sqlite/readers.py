"""Reads, on a few threads with connections of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, LifoQueue
from typing import TypeVar

from parcelpost.gateway.ledger_sqlite.connecting import connect, translated

T = TypeVar("T")

_READERS = 3


class Readers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger reader")
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()

    async def run(self, look: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look, look)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        while not self._idle.empty():
            self._idle.get().close()

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            db = self._connection()
            try:
                return look(db)
            finally:
                self._idle.put(db)

    def _connection(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            pass
        db = connect(self._path)
        db.execute("PRAGMA query_only = ON")
        return db
