"""`parcelpost store clean` and `parcelpost store migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import print_json, print_lines, size, table
from parcelpost.errors import StoreOutdated

CLEAN_EXAMPLES = """
Examples:

\b
  parcelpost store clean
  parcelpost store clean --relieve
  parcelpost store clean --full --json
"""

MIGRATE_EXAMPLES = """
Examples:

\b
  parcelpost store migrate
  parcelpost store migrate --store /srv/parcelpost/parcelpost.db --json
"""


def clean(
    relieve: Annotated[
        bool,
        typer.Option(
            "--relieve", help="Remove all that was delivered, the cache and artifacts of failures, whatever their age."
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Then rebuild the file, if more than a quarter is free. Workers wait that long."),
    ] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Remove what is past its time and give the room back. What was not delivered is never touched."""
    from parcelpost.cli import running

    removed, given_back = running.run(store, _clean(store, relieve=relieve, full=full))
    if as_json:
        print_json({"removed": removed, "given_back_bytes": given_back})
        return
    print_lines(table(("removed", "count"), [(name.replace("_", " "), number) for name, number in removed.items()]))
    print(f"The database file gave {size(given_back)} back to the disk.")


def migrate(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Bring the store's schema up to this program's version, after a backup. Stop the workers first."""
    from parcelpost.cli import running

    old, new, copy = running.run(store, _migrate(store))
    if as_json:
        print_json({"from_version": old, "to_version": new, "backup": copy})
    elif old == new:
        print(f"Nothing to do: the store has schema version {new}, as this program needs.")
    else:
        print(f"Migrated from schema version {old} to {new}. The store as it was: {copy}")


async def _clean(store: Path, *, relieve: bool, full: bool) -> tuple[dict[str, int], int]:
    """How many of each kind were removed, and by how many bytes the file shrank."""
    from msgspec import structs

    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import changing, require_store

    require_store(store)
    before = store.stat().st_size
    async with changing(store) as lpm, Meter("cleaning"):
        cleaned = await (lpm.maintenance.relieve(full=full) if relieve else lpm.maintenance.clean(full=full))
    return structs.asdict(cleaned), max(0, before - store.stat().st_size)


async def _migrate(store: Path) -> tuple[int, int, str | None]:
    """The versions before and after, and where the backup is."""
    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import CLOCK, looking, options
    from parcelpost.events import Event, StoreOpened
    from parcelpost.storage import LocalPersistenceManager, migrations
    from parcelpost.storage.snapshot import copies

    try:
        async with looking(store) as database:
            version = await database.read(migrations.version)
            return version, version, None
    except StoreOutdated:
        events: list[Event] = []
    async with (
        Meter("migrating"),
        LocalPersistenceManager.open(
            store, options=options(), clock=CLOCK, emit=events.append, worker="cli", create=False
        ),
    ):
        (opened,) = (event for event in events if isinstance(event, StoreOpened))
    version = opened.schema_version
    made = (store.parent / "backups").glob(f"{copies(store)}_before_v{version}_*.db")
    newest = max(made, key=lambda copy: copy.name, default=None)
    return version - len(opened.migrated), version, str(newest) if newest else None
