"""`parcelpost parse`: parses saved pages without fetching or storing anything."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from parcelpost.cli.output import examples, print_json, printable
from parcelpost.cli.settings_options import ConfigOption, SetOption, load_settings
from parcelpost.errors import InvalidInput
from parcelpost.model import Blocked, Done, GiveUp, NotFound, Outcome, Page, Retry, Target

if TYPE_CHECKING:
    from parcelpost.settings import Settings


STDIN = "-"

_MOST_BYTES = 512 * 1024**2
_GZIP = b"\x1f\x8b"
_TYPES = {".json": "application/json", ".csv": "text/csv"}
_STORED_SUFFIX = ".html.gz"
"""Suffix of pages in a store. Each has its record next to it, which is not a page."""


def find_pages(files: Iterable[str]) -> Iterator[str]:
    """Yields the files, and all files in folders, sorted by name. Skips hidden files and records of a store."""
    for file in files:
        if file != STDIN and Path(file).is_dir():
            yield from _pages_in(file)
        else:
            yield file


def read_page(file: str) -> Page | GiveUp:
    """Returns GiveUp if the file cannot be read."""
    try:
        if file == STDIN:
            body = _read_bounded(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as opened:
                body = _read_bounded(opened)
    except (OSError, EOFError, zlib.error) as error:
        return GiveUp(f"cannot read the file: {getattr(error, 'strerror', None) or error}")
    if len(body) > _MOST_BYTES:
        return GiveUp("the file is larger than 512 MiB: is it a page?")
    return Page(body=body, content_type=_TYPES.get(Path(file.removesuffix(".gz")).suffix, "text/html"))


def _pages_in(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = set(files)
        for name in sorted(names):
            is_record = name.endswith(".json") and name.removesuffix(".json") + _STORED_SUFFIX in names
            if not name.startswith(".") and not is_record:
                yield str(Path(place, name))


def _read_bounded(opened: BinaryIO) -> bytes:
    body = opened.read(_MOST_BYTES + 1)
    if not body.startswith(_GZIP):
        return body
    with gzip.open(BytesIO(body)) as packed:
        return packed.read(_MOST_BYTES + 1)


EXAMPLES = examples(
    "parcelpost parse page.html --platform grizzly_gis --state FL --county columbia",
    "parcelpost parse saved/*.html.gz --platform vgsi --state NH --county grafton > parcels.jsonl",
    "parcelpost parse local_data/data/vgsi/NH --platform vgsi --state NH",
    "curl -s https://example.org/parcels.csv | parcelpost parse - --platform lien_register --state CO",
)


def parse(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Saved pages, optionally gzipped; folders of pages; or - for standard input.", metavar="FILE"
        ),
    ],
    platform: Annotated[str, typer.Option("--platform", metavar="NAME", help="Platform that the pages come from.")],
    state: Annotated[str, typer.Option("--state", metavar="STATE", help="State, such as FL.")] = "",
    county: Annotated[str, typer.Option("--county", metavar="COUNTY", help="County.")] = "",
    parcel_id: Annotated[str, typer.Option("--parcel", metavar="ID", help="Parcel ID that was requested.")] = "",
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Print the records of saved pages, one JSON line each. Nothing is fetched or stored.

    If a page contains no record, the reason is printed to stderr and the exit code is 1.
    """
    import asyncio

    from parcelpost.places import normalized

    settings = load_settings(config, set_)
    target = normalized(Target(parcel_id=parcel_id, state=state, county=county))
    bad = asyncio.run(_parse(files, platform, target, settings))
    if bad:
        raise typer.Exit(1)


async def _parse(files: Sequence[str], platform: str, target: Target, settings: Settings) -> int:
    """Returns the number of files without a record."""
    from parcelpost.cli.components import known_sites, scraper_factory
    from parcelpost.cli.platform_names import platform_names, require_platform
    from parcelpost.worker.reparse import PageReader

    require_platform(platform, platform_names(settings))
    parser = scraper_factory(settings, known_sites(settings)).parser
    bad = 0
    async with PageReader.open(parser, seconds=settings.executor.task_timeout_seconds) as reader:
        if (unreadable := await reader.unreadable(platform)) is not None:
            raise InvalidInput(
                f"{platform} cannot parse saved pages: {unreadable.reason}",
                hint="set parse to a parse function in its [platforms] entry",
            )
        for file in find_pages(files):
            read = read_page(file)
            outcome = read if isinstance(read, Outcome) else await reader.read(platform, read, target)
            bad += not _print_outcome(file, outcome)
    return bad


def _print_outcome(file: str, outcome: Outcome) -> bool:
    """Returns whether there was a complete record to print. What could be read of an incomplete page is printed too."""
    if not isinstance(outcome, Done):
        name = "standard input" if file == "-" else file
        print(printable(f"{name}: {outcome_reason(outcome)}"), file=sys.stderr)
    print_records(outcome)
    return isinstance(outcome, Done)


def print_records(outcome: Outcome) -> None:
    done = outcome.partial if isinstance(outcome, Retry) else outcome
    if isinstance(done, Done):
        for record in (done.data, *done.additional_records):
            print_json(record)


def outcome_reason(outcome: Outcome) -> str:
    kind = "not found" if isinstance(outcome, NotFound) else "blocked" if isinstance(outcome, Blocked) else "error"
    return f"{kind}: {getattr(outcome, 'reason', '')}"
