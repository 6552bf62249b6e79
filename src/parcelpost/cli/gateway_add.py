"""`parcelpost gateway add`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from parcelpost.cli.gateway_options import Database
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
from parcelpost.cli.options import AnyPlatform, AsJson

if TYPE_CHECKING:
    from parcelpost.cli.importing.importer import Sink

EXAMPLES = """
Examples:

\b
  parcelpost gateway add parcels.csv --platform grizzly_gis --state FL --county columbia --dry-run
  parcelpost gateway add roll.csv.gz --platform beacon --map parcel_id='Tax Key' --errors bad.csv
  parcelpost gateway add tasks.jsonl --database postgresql://gateway@db.example.org/parcelpost
"""


def add(
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
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Queue a task for every row of a file, for the gateway's workers. Tasks that are known change nothing.

    Reads files as `parcelpost import` does. Goes into the ledger directly, whether a gateway runs on it or not; an
    SQLite ledger is made if it is not there. Bad rows are listed and the others added; the exit code is 1 then.
    """
    import asyncio

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
    take_in(wishes, partial(_ledger, database), asyncio.run)


@asynccontextmanager
async def _ledger(database: str | None) -> AsyncIterator[Sink]:
    from parcelpost.cli.gateway_options import ledger
    from parcelpost.cli.importing.sinks import IntoLedger
    from parcelpost.cli.running import CLOCK

    async with ledger(database, make=True) as opened:
        yield IntoLedger(opened, CLOCK, settled().storage.max_target_bytes)
