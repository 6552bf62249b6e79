"""`parcelpost export`: its options."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreOption,
    store_context,
)
from parcelpost.errors import InvalidInput
from parcelpost.export import Format

if TYPE_CHECKING:
    from parcelpost.storage.export_queries import ExportFilter


EXAMPLES = """
Examples:

\b
  parcelpost export parcels.xlsx
  parcelpost export handover/ --format csv --state FL
  parcelpost export map.gpkg --platform vgsi --since 2026-11-01
  parcelpost export parcels.parquet --changed-since 2026-11-15T06:00:00Z
  parcelpost export today.csv --new --for acme
  parcelpost export - --tables liens | jq .lien.face_amount
"""


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
        str | None, typer.Option("--since", metavar="WHEN", help=f"Only scraped since this time: {_MOMENT}.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="Only scraped before this time; a date includes that day."),
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option("--changed-since", metavar="WHEN", help="Only stored, or changed by reparse, since this time."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Only records stored or changed since the last export with --new.")
    ] = False,
    receiver: Annotated[
        str | None,
        typer.Option("--for", metavar="NAME", help="With --new: the recipient; each has its own last export."),
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
    from parcelpost.cli.commands import export_run
    from parcelpost.export.exporter import plan_export

    store = store_context(store_path, config, set_)
    what = plan_export(output, form, _table_names(tables))
    if receiver is not None and not new:
        raise InvalidInput("--for requires --new", hint=f"parcelpost export {output} --new --for {receiver}")
    if as_json and what.is_stdout:
        raise InvalidInput("--json cannot be used when exporting to stdout", hint="name a file, or omit --json")
    if (bom or unguarded) and what.format is not Format.CSV:
        raise InvalidInput("--bom and --unguarded apply only to CSV", hint=f"omit them for {what.format}")
    wanted = _export_filter(platform, state, county, parcel, status, every=every)
    wanted = _with_time_range(wanted, since, until, changed_since)
    order = export_run.ExportOrder(
        what=what,
        wanted=wanted,
        receiver=(receiver or "default") if new else "",
        replace=force,
        bom=bom,
        guard=not unguarded,
    )
    done = context.run_async(store, export_run.run_export(store, order))
    export_run.print_report(done, order, as_json=as_json)


def _table_names(tables: str | None) -> list[str] | None:
    """Raises InvalidInput."""
    if tables is None:
        return None
    names = [name.strip() for name in tables.split(",") if name.strip()]
    if not names:
        raise InvalidInput("--tables names no table", hint="for example: --tables parcels,liens")
    return names


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
    from parcelpost.cli.options import parse_moment

    if text is None:
        return None, None
    start = parse_moment(text, CLOCK.now())
    return start, start + timedelta(days=1) if _DAY.fullmatch(text.strip()) else start
