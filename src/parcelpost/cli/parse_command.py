"""`parcelpost parse`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import ConfigPath, SetOptions
from parcelpost.cli.output import print_json, printable
from parcelpost.errors import InvalidInput
from parcelpost.model import Blocked, Done, NotFound, Outcome, Target

if TYPE_CHECKING:
    from parcelpost.settings import Settings

EXAMPLES = """
Examples:

\b
  parcelpost parse page.html --platform grizzly_gis --state FL --county columbia
  parcelpost parse saved/*.html.gz --platform vgsi --state NH --county grafton > parcels.jsonl
  parcelpost parse local_data/data/vgsi/NH --platform vgsi --state NH
  curl -s https://example.org/parcels.csv | parcelpost parse - --platform lien_register --state CO
"""


def parse(
    files: Annotated[
        list[str],
        typer.Argument(help="Saved pages, gzipped or not; folders of them; - is standard input.", metavar="FILE"),
    ],
    platform: Annotated[str, typer.Option("--platform", metavar="NAME", help="The platform whose pages they are.")],
    state: Annotated[str, typer.Option("--state", metavar="STATE", help="Their state, such as FL.")] = "",
    county: Annotated[str, typer.Option("--county", metavar="COUNTY", help="Their county.")] = "",
    parcel_id: Annotated[str, typer.Option("--parcel", metavar="ID", help="The parcel that was asked for.")] = "",
    config: ConfigPath = None,
    settings: SetOptions = None,
) -> None:
    """Print the records of saved pages, one JSON line each. Nothing is fetched or stored.

    For a page that holds no record the reason goes to stderr, and the exit code is 1.
    """
    import asyncio

    from parcelpost.places import normalized
    from parcelpost.settings.sources import load, parse_set

    loaded = load(config=config, environment=os.environ, flags=parse_set(settings or []))
    target = normalized(Target(parcel_id=parcel_id, state=state, county=county))
    bad = asyncio.run(_parse(files, platform, target, loaded.settings))
    if bad:
        raise typer.Exit(1)


async def _parse(files: Sequence[str], platform: str, target: Target, settings: Settings) -> int:
    """How many of the files gave no record."""
    from parcelpost.cli.known_platforms import factory, sites
    from parcelpost.cli.platform_names import names, unknown
    from parcelpost.cli.saved_pages import found, page
    from parcelpost.worker.reparse import PageReader

    if platform not in (known := names(settings)):
        raise InvalidInput(unknown(platform, known), hint=f"known are {', '.join(sorted(known))}")
    parser = factory(settings, sites(settings)).parser
    bad = 0
    async with PageReader.open(parser, seconds=settings.executor.task_timeout_seconds) as reader:
        if (unreadable := await reader.unreadable(platform)) is not None:
            raise InvalidInput(
                f"{platform} reads no saved pages: {unreadable.reason}",
                hint="give it a parse function of its own: parse = in its [platforms] entry",
            )
        for file in found(files):
            read = page(file)
            outcome = read if isinstance(read, Outcome) else await reader.read(platform, read, target)
            bad += not _told(file, outcome)
    return bad


def _told(file: str, outcome: Outcome) -> bool:
    """Whether there was a record to print."""
    if not isinstance(outcome, Done):
        name = "standard input" if file == "-" else file
        print(printable(f"{name}: {reason(outcome)}"), file=sys.stderr)
        return False
    for record in (outcome.data, *outcome.more):
        print_json(record)
    return True


def reason(outcome: Outcome) -> str:
    kind = "not found" if isinstance(outcome, NotFound) else "blocked" if isinstance(outcome, Blocked) else "error"
    return f"{kind}: {getattr(outcome, 'reason', '')}"
