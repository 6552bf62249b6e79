"""`parcelpost platforms`: what there is; its sub-commands pause and resume."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from parcelpost.cli import platforms_pause
from parcelpost.cli.given import with_settings
from parcelpost.cli.options import AsJson, ConfigPath, SetOptions
from parcelpost.cli.output import Cell, age, print_json, print_lines, printable, table

if TYPE_CHECKING:
    from parcelpost.cli.platform_health import Health, Known, ListedPlatform
    from parcelpost.settings import Settings

EXAMPLES = """
Examples:

\b
  parcelpost platforms
  parcelpost platforms grizzly_gis --json
  parcelpost platforms --store /srv/parcelpost/parcelpost.db
"""


class _ListUnlessTold(TyperGroup):
    """`parcelpost platforms vgsi --json` is `parcelpost platforms list vgsi --json`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args:
            is_list = not ctx.resilient_parsing  # a shell that completes the line wants to know the commands
        else:
            is_list = args[0] not in self.commands and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["list", *args] if is_list else args)


app = typer.Typer(
    help="The platforms and how they do; without a command they are listed.", cls=_ListUnlessTold, epilog=EXAMPLES
)
app.command("pause", epilog=platforms_pause.EXAMPLES)(with_settings(platforms_pause.pause))
app.command("resume", epilog=platforms_pause.EXAMPLES)(with_settings(platforms_pause.resume))


@app.command("list", epilog=EXAMPLES)
def platforms(
    only: Annotated[str, typer.Argument(help="Only this one.", metavar="PLATFORM")] = "",
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="PATH", help="The store whose tasks tell; else storage.path, if it is there."),
    ] = None,
    as_json: AsJson = False,
    config: ConfigPath = None,
    settings: SetOptions = None,
) -> None:
    """List the platforms, the counties whose sites are known, and how each of them does.

    How they do is what the store's last tasks say; without a store there is only the list. A platform without
    counties works all the same for tasks that name a page.
    """
    from parcelpost.cli.platform_health import listed
    from parcelpost.cli.platform_names import unknown
    from parcelpost.errors import InvalidInput
    from parcelpost.settings.sources import load, parse_set

    loaded = load(config=config, environment=os.environ, flags=parse_set(settings or []))
    known = _known(store, loaded.settings)
    found = listed(loaded.settings, known)
    names = frozenset(one.platform for one in found)
    if only and only not in names:
        raise InvalidInput(unknown(only, names), hint=f"known are {', '.join(sorted(names))}")
    found = [one for one in found if only in ("", one.platform)]
    if as_json:
        print_json(found)
    elif known.sites or known.paused:
        print_lines(_with_health(found))
    else:
        print_lines(table(("platform", "state", "county", "site"), _rows(found)))


def _known(store: Path | None, settings: Settings) -> Known:
    """Of a store that nobody named, only what can be had. Raises a StoreError."""
    from parcelpost.cli import running
    from parcelpost.cli.platform_health import Known, of_store
    from parcelpost.errors import StoreError

    path = store or Path(settings.storage.path)
    if store is None and not path.exists():
        return Known()
    try:
        return running.run(path, of_store(path))
    except StoreError as error:
        if store is not None:
            raise
        print(printable(f"note: how they do cannot be told: {error}"), file=sys.stderr)
        return Known()


def _rows(found: list[ListedPlatform]) -> Iterator[tuple[Cell, ...]]:
    for one in found:
        for county in one.counties:
            yield _name(one), county.state, county.county, county.site or None
        if not one.counties:
            yield _name(one), None, None, None


def _with_health(found: list[ListedPlatform]) -> Iterator[str]:
    headers = ("platform", "state", "county", "done", "failed", "success", "again", "last success", "health", "site")
    yield from table(headers, [row for one in found for row in _health_rows(one)])
    for one in found:
        if one.paused is not None:
            until = f"until {one.paused.until}" if one.paused.until else "until somebody resumes it"
            yield printable(f"{one.platform} is paused {until}: {one.paused.reason}")
        for county in one.counties:
            if county.health is not None and county.health.last_error and county.health.word != "fine":
                yield printable(f"{one.platform} {county.state}/{county.county}: {county.health.last_error}")


def _health_rows(one: ListedPlatform) -> Iterator[tuple[Cell, ...]]:
    for county in one.counties:
        *numbers, word = _told(county.health) if county.health else (None,) * 6
        yield _name(one), county.state, county.county, *numbers, _word(one, word), county.site or None
    if not one.counties:
        yield _name(one), *(None,) * 7, _word(one, None), None


def _told(health: Health) -> tuple[Cell, ...]:
    from parcelpost.cli.running import CLOCK

    since = None
    if health.last_success is not None:
        since = f"{age((CLOCK.now() - health.last_success).total_seconds())} ago"
    rate = None if health.success_rate is None else f"{int(100 * health.success_rate)}%"
    return health.completed, health.failed, rate, health.trying_again, since, health.word


def _word(one: ListedPlatform, word: Cell) -> Cell:
    if not one.origin:
        return "not installed"
    return "paused" if one.paused is not None and word in (None, "-", "fine") else word


def _name(one: ListedPlatform) -> str:
    return f"{one.platform} (experimental)" if one.experimental else one.platform
