"""`parcelpost store backup` and `parcelpost store restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath, store_command
from parcelpost.cli.output import count, fields, print_json, print_lines, size
from parcelpost.errors import InvalidInput, StoreNotFound

if TYPE_CHECKING:
    from parcelpost.storage.backup import Backup, Restored

BACKUP_EXAMPLES = """
Examples:

\b
  parcelpost store backup
  parcelpost store backup --store /srv/parcelpost/parcelpost.db --json
"""

RESTORE_EXAMPLES = """
Examples:

\b
  parcelpost store restore --latest
  parcelpost store restore local_data/backups/parcelpost_20261115T020000.db
  parcelpost store restore --latest --force
"""


def backup(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Make a verified backup now, beside the store in backups/. Workers may go on meanwhile.

    Seven are kept; older ones are removed once the new one is verified. Raw files are not part of it.
    """
    from parcelpost.cli import running

    made = running.run(store, _backup(store))
    if as_json:
        print_json(made)
    else:
        print(f"Backup made: {made.path} ({size(made.bytes)}). {count(made.removed, 'older one')} removed.")


def restore(
    source: Annotated[Path | None, typer.Argument(help="The backup's file.", metavar="BACKUP")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Take the newest backup in backups/.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace a store that is in use, newer than the backup, or damaged.")
    ] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the store's place. The previous store is kept in backups/, never deleted.

    Refuses a backup that is damaged. Without --force also refuses while a worker has the store open, and when the
    store has changes that the backup lacks.
    """
    from parcelpost.cli import running

    if (source is None) is not latest:
        raise InvalidInput("which backup?", hint="name the backup's file, or add --latest for the newest")
    done = running.run(store, _restore(store, source, force=force))
    if as_json:
        print_json(done)
        return
    print(f"Restored {done.path}.")
    print_lines(
        fields(
            (
                ("tasks", done.contents.tasks),
                ("results", f"{done.contents.results:,}, {done.contents.unsynced:,} not delivered"),
                ("last change", done.contents.last_change or "none"),
                ("schema version", done.contents.schema_version),
                ("previous store", done.previous or "nothing: there was no store"),
            )
        )
    )
    print(f"Next: '{store_command('check', store)}' says whether every raw file it names is there.")


async def _backup(store: Path) -> Backup:
    import asyncio

    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import CLOCK, options, require_store
    from parcelpost.storage import backup as backups

    require_store(store)
    async with Meter("copying pages") as meter:
        return await asyncio.to_thread(backups.make, store, CLOCK.now(), options().keep_backups, meter)


async def _restore(store: Path, source: Path | None, *, force: bool) -> Restored:
    import asyncio

    from parcelpost.cli.progress import Meter
    from parcelpost.cli.running import CLOCK, options
    from parcelpost.storage import backup as backups
    from parcelpost.storage import durable_files, locks

    chosen = _newest(store) if source is None else _named(store, source)
    live = locks.live_folder(store)
    await asyncio.to_thread(durable_files.make_folder, live)
    async with locks.gate(live, CLOCK, options().busy_timeout_seconds), Meter("copying pages") as meter:
        return await asyncio.to_thread(backups.restore, chosen, store, live, CLOCK.now(), force=force, progress=meter)


def _newest(store: Path) -> Path:
    from parcelpost.storage import backup as backups

    found = backups.list_backups(store)
    if not found:
        raise StoreNotFound(f"there is no backup in {store.parent / 'backups'}", hint="name the backup's file")
    return found[-1]


def _named(store: Path, source: Path) -> Path:
    """As given, or, for a bare file name, in the store's own backups."""
    beside = store.parent / "backups" / source.name
    chosen = beside if source.name == str(source) and not source.exists() else source
    if not chosen.is_file():
        raise StoreNotFound(
            f"there is no backup at {chosen}", hint=f"'{store_command('status', store)}' names the newest"
        )
    return chosen
