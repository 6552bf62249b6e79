"""`parcelpost reparse`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, Platform, StorePath
from parcelpost.cli.output import count, print_json, printable

if TYPE_CHECKING:
    from parcelpost.storage.reparsing import Filters
    from parcelpost.worker.reparse import Counts, Parser

EXAMPLES = """
Examples:

\b
  parcelpost reparse --dry-run
  parcelpost reparse --platform vgsi --state NH --county grafton
  parcelpost reparse --since 2026-11-01 --json
"""


def reparse(
    platform: Platform = None,
    state: Annotated[str | None, typer.Option("--state", help="Only pages of this state.")] = None,
    county: Annotated[str | None, typer.Option("--county", help="Only pages of this county.")] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=["%Y-%m-%d"], help="Only pages fetched on or after that day.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Read the stored pages again with the parsers of this version. Nothing is fetched.

    A record that has changed replaces the one before and waits to be delivered again; all others stay as they are, also
    those whose page gives no record any more. Ctrl-C is safe: the same command goes on where it was.
    """
    from parcelpost.cli import running
    from parcelpost.storage.reparsing import Filters

    day = since.replace(tzinfo=UTC) if since else None
    filters = Filters(platform=platform, state=state, county=county, since=day)
    counts = running.run(store, _reparse(store, filters, dry=dry_run))
    if as_json:
        print_json(counts)
        return
    would = "would be " if dry_run else ""
    print(
        f"{count(counts.pages, 'page')} read{', going on where the last run was' if counts.resumed else ''}: "
        f"{count(counts.changed, 'record')} {would}changed, {counts.added:,} {would}added, "
        f"{counts.unchanged:,} the same."
    )
    if counts.not_found:
        print(f"{count(counts.not_found, 'record')} no longer on their page, kept as they were.")
    if counts.skipped:
        print(f"{count(counts.skipped, 'page')} of platforms that cannot read a page by itself.")
    if counts.unreadable:
        print(f"{count(counts.unreadable, 'page')} without a record now; what was read before is kept:")
        for page, reason in counts.problems:
            print(printable(f"  {page}: {reason}"))


async def _reparse(store: Path, filters: Filters, *, dry: bool) -> Counts:
    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import CLOCK, changing
    from parcelpost.worker.reparse import Reparse

    async with changing(store) as lpm, Meter("reading pages again") as meter:
        work = Reparse(lpm, _parser, filters, CLOCK, dry=dry)
        return await work.run(_wishes(filters), lambda counts: meter(counts.pages, None))


def _parser(name: str) -> Parser | None:
    from parcelpost.scrapers.platforms import county_platform

    platform = county_platform(name)
    return None if platform is None else lambda page, target: platform.parse(page, target).outcome


def _wishes(filters: Filters) -> str:
    """Names the run: with other filters or other parsers it is another one, and starts at the first page."""
    from parcelpost.scrapers.platforms import NAMES, county_platform

    versions = {name: found.version for name in NAMES if (found := county_platform(name))}
    return f"{filters} {versions}"
