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
        str, typer.Argument(metavar="OUTPUT", help="The file, whose name says the format; a folder; or - for stdout.")
    ],
    form: Annotated[Format | None, typer.Option("--format", help="The format, where the name does not say it.")] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="A,B",
            help="Of parcels, liens, sales, tax_bills, valuations, buildings. parcels,liens unless told; a file that "
            "holds one table: parcels.",
        ),
    ] = None,
    platform: Annotated[
        list[str] | None, typer.Option("--platform", metavar="NAME", help="Only of this platform; may be repeated.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only of this state; may be repeated.")
    ] = None,
    county: Annotated[
        list[str] | None, typer.Option("--county", metavar="COUNTY", help="Only of this county; may be repeated.")
    ] = None,
    parcel: Annotated[
        list[str] | None, typer.Option("--parcel", metavar="ID", help="Only of this parcel id; may be repeated.")
    ] = None,
    status: Annotated[
        list[Status] | None,
        typer.Option(
            "--status",
            metavar="|".join(Status),
            help="Records unless told; parcels that the site does not have; tasks that failed. May be repeated.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help=f"Only scraped since then: {_MOMENT}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="Only scraped before then; a day is part of it.")
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option("--changed-since", metavar="WHEN", help="Only stored, or changed by reparse, since then."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Only what was stored or has changed since the last export with --new.")
    ] = False,
    receiver: Annotated[
        str | None, typer.Option("--for", metavar="NAME", help="With --new: whose last export; each has its own.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every version of a parcel that is here, not only the newest.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    bom: Annotated[bool, typer.Option("--bom", help="CSV: begin with a byte order mark, for Excel.")] = False,
    unguarded: Annotated[
        bool, typer.Option("--unguarded", help="CSV: put no ' before texts that a spreadsheet takes for formulas.")
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the stored records into files for others: parcels, liens and the like as tables.

    CSV, JSONL, Parquet, Excel, GeoPackage or GeoJSON, as the name of OUTPUT says. Of each parcel the newest record,
    sorted by platform, state, county and parcel. Changes nothing in the store. A file is there once it is whole.
    """
    from parcelpost.cli import context
    from parcelpost.cli.commands import export_run
    from parcelpost.export.exporter import plan_export

    store = store_context(store_path, config, set_)
    what = plan_export(output, form, _table_names(tables))
    if receiver is not None and not new:
        raise InvalidInput("--for goes with --new", hint=f"parcelpost export {output} --new --for {receiver}")
    if as_json and what.is_stdout:
        raise InvalidInput("stdout cannot take both the export and --json", hint="name a file, or leave --json out")
    if (bom or unguarded) and what.format is not Format.CSV:
        raise InvalidInput("--bom and --unguarded are for CSV", hint=f"leave them out for {what.format}")
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
        raise InvalidInput("--tables names no table", hint="as in --tables parcels,liens")
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
    """When it begins and when it has ended: the same, but for a day. Raises InvalidInput."""
    from parcelpost.cli.context import CLOCK
    from parcelpost.cli.options import parse_moment

    if text is None:
        return None, None
    begins = parse_moment(text, CLOCK.now())
    return begins, begins + timedelta(days=1) if _DAY.fullmatch(text.strip()) else begins
