"""`parcelpost store backup`, `restore` and `salvage`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.output import count, examples, fields, print_json, print_lines, printable, size
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    store_command,
    store_context,
)
from parcelpost.errors import InvalidInput, StoreInUse, StoreNotFound

if TYPE_CHECKING:
    from parcelpost.storage.backup import Backup, Restored
    from parcelpost.storage.salvage import Salvaged


BACKUP_EXAMPLES = examples(
    "parcelpost store backup", "parcelpost store backup --store /srv/parcelpost/parcelpost.db --json"
)

RESTORE_EXAMPLES = examples(
    "parcelpost store restore --latest",
    "parcelpost store restore local_data/backups/parcelpost_20261115T020000.db",
    "parcelpost store restore --latest --force",
)


def backup(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Make a verified backup now, in backups/ next to the store. Workers can keep running.

    Keeps storage.keep_backups of them (default: 7): older ones are deleted once the new one is verified. Raw files are
    not included.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    made = context.run_async(store, _backup(store))
    if as_json:
        print_json(made)
    else:
        print(f"Backup created: {made.path} ({size(made.bytes)}). {count(made.removed, 'older backup')} removed.")


def restore(
    source: Annotated[Path | None, typer.Argument(help="The backup file.", metavar="BACKUP")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Use the newest backup in backups/.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace a store that is in use, newer than the backup, or damaged.")
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Replace the store with a backup. The previous store is moved to backups/, never deleted.

    A damaged backup is refused. Without --force, so is replacing a store that a worker has open or that has changes the
    backup lacks.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    if (source is None) is not latest:
        raise InvalidInput(
            "specify either a backup file or --latest", hint="--latest restores the newest backup in backups/"
        )
    done = context.run_async(store, _restore(store, source, force=force))
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
                ("previous store", done.previous or "none: there was no store"),
            )
        )
    )
    print(f"Next: '{store_command('check', store)}' checks that all its raw files exist.")


async def _backup(store: StoreContext) -> Backup:
    import asyncio

    from parcelpost.cli.context import CLOCK, require_store
    from parcelpost.cli.progress import Meter
    from parcelpost.storage import backup as backups

    require_store(store.path)
    async with Meter("copying pages") as meter:
        return await asyncio.to_thread(
            backups.make, store.path, CLOCK.now(), store.settings.storage.keep_backups, meter
        )


async def _restore(store: StoreContext, source: Path | None, *, force: bool) -> Restored:
    import asyncio

    from parcelpost.cli.context import CLOCK
    from parcelpost.cli.progress import Meter
    from parcelpost.storage import backup as backups
    from parcelpost.storage import durable_files, locks

    chosen = _newest_backup(store) if source is None else _named_backup(store, source)
    live = locks.live_folder(store.path)
    await asyncio.to_thread(durable_files.make_folder, live)
    async with (
        locks.gate(live, CLOCK, store.settings.storage.busy_timeout_seconds),
        Meter("copying pages") as meter,
    ):
        return await asyncio.to_thread(
            backups.restore, chosen, store.path, live, CLOCK.now(), force=force, progress=meter
        )


def _newest_backup(store: StoreContext) -> Path:
    from parcelpost.storage import backup as backups

    paths = backups.list_backups(store.path)
    if not paths:
        raise StoreNotFound(
            f"there is no backup in {store.path.parent / 'backups'}", hint="specify the path of a backup file"
        )
    return paths[-1]


def _named_backup(store: StoreContext, source: Path) -> Path:
    """The path as given; a bare file name that does not exist here is looked up in backups/. Raises StoreNotFound."""
    beside = store.path.parent / "backups" / source.name
    chosen = beside if source.name == str(source) and not source.exists() else source
    if not chosen.is_file():
        raise StoreNotFound(
            f"there is no backup at {chosen}", hint=f"'{store_command('status', store)}' shows the newest"
        )
    return chosen


_SHOWN = 20

SALVAGE_EXAMPLES = examples(
    "parcelpost store salvage",
    "parcelpost store salvage --replace",
    "parcelpost store salvage --to /mnt/other/salvaged.db --json",
)


class SalvageOutcome(Struct, frozen=True, kw_only=True):
    salvaged: Salvaged
    replaced: bool
    previous: str | None
    """Path of the damaged store."""


def salvage(
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write the new store to this file (default: in backups/)."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the store with it; the damaged one is moved to backups/.")
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Copy the readable rows of a damaged store into a new one, and list the rest.

    Stop the workers first. The damaged store is not modified. Unreadable records are recovered from the files next to
    their raw pages, unreadable tasks and results from the newest backup. A task whose result is lost runs again. Ctrl-C
    leaves everything as it was.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    outcome = context.run_async(store, _salvage(store, to, replace=replace))
    if as_json:
        print_json(outcome)
        return
    salvaged = outcome.salvaged
    print(f"Salvaged {count(sum(salvaged.rows.values()), 'row')} into {outcome.salvaged.path}.")
    print_lines(
        fields(
            (
                ("tasks", salvaged.rows.get("tasks", 0)),
                ("results", f"{salvaged.rows.get('results', 0):,}, {salvaged.undelivered:,} to deliver"),
                ("records", f"{salvaged.records_from_files:,} recovered from files next to their pages"),
                ("from backup", _salvaged_counts(salvaged)),
                ("rebuilt", f"{count(salvaged.tasks_from_results, 'task')} from results whose task was damaged"),
                ("to run again", f"{count(salvaged.tasks_again, 'task')} whose result was damaged"),
                ("lost", count(salvaged.lost_rows, "row")),
            )
        )
    )
    for row in salvaged.lost[:_SHOWN]:
        print(printable(f"  {row.table}: {row.row}: {row.reason}"))
    if salvaged.lost_rows > _SHOWN:
        print(f"  and {salvaged.lost_rows - _SHOWN:,} more; --json lists them")
    if outcome.replaced:
        print(f"It replaced {store.path}; the damaged store is now {outcome.previous}.")
        print(f"Next: '{store_command('check', store)}', then start the worker: delivery continues.")
    else:
        restore = store_command(f"restore {salvaged.path} --force", store)
        print(f"Next: '{restore}' replaces the store with it; the damaged one is moved to backups/.")


def _salvaged_counts(salvaged: Salvaged) -> str:
    if salvaged.backup is None:
        return "nothing: there is no intact backup" if salvaged.lost_rows else "nothing was missing"
    filled = [
        count(salvaged.from_backup.get(table, 0), noun) for table, noun in (("tasks", "task"), ("results", "result"))
    ]
    return f"{' and '.join(filled)}, from {salvaged.backup}"


async def _salvage(store: StoreContext, to: Path | None, *, replace: bool) -> SalvageOutcome:
    import asyncio

    from parcelpost.cli.context import CLOCK, openers
    from parcelpost.cli.progress import Meter
    from parcelpost.clock import iso
    from parcelpost.errors import StoreNotFound
    from parcelpost.storage import backup, durable_files, locks, raw_files, salvage
    from parcelpost.storage.snapshot import copies

    store = store._replace(path=store.path.resolve())
    if not store.path.is_file():
        raise StoreNotFound(f"there is no store at {store.path}")
    now = CLOCK.now()
    path = to or store.path.parent / "backups" / f"{copies(store.path)}_salvaged_{now:%Y%m%dT%H%M%S%f}.db"
    if path.exists():
        raise InvalidInput(f"{path} already exists", hint="choose another file with --to")
    alive, _ = await openers(store)
    if alive:
        raise StoreInUse(
            f"{store.path} is open in {', '.join(process.id for process in alive)}", hint="stop the worker first"
        )
    live, raw_root = locks.live_folder(store.path), raw_files.raw_folder(store.path)
    await asyncio.to_thread(durable_files.make_folder, live)
    cancelled = False

    async with (
        locks.gate(live, CLOCK, store.settings.storage.busy_timeout_seconds),
        Meter("copying rows") as meter,
    ):
        copying = asyncio.create_task(
            asyncio.to_thread(
                salvage.salvage,
                store.path,
                path,
                raw_root,
                iso(now),
                backups=backup.list_backups(store.path)[::-1],
                progress=meter,
                is_cancelled=lambda: cancelled,
            )
        )
        try:
            salvaged = await asyncio.shield(copying)
        except asyncio.CancelledError:
            cancelled = True
            await asyncio.wait([copying])
            if copying.exception() is None:  # it finished just before
                path.unlink()
            raise
        previous = None
        if replace:
            restored = await asyncio.to_thread(backup.restore, path, store.path, live, now, force=True)
            previous = restored.previous
            if to is None:
                path.unlink(missing_ok=True)
    return SalvageOutcome(salvaged=salvaged, replaced=replace, previous=previous)
