"""Rows into the store, a chunk at a time: the next is read while the one before is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from parcelpost.cli.importing import tasks
from parcelpost.cli.importing.columns import Columns
from parcelpost.cli.importing.readers import Bad, Reader, Row
from parcelpost.cli.importing.source import Source, reading
from parcelpost.cli.output import count, size
from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput, StoreFull
from parcelpost.model import Task
from parcelpost.storage import rows as stored
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 4 * 1024 * 1024
_CHUNKS_A_LOOK = 10
_SHOWN_BAD = 20


class Tally:
    """What became of the rows so far."""

    def __init__(self, note: Callable[[Bad], None]) -> None:
        self._note = note
        self.new = 0
        self.known = 0
        self.bad = 0
        self.first_bad: list[Bad] = []

    @property
    def read(self) -> int:
        return self.new + self.known + self.bad

    def add_bad(self, bad: list[Bad]) -> None:
        self.bad += len(bad)
        self.first_bad += bad[: _SHOWN_BAD - len(self.first_bad)]
        for one in bad:
            self._note(one)


class _Chunk(NamedTuple):
    tasks: list[tuple[int, Task]]
    """Each with its row's number."""
    bad: list[Bad]


class Importer:
    def __init__(self, source: Source, reader: Reader, columns: Columns) -> None:
        self._source = source
        self._reader = reader
        self._columns = columns
        self._rows = iter(reader)

    def begin(self, most: int) -> list[Row | Bad]:
        """The first few rows. They are imported with the others."""
        with reading(self._source.name):
            first = [row for _, row in zip(range(most), self._rows, strict=False)]
        self._rows = chain(first, self._rows)
        return first

    async def run(
        self,
        lpm: LocalPersistenceManager,
        tally: Tally,
        options: StoreOptions,
        clock: Clock,
        progress: Callable[[int, int | None], None],
    ) -> None:
        """Stores them all. What is stored stays, whatever ends this early; to import again goes on from there.

        Raises InvalidInput for a file that cannot be read to its end, StoreFull at the store's cap (I8).
        """
        try:
            chunk = await asyncio.to_thread(self._take)
            chunks = 0
            while chunk.tasks or chunk.bad:
                if chunks % _CHUNKS_A_LOOK == 0:
                    await _require_room(lpm, tally)
                chunks += 1
                storing = _store(lpm, chunk, tally, options, clock)
                chunk, _ = await asyncio.gather(asyncio.to_thread(self._take), storing)
                progress(self._source.done, self._source.total)
        finally:
            self._source.stop()

    def _take(self) -> _Chunk:
        chunk = _Chunk([], [])
        enough = self._reader.bytes + _CHUNK_BYTES
        with reading(self._source.name):
            for row in self._rows:
                found = tasks.task_or_bad(row, self._columns)
                if isinstance(found, Bad):
                    chunk.bad.append(found)
                else:
                    chunk.tasks.append((row.number, found))
                if len(chunk.tasks) + len(chunk.bad) >= _CHUNK_ROWS or self._reader.bytes > enough:
                    break
        return chunk


async def _store(
    lpm: LocalPersistenceManager, chunk: _Chunk, tally: Tally, options: StoreOptions, clock: Clock
) -> None:
    added = await lpm.add_tasks(task for _, task in chunk.tasks)
    refused = _refused(chunk.tasks, options, clock) if added.refused else []
    clashes = await _clashes(lpm, chunk.tasks) if added.known else []
    tally.new += added.new
    tally.known += added.known - len(clashes)
    tally.add_bad(sorted([*chunk.bad, *refused, *clashes]))


async def _require_room(lpm: LocalPersistenceManager, tally: Tally) -> None:
    """Tasks may fill the store no further than a collector may: there must be room for their results."""
    usage = await lpm.janitor.usage()
    if usage.level is not Level.FINE:
        raise StoreFull(
            f"the store is nearly full ({size(usage.total)} of at most {size(usage.max_bytes)}, "
            f"{size(usage.disk_free)} free on the disk): stopped after {count(tally.read, 'row')}",
            hint="make room with 'parcelpost store clean --relieve', then import again: it goes on from there",
        )


def _refused(numbered: list[tuple[int, Task]], options: StoreOptions, clock: Clock) -> Iterator[Bad]:
    """Which of them the store will not take, and why."""
    now = iso(clock.now())
    for number, task in numbered:
        try:
            stored.task_row(task, now, options.max_target_bytes)
        except InvalidInput as error:
            yield Bad(number, str(error))


async def _clashes(lpm: LocalPersistenceManager, numbered: list[tuple[int, Task]]) -> list[Bad]:
    """Rows whose own task id is in use for another parcel. A derived id cannot be."""
    named = [(n, task) for n, task in numbered if task.task_id != tasks.derived_id(task.platform, task.target)]
    infos = await asyncio.gather(*(lpm.get_task(task.task_id) for _, task in named))
    return [
        Bad(number, f"task id {task.task_id!r} is that of parcel {info.task.target.parcel_id!r} already")
        for (number, task), info in zip(named, infos, strict=True)
        if info is not None and not tasks.is_same(info.task, task)
    ]
