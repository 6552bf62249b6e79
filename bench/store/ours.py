"""The store itself, through the calls a worker makes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.store.contender import Contender, CoroutineSession, Durability, read_durability
from bench.store.work import Work
from bench.timing import Run
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import GIB, StoreOptions

OPTIONS = StoreOptions(max_bytes=64 * GIB, min_free_bytes=0)
"""The defaults, with room for a million tasks."""


def store_path(folder: Path) -> Path:
    return folder / "store" / "parcelpost.db"


class _OurSession(CoroutineSession):
    def __init__(self, work: Work, lpm: LocalPersistenceManager) -> None:
        super().__init__(work)
        self._lpm = lpm

    async def durability(self) -> Durability:
        return await self._lpm._db.write(read_durability)  # as its writer sees it in a group that must last

    async def put(self, number: int) -> None:
        await self._lpm.add_task(self._work.tasks[number])

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        await self._lpm.add_tasks(self._work.tasks)
        return Run(len(self._work), time.perf_counter() - start)

    async def take_and_save(self, number: int) -> None:
        (claim,) = await self._lpm.claim(1)
        await self._lpm.save_result(claim, self._work.results[number])


@asynccontextmanager
async def _open(folder: Path, work: Work) -> AsyncIterator[_OurSession]:
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        yield _OurSession(work, lpm)


OURS = Contender("parcelpost", "coroutines", "comes back at the next open", _open, peer=False)
