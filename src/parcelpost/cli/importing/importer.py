"""Rows become tasks, a chunk at a time: the next is read while the one before is taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, Protocol

from parcelpost.cli.importing import tasks
from parcelpost.cli.importing.columns import Columns
from parcelpost.cli.importing.readers import Bad, Reader, Row
from parcelpost.cli.importing.source import Source, reading
from parcelpost.model import Task

_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 4 * 1024 * 1024
_SHOWN_BAD = 20


class Numbered(NamedTuple):
    """A task with its row's number."""

    number: int
    task: Task


class Taken(NamedTuple):
    """What became of a chunk of tasks."""

    new: int
    known: int
    """Were there already; nothing about them has changed."""
    refused: list[Bad]


class Sink(Protocol):
    """Where tasks go: a worker's store or a gateway's ledger."""

    async def add(self, numbered: list[Numbered]) -> Taken:
        """What it has answered for is safe there. Raises a ParcelpostError if it can take no more."""


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
    tasks: list[Numbered]
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

    async def run(self, sink: Sink, tally: Tally, progress: Callable[[int, int | None], None]) -> None:
        """Brings them all in. What is in stays, whatever ends this early; to import again goes on from there.

        Raises InvalidInput for a file that cannot be read to its end, and what the sink raises.
        """
        try:
            chunk = await asyncio.to_thread(self._take)
            while chunk.tasks or chunk.bad:
                coming_in = asyncio.ensure_future(_bring_in(sink, chunk, tally))
                try:
                    chunk, _ = await asyncio.gather(asyncio.to_thread(self._take), asyncio.shield(coming_in))
                finally:  # an interrupt lets that come in which has begun to: what the tally says is what is there
                    await asyncio.wait({coming_in})
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
                    chunk.tasks.append(Numbered(row.number, found))
                if len(chunk.tasks) + len(chunk.bad) >= _CHUNK_ROWS or self._reader.bytes > enough:
                    break
        return chunk


async def _bring_in(sink: Sink, chunk: _Chunk, tally: Tally) -> None:
    taken = await sink.add(chunk.tasks)
    tally.new += taken.new
    tally.known += taken.known
    tally.add_bad(sorted([*chunk.bad, *taken.refused]))
