"""`parcelpost import`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from parcelpost.cli.importer.options import (
    AllowBad,
    CountyOfAll,
    DryRun,
    Errors,
    File,
    ImportOptions,
    Kind,
    Maps,
    PlatformOfAll,
    StateOfAll,
)
from parcelpost.cli.output import examples
from parcelpost.cli.settings_options import (
    AnyPlatform,
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)

if TYPE_CHECKING:
    from parcelpost.cli.importer.importer import Sink


EXAMPLES = examples(
    "parcelpost import parcels.csv --platform grizzly_gis --state FL --county columbia --dry-run",
    "parcelpost import roll.tsv.gz --platform beacon --map parcel_id='Tax Key'",
    "zcat parcels.jsonl.gz | parcelpost import - --format jsonl --errors bad.csv",
)


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
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Add a task for every row of a file. Rows that were already imported are skipped.

    Columns with common names are recognized automatically. Invalid rows are listed and set the exit code to 1; all
    others are imported. Creates the store if it does not exist.
    """
    from parcelpost.cli import context
    from parcelpost.cli.importer.importer import import_file
    from parcelpost.cli.platform_names import KnownPlatforms

    store = store_context(store_path, config, set_)
    options = ImportOptions(
        file=file,
        maps=maps,
        platform=platform,
        state=state,
        county=county,
        kind=kind,
        dry_run=dry_run,
        errors=errors,
        allow_bad=allow_bad,
        any_platform=any_platform,
        as_json=as_json,
    )
    import_file(options, KnownPlatforms(store.settings), partial(_open_sink, store), partial(context.run_async, store))


@asynccontextmanager
async def _open_sink(store: StoreContext) -> AsyncIterator[Sink]:
    from parcelpost.cli.context import CLOCK, open_or_create, store_options
    from parcelpost.cli.importer.importer import StoreSink

    async with open_or_create(store) as lpm:
        yield StoreSink(lpm, store_options(store.settings), CLOCK)
