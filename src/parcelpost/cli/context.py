"""What a command works on: the event loop, the local store (for reading or writing) and the gateway's ledger."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.output import count
from parcelpost.cli.settings_options import StoreContext, store_command
from parcelpost.clock import SystemClock
from parcelpost.errors import (
    LedgerError,
    NotAStore,
    ParcelpostError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotFound,
    extra_hint,
)
from parcelpost.events import Event, OwnerCrashed
from parcelpost.settings import Settings
from parcelpost.settings.schema import POSTGRES, ServerSettings, StoreLimits
from parcelpost.storage import backup, db, locks, recovery
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions
from parcelpost.worker.schedules import run_prefix, schedule_site

if TYPE_CHECKING:
    from parcelpost.gateway.ledger.base import Ledger


def store_options(settings: Settings) -> StoreOptions:
    executor, schedules = settings.executor, settings.schedules
    return StoreOptions(
        **{name: getattr(settings.storage, name) for name in StoreLimits.__struct_fields__},
        retry_min_seconds=executor.retry_min_seconds,
        retry_max_seconds=executor.retry_max_seconds,
        scheduled=frozenset(schedule_site(each) for each in schedules.values() if not (each.file or each.list)),
        scheduled_runs=frozenset(run_prefix(name) for name, each in schedules.items() if each.file or each.list),
    )


T = TypeVar("T")

CLOCK = SystemClock()

_NEXT_SIGN_OF_LIFE_SECONDS = 2.5


class Opener(Struct, frozen=True, kw_only=True):
    """A process that has the store open, or crashed with it open."""

    id: str
    pid: int | None
    since: str | None
    silent_seconds: float = 0.0
    """Seconds since a live process last updated its file; 0 if that was recent."""


def run_async(store: StoreContext, work: Coroutine[Any, Any, T]) -> T:
    """Raises what the work raises; an OSError becomes the matching StoreError."""
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        raise
    except StoreError as error:
        _explain(error, store)
        raise
    except OSError as error:
        raise os_error(error, Path(error.filename or store.path)) from error


def _explain(error: StoreError, store: StoreContext) -> None:
    """Replaces a general hint by one for this store: the same that `doctor` and `status` print."""
    from parcelpost.cli.health.store_files import open_finding

    if error.hint != type(error).hint:
        return
    if isinstance(error, StoreCorrupt):  # whether backups are intact takes too long to find out here
        check = store_command("check", store)
        error.hint = f"run '{check}' to find out whether to salvage readable rows or restore a backup"
    elif isinstance(error, StoreNotFound):
        error.hint = open_finding(store, error).fix


@asynccontextmanager
async def open_for_reading(store: StoreContext, *, patience: float | None = None) -> AsyncIterator[LocalDatabase]:
    """The store as it is, for `read`: nothing is created, migrated or recovered.

    `patience`: seconds to wait for another program's lock, where that is less than the settings say.
    Also on a full disk, as long as no other process has it open: then one that has makes room for both.
    """
    require_store(store.path)
    opts = store_options(store.settings)
    if patience is not None:
        opts = replace(opts, busy_timeout_seconds=min(patience, opts.busy_timeout_seconds))
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(
                LocalDatabase.open(store.path, opts, CLOCK, create=False, migrate=False)
            )
        except StoreFull:
            if (await openers(store))[0]:
                raise
            database = await stack.enter_async_context(LocalDatabase.open_frozen(store.path, opts))
        yield database


@asynccontextmanager
async def open_for_writing(store: StoreContext) -> AsyncIterator[LocalPersistenceManager]:
    """The store opened as a worker does, with crashed processes recovered. Never created, never migrated."""
    require_store(store.path)
    async with LocalPersistenceManager.open(
        store.path,
        options=store_options(store.settings),
        clock=CLOCK,
        emit=_print_recovery,
        worker="cli",
        create=False,
        migrate=False,
    ) as lpm:
        yield lpm


def require_store(store: Path) -> None:
    """Looks at the file's first bytes only, so that another program's file is never touched.

    Raises StoreNotFound, NotAStore, StoreGone where a process has it open, or StoreCorrupt where backups say that a
    store was here.
    """
    if not store.exists():
        recovery.check_not_moved(store)
        raise StoreNotFound(f"there is no store at {store}")
    if store.is_dir():
        raise NotAStore(f"{store} is a folder", hint="set --store to the path of the store's file")
    if problem := db.file_problem(store) or ("" if store.stat().st_size else "is empty"):
        if backup.list_backups(store):
            raise StoreCorrupt(f"{store} {problem}, but there are backups of a store next to it")
        raise NotAStore(f"{store} {problem}")


async def openers(store: StoreContext, *, with_silence: bool = False) -> tuple[list[Opener], list[Opener]]:
    """Returns the processes that have the store open, and those that crashed with it open.

    `with_silence` may take a few seconds if one hangs.
    """
    live = locks.live_folder(store.path)
    if not live.is_dir():
        return [], []
    try:
        async with locks.gate(live, CLOCK, store.settings.storage.busy_timeout_seconds):
            alive, dead = locks.owners(live)
    except StoreBusy:  # a process that hangs may hold the gate: then that is what should be reported
        alive, dead = locks.owners(live)
    silent = await _silent_seconds(live, alive, store.settings.storage.hung_after_seconds) if with_silence else {}
    return [_opener(live, owner_id, silent.get(owner_id, 0.0)) for owner_id in alive], [
        _opener(live, owner_id) for owner_id in dead
    ]


async def _silent_seconds(live: Path, alive: list[str], longest: float) -> dict[str, float]:
    """Returns the processes that give no sign of life, and for how many seconds by the machine's clock.

    The clock may have been set, or the machine may have slept, so each gets time for another sign.
    """
    now = CLOCK.now().timestamp()
    updates = {owner_id: at for owner_id in alive if (at := locks.last_beat(live, owner_id)) is not None}
    late = {owner_id: at for owner_id, at in updates.items() if abs(now - at) > longest}
    if late:
        await CLOCK.sleep(_NEXT_SIGN_OF_LIFE_SECONDS)
    return {owner_id: max(now - at, longest) for owner_id, at in late.items() if locks.last_beat(live, owner_id) == at}


def _opener(live: Path, owner_id: str, silent_seconds: float = 0.0) -> Opener:
    facts = locks.owner_info(live, owner_id)
    return Opener(
        id=owner_id,
        pid=facts.pid if facts else None,
        since=facts.since if facts else None,
        silent_seconds=silent_seconds,
    )


def _print_recovery(event: Event) -> None:
    if isinstance(event, OwnerCrashed) and (event.tasks_recovered or event.tasks_given_up or event.raw_files_restored):
        print(
            f"note: {event.owner} crashed with the store open: {count(event.tasks_recovered, 'task')} recovered, "
            f"{event.tasks_given_up:,} given up, {count(event.raw_files_restored, 'raw file')} restored",
            file=sys.stderr,
        )


@asynccontextmanager
async def open_or_create(store: StoreContext) -> AsyncIterator[LocalPersistenceManager]:
    """Like `open_for_writing`, but creates the store if it does not exist."""
    if not store.path.exists():
        options = store_options(store.settings)
        async with LocalPersistenceManager.open(store.path, options=options, clock=CLOCK, worker="cli"):
            pass
    async with open_for_writing(store) as lpm:
        yield lpm


_IN_EXTRA = {"asyncpg": "postgres"}


@contextmanager
def needed_packages() -> Iterator[None]:
    """Raises ParcelpostError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("parcelpost"):
            raise
        extras = ",".join(dict.fromkeys(("gateway", _IN_EXTRA.get(error.name or "", "gateway"))))
        raise ParcelpostError(
            f"the gateway needs the package {error.name}, which is not installed",
            hint=extra_hint(extras),
        ) from error


def has_ledger(server: ServerSettings) -> bool:
    """False if it would be an SQLite file that does not exist."""
    return server.database.startswith(POSTGRES) or Path(server.database).exists()


@asynccontextmanager
async def connect_ledger(
    server: ServerSettings, *, create: bool = False, migrate: bool = True
) -> AsyncIterator[Ledger]:
    """An SQLite file that does not exist is created only with `create`. Without `migrate`, a ledger of another version
    is not changed. Raises LedgerError and LedgerUnavailable.
    """
    where = server.database
    if not create and not has_ledger(server):
        raise LedgerError(
            f"there is no ledger at {where}",
            hint="set --database or server.database to the ledger's location",
        )
    with needed_packages():
        from parcelpost.gateway.ledger.factory import open_ledger

        async with open_ledger(where, server.max_attempts, CLOCK, migrate=migrate) as opened:
            yield opened


def with_ledger(server: ServerSettings, run: Callable[[Ledger], Awaitable[T]]) -> T:
    """Runs something on an existing ledger. Raises LedgerError and LedgerUnavailable."""

    async def call() -> T:
        async with connect_ledger(server) as ledger:
            return await run(ledger)

    return asyncio.run(call())
