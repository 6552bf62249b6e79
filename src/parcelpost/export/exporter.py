"""Runs an export: which tables go into which files, the writer for each format, pages in, files out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct, structs

from parcelpost.errors import InvalidInput, ParcelpostError, extra_hint
from parcelpost.export import Format, destinations
from parcelpost.export.destinations import STDOUT, Destination
from parcelpost.export.tables import CHANGES, TABLES, Parcel, Table, list_items, read_parcel
from parcelpost.model import OutboxEntry


class Sink(Protocol):
    """Takes parcels a page at a time, always from one thread at once, and keeps none of them."""

    notes: list[str]
    """Remarks for the recipient, complete once the output is closed."""

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        """How many rows that made."""

    def close(self) -> None:
        """Nothing is missing in the files when this has returned."""

    def abandon(self) -> None:
        """In place of `close`, or after it failed: lets go of everything."""


_BY_SUFFIX = {**{f".{form}": form for form in Format}, ".ndjson": Format.JSONL, ".pq": Format.PARQUET}
_ALL_IN_ONE = (Format.EXCEL, Format.GEOPACKAGE)
_TO_STDOUT = (Format.CSV, Format.JSONL)
_ONE_TABLE, _BOTH_TABLES = ("parcels",), ("parcels", "liens")
"""Default tables, for a file that can hold one table and for all other destinations."""


class ExportPlan(Struct, frozen=True):
    """What is written where."""

    format: Format
    folder: Path
    files: Mapping[str, tuple[Table, ...]]
    """File name below the folder, or `-` for stdout -> its tables."""
    lacks_liens: bool
    """Nobody said which tables, and this output holds no second one."""
    is_folder: bool = False

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(table for tables in self.files.values() for table in tables)

    @property
    def is_stdout(self) -> bool:
        return STDOUT in self.files


def plan_changes(output: str, form: Format | None) -> ExportPlan:
    """Plans an export of changes: one table of their own. Raises InvalidInput."""
    plan = plan_export(output, form, _ONE_TABLE)
    if plan.format in (Format.GEOJSON, Format.GEOPACKAGE):
        raise InvalidInput(f"changes cannot be written as {plan.format}", hint="use csv, jsonl, parquet or xlsx")
    files = {name.replace(_ONE_TABLE[0], CHANGES.name) if plan.is_folder else name: (CHANGES,) for name in plan.files}
    return structs.replace(plan, files=files)


def plan_export(output: str, form: Format | None, names: Sequence[str] | None) -> ExportPlan:
    """`names`: of tables; None: those that the output can hold. Raises InvalidInput."""
    path = Path(output)
    if output == STDOUT:
        form = form or Format.JSONL
        if form not in _TO_STDOUT:
            raise InvalidInput(
                f"{form} cannot be written to stdout", hint="choose a file; only csv and jsonl can be written to stdout"
            )
        return ExportPlan(form, Path(), {STDOUT: _single_table(names or _ONE_TABLE, "stdout", form)}, names is None)
    if path.is_dir() or output.endswith("/") or (form is not None and not path.suffix and not path.exists()):
        form = form or Format.CSV
        tables = _tables(names or (_ONE_TABLE if form is Format.GEOJSON else _BOTH_TABLES), form)
        each = {f"{table.name}.{form}": (table,) for table in tables}
        files = {f"parcelpost.{form}": tables} if form in _ALL_IN_ONE else each
        return ExportPlan(form, path, files, names is None and len(tables) == 1, is_folder=True)
    form = form or _format_of(path)
    is_one = form not in _ALL_IN_ONE
    tables = (
        _single_table(names or _ONE_TABLE, f"a {form} file", form) if is_one else _tables(names or _BOTH_TABLES, form)
    )
    return ExportPlan(form, path.parent, {path.name: tables}, names is None and is_one)


def _format_of(path: Path) -> Format:
    form = _BY_SUFFIX.get(path.suffix.lower())
    if form is None:
        raise InvalidInput(
            f"cannot tell the format of {path.name or path} from its name",
            hint=f"use the extension {', '.join(f'.{known}' for known in Format)}, or add --format; "
            "for a folder, end the name with /",
        )
    return form


def _tables(names: Sequence[str], form: Format) -> tuple[Table, ...]:
    """In the order of TABLES, each once."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidInput(f"there is no table {unknown[0]!r}", hint=f"the tables are {', '.join(TABLES)}")
    if form is Format.GEOJSON and set(names) != set(_ONE_TABLE):
        raise InvalidInput("GeoJSON can contain only parcels", hint="use gpkg for the other tables")
    return tuple(table for name, table in TABLES.items() if name in names)


def _single_table(names: Sequence[str], where: str, form: Format) -> tuple[Table, ...]:
    tables = _tables(names, form)
    if len(tables) > 1:
        raise InvalidInput(
            f"{where} can contain only one table, not {len(tables)}",
            hint=f"use a folder, as in 'parcelpost export handover/ --format {form}', or select one table",
        )
    return tables


class ExportOptions(Struct, frozen=True, kw_only=True):
    now: datetime
    bom: bool = False
    guard: bool = True
    """CSV: texts that a spreadsheet would take for a formula get a `'` in front."""


def open_sink(plan: ExportPlan, place: Destination, options: ExportOptions) -> Sink:
    """Raises ParcelpostError where a package is missing."""
    try:
        return _open_format(plan, place, options)
    except ModuleNotFoundError as error:
        raise ParcelpostError(
            f"{plan.format} needs the package {error.name}, which is not installed",
            hint=f"{extra_hint('export')}; csv, jsonl, gpkg and geojson need no extra packages",
        ) from error


def _open_format(plan: ExportPlan, place: Destination, options: ExportOptions) -> Sink:
    """A format's packages are loaded for that format only: they are extras, and take a while."""
    match plan.format:
        case Format.CSV:
            from parcelpost.export.text_formats import CsvSink

            return CsvSink(_streams(plan, place), plan.tables, bom=options.bom, guard=options.guard)
        case Format.JSONL:
            from parcelpost.export.text_formats import JsonlSink

            return JsonlSink(_streams(plan, place))
        case Format.PARQUET:
            from parcelpost.export.parquet import ParquetSink

            return ParquetSink(_streams(plan, place), plan.tables)
        case Format.EXCEL:
            from parcelpost.export.excel import ExcelSink

            return ExcelSink(place.stream(*plan.files), place.folder, plan.tables)
        case Format.GEOPACKAGE:
            from parcelpost.export.geo import GeoPackageSink

            return GeoPackageSink(place.path(*plan.files), plan.tables, options.now)
        case Format.GEOJSON:
            from parcelpost.export.geo import GeoJsonSink

            return GeoJsonSink(place.stream(*plan.files))


def _streams(plan: ExportPlan, place: Destination) -> dict[str, BinaryIO]:
    """One for each table."""
    return {table.name: place.stream(name) for name, (table,) in plan.files.items()}


Pages = AsyncIterator[Sequence[OutboxEntry]]


class ExportResult(Struct, frozen=True, kw_only=True):
    files: list[Path]
    """Empty where it went to stdout."""
    rows: dict[str, int]
    """Number of rows by table."""
    notes: list[str]


async def export(
    pages: Pages,
    plan: ExportPlan,
    options: ExportOptions,
    *,
    replace: bool,
    progress: Callable[[int], None],
    is_new_only: bool = False,
) -> ExportResult:
    """Writes all files of the plan. An existing file is replaced only once its successor is complete.

    Raises ParcelpostError.
    """
    try:
        with destinations.open_destination(plan.folder, list(plan.files), replace=replace) as place:
            sink = open_sink(plan, place, options)
            try:
                rows = await _write(pages, plan, sink, place, progress)
            except BaseException:
                sink.abandon()
                raise
            notes = [*sink.notes, *_omission_notes(rows, plan)]
            rows = {table.name: rows[table.name] for table in plan.tables}
            return ExportResult(files=place.put(), rows=rows, notes=notes)
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        if plan.is_stdout:
            again = "; the next export with --new repeats these records" if is_new_only else ""
            hint = f"check the free space at its destination{again}"
            raise ParcelpostError(f"cannot write to standard output: {why}", hint=hint) from error
        raise ParcelpostError(
            f"cannot write {error.filename or plan.folder}: {why}",
            hint="check the free space and the folder's permissions; existing files were not changed",
        ) from error


async def _write(
    pages: Pages, plan: ExportPlan, sink: Sink, place: Destination, progress: Callable[[int], None]
) -> dict[str, int]:
    """By table how many, liens that are in none among them."""
    rows = Counter[str]()

    def write(page: Sequence[OutboxEntry]) -> None:
        parcels = [read_parcel(entry) for entry in page]
        for table in plan.tables:
            rows[table.name] += sink.write(table, parcels)
        if plan.lacks_liens:
            rows["liens"] += sum(len(list_items(parcel, "liens")) for parcel in parcels)

    done = 0
    async for page in pages:
        await _run_in_thread(partial(write, page), place)
        done += len(page)
        progress(done)
    await _run_in_thread(sink.close, place)
    return rows


def _omission_notes(rows: Mapping[str, int], plan: ExportPlan) -> list[str]:
    if not plan.lacks_liens or not rows["liens"]:
        return []
    return [f"liens not exported: {rows['liens']:,}; use a folder, .xlsx or .gpkg for both tables"]


async def _run_in_thread(work: Callable[[], None], place: Destination) -> None:
    """Progress is shown meanwhile. Cancelled, it ends the work first: nothing is written behind our back."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        place.stop()
        await asyncio.gather(running, return_exceptions=True)
        raise
