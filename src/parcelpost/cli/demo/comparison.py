"""Compares what the worker's store and the gateway hold at the end of the demo."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.demo.output_files import DemoFiles
from parcelpost.cli.health.integrity import page_sha256
from parcelpost.cli.output import Cell
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ParcelFilter, TaskState
from parcelpost.model import OutboxEntry
from parcelpost.raw_store import RawStore, open_raw_store
from parcelpost.storage import queries
from parcelpost.storage.admin import Selection, results_page, tasks_page
from parcelpost.storage.raw_files import inside, raw_folder

_PAGE_ROWS = 500
_MOST_VERSIONS = 10


class ComparisonRow(Struct, frozen=True):
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


class _StoredRecord(Struct, frozen=True):
    """A record as one side has it."""

    content: str
    """The hash of its data."""
    page: str | None
    """The hash of its page, computed from the file itself."""


async def compare(files: DemoFiles, ledger: Ledger, ordered: int) -> list[ComparisonRow]:
    async with open_for_reading(files.store) as database:
        depth = await database.read(queries.depth, CLOCK.now())
    ended: Counter[TaskState] = Counter()
    for row in await ledger.queue():
        ended[row.state] += row.tasks
    done, failed = ended[TaskState.DONE], ended[TaskState.FAILED]
    return [
        ComparisonRow("tasks ordered, and ended", ordered, done + failed),
        ComparisonRow("tasks done", depth.completed, done),
        ComparisonRow("tasks given up, as a site kept failing", depth.failed, failed),
        *_same_records(await _at_worker(files), await _at_gateway(files, ledger)),
        ComparisonRow("records still to deliver", depth.unsynced + depth.rejected, 0),
    ]


async def count_retried(files: DemoFiles) -> int:
    """How many tasks took more than one attempt because of a site's errors."""
    found, after = 0, 0
    async with open_for_reading(files.store) as database:
        while page := await database.read(tasks_page, Selection(), _PAGE_ROWS, after):
            after = page[-1].seq
            found += sum(task.retries > 0 for task in page)
    return found


def _same_records(here: Mapping[str, _StoredRecord], there: Mapping[str, list[_StoredRecord]]) -> list[ComparisonRow]:
    once = {task_id: kept[0] for task_id, kept in there.items() if len(kept) == 1}
    contents = sum(task_id in once and once[task_id].content == kept.content for task_id, kept in here.items())
    pages = {task_id: kept.page for task_id, kept in here.items() if kept.page is not None}
    same_pages = sum(task_id in once and once[task_id].page == page for task_id, page in pages.items())
    return [
        ComparisonRow("records, each there exactly once", len(here), len(once)),
        ComparisonRow("records with the same content hash", len(here), contents),
        ComparisonRow("records whose page has the same hash", len(pages), same_pages),
    ]


async def _at_worker(files: DemoFiles) -> Mapping[str, _StoredRecord]:
    """By task; each record of a list has a task of its own."""
    root = raw_folder(files.store.path)
    found: dict[str, _StoredRecord] = {}
    pages: dict[str, str | None] = {}
    async with open_for_reading(files.store) as database:
        after = 0
        while entries := await database.read(results_page, Selection(), _PAGE_ROWS, after):
            after = entries[-1].seq
            entries = [entry for entry in entries if entry.success]
            await asyncio.to_thread(_hash_pages, root, entries, pages)
            for entry in entries:
                found[entry.task_id] = _StoredRecord(_sha256(entry.data or b""), pages.get(entry.html_path or ""))
    return found


def _hash_pages(root: Path, entries: list[OutboxEntry], pages: dict[str, str | None]) -> None:
    """The records of a list share one page."""
    for path in {entry.html_path for entry in entries if entry.html_path} - pages.keys():
        pages[path] = page_sha256(inside(root, path))


async def _at_gateway(files: DemoFiles, ledger: Ledger) -> Mapping[str, list[_StoredRecord]]:
    raw = open_raw_store(str(files.raw), {})
    found: dict[str, list[_StoredRecord]] = {}
    pages: dict[str, str | None] = {}
    after = None
    while rows := await ledger.parcels(ParcelFilter(), after, _PAGE_ROWS):
        after = rows[-1].parcel
        for row in rows:
            for version in await ledger.versions(row.parcel, _MOST_VERSIONS):
                sha256 = version.raw_sha256
                if sha256 and sha256 not in pages:
                    pages[sha256] = await _raw_page(raw, sha256)
                kept = _StoredRecord(_sha256(version.data), pages.get(sha256 or ""))
                found.setdefault(version.task_id, []).append(kept)
    return found


async def _raw_page(raw: RawStore, sha256: str) -> str | None:
    """The hash of what the gateway really holds under that one."""
    page = await raw.open(sha256)
    if page is None:
        return None
    return _sha256(gzip.decompress(b"".join([chunk async for chunk in page.chunks])))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
