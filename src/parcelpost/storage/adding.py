"""Adding any number of tasks in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Task
from parcelpost.storage import granting, rows, tasks
from parcelpost.storage.db import LocalDatabase

_CHUNK = 1_000
_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_NAMED = 100


class Added(Struct, frozen=True, kw_only=True):
    """What became of tasks that were to be added."""

    new: int = 0
    known: int = 0
    refused: int = 0
    refusals: tuple[tuple[str, str], ...] = ()
    """Task id and reason of the first hundred."""


async def add(
    database: LocalDatabase, many: Iterable[Task], clock: Clock, max_target_bytes: int, *, granted: bool = False
) -> Added:
    """The next chunk is made ready while the writer stores the one before."""
    insert = granting.add if granted else tasks.add
    refusals: list[tuple[str, str]] = []
    refused = new = total = 0

    def stored_rows() -> Iterator[tuple[Any, ...]]:
        nonlocal refused
        for task in many:
            try:
                yield rows.task_row(task, now, max_target_bytes)
            except InvalidInput as error:
                refused += 1
                if refused <= _MAX_NAMED:
                    refusals.append((str(task.task_id), str(error)))

    now = iso(clock.now())
    source = stored_rows()
    under_way: asyncio.Future[int] | None = None
    while chunk := _take(source):
        new += await under_way if under_way else 0
        under_way = database.start(insert, chunk)
        total += len(chunk)
        await clock.sleep(0)  # lets the writer take it
        now = iso(clock.now())
    new += await under_way if under_way else 0
    return Added(new=new, known=total - new, refused=refused, refusals=tuple(refusals))


def _take(source: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in source:
        chunk.append(row)
        size += len(row[7])
        if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
            break
    return chunk
