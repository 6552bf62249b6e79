"""`parcelpost import`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parcelpost.cli.given import settled
from parcelpost.cli.importing.options import (
    AllowBad,
    CountyOfAll,
    DryRun,
    Errors,
    File,
    Kind,
    Maps,
    PlatformOfAll,
    StateOfAll,
    Wishes,
)
from parcelpost.cli.options import DEFAULT_STORE, AnyPlatform, AsJson, StorePath

if TYPE_CHECKING:
    from parcelpost.cli.importing.importer import Sink

EXAMPLES = """
Examples:

\b
  parcelpost import parcels.csv --platform grizzly_gis --state FL --county columbia --dry-run
  parcelpost import roll.tsv.gz --platform beacon --map parcel_id='Tax Key'
  zcat parcels.jsonl.gz | parcelpost import - --format jsonl --errors bad.csv
"""


def import_(
    file: File,
    maps: Maps = None,
    platform: PlatformOfAll = "",
    state: StateOfAll = "",
    county: CountyOfAll = "",
    kind: Kind = None,
    dry_run: DryRun = False,
    errors: Errors = None,
    allow_bad: AllowBad = False,
    any_platform: AnyPlatform = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Store a task for every row of a file. Rows that are stored already change nothing.

    Columns with clear names are found by themselves. Bad rows are listed and the others imported; the exit code is 1
    then. The store is made if it is not there.
    """
    from parcelpost.cli import running
    from parcelpost.cli.importing.command import take_in
    from parcelpost.cli.platform_names import KnownPlatforms

    wishes = Wishes(
        file=file,
        maps=maps or [],
        same={"platform": platform, "state": state, "county": county},
        kind=kind,
        dry_run=dry_run,
        errors=errors,
        allow_bad=allow_bad,
        platforms=None if any_platform else KnownPlatforms(settled()),
        as_json=as_json,
    )
    take_in(wishes, partial(_store, store), partial(running.run, store))


@asynccontextmanager
async def _store(store: Path) -> AsyncIterator[Sink]:
    from parcelpost.cli.filling import filling
    from parcelpost.cli.importing.sinks import IntoStore
    from parcelpost.cli.running import CLOCK, options

    async with filling(store) as lpm:
        yield IntoStore(lpm, options(), CLOCK)
