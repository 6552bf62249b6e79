"""The end of the demonstration: what the worker's store and the gateway have, side by side."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.checking import page_sha256
from parcelpost.cli.demo_files import Files
from parcelpost.cli.output import Cell
from parcelpost.cli.running import CLOCK, looking
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.raw_store import RawStore, open_raw_store
from parcelpost.gateway.words import ParcelFilter, TaskState
from parcelpost.model import OutboxEntry
from parcelpost.storage import outbox, queue_state
from parcelpost.storage.raw_names import inside

_PAGE_ROWS = 500
_MOST_VERSIONS = 10
_ANY = {"sync": None, "platform": None, "parcel_id": None, "success": None}


class Line(Struct, frozen=True):
    """What both sides have of one thing."""

    what: str
    worker: int
    gateway: int

    @property
    def is_same(self) -> bool:
        return self.worker == self.gateway

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.what, self.worker, self.gateway, "same" if self.is_same else "DIFFERENT"


class _Kept(Struct, frozen=True):
    """A result as one side has it."""

    content: str
    """The hash of its data."""
    page: str | None
    """The hash of its page, computed from the file itself."""


async def compare(files: Files, ledger: Ledger, tasks: int) -> list[Line]:
    async with looking(files.store) as database:
        depth = await database.read(queue_state.depth, CLOCK.now())
    here = {task_id: kept async for task_id, kept in _at_worker(files)}
    there: dict[str, list[_Kept]] = {}
    async for task_id, kept in _at_gateway(files, ledger):
        there.setdefault(task_id, []).append(kept)
    once = {task_id: kept[0] for task_id, kept in there.items() if len(kept) == 1}
    done = sum(row.tasks for row in await ledger.queue() if row.state is TaskState.DONE)
    contents = sum(task_id in once and once[task_id].content == kept.content for task_id, kept in here.items())
    with_page = {task_id: kept.page for task_id, kept in here.items() if kept.page is not None}
    pages = sum(task_id in once and once[task_id].page == page for task_id, page in with_page.items())
    return [
        Line("tasks ordered and done", tasks, done),
        Line("tasks done by the worker and at the gateway", depth.completed, done),
        Line("tasks with exactly one result", len(here), len(once)),
        Line("results with the same content hash", len(here), contents),
        Line("pages with the same hash", len(with_page), pages),
        Line("results still to deliver", depth.unsynced + depth.rejected, 0),
    ]


async def _at_worker(files: Files) -> AsyncIterator[tuple[str, _Kept]]:
    root = files.store.parent / "data"
    async with looking(files.store) as database:
        after = 0
        while page := await database.read(outbox.search, _ANY, _PAGE_ROWS, after):
            after = page[-1].seq
            for entry, kept in zip(page, await asyncio.to_thread(_kept, root, page), strict=True):
                yield entry.task_id, kept


def _kept(root: Path, entries: list[OutboxEntry]) -> list[_Kept]:
    return [
        _Kept(_sha256(entry.data or b""), page_sha256(inside(root, entry.html_path)) if entry.html_path else None)
        for entry in entries
    ]


async def _at_gateway(files: Files, ledger: Ledger) -> AsyncIterator[tuple[str, _Kept]]:
    raw = open_raw_store(str(files.raw), {})
    after = None
    while rows := await ledger.parcels(ParcelFilter(), after, _PAGE_ROWS):
        after = rows[-1].parcel
        for row in rows:
            for version in await ledger.versions(row.parcel, _MOST_VERSIONS):
                page = await _raw_page(raw, version.raw_sha256) if version.raw_sha256 else None
                yield version.task_id, _Kept(_sha256(version.data), page)


async def _raw_page(raw: RawStore, sha256: str) -> str | None:
    """The hash of what the gateway really holds under that one."""
    page = await raw.open(sha256)
    if page is None:
        return None
    return _sha256(gzip.decompress(b"".join([chunk async for chunk in page.chunks])))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
