"""What every command that takes tasks from a file does: columns, a dry run, progress, bad rows, the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import typer

from parcelpost.cli.importing import report
from parcelpost.cli.importing.columns import Columns, parse_map
from parcelpost.cli.importing.formats import format_of, reader
from parcelpost.cli.importing.importer import Importer, Sink, Tally
from parcelpost.cli.importing.options import Wishes
from parcelpost.cli.importing.source import Source, opened
from parcelpost.cli.output import count
from parcelpost.cli.progress import Meter

_FIRST_ROWS = 5

Place = Callable[[], AbstractAsyncContextManager[Sink]]
"""Opens where the tasks go."""
Runner = Callable[[Coroutine[Any, Any, None]], None]


def take_in(wishes: Wishes, place: Place, run: Runner) -> None:
    """Raises InvalidInput for a file that cannot be used, typer.Exit(1) at the end if rows were bad."""
    constants = {field: value.strip() for field, value in wishes.same.items() if value.strip()}
    if wishes.platforms is not None and "platform" in constants:
        constants["platform"] = wishes.platforms.spelled(constants["platform"])
    columns = Columns(parse_map(wishes.maps), constants, wishes.platforms)
    with opened(wishes.file) as source:
        rows = reader(source, format_of(wishes.file, wishes.kind))
        importer = Importer(source, rows, columns)
        first = importer.begin(_FIRST_ROWS)
        plan = columns.checked_plan(report.names(rows, first), source.name)
        if wishes.dry_run:
            report.show_plan(first, rows, plan, columns, as_json=wishes.as_json)
            return
        with report.error_file(wishes.errors, wishes.file, rows) as note:
            tally = Tally(note)
            _run(run, _bring_in(place, importer, tally, source), tally)
    report.show_end(rows, plan, columns, tally, wishes.errors, as_json=wishes.as_json)
    if tally.bad and not wishes.allow_bad:
        raise typer.Exit(1)


def _run(run: Runner, work: Coroutine[Any, Any, None], tally: Tally) -> None:
    try:
        run(work)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {count(tally.new, 'new task')} of {count(tally.read, 'row')} stored. "
            "To go on, import the file again: what is stored is known then.",
            file=sys.stderr,
        )
        raise


async def _bring_in(place: Place, importer: Importer, tally: Tally, source: Source) -> None:
    async with place() as sink, Meter(f"reading {source.name}, bytes") as meter:
        await importer.run(sink, tally, meter)
