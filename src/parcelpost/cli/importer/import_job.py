"""Runs an import: plan the columns, import with progress, report invalid rows and the totals."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import typer
from msgspec.json import encode

from parcelpost.cli.importer import task_rows
from parcelpost.cli.importer.importer import ImportCounts, Importer, Sink
from parcelpost.cli.importer.options import ImportOptions, format_of, open_reader
from parcelpost.cli.importer.readers import BadRow, Reader, Row
from parcelpost.cli.importer.source import Source, open_source
from parcelpost.cli.importer.task_rows import EXPECTED, ColumnPlan, Columns, parse_map
from parcelpost.cli.output import count, fields, print_json, print_lines, printable, table
from parcelpost.cli.progress import Meter
from parcelpost.errors import InvalidInput
from parcelpost.model import Task


def column_names(reader: Reader, first: Sequence[Row | BadRow]) -> tuple[str, ...]:
    """The columns of a file, from its header and first rows."""
    found = dict.fromkeys(reader.columns)
    for row in first:
        if isinstance(row, Row):
            found |= dict.fromkeys(task_rows.flatten(row.values))
    if not found:
        reasons = "; ".join(f"{reader.unit} {one.number}: {one.reason}" for one in first if isinstance(one, BadRow))
        raise InvalidInput(
            f"no row can be read: {reasons or 'the file has no rows'}", hint="check the file and --format"
        )
    return tuple(found)


@contextlib.contextmanager
def error_file(path: Path | None, source: str, reader: Reader) -> Iterator[Callable[[BadRow], None]]:
    """Writes invalid rows to the file as they are found. Raises InvalidInput if it cannot be written."""
    if path is None:
        yield lambda bad: None
        return
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise InvalidInput("--errors names the file being imported", hint="choose another file")
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", hint="choose another path for --errors") from error
    with file:
        writer = csv.writer(file)
        writer.writerow((reader.unit, "reason", "text"))
        yield writer.writerow


def show_plan(
    first: Sequence[Row | BadRow], reader: Reader, plan: ColumnPlan, columns: Columns, *, as_json: bool
) -> None:
    """Prints the column plan and the first tasks, for a dry run."""
    found = [task_rows.task_or_bad(row, columns) for row in first]
    made = [one for one in found if isinstance(one, Task)]
    bad = [one for one in found if isinstance(one, BadRow)]
    if as_json:
        print_json({"columns": _plan_document(plan, columns), "first": made, "bad": _bad_document(bad, reader)})
        return
    print_lines(_plan_lines(plan, columns))
    print()
    headers = ("task", "platform", "state", "county", "parcel", "url", "extra")
    print_lines(table(headers, map(_task_cells, made)))
    print_lines(_bad_lines(bad, reader))
    print("\nNothing was stored.")


def show_end(
    reader: Reader, plan: ColumnPlan, columns: Columns, tally: ImportCounts, errors: Path | None, *, as_json: bool
) -> None:
    note = ""
    if reader.text.first_other:
        note = f"{reader.unit} {reader.text.first_other:,} is not UTF-8; it and similar ones were read as Windows-1252"
        print(f"note: {note}", file=sys.stderr)
    for line in _bad_lines(tally.first_bad, reader):
        print(line, file=sys.stderr)
    if tally.bad > len(tally.first_bad):
        where = f"all are in {errors}" if errors else "use --errors PATH to save them all"
        print(f"and {tally.bad - len(tally.first_bad):,} more invalid rows: {where}", file=sys.stderr)
    if as_json:
        counts = {"read": tally.read, "new": tally.new, "known": tally.known, "bad": tally.bad}
        first_bad = _bad_document(tally.first_bad, reader)
        print_json({**counts, "fields": plan.fields, "first_bad": first_bad, "note": note or None})
        return
    chosen = ", ".join(f"{field} from {column!r}" for field, column in plan.fields.items())
    print(f"Columns: {printable(chosen) or 'all set by options'}.")
    for field in plan.missing(columns.constants, EXPECTED):
        print(f"No column was recognized as {field}: it stays empty. Use --{field} or --map {field}=COLUMN to set it.")
    print(f"{count(tally.new, 'new task')}, {tally.known:,} already known, {count(tally.bad, 'invalid row')}.")


def _plan_lines(plan: ColumnPlan, columns: Columns) -> list[str]:
    rows = [(field, f"column {column!r}") for field, column in plan.fields.items()]
    rows += [(field, f"{value!r} for all rows") for field, value in columns.constants.items()]
    rows += [(field, "empty: no column recognized") for field in plan.missing(columns.constants, EXPECTED)]
    rows += [(f"extra {name!r}", f"column {column!r}") for column, name in plan.extra.items()]
    rows += [("not used", f"column {column!r}: set by an option") for column in plan.unused]
    return fields(rows)


def _plan_document(plan: ColumnPlan, columns: Columns) -> dict[str, Any]:
    return {
        "fields": plan.fields,
        "for_all_rows": dict(columns.constants),
        "extra": plan.extra,
        "unused": plan.unused,
    }


def _task_cells(task: Task) -> tuple[str, ...]:
    target = task.target
    extra = encode(target.extra).decode() if target.extra else ""
    return task.task_id, task.platform, target.state, target.county, target.parcel_id, target.url, extra


def _bad_lines(bad: Sequence[BadRow], reader: Reader) -> Iterator[str]:
    for one in bad:
        begins = f" ({one.text[:60]})" if one.text else ""
        yield printable(f"{reader.unit} {one.number:,}: {one.reason}{begins}")


def _bad_document(bad: Sequence[BadRow], reader: Reader) -> list[dict[str, Any]]:
    return [{reader.unit: one.number, "reason": one.reason} for one in bad]


_FIRST_ROWS = 5

OpenSink = Callable[[], AbstractAsyncContextManager[Sink]]
"""Opens the destination of the tasks."""
Runner = Callable[[Coroutine[Any, Any, None]], None]


def import_file(options: ImportOptions, open_sink: OpenSink, run: Runner) -> None:
    """Raises InvalidInput if the file cannot be used, and typer.Exit(1) at the end if rows were invalid."""
    constants = {field: value.strip() for field, value in options.same.items() if value.strip()}
    if options.platforms is not None and "platform" in constants:
        constants["platform"] = options.platforms.spelled(constants["platform"])
    columns = Columns(parse_map(options.maps), constants, options.platforms)
    with open_source(options.file) as source:
        rows = open_reader(source, format_of(options.file, options.kind))
        importer = Importer(source, rows, columns)
        first = importer.begin(_FIRST_ROWS)
        plan = columns.checked_plan(column_names(rows, first), source.name)
        if options.dry_run:
            show_plan(first, rows, plan, columns, as_json=options.as_json)
            return
        with error_file(options.errors, options.file, rows) as note:
            tally = ImportCounts(note)
            _run_import(run, _import_rows(open_sink, importer, tally, source), tally)
    show_end(rows, plan, columns, tally, options.errors, as_json=options.as_json)
    if tally.bad and not options.allow_bad:
        raise typer.Exit(1)


def _run_import(run: Runner, work: Coroutine[Any, Any, None], tally: ImportCounts) -> None:
    try:
        run(work)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {count(tally.new, 'new task')} stored from {count(tally.read, 'row')}. "
            "To continue, import the file again: stored rows are skipped.",
            file=sys.stderr,
        )
        raise


async def _import_rows(open_sink: OpenSink, importer: Importer, tally: ImportCounts, source: Source) -> None:
    async with open_sink() as sink, Meter(f"reading {source.name}, bytes") as meter:
        await importer.run(sink, tally, meter)
