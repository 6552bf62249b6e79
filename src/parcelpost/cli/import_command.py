"""`parcelpost import`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.importing.formats import Format
from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import count

if TYPE_CHECKING:
    from parcelpost.cli.importing.source import Source
    from parcelpost.cli.importing.storing import Importer, Tally

EXAMPLES = """
Examples:

\b
  parcelpost import parcels.csv --platform vgsi --state CT --county hartford --dry-run
  parcelpost import roll.tsv.gz --platform beacon --map parcel_id='Tax Key'
  zcat parcels.jsonl.gz | parcelpost import - --format jsonl --errors bad.csv
"""

_FIRST_ROWS = 5


def import_(
    file: Annotated[str, typer.Argument(help="CSV, TSV, JSON or JSON lines, gzipped or not; - reads standard input.")],
    maps: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN", help="Which column it is. Repeatable.")
    ] = None,
    platform: Annotated[str, typer.Option("--platform", help="The platform of all rows.")] = "",
    state: Annotated[str, typer.Option("--state", help="The state of all rows, such as CT.")] = "",
    county: Annotated[str, typer.Option("--county", help="The county of all rows.")] = "",
    kind: Annotated[
        Format | None, typer.Option("--format", help="What the file holds, where its name does not say.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how columns are read, and the first rows; store nothing.")
    ] = False,
    errors: Annotated[
        Path | None, typer.Option("--errors", metavar="PATH", help="Write all bad rows into this CSV file.")
    ] = None,
    allow_bad: Annotated[bool, typer.Option("--allow-bad", help="Exit with 0 even if rows were bad.")] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Store a task for every row of a file. Rows that are stored already change nothing.

    Columns with clear names are found by themselves. Bad rows are listed and the others imported; the exit code is 1
    then. The store is made if it is not there.
    """
    from parcelpost.cli.importing import report, source
    from parcelpost.cli.importing.columns import Columns, parse_map
    from parcelpost.cli.importing.formats import format_of, reader
    from parcelpost.cli.importing.storing import Importer, Tally

    given = {"platform": platform.strip(), "state": state.strip(), "county": county.strip()}
    columns = Columns(parse_map(maps or ()), {field: value for field, value in given.items() if value})
    with source.opened(file) as opened:
        rows = reader(opened, format_of(file, kind))
        importer = Importer(opened, rows, columns)
        first = importer.begin(_FIRST_ROWS)
        plan = columns.checked_plan(report.names(rows, first), opened.name)
        if dry_run:
            report.show_plan(first, rows, plan, columns, as_json=as_json)
            return
        with report.error_file(errors, file, rows) as note:
            tally = Tally(note)
            _import(store, importer, tally, opened)
    report.show_end(rows, plan, columns, tally, errors, as_json=as_json)
    if tally.bad and not allow_bad:
        raise typer.Exit(1)


def _import(store: Path, importer: Importer, tally: Tally, source: Source) -> None:
    from parcelpost.cli import running

    try:
        running.run(store, _run(store, importer, tally, source))
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {count(tally.new, 'new task')} of {count(tally.read, 'row')} stored. "
            "To go on, import the file again: what is stored is known then.",
            file=sys.stderr,
        )
        raise


async def _run(store: Path, importer: Importer, tally: Tally, source: Source) -> None:
    from parcelpost.cli.filling import filling
    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import CLOCK, options

    async with filling(store) as lpm, Meter(f"reading {source.name}, bytes") as meter:
        await importer.run(lpm, tally, options(), CLOCK, meter)
