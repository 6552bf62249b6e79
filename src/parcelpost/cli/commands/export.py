"""`parcelpost export`: writes records from the store to files, and reports what was written."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.output import count, examples, moment, print_json, print_lines, printable, size
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    command_line,
    store_context,
)
from parcelpost.errors import InvalidInput
from parcelpost.export import Format

if TYPE_CHECKING:
    from parcelpost.cli.progress import Meter
    from parcelpost.export.changes import ChangesFilter
    from parcelpost.export.exporter import ExportPlan, ExportResult, Pages
    from parcelpost.storage.export_queries import ExportFilter, LastExport, Selected


EXAMPLES = examples(
    "parcelpost export parcels.xlsx",
    "parcelpost export handover/ --format csv --state FL",
    "parcelpost export map.gpkg --platform vgsi --since 2026-11-01",
    "parcelpost export parcels.parquet --changed-since 2026-11-15T06:00:00Z",
    "parcelpost export today.csv --new --for acme",
    "parcelpost export - --tables liens | jq .lien.face_amount",
    "parcelpost export changes.csv --changes --since 7d --kind lien --kind owner.changed",
)


class Status(StrEnum):
    RECORD = "record"
    NOT_FOUND = "not_found"
    FAILED = "failed"
    ANY = "any"


_MOMENT = "2026-11-01, 2026-11-01T06:00:00Z, 2h, 3d"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def export(
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="File (its extension sets the format), folder, or - for stdout.")
    ],
    form: Annotated[
        Format | None, typer.Option("--format", help="Format. By default, taken from the file name.")
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="A,B",
            help="Tables to export: parcels, liens, sales, tax_bills, valuations, buildings. Default: parcels,liens; "
            "parcels if the file can contain only one table.",
        ),
    ] = None,
    platform: Annotated[
        list[str] | None, typer.Option("--platform", metavar="NAME", help="Only this platform. Repeatable.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only this state. Repeatable.")
    ] = None,
    county: Annotated[
        list[str] | None, typer.Option("--county", metavar="COUNTY", help="Only this county. Repeatable.")
    ] = None,
    parcel: Annotated[
        list[str] | None, typer.Option("--parcel", metavar="ID", help="Only this parcel ID. Repeatable.")
    ] = None,
    status: Annotated[
        list[Status] | None,
        typer.Option(
            "--status",
            metavar="|".join(Status),
            help="Records, parcels not found on the site, or failed tasks. Default: record. Repeatable.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help=f"Only records scraped since this time: {_MOMENT}.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="WHEN", help="Only records scraped before this time; a date includes that day."
        ),
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option(
            "--changed-since", metavar="WHEN", help="Only records stored, or changed by reparse, since this time."
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Only records stored or changed since the last export with --new.")
    ] = False,
    receiver: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="With --new: who the export is for; what is new is tracked for each recipient.",
        ),
    ] = None,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes", help="Export what changed between the stored scrapes of each parcel, instead of the records."
        ),
    ] = False,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="With --changes: a kind such as lien.new, or lien for all. Repeatable."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every stored version of a parcel, not only the newest.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    bom: Annotated[bool, typer.Option("--bom", help="CSV: start with a byte order mark, for Excel.")] = False,
    unguarded: Annotated[
        bool,
        typer.Option("--unguarded", help="CSV: do not put ' before text that a spreadsheet would read as a formula."),
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Export stored records to files: parcels, liens and other tables.

    Writes CSV, JSONL, Parquet, Excel, GeoPackage or GeoJSON, depending on the name of OUTPUT: the newest record of each
    parcel, sorted by platform, state, county and parcel. Does not change the store. A file appears only once it is
    complete.
    """
    from parcelpost.cli import context
    from parcelpost.export.exporter import plan_changes, plan_export

    store = store_context(store_path, config, set_)
    if changes:
        others = {
            "--tables": tables,
            "--status": status,
            "--changed-since": changed_since,
            "--new": new,
            "--all": every,
        }
        if given := [name for name, value in others.items() if value]:
            raise InvalidInput(f"{given[0]} cannot be used with --changes", hint="use --since for the starting point")
    elif kinds:
        raise InvalidInput("--kind requires --changes", hint=f"parcelpost export {output} --changes --kind {kinds[0]}")
    plan = plan_changes(output, form) if changes else plan_export(output, form, _table_names(tables))
    if receiver is not None and not new:
        raise InvalidInput("--for requires --new", hint=f"parcelpost export {output} --new --for {receiver}")
    if as_json and plan.is_stdout:
        raise InvalidInput("--json cannot be used when exporting to stdout", hint="choose a file, or omit --json")
    if (bom or unguarded) and plan.format is not Format.CSV:
        raise InvalidInput("--bom and --unguarded apply only to CSV", hint=f"omit them for {plan.format}")
    wanted = _export_filter(platform, state, county, parcel, status, every=every)
    wanted = _with_time_range(wanted, since, until, changed_since)
    order = ExportOrder(
        plan=plan,
        wanted=wanted,
        receiver=(receiver or "default") if new else "",
        replace=force,
        bom=bom,
        guard=not unguarded,
        changes=_changes_filter(wanted, kinds) if changes else None,
    )
    done = context.run_async(store, run_export(store, order))
    _print_report(done, order, as_json=as_json)


def _table_names(tables: str | None) -> list[str] | None:
    """Raises InvalidInput."""
    if tables is None:
        return None
    names = [name.strip() for name in tables.split(",") if name.strip()]
    if not names:
        raise InvalidInput("--tables is empty", hint="for example: --tables parcels,liens")
    return names


def _changes_filter(wanted: ExportFilter, kinds: list[str] | None) -> ChangesFilter:
    """Raises InvalidInput."""
    from parcelpost.changes import checked_kinds
    from parcelpost.export.changes import ChangesFilter
    from parcelpost.places import parcel_number

    return ChangesFilter(
        kinds=checked_kinds(kinds or ()),
        platforms=wanted.platforms,
        norms=tuple(map(parcel_number, wanted.parcels)),
        scraped_since=wanted.scraped_since,
        scraped_before=wanted.scraped_before,
    )


def _export_filter(
    platform: list[str] | None,
    state: list[str] | None,
    county: list[str] | None,
    parcel: list[str] | None,
    status: list[Status] | None,
    *,
    every: bool,
) -> ExportFilter:
    from parcelpost.storage.export_queries import ExportFilter

    statuses = set(Status) if Status.ANY in (status or ()) else set(status or [Status.RECORD])
    return ExportFilter(
        platforms=tuple(platform or ()),
        states=tuple(state or ()),
        counties=tuple(county or ()),
        parcels=tuple(parcel or ()),
        records=Status.RECORD in statuses,
        not_found=Status.NOT_FOUND in statuses,
        failed=Status.FAILED in statuses,
        every_version=every,
    )


def _with_time_range(
    wanted: ExportFilter, since: str | None, until: str | None, changed_since: str | None
) -> ExportFilter:
    """Raises InvalidInput."""
    from msgspec.structs import replace

    return replace(
        wanted,
        scraped_since=_moment_range(since)[0],
        scraped_before=_moment_range(until)[1],
        changed_since=_moment_range(changed_since)[0],
    )


def _moment_range(text: str | None) -> tuple[datetime | None, datetime | None]:
    """Start and end of the given time: a date spans a day, anything else is an instant. Raises InvalidInput."""
    from parcelpost.cli.context import CLOCK
    from parcelpost.cli.settings_options import parse_moment

    if text is None:
        return None, None
    start = parse_moment(text, CLOCK.now())
    return start, start + timedelta(days=1) if _DAY.fullmatch(text.strip()) else start


class ExportOrder(Struct, frozen=True, kw_only=True):
    plan: ExportPlan
    wanted: ExportFilter
    receiver: str
    """Export only what is new for this recipient; '': export everything that matches."""
    replace: bool
    bom: bool = False
    guard: bool = True
    changes: ChangesFilter | None = None
    """Export what changed, in place of records."""


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
    from msgspec.structs import replace

    from parcelpost.cli.context import CLOCK, open_for_reading
    from parcelpost.cli.progress import Meter
    from parcelpost.export import destinations
    from parcelpost.storage import export_queries

    _refuse_store_files(store.path.resolve(), _paths(order.plan))
    file, last = _last_export(store, order)
    if last is None:
        destinations.refuse_existing(_paths(order.plan), replace=order.replace)
    wanted = order.wanted if last is None else replace(order.wanted, after=last.cursor)
    if order.changes is not None:  # a scrape that is not wanted may be what another is compared with
        wanted = export_queries.ExportFilter(states=wanted.states, counties=wanted.counties, every_version=True)
    async with (
        open_for_reading(store) as database,
        Meter("exporting") as meter,
        export_queries.select(database, wanted, CLOCK) as selected,
    ):
        if last is not None and selected.count:
            _refuse_previous_export(order)
        has_first = not await export_queries.delivers(database)
        if order.changes is not None and not has_first:
            print(_DELIVERED_NOTE, file=sys.stderr)
        pages = _pages(selected, order, meter, has_first=has_first)
        exported = (
            await _export(selected, pages, order, meter, store) if selected.count or not file else _nothing(order)
        )
        if file is not None:
            export_queries.save(
                file, export_queries.LastExport(cursor=selected.cursor, wanted=order.wanted, at=CLOCK.now())
            )
        return _make_report(exported, order, selected, last)


def _paths(plan: ExportPlan) -> list[Path]:
    return [] if plan.is_stdout else [plan.folder / name for name in plan.files]


def _refuse_previous_export(order: ExportOrder) -> None:
    """Raises InvalidInput if files of an earlier --new export would be replaced: no later export repeats their rows."""
    from parcelpost.cli.context import CLOCK

    existing = next((path for path in _paths(order.plan) if path.exists()), None)
    if existing is None or order.replace:
        return
    output = existing if len(order.plan.files) == 1 else order.plan.folder
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
    from parcelpost.files_and_sockets import make_private
    from parcelpost.storage import export_queries

    if not order.receiver:
        return None, None
    file = export_queries.file_of(store.path, order.receiver)
    last = export_queries.load(file)
    if last is not None and last.wanted != order.wanted:
        raise InvalidInput(
            f"the last export for {order.receiver} used different filters, so it is unclear which records are new",
            hint=f"use another name with --for, or remove {file} to start over with a full export",
        )
    make_private(file.parent)
    return file, last


_DELIVERED_NOTE = (
    "note: delivered results are deleted after storage.keep_results_days, so changes before the oldest stored scrape "
    "of a parcel are missing; 'parcelpost gateway changes' lists them all"
)


def _pages(selected: Selected, order: ExportOrder, meter: Meter, *, has_first: bool) -> Pages:
    from parcelpost.export.changes import changed_entries

    if order.changes is None:
        return selected.pages()
    entries = selected.pages(by_parcel=True)
    return changed_entries(
        entries, order.changes, has_first=has_first, progress=lambda done: meter(done, selected.count)
    )


async def _export(
    selected: Selected, pages: Pages, order: ExportOrder, meter: Meter, store: StoreContext
) -> ExportResult:
    from parcelpost.cli.context import CLOCK
    from parcelpost.export.exporter import ExportOptions, export

    if not selected.count:
        raise InvalidInput(
            "no stored results match", hint=f"'{command_line('results list', store)}' lists the stored results"
        )
    options = ExportOptions(now=CLOCK.now(), bom=order.bom, guard=order.guard)
    total = selected.count
    return await export(
        pages,
        order.plan,
        options,
        replace=order.replace,
        progress=(lambda done: meter(done, total)) if order.changes is None else (lambda _: None),
        is_new_only=bool(order.receiver),
    )


def _nothing(order: ExportOrder) -> ExportResult:
    from parcelpost.export.exporter import ExportResult

    return ExportResult(files=[], rows={table.name: 0 for table in order.plan.tables}, notes=[])


def _make_report(
    exported: ExportResult, order: ExportOrder, selected: Selected, last: LastExport | None
) -> ExportReport:
    return ExportReport(
        files=[
            WrittenFile(
                path=str(path),
                tables=[table.name for table in order.plan.files[path.name]],
                bytes=path.stat().st_size,
            )
            for path in exported.files
        ],
        results=selected.count,
        rows=exported.rows,
        notes=exported.notes,
        new_since=None if last is None else last.at,
    )


def _print_report(done: ExportReport, order: ExportOrder, *, as_json: bool) -> None:
    """Prints to stdout, or to stderr if the export itself goes to stdout."""
    if as_json:
        print_json(done)
    elif order.plan.is_stdout:
        print("\n".join(_lines(done, order)), file=sys.stderr)
    else:
        print_lines(_lines(done, order))


def _lines(done: ExportReport, order: ExportOrder) -> Iterator[str]:
    if not done.results:
        since = f" since {moment(done.new_since)}" if done.new_since else ""
        existing = next((path for path in _paths(order.plan) if path.exists()), None)
        kept = f", and {existing} is unchanged" if existing else ""
        yield printable(
            f"Nothing new{since}." if order.plan.is_stdout else f"Nothing new{since}: no file was written{kept}."
        )
        return
    for file in done.files:
        yield printable(f"{file.path}: {_counts(done, file.tables)} ({size(file.bytes)})")
    if order.plan.is_stdout:
        yield _counts(done, list(done.rows))
    for note in done.notes:
        yield f"note: {note}"


def _counts(done: ExportReport, tables: list[str]) -> str:
    from parcelpost.export.tables import CHANGES, TABLES

    nouns = {name: table.noun for name, table in {**TABLES, CHANGES.name: CHANGES}.items()}
    return ", ".join(count(done.rows[name], nouns[name]) for name in tables)
