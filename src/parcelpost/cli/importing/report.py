"""What an import says: how columns are read, what became of the rows, which were bad."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.json import encode

from parcelpost.cli.importing import tasks
from parcelpost.cli.importing.columns import EXPECTED, Columns, Plan
from parcelpost.cli.importing.importer import Tally
from parcelpost.cli.importing.readers import Bad, Reader, Row
from parcelpost.cli.output import count, fields, print_json, print_lines, printable, table
from parcelpost.errors import InvalidInput
from parcelpost.model import Task


def names(reader: Reader, first: Sequence[Row | Bad]) -> tuple[str, ...]:
    """The columns of a file, as far as its beginning tells."""
    found = dict.fromkeys(reader.columns)
    for row in first:
        if isinstance(row, Row):
            found |= dict.fromkeys(tasks.flat(row.values))
    if not found:
        reasons = "; ".join(f"{reader.unit} {one.number}: {one.reason}" for one in first if isinstance(one, Bad))
        raise InvalidInput(f"no row can be read: {reasons or 'there is none'}", hint="check the file, and --format")
    return tuple(found)


@contextlib.contextmanager
def error_file(path: Path | None, source: str, reader: Reader) -> Iterator[Callable[[Bad], None]]:
    """Where bad rows are noted as they come. Raises InvalidInput for a file that cannot be written."""
    if path is None:
        yield lambda bad: None
        return
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise InvalidInput("--errors names the file that is imported", hint="give it another name")
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", hint="give --errors another path") from error
    with file:
        writer = csv.writer(file)
        writer.writerow((reader.unit, "reason", "text"))
        yield writer.writerow


def show_plan(first: Sequence[Row | Bad], reader: Reader, plan: Plan, columns: Columns, *, as_json: bool) -> None:
    """For a dry run."""
    found = [tasks.task_or_bad(row, columns) for row in first]
    made = [one for one in found if isinstance(one, Task)]
    bad = [one for one in found if isinstance(one, Bad)]
    if as_json:
        print_json({"columns": _document(plan, columns), "first": made, "bad": _bad_document(bad, reader)})
        return
    print_lines(_plan_lines(plan, columns))
    print()
    headers = ("task", "platform", "state", "county", "parcel", "url", "also given")
    print_lines(table(headers, map(_cells, made)))
    print_lines(_bad_lines(bad, reader))
    print("\nNothing was stored.")


def show_end(reader: Reader, plan: Plan, columns: Columns, tally: Tally, errors: Path | None, *, as_json: bool) -> None:
    note = ""
    if reader.text.first_other:
        note = (
            f"{reader.unit} {reader.text.first_other:,} is not UTF-8; it and others like it were read as Windows-1252"
        )
        print(f"note: {note}", file=sys.stderr)
    for line in _bad_lines(tally.first_bad, reader):
        print(line, file=sys.stderr)
    if tally.bad > len(tally.first_bad):
        where = f"all are in {errors}" if errors else "--errors PATH writes them all"
        print(f"and {tally.bad - len(tally.first_bad):,} more bad ones: {where}", file=sys.stderr)
    if as_json:
        counts = {"read": tally.read, "new": tally.new, "known": tally.known, "bad": tally.bad}
        first_bad = _bad_document(tally.first_bad, reader)
        print_json({**counts, "fields": plan.fields, "first_bad": first_bad, "note": note or None})
        return
    chosen = ", ".join(f"{field} from {column!r}" for field, column in plan.fields.items())
    print(f"Columns: {printable(chosen) or 'all given by options'}.")
    for field in plan.missing(columns.constants, EXPECTED):
        print(f"No column is clearly the {field}: it is empty, unless --{field} or --map {field}=COLUMN gives it.")
    print(f"{count(tally.new, 'new task')}, {tally.known:,} known already, {count(tally.bad, 'bad row')}.")


def _plan_lines(plan: Plan, columns: Columns) -> list[str]:
    rows = [(field, f"column {column!r}") for field, column in plan.fields.items()]
    rows += [(field, f"{value!r} for all rows") for field, value in columns.constants.items()]
    rows += [(field, "empty: no column is clearly that") for field in plan.missing(columns.constants, EXPECTED)]
    rows += [(f"extra {name!r}", f"column {column!r}") for column, name in plan.extra.items()]
    rows += [("not used", f"column {column!r}: an option gives it") for column in plan.unused]
    return fields(rows)


def _document(plan: Plan, columns: Columns) -> dict[str, Any]:
    return {
        "fields": plan.fields,
        "for_all_rows": dict(columns.constants),
        "extra": plan.extra,
        "unused": plan.unused,
    }


def _cells(task: Task) -> tuple[str, ...]:
    target = task.target
    extra = encode(target.extra).decode() if target.extra else ""
    return task.task_id, task.platform, target.state, target.county, target.parcel_id, target.url, extra


def _bad_lines(bad: Sequence[Bad], reader: Reader) -> Iterator[str]:
    for one in bad:
        begins = f" ({one.text[:60]})" if one.text else ""
        yield printable(f"{reader.unit} {one.number:,}: {one.reason}{begins}")


def _bad_document(bad: Sequence[Bad], reader: Reader) -> list[dict[str, Any]]:
    return [{reader.unit: one.number, "reason": one.reason} for one in bad]
