"""`parcelpost doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, print_json, print_lines
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, StoreOption, parse_set
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.health.check_result import CheckContext
    from parcelpost.cli.health.doctor import Report


EXAMPLES = examples(
    "parcelpost doctor",
    "parcelpost doctor --deep --strict",
    "parcelpost doctor --json | jq '.findings[] | {id, fix}'",
    "parcelpost doctor --bundle",
    "parcelpost doctor --bundle /tmp/for-support.tar.gz --log /var/log/parcelpost.log",
)


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="With --bundle: the file to write. By default, named after the date."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also check every index, page and backup, and start a browser. Takes longer."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Also exit with 1 for warnings.")] = False,
    bundle: Annotated[bool, typer.Option("--bundle", help="Create a support bundle without secrets or names.")] = False,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="PATH", help="With --bundle: also include the end of this worker log."),
    ] = None,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Run all checks and print a fix for each problem.

    Checks store, backups, outbox, upstream, worker, settings, clock and browser, and the gateway whose ledger the
    settings name. Exits with 1 if there is an error. Read-only: works while a worker runs, and without a store.
    """
    import asyncio

    from parcelpost.cli.health.doctor import make_context, run_checks
    from parcelpost.health_checks import Severity
    from parcelpost.settings.sources import diagnose

    if not bundle and (file or log):
        raise InvalidInput("FILE and --log can only be used with --bundle", hint="parcelpost doctor --bundle FILE")
    diagnosis = diagnose(config=config, environment=os.environ, flags=parse_set(set_ or ()))
    case = make_context(store_path or Path(diagnosis.partly.storage.path), diagnosis, config=config, deep=deep)
    report = asyncio.run(run_checks(case))
    if bundle:
        _bundle(case, report, file, log, as_json=as_json)
        return
    _show(report, as_json=as_json)
    if not report.ok or (strict and report.number(Severity.WARNING)):
        raise typer.Exit(1)


def _show(report: Report, *, as_json: bool) -> None:
    from parcelpost.cli.health.doctor import print_report

    print_json(report) if as_json else print_report(report)


def _bundle(case: CheckContext, report: Report, file: Path | None, log: Path | None, *, as_json: bool) -> None:
    import asyncio

    from parcelpost.cli.health import bundle
    from parcelpost.cli.health.doctor import verdict

    packed = asyncio.run(bundle.write_bundle(case, report, file, log))
    if as_json:
        print_json(packed)
        return
    print(verdict(report))
    print_lines(bundle.bundle_lines(packed))
