"""Imports rows in chunks into a worker's store or a gateway's ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import NamedTuple, Protocol

from parcelpost.cli.importer import task_rows
from parcelpost.cli.importer.readers import BadRow, Reader, Row
from parcelpost.cli.importer.source import Source, read_errors
from parcelpost.cli.importer.task_rows import Columns
from parcelpost.cli.output import count, size
from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput, StoreFull
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.model import Task
from parcelpost.protocol.server import check_deliverable
from parcelpost.storage import rows
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 4 * 1024 * 1024
_SHOWN_BAD = 20


class NumberedTask(NamedTuple):
    """A task and the number of its row."""

    number: int
    task: Task


class ChunkResult(NamedTuple):
    """Result of adding a chunk of tasks."""

    new: int
    known: int
    """Already existed; left unchanged."""
    refused: list[BadRow]


class Sink(Protocol):
    """Destination of the tasks: a worker's store or a gateway's ledger."""

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """The tasks are durable once this returns. Raises ParcelpostError if no more can be added."""


class ImportCounts:
    """Counts of the rows processed so far."""

    def __init__(self, note: Callable[[BadRow], None]) -> None:
        self._note = note
        self.new = 0
        self.known = 0
        self.bad = 0
        self.first_bad: list[BadRow] = []

    @property
    def read(self) -> int:
        return self.new + self.known + self.bad

    def add_bad(self, bad: list[BadRow]) -> None:
        self.bad += len(bad)
        self.first_bad += bad[: _SHOWN_BAD - len(self.first_bad)]
        for one in bad:
            self._note(one)


class _Chunk(NamedTuple):
    tasks: list[NumberedTask]
    bad: list[BadRow]


class Importer:
    def __init__(self, source: Source, reader: Reader, columns: Columns) -> None:
        self._source = source
        self._reader = reader
        self._columns = columns
        self._rows = iter(reader)

    def begin(self, most: int) -> list[Row | BadRow]:
        """Returns the first few rows, which `run` imports with the others."""
        with read_errors(self._source.name):
            first = [row for _, row in zip(range(most), self._rows, strict=False)]
        self._rows = chain(first, self._rows)
        return first

    async def run(self, sink: Sink, tally: ImportCounts, progress: Callable[[int, int | None], None]) -> None:
        """Imports all rows. If it ends early, what was stored stays; importing the file again continues from there.

        Raises InvalidInput if the file is incomplete or damaged, and whatever the sink raises.
        """
        try:
            chunk = await asyncio.to_thread(self._take)
            while chunk.tasks or chunk.bad:
                storing = asyncio.ensure_future(_store_chunk(sink, chunk, tally))
                try:
                    chunk, _ = await asyncio.gather(asyncio.to_thread(self._take), asyncio.shield(storing))
                finally:  # on an interrupt, wait for the chunk being stored, so that the counts match the store
                    await asyncio.wait({storing})
                progress(self._source.done, self._source.total)
        finally:
            self._source.stop()

    def _take(self) -> _Chunk:
        chunk = _Chunk([], [])
        enough = self._reader.bytes + _CHUNK_BYTES
        with read_errors(self._source.name):
            for row in self._rows:
                found = task_rows.task_or_bad(row, self._columns)
                if isinstance(found, BadRow):
                    chunk.bad.append(found)
                else:
                    chunk.tasks.append(NumberedTask(row.number, found))
                if len(chunk.tasks) + len(chunk.bad) >= _CHUNK_ROWS or self._reader.bytes > enough:
                    break
        return chunk


async def _store_chunk(sink: Sink, chunk: _Chunk, tally: ImportCounts) -> None:
    result = await sink.add(chunk.tasks)
    tally.new += result.new
    tally.known += result.known
    tally.add_bad(sorted([*chunk.bad, *result.refused]))


_CHUNKS_PER_CHECK = 10


class StoreSink:
    def __init__(self, lpm: LocalPersistenceManager, options: StoreOptions, clock: Clock) -> None:
        self._lpm = lpm
        self._options = options
        self._clock = clock
        self._chunks = 0
        self._stored = 0

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """Raises StoreFull at the store's cap (I8)."""
        if self._chunks % _CHUNKS_PER_CHECK == 0:
            await self._require_room()
        self._chunks += 1
        added = await self._lpm.add_tasks(one.task for one in numbered)
        self._stored += added.new + added.known
        refused = _refusals(numbered, self._clock, self._options.max_target_bytes) if added.refused else []
        clashes = await _clashes(numbered, self._find) if added.known else []
        return ChunkResult(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        info = await self._lpm.get_task(task_id)
        return info.task if info else None

    async def _require_room(self) -> None:
        """Applies the same limit as the collector: results need room too."""
        usage = await self._lpm.maintenance.usage()
        if usage.level is Level.FINE:
            return
        stopped = f"stopped after {count(self._stored, 'task')}"
        if usage.lacks_inodes:
            raise StoreFull(
                f"the disk has almost no free inodes ({usage.free_inodes:,}; {2 * usage.min_free_inodes:,} are "
                f"reserved for results): {stopped}",
                hint="remove files from that disk (check with 'df -i'), then import again to continue",
            )
        if usage.lacks_disk:
            raise StoreFull(
                f"the disk is nearly full ({size(usage.disk_free)} free; {size(2 * usage.min_free_bytes)} are reserved "
                f"for results): {stopped}",
                hint="free some disk space, then import again to continue",
            )
        raise StoreFull(
            f"the store is nearly full ({size(usage.total)} of at most {size(usage.max_bytes)}): {stopped}",
            hint="make room with 'parcelpost store clean --relieve', then import again to continue",
        )


class LedgerSink:
    """Rejects tasks that a worker's store would reject, or whose results the gateway would reject."""

    def __init__(self, ledger: Ledger, clock: Clock, max_target_bytes: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._max_target_bytes = max_target_bytes

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """Raises LedgerUnavailable."""
        refused = _refusals(numbered, self._clock, self._max_target_bytes, check_deliverable)
        numbers = {one.number for one in refused}
        fit = [one for one in numbered if one.number not in numbers] if numbers else numbered
        added = await self._ledger.add_tasks([one.task for one in fit], self._clock.now())
        clashes = await _clashes(fit, self._find) if added.known else []
        return ChunkResult(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        row = await self._ledger.task(task_id)
        return row.task if row else None


def _refusals(
    numbered: list[NumberedTask], clock: Clock, max_target_bytes: int, check: Callable[[Task], None] = lambda _: None
) -> list[BadRow]:
    """Rows that a store would reject or that `check` raises InvalidInput for, with the reason."""
    now = iso(clock.now())
    found = []
    for number, task in numbered:
        try:
            rows.task_row(task, now, max_target_bytes)
            check(task)
        except InvalidInput as error:
            found.append(BadRow(number, str(error)))
    return found


async def _clashes(numbered: list[NumberedTask], find: Callable[[str], Awaitable[Task | None]]) -> list[BadRow]:
    """Rows whose explicit task ID already belongs to another parcel. Derived IDs cannot clash."""
    named = [one for one in numbered if one.task.task_id != task_rows.derived_id(one.task.platform, one.task.target)]
    found = await asyncio.gather(*(find(one.task.task_id) for one in named))
    return [
        BadRow(number, f"task ID {task.task_id!r} already belongs to parcel {known.target.parcel_id!r}")
        for (number, task), known in zip(named, found, strict=True)
        if known is not None and not task_rows.is_same_parcel(known, task)
    ]
