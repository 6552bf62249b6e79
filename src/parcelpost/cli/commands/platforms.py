"""The `parcelpost platforms` commands: list, map, pause, resume."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.commands.platforms_map import MAP_EXAMPLES, map_layer
from parcelpost.cli.output import Cell, age, examples, print_json, print_lines, printable, table
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, StoreContext, StoreOption, store_context
from parcelpost.cli.task_filters import DefaultListGroup
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.health.platforms import ListedPlatform, SiteSuccess, StorePlatforms
    from parcelpost.storage.claims import Pause


PAUSE_EXAMPLES = examples(
    'parcelpost platforms pause qpublic --reason "the county asked us to wait"',
    "parcelpost platforms pause vgsi --hours 12",
    "parcelpost platforms resume qpublic",
)

PlatformName = Annotated[str, typer.Argument(help="Platform name.", metavar="PLATFORM")]


def pause(
    name: PlatformName,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours", metavar="N", min=0.01, max=8_760, help="Pause for this many hours. Default: until resumed."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, shown in status output.")
    ] = "no reason given",
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Pause a platform: workers on this store start no new tasks for it. Running tasks finish normally."""
    from parcelpost.cli import context
    from parcelpost.cli.platform_names import platform_names, require_platform

    store = store_context(store_path, config, set_)
    require_platform(name, platform_names(store.settings))
    until = context.run_async(store, _pause(store, name, hours, reason))
    if as_json:
        print_json({"platform": name, "until": until, "reason": reason})
    else:
        print(printable(f"{name} is paused {f'until {until}' if until else 'until it is resumed'}: {reason}"))


def resume(
    name: PlatformName,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Resume a platform that was paused manually or because its site blocked us."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    paused = context.run_async(store, _resume(store, name))
    if name not in paused:
        others = f"paused platforms: {', '.join(sorted(paused))}" if paused else "no platform is paused in this store"
        raise InvalidInput(f"{name!r:.60} is not paused", hint=others)
    print_json({"platform": name, "resumed": True}) if as_json else print(f"Resumed {name}.")


async def _pause(store: StoreContext, name: str, hours: float | None, reason: str) -> str | None:
    from parcelpost.cli.context import CLOCK, open_for_writing
    from parcelpost.model import Site

    async with open_for_writing(store) as lpm:
        await lpm.pause_platform(name, CLOCK.now() + timedelta(hours=hours) if hours is not None else None, reason)
        return (await lpm.pauses())[Site(name, "", "")].until


async def _resume(store: StoreContext, name: str) -> frozenset[str]:
    """Returns the platforms that were paused before."""
    from parcelpost.cli.context import open_for_writing

    async with open_for_writing(store) as lpm:
        paused = frozenset(site.platform for site in await lpm.pauses())
        await lpm.resume_platform(name)
        return paused


LIST_EXAMPLES = examples(
    "parcelpost platforms",
    "parcelpost platforms grizzly_gis --json",
    "parcelpost platforms --store /srv/parcelpost/parcelpost.db",
)


app = typer.Typer(
    help="List, pause and resume platforms, and map unknown layers. Without a command, lists them.",
    cls=DefaultListGroup,
    epilog=LIST_EXAMPLES,
)
app.command("map", epilog=MAP_EXAMPLES)(map_layer)
app.command("pause", epilog=PAUSE_EXAMPLES)(pause)
app.command("resume", epilog=PAUSE_EXAMPLES)(resume)


@app.command("list", epilog=LIST_EXAMPLES)
def list_platforms(
    only: Annotated[str, typer.Argument(help="Only this platform.", metavar="PLATFORM")] = "",
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """List platforms, their known county sites, and the health of each.

    Health is computed from the most recent tasks in the store; without a store only the list is printed. A platform
    without counties still works for tasks that have a URL.
    """
    from parcelpost.cli.health.platforms import listed_platforms
    from parcelpost.cli.platform_names import require_platform

    store = store_context(store_path, config, set_)
    known = _known_health(store, is_required=store_path is not None)
    platforms = listed_platforms(store.settings, known)
    if only:
        require_platform(only, frozenset(platform.platform for platform in platforms))
    platforms = [platform for platform in platforms if only in ("", platform.platform)]
    if as_json:
        print_json(platforms)
    elif known.sites or known.pauses:
        print_lines(_with_health(platforms))
    else:
        print_lines(table(("platform", "state", "county", "site"), _rows(platforms)))


def _known_health(store: StoreContext, *, is_required: bool) -> StorePlatforms:
    """Raises a StoreError if the store is required; otherwise prints it as a note."""
    from parcelpost.cli import context
    from parcelpost.cli.health.platforms import StorePlatforms, platforms_of_store
    from parcelpost.errors import StoreError

    if not is_required and not store.path.exists():
        return StorePlatforms()
    try:
        return context.run_async(store, platforms_of_store(store))
    except StoreError as error:
        if is_required:
            raise
        print(printable(f"note: platform health is not available: {error}"), file=sys.stderr)
        return StorePlatforms()


def _rows(platforms: list[ListedPlatform]) -> Iterator[tuple[Cell, ...]]:
    for platform in platforms:
        for county in platform.counties:
            yield _platform_label(platform), county.state, county.county, county.site or None
        if not platform.counties:
            yield _platform_label(platform), None, None, None


def _with_health(platforms: list[ListedPlatform]) -> Iterator[str]:
    headers = ("platform", "state", "county", "done", "failed", "success", "retrying", "last success", "health", "site")
    yield from table(headers, [row for platform in platforms for row in _health_rows(platform)])
    for platform in platforms:
        if platform.paused is not None:
            yield _pause_line(platform.platform, platform.paused)
        for county in platform.counties:
            if county.paused is not None:
                yield _pause_line(f"{platform.platform} {county.state}/{county.county}", county.paused)
            if county.health is not None and county.health.last_error and county.health.state != "fine":
                yield printable(f"{platform.platform} {county.state}/{county.county}: {county.health.last_error}")


def _pause_line(name: str, pause: Pause) -> str:
    until = f"until {pause.until}" if pause.until else "until it is resumed"
    return printable(f"{name} is paused {until}: {pause.reason}")


def _health_rows(platform: ListedPlatform) -> Iterator[tuple[Cell, ...]]:
    for county in platform.counties:
        *numbers, state = _health_text(county.health) if county.health else (None,) * 6
        yield (
            _platform_label(platform),
            county.state,
            county.county,
            *numbers,
            _health_cell(platform, state, county.paused or platform.paused),
            county.site or None,
        )
    if not platform.counties:
        yield _platform_label(platform), *(None,) * 7, _health_cell(platform, None, platform.paused), None


def _health_text(health: SiteSuccess) -> tuple[Cell, ...]:
    from parcelpost.cli.context import CLOCK

    since = None
    if health.last_success is not None:
        since = f"{age((CLOCK.now() - health.last_success).total_seconds())} ago"
    rate = None if health.success_rate is None else f"{int(100 * health.success_rate)}%"
    return health.completed, health.failed, rate, health.trying_again, since, health.state


def _health_cell(platform: ListedPlatform, state: Cell, pause: Pause | None) -> Cell:
    if not platform.origin:
        return "not installed"
    return "paused" if pause is not None and state in (None, "-", "fine") else state


def _platform_label(platform: ListedPlatform) -> str:
    return f"{platform.platform} (experimental)" if platform.experimental else platform.platform
