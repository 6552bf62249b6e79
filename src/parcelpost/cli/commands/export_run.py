"""Runs an export from the store to files, and reports what was written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.options import (
    StoreContext,
    command_line,
)
from parcelpost.cli.output import count, moment, print_json, print_lines, printable, size
from parcelpost.cli.progress import Meter
from parcelpost.errors import InvalidInput
from parcelpost.export import destinations
from parcelpost.export.exporter import ExportOptions, ExportPlan, ExportResult, export
from parcelpost.export.tables import TABLES
from parcelpost.storage import export_queries
from parcelpost.storage.export_queries import ExportFilter, LastExport, Selected, select
from parcelpost.system import make_private


class ExportOrder(Struct, frozen=True, kw_only=True):
    what: ExportPlan
    wanted: ExportFilter
    receiver: str
    """Export only what is new for this recipient; '': export everything that matches."""
    replace: bool
    bom: bool = False
    guard: bool = True


class WrittenFile(Struct, frozen=True, kw_only=True):
    path: str
    tables: list[str]
    bytes: int


class ExportReport(Struct, frozen=True, kw_only=True):
    files: list[WrittenFile]
    results: int
    """The number of matching results."""
    rows: dict[str, int]
    notes: list[str]
    new_since: datetime | None = None
    """With --new: time of the previous export; None if this is the first."""


async def run_export(store: StoreContext, order: ExportOrder) -> ExportReport:
    """Raises ParcelpostError, also if nothing matches (except with --new)."""
    _refuse_store_files(store.path.resolve(), _paths(order.what))
    file, last = _last_export(store, order)
    if last is None:
        destinations.refuse_existing(_paths(order.what), replace=order.replace)
    wanted = order.wanted if last is None else replace(order.wanted, after=last.cursor)
    async with (
        open_for_reading(store) as database,
        Meter("exporting") as meter,
        select(database, wanted, CLOCK) as found,
    ):
        if last is not None and found.count:
            _refuse_previous_export(order)
        exported = await _export(found, order, meter, store) if found.count or not file else _nothing(order)
        if file is not None:
            export_queries.save(file, LastExport(cursor=found.cursor, wanted=order.wanted, at=CLOCK.now()))
        return _make_report(exported, order, found, last)


def _paths(what: ExportPlan) -> list[Path]:
    return [] if what.is_stdout else [what.folder / name for name in what.files]


def _refuse_previous_export(order: ExportOrder) -> None:
    """Raises InvalidInput if files of an earlier --new export would be replaced: no later export repeats their rows."""
    existing = next((path for path in _paths(order.what) if path.exists()), None)
    if existing is None or order.replace:
        return
    output = existing if len(order.what.files) == 1 else order.what.folder
    dated = output.with_stem(f"{output.stem}-{CLOCK.now():%Y-%m-%d}")
    raise InvalidInput(
        f"{existing} already exists and contains an earlier export",
        hint=f"use a different name for each export with --new, such as {dated}, or overwrite it with --force",
    )


def _refuse_store_files(store: Path, paths: list[Path]) -> None:
    """Raises InvalidInput, even with --force."""
    for path in map(Path.resolve, paths):
        if path.parent == store.parent and path.name.startswith(store.name):
            raise InvalidInput(f"{path} belongs to the store", hint="choose another file")


def _last_export(store: StoreContext, order: ExportOrder) -> tuple[Path | None, LastExport | None]:
    """The file that records the last export, and that export. Raises InvalidInput if its filters differ."""
    if not order.receiver:
        return None, None
    file = export_queries.file_of(store.path, order.receiver)
    last = export_queries.load(file)
    if last is not None and last.wanted != order.wanted:
        raise InvalidInput(
            f"the last export for {order.receiver} used different filters, so it is not known what is new",
            hint=f"use another name with --for, or remove {file} to start over with a full export",
        )
    make_private(file.parent)
    return file, last


async def _export(found: Selected, order: ExportOrder, meter: Meter, store: StoreContext) -> ExportResult:
    if not found.count:
        raise InvalidInput(
            "no stored results match", hint=f"'{command_line('results list', store)}' lists the stored results"
        )
    options = ExportOptions(now=CLOCK.now(), bom=order.bom, guard=order.guard)
    total = found.count
    return await export(
        found.pages(),
        order.what,
        options,
        replace=order.replace,
        progress=lambda done: meter(done, total),
        is_new_only=bool(order.receiver),
    )


def _nothing(order: ExportOrder) -> ExportResult:
    return ExportResult(files=[], rows={table.name: 0 for table in order.what.tables}, notes=[])


def _make_report(exported: ExportResult, order: ExportOrder, found: Selected, last: LastExport | None) -> ExportReport:
    return ExportReport(
        files=[
            WrittenFile(
                path=str(path),
                tables=[table.name for table in order.what.files[path.name]],
                bytes=path.stat().st_size,
            )
            for path in exported.files
        ],
        results=found.count,
        rows=exported.rows,
        notes=exported.notes,
        new_since=None if last is None else last.at,
    )


def print_report(done: ExportReport, order: ExportOrder, *, as_json: bool) -> None:
    """Prints to stdout, or to stderr if the export itself goes to stdout."""
    if as_json:
        print_json(done)
    elif order.what.is_stdout:
        print("\n".join(_lines(done, order)), file=sys.stderr)
    else:
        print_lines(_lines(done, order))


def _lines(done: ExportReport, order: ExportOrder) -> Iterator[str]:
    if not done.results:
        since = f" since {moment(done.new_since)}" if done.new_since else ""
        existing = next((path for path in _paths(order.what) if path.exists()), None)
        kept = f", and {existing} is unchanged" if existing else ""
        yield printable(
            f"Nothing new{since}." if order.what.is_stdout else f"Nothing new{since}: no file was written{kept}."
        )
        return
    for file in done.files:
        yield printable(f"{file.path}: {_counts(done, file.tables)} ({size(file.bytes)})")
    if order.what.is_stdout:
        yield _counts(done, list(done.rows))
    for note in done.notes:
        yield f"note: {note}"


def _counts(done: ExportReport, tables: list[str]) -> str:
    return ", ".join(count(done.rows[name], TABLES[name].one) for name in tables)
