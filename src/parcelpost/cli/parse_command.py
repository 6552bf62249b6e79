"""`parcelpost parse`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.output import print_json, printable
from parcelpost.errors import InvalidInput
from parcelpost.model import Done, NotFound, Outcome, Page, Target

EXAMPLES = """
Examples:

\b
  parcelpost parse page.html --platform grizzly_gis --state FL --county columbia
  parcelpost parse saved/*.html.gz --platform vgsi --state NH --county grafton > parcels.jsonl
"""

_MOST_BYTES = 512 * 1024**2
_TYPES = {".json": "application/json", ".csv": "text/csv"}


def parse(
    files: Annotated[list[Path], typer.Argument(help="Saved pages; .gz is unpacked.", metavar="FILE...")],
    platform: Annotated[str, typer.Option("--platform", help="The platform whose pages they are.")],
    state: Annotated[str, typer.Option("--state", help="Their state, such as FL.")] = "",
    county: Annotated[str, typer.Option("--county", help="Their county.")] = "",
    parcel_id: Annotated[str, typer.Option("--parcel", help="The parcel that was asked for.")] = "",
) -> None:
    """Print the records of saved pages, one JSON line each. Nothing is fetched or stored.

    For a page that holds no record the reason goes to stderr, and the exit code is 1.
    """
    from parcelpost.scrapers.platforms import NAMES, county_platform

    found = county_platform(platform)
    if found is None:
        raise InvalidInput(f"there is no platform {platform!r}", hint=f"known are {', '.join(NAMES)}")
    target = Target(parcel_id=parcel_id, state=state, county=county)
    bad = 0
    for file in files:
        outcome = found.parse(_page(file), target).outcome
        if isinstance(outcome, Done):
            for record in (outcome.data, *outcome.more):
                print_json(record)
        else:
            bad += 1
            print(printable(f"{file}: {reason(outcome)}"), file=sys.stderr)
    if bad:
        raise typer.Exit(1)


def _page(file: Path) -> Page:
    import gzip
    import zlib

    try:
        if file.suffix == ".gz":
            with gzip.open(file) as opened:
                body = opened.read(_MOST_BYTES + 1)
        else:
            with file.open("rb") as plain:
                body = plain.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"{file} cannot be read: {reason}", hint="name a saved page") from None
    if len(body) > _MOST_BYTES:
        raise InvalidInput(f"{file} is larger than 512 MiB", hint="is it a page?")
    return Page(body=body, content_type=_TYPES.get(Path(file.name.removesuffix(".gz")).suffix, "text/html"))


def reason(outcome: Outcome) -> str:
    kind = "not found" if isinstance(outcome, NotFound) else type(outcome).__name__.lower()
    return f"{kind}: {getattr(outcome, 'reason', '')}"
