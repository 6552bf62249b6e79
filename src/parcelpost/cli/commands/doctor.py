"""`parcelpost doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import AsJson, ConfigOption, SetOption, StoreOption
from parcelpost.cli.output import print_json, print_lines
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.doctor.report import CheckContext, Report


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
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Check store, space, backups, deliveries, settings, clock, gateway and browser; say what mends what is wrong.

    Exits with 1 if something must be mended. Only looks, also while a worker runs, and where there is no store yet.
    """
    import asyncio

    from parcelpost.cli.doctor.checks import make_context, run_checks
    from parcelpost.settings.sources import diagnose, parse_set

    if not bundle and (file or log):
        raise InvalidInput("FILE and --log go with --bundle", hint="parcelpost doctor --bundle FILE")
    found = diagnose(config=config, environment=os.environ, flags=parse_set(set_ or ()))
    case = make_context(store_path or Path(found.partly.storage.path), found, config=config, deep=deep)
    report = asyncio.run(run_checks(case))
    if bundle:
        _bundle(case, report, file, log, as_json=as_json)
        return
    _show(report, as_json=as_json)
    if not report.well or (strict and report.warnings):
        raise typer.Exit(1)


def _show(report: Report, *, as_json: bool) -> None:
    from parcelpost.cli.doctor.report import print_report

    print_json(report) if as_json else print_report(report)


def _bundle(case: CheckContext, report: Report, file: Path | None, log: Path | None, *, as_json: bool) -> None:
    import asyncio

    from parcelpost.cli.doctor import bundle
    from parcelpost.cli.doctor.report import verdict

    packed = asyncio.run(bundle.write_bundle(case, report, file, log))
    if as_json:
        print_json(packed)
        return
    print(verdict(report))
    print_lines(bundle.bundle_lines(packed))
