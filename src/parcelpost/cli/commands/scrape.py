"""`parcelpost scrape`."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, printable
from parcelpost.cli.settings_options import ConfigOption, SetOption, load_settings, profiles_folder
from parcelpost.model import BrowserState

if TYPE_CHECKING:
    from parcelpost.events import Event
    from parcelpost.model import Outcome, Task
    from parcelpost.scrapers.fetch.session import Session
    from parcelpost.settings import Settings


EXAMPLES = examples(
    "parcelpost scrape --platform grizzly_gis --state FL --county columbia 11-2S-15-00010-001",
    "parcelpost scrape --platform arcgis --state MN --county washington --url https://gis.example.org/parcels/0 \\",
    "    --extra where=\"ZIP='55082'\"",
)


_BROWSER_START_SECONDS = 60.0  # generous, for busy machines


def scrape(
    platform: Annotated[str, typer.Option("--platform", metavar="NAME", help="Platform of the county's site.")],
    parcel: Annotated[str, typer.Argument(help="Parcel number.", metavar="PARCEL")] = "",
    state: Annotated[str, typer.Option("--state", metavar="STATE", help="State, such as FL.")] = "",
    county: Annotated[str, typer.Option("--county", metavar="COUNTY", help="County.")] = "",
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="URL of the parcel's page, if the platform needs it.")
    ] = "",
    extra: Annotated[
        list[str] | None, typer.Option("--extra", metavar="KEY=VALUE", help="Extra data for the platform. Repeatable.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Fetch one parcel's page and print its record as JSON. Nothing is stored.

    Fetched URLs are printed to stderr. If there is no record, the reason is printed there too and the exit code is 1.
    """
    import asyncio

    from parcelpost.cli.commands.add import parse_extra
    from parcelpost.cli.commands.parse import outcome_reason, print_records
    from parcelpost.model import Done, Target, Task
    from parcelpost.places import normalized

    settings = load_settings(config, set_)
    target = normalized(Target(parcel_id=parcel, state=state, county=county, url=url, extra=parse_extra(extra or ())))
    task = Task(task_id="scrape", platform=platform, target=target)
    outcome = asyncio.run(_scrape(task, settings))
    if not isinstance(outcome, Done):
        print(printable(outcome_reason(outcome)), file=sys.stderr)
    print_records(outcome)
    if not isinstance(outcome, Done):
        raise typer.Exit(1)


async def _scrape(task: Task, settings: Settings) -> Outcome:
    from msgspec.structs import replace

    from parcelpost.cli.components import fetch_options, known_sites, scraper_factory
    from parcelpost.cli.platform_names import platform_names, unknown_platform
    from parcelpost.model import Retry
    from parcelpost.scrapers.browser.pool import BrowserPool
    from parcelpost.scrapers.browser.renderer import RenderContext
    from parcelpost.scrapers.fetch.client import PageFetcher
    from parcelpost.worker.sandbox import Sandbox

    known, sandbox = known_sites(settings), Sandbox("scrape")
    fetching, clock = fetch_options(settings, os.environ), known.clock
    browsers, profiles = settings.browser, profiles_folder(Path(settings.storage.path))
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            BrowserPool.open(browsers, _NullBrowserStore(), owner="", clock=clock, emit=_print_event)
        )
        browsing = RenderContext(pool=pool, settings=browsers, profiles=profiles, lease_seconds=_BROWSER_START_SECONDS)
        fetcher = await stack.enter_async_context(
            PageFetcher.open(fetching, clock=clock, emit=_print_event, browsing=browsing)
        )

        def session(pace: float, _task: Task, profile: str = "") -> Session:
            return fetcher.session(pace, profile=profile)

        scrape = scraper_factory(settings, replace(known, sessions=session)).scraper(task.platform)
        if scrape is None:
            raise unknown_platform(task.platform, platform_names(settings))
        outcome = await sandbox.run(scrape, task, settings.executor.task_timeout_seconds)
        await sandbox.close()
        return outcome or Retry("interrupted")


def _print_event(event: Event) -> None:
    from parcelpost.events import PageFetched

    if isinstance(event, PageFetched):
        line = f"{event.method} {event.url}: {event.status}, {event.bytes:,} bytes in {event.seconds:.1f} s"
        print(printable(line), file=sys.stderr)


class _NullBrowserStore:
    """A BrowserStore that saves nothing."""

    def __init__(self) -> None:
        self._ids = count(1)

    async def add(self, state: BrowserState) -> int:
        return next(self._ids)

    async def put(self, state: BrowserState) -> None:
        pass

    async def all(self) -> list[BrowserState]:
        return []

    async def orphans(self) -> list[BrowserState]:
        return []

    async def remove(self, state: BrowserState) -> bool:
        return True

    async def assign(self, task_id: str, browser_id: int | None) -> None:
        pass
