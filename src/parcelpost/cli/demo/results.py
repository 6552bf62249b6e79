"""Results of the demo: its files, two spreadsheets, and the comparison of the worker's store with the gateway."""

from __future__ import annotations

import asyncio
import csv
import gzip
import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.commands.export import ExportOrder, run_export
from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.store_files import page_sha256
from parcelpost.cli.output import Cell, count, fields, table
from parcelpost.cli.settings_options import StoreContext
from parcelpost.errors import InvalidInput
from parcelpost.export import Format
from parcelpost.export.exporter import plan_export
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ParcelFilter, TaskState
from parcelpost.model import OutboxEntry
from parcelpost.object_store import RawStore, open_raw_store
from parcelpost.settings import Settings
from parcelpost.storage import queries
from parcelpost.storage.export_queries import ExportFilter
from parcelpost.storage.operator_actions import Selection, results_page, tasks_page
from parcelpost.storage.raw_files import inside, raw_folder


class DemoFiles(Struct, frozen=True):
    folder: Path

    @property
    def counties(self) -> Path:
        return self.folder / "counties.toml"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.csv"

    @property
    def outline(self) -> Path:
        return self.folder / "outline.geojson"

    @property
    def ledger(self) -> Path:
        return self.folder / "gateway" / "gateway.db"

    @property
    def raw(self) -> Path:
        return self.folder / "gateway" / "raw"

    @property
    def store(self) -> StoreContext:
        return StoreContext(self.folder / "worker" / "parcelpost.db", Settings())

    @property
    def parcels(self) -> Path:
        return self.folder / "parcels.csv"

    @property
    def liens(self) -> Path:
        return self.folder / "liens.csv"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def make(self) -> None:
        """Creates the folders. Raises InvalidInput unless the folder is new or empty."""
        hint = "choose another folder with --dir"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.store.path.exists() or self.ledger.exists():
                raise InvalidInput(f"{self.folder} already contains a demo", hint=hint)
            if any(self.folder.iterdir()):
                raise InvalidInput(f"{self.folder} is not empty", hint=hint)
            for part in (self.ledger, self.store.path):
                part.parent.mkdir(mode=0o700)
        except FileExistsError:
            raise InvalidInput(f"{self.folder} is not a folder", hint=hint) from None
        except OSError as error:
            raise InvalidInput(f"cannot use {self.folder}: {error.strerror or error}", hint=hint) from None

    def keep_spreadsheets_only(self) -> None:
        """Without spreadsheets, the folder is removed, too."""
        for part in self.folder.iterdir():
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            elif part not in (self.parcels, self.liens):
                part.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def summary(self, *, keeps_all: bool) -> list[str]:
        pairs = [("spreadsheets", f"{self.parcels}, {self.liens}")]
        if keeps_all:
            logs = ", ".join(str(self.log(name)) for name in ("county", "add", "gateway", "worker"))
            pairs += [
                ("worker store", f"{self.store.path}, pages in {self.store.path.parent / 'data'}"),
                ("gateway ledger", f"{self.ledger}, pages in {self.raw}"),
                ("input", f"{self.counties}, {self.tasks}, {self.outline}"),
                ("logs", logs),
            ]
        return fields(pairs)


_MAX_CHARS = 22
"""Width of a cell in the preview."""


class Sheet(Struct, frozen=True, kw_only=True):
    """How a spreadsheet is previewed."""

    noun: str
    columns: Mapping[str, str]
    """Name in the file -> heading: as many as fit 80 characters."""
    money: frozenset[str]
    rows: int
    """Shown of each platform."""


PARCELS = Sheet(
    noun="parcel",
    columns={
        "platform": "platform",
        "parcel_id": "parcel",
        "owner_names": "owner",
        "market_value": "market value",
        "lien_count": "liens",
    },
    money=frozenset({"market_value"}),
    rows=2,
)
LIENS = Sheet(
    noun="lien",
    columns={
        "platform": "platform",
        "parcel_id": "parcel",
        "certificate_number": "number",
        "sale_date": "sold",
        "face_amount": "amount",
        "status": "status",
    },
    money=frozenset({"face_amount"}),
    rows=3,
)


async def save_sheets(store: StoreContext, folder: Path) -> None:
    """Writes parcels.csv and liens.csv. Raises ParcelpostError."""
    plan = plan_export(f"{folder}/", Format.CSV, None)
    await run_export(store, ExportOrder(plan=plan, wanted=ExportFilter(), receiver="", replace=True))


def preview_sheet(sheet: Sheet, file: Path) -> list[str]:
    """Returns how many rows it has, and the first ones of each platform."""
    shown: dict[str, list[Mapping[str, str]]] = {}
    rows = 0
    with file.open(encoding="utf-8", newline="") as opened:
        for row in csv.DictReader(opened):
            rows += 1
            of_platform = shown.setdefault(row["platform"], [])
            if len(of_platform) < sheet.rows:
                of_platform.append(row)
    first = [row for of_platform in shown.values() for row in of_platform]
    columns = [_column(sheet, name, [row[name] for row in first]) for name in sheet.columns]
    body = zip(*columns, strict=True)
    title = f"{file.name}: {count(rows, sheet.noun)}. The first rows of each platform:"
    return [title, *table(list(sheet.columns.values()), body)]


def _column(sheet: Sheet, name: str, texts: list[str]) -> list[str]:
    """Money has commas and is aligned right; long text is cut."""
    if name not in sheet.money:
        return [text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…" for text in texts]
    amounts = [f"{Decimal(text):,.2f}" if text else "" for text in texts]
    width = max(map(len, [sheet.columns[name], *amounts]))
    return [amount.rjust(width) for amount in amounts]


_PAGE_ROWS = 500
_MAX_VERSIONS = 10


class ComparisonRow(Struct, frozen=True):
    """One count on both sides."""

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
    """A record on one side."""

    content: str
    """The hash of its data."""
    page: str | None
    """The hash of its page, computed from the file itself."""


async def compare(files: DemoFiles, ledger: Ledger, queued: int) -> list[ComparisonRow]:
    async with open_for_reading(files.store) as database:
        depth = await database.read(queries.depth, CLOCK.now())
    ended: Counter[TaskState] = Counter()
    for row in await ledger.queue():
        ended[row.state] += row.tasks
    done, failed = ended[TaskState.DONE], ended[TaskState.FAILED]
    return [
        ComparisonRow("tasks queued, tasks finished", queued, done + failed),
        ComparisonRow("tasks completed", depth.completed, done),
        ComparisonRow("tasks failed (the site kept failing)", depth.failed, failed),
        *_same_records(await _at_worker(files), await _at_gateway(files, ledger)),
        ComparisonRow("results not delivered", depth.unsynced + depth.rejected, 0),
    ]


async def count_retried(files: DemoFiles) -> int:
    """Returns how many tasks took more than one attempt because of a site's errors."""
    retried, after = 0, 0
    async with open_for_reading(files.store) as database:
        while page := await database.read(tasks_page, Selection(), _PAGE_ROWS, after):
            after = page[-1].seq
            retried += sum(task.retries > 0 for task in page)
    return retried


def _same_records(here: Mapping[str, _StoredRecord], there: Mapping[str, list[_StoredRecord]]) -> list[ComparisonRow]:
    once = {task_id: kept[0] for task_id, kept in there.items() if len(kept) == 1}
    contents = sum(task_id in once and once[task_id].content == kept.content for task_id, kept in here.items())
    pages = {task_id: kept.page for task_id, kept in here.items() if kept.page is not None}
    same_pages = sum(task_id in once and once[task_id].page == page for task_id, page in pages.items())
    return [
        ComparisonRow("records, each exactly once", len(here), len(once)),
        ComparisonRow("records with the same content", len(here), contents),
        ComparisonRow("records with the same raw page", len(pages), same_pages),
    ]


async def _at_worker(files: DemoFiles) -> Mapping[str, _StoredRecord]:
    """Records by task id; each record of a list has its own task."""
    root = raw_folder(files.store.path)
    records: dict[str, _StoredRecord] = {}
    pages: dict[str, str | None] = {}
    async with open_for_reading(files.store) as database:
        after = 0
        while entries := await database.read(results_page, Selection(), _PAGE_ROWS, after):
            after = entries[-1].seq
            entries = [entry for entry in entries if entry.success]
            await asyncio.to_thread(_hash_pages, root, entries, pages)
            for entry in entries:
                records[entry.task_id] = _StoredRecord(_sha256(entry.data or b""), pages.get(entry.html_path or ""))
    return records


def _hash_pages(root: Path, entries: list[OutboxEntry], pages: dict[str, str | None]) -> None:
    """Hashes each page once: the records of a list share one page."""
    for path in {entry.html_path for entry in entries if entry.html_path} - pages.keys():
        pages[path] = page_sha256(inside(root, path))


async def _at_gateway(files: DemoFiles, ledger: Ledger) -> Mapping[str, list[_StoredRecord]]:
    raw = open_raw_store(str(files.raw), {})
    records: dict[str, list[_StoredRecord]] = {}
    pages: dict[str, str | None] = {}
    after = None
    while rows := await ledger.parcels(ParcelFilter(), after, _PAGE_ROWS):
        after = rows[-1].parcel
        for source in (source for row in rows for source in row.sources):
            for version in await ledger.versions(source.source, _MAX_VERSIONS):
                sha256 = version.raw_sha256
                if sha256 and sha256 not in pages:
                    pages[sha256] = await _raw_page(raw, sha256)
                kept = _StoredRecord(_sha256(version.data), pages.get(sha256 or ""))
                records.setdefault(version.task_id, []).append(kept)
    return records


async def _raw_page(raw: RawStore, sha256: str) -> str | None:
    """Returns the hash of the page that the gateway holds under this name."""
    page = await raw.open(sha256)
    if page is None:
        return None
    return _sha256(gzip.decompress(b"".join([chunk async for chunk in page.chunks])))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
