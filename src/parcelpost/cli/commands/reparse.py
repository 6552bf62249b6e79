"""`parcelpost reparse`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import count, examples, print_json, printable
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    Platform,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)

if TYPE_CHECKING:
    from parcelpost.settings import Settings
    from parcelpost.storage.reparse import Filters
    from parcelpost.worker.reparse import Counts


EXAMPLES = examples(
    "parcelpost reparse --dry-run",
    "parcelpost reparse --platform vgsi --state NH --county grafton",
    "parcelpost reparse --since 2026-11-01 --json",
)


def reparse(
    platform: Platform = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only pages of this state.")] = None,
    county: Annotated[str | None, typer.Option("--county", metavar="COUNTY", help="Only pages of this county.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            formats=["%Y-%m-%d"],
            metavar="DATE",
            help="Only pages fetched since this date, such as 2026-11-01.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change without changing anything.")
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Re-parse stored pages with the current parsers and field maps. Nothing is fetched.

    A changed record replaces the previous one and is queued for delivery again. Other records stay unchanged, even if
    their page no longer yields a record, and an incomplete record never replaces a complete one. Ctrl-C is safe: run
    the same command again to continue where it stopped.
    """
    from parcelpost.cli import context
    from parcelpost.storage.reparse import Filters

    store = store_context(store_path, config, set_)
    day = since.replace(tzinfo=UTC) if since else None
    filters = Filters(platform=platform, state=state, county=county, since=day)
    counts = context.run_async(store, _reparse(store, filters, store.settings, dry=dry_run))
    if as_json:
        print_json(counts)
        return
    would = "would be " if dry_run else ""
    print(
        f"{count(counts.pages, 'page')} parsed{', continuing the last run' if counts.resumed else ''}: "
        f"{count(counts.changed, 'record')} {would}changed, {counts.added:,} {would}added, "
        f"{counts.unchanged:,} unchanged."
    )
    if counts.not_found:
        print(f"{count(counts.not_found, 'record')} no longer found on the page; kept unchanged.")
    for skipped in counts.not_readable:
        print(printable(f"{count(skipped.pages, 'page')} of {skipped.platform} not parsed: {skipped.reason}."))
    if counts.unreadable:
        print(f"{count(counts.unreadable, 'page')} yielded no record; the previous records are kept:")
        for page, reason in counts.problems:
            print(printable(f"  {page}: {reason}"))


async def _reparse(store: StoreContext, filters: Filters, settings: Settings, *, dry: bool) -> Counts:
    from parcelpost.cli.components import known_sites, scraper_factory
    from parcelpost.cli.context import CLOCK, open_for_writing
    from parcelpost.cli.progress import Meter
    from parcelpost.worker.learning import load_sections
    from parcelpost.worker.reparse import Reparse

    known = known_sites(settings)
    seconds = settings.executor.task_timeout_seconds
    async with open_for_writing(store) as lpm, Meter("re-parsing pages") as meter:
        await load_sections(lpm.state, known.ranking.sections)
        work = Reparse(lpm, scraper_factory(settings, known).parser, filters, CLOCK, dry=dry, seconds=seconds)
        run_key = f"{filters} {_versions()} {known.field_maps.digest}"
        return await work.run(run_key, lambda counts: meter(counts.pages, None))


def _versions() -> dict[str, int]:
    """Parser versions: a run is continued only with the versions it started with."""
    from parcelpost.scrapers.platforms import NAMES, county_platform

    return {name: platform.version for name in NAMES if (platform := county_platform(name))}
