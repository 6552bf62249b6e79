"""`parcelpost doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.given import looked_at, using
from parcelpost.cli.options import AsJson
from parcelpost.cli.output import print_json, print_lines
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.doctor.report import Case, Report

EXAMPLES = """
Examples:

\b
  parcelpost doctor
  parcelpost doctor --deep --strict
  parcelpost doctor --json | jq '.checks[].problems[].command'
  parcelpost doctor --bundle
  parcelpost doctor --bundle /tmp/for-support.tar.gz --log /var/log/parcelpost.log
"""


def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="With --bundle: where to write it; else a name with the date.")
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Take the time to look at every index, page and backup, and to try a browser."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for a warning, too.")] = False,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Write a file for a helper: what is known, without secrets and names.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="PATH", help="With --bundle: the worker's log, whose end goes in.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="PATH", readable=False, help="The store's file; else storage.path."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check store, space, backups, deliveries, settings, clock, gateway and browser; say what mends what is wrong.

    Exits with 1 if something must be mended. Only looks, also while a worker runs, and where there is no store yet.
    """
    import asyncio

    from parcelpost.cli.doctor.examining import case_of, examine

    if not bundle and (file or log):
        raise InvalidInput("FILE and --log go with --bundle", hint="parcelpost doctor --bundle FILE")
    found = looked_at()
    with using(found.partly):
        case = case_of(store or Path(found.partly.storage.path), found, deep=deep)
        report = asyncio.run(examine(case))
        if bundle:
            _bundle(case, report, file, log, as_json=as_json)
            return
    _show(report, as_json=as_json)
    if not report.well or (strict and report.warnings):
        raise typer.Exit(1)


def _show(report: Report, *, as_json: bool) -> None:
    from parcelpost.cli.doctor.printing import show

    print_json(report) if as_json else show(report)


def _bundle(case: Case, report: Report, file: Path | None, log: Path | None, *, as_json: bool) -> None:
    import asyncio

    from parcelpost.cli.doctor.bundle import packing
    from parcelpost.cli.doctor.printing import verdict

    packed = asyncio.run(packing.pack(case, report, file, log))
    if as_json:
        print_json(packed)
        return
    print(verdict(report))
    print_lines(packing.lines(packed))
