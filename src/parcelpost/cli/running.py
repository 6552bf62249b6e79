"""From a command to the store: the event loop, the two ways to open a store, and who else has it open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.given import settled
from parcelpost.cli.options import store_command
from parcelpost.cli.output import count
from parcelpost.cli.store_options import store_options
from parcelpost.clock import SystemClock
from parcelpost.errors import NotAStore, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreNotFound
from parcelpost.events import Event, OwnerCrashed
from parcelpost.storage import backup, db, locks, recovery
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.options import StoreOptions

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager

T = TypeVar("T")

CLOCK = SystemClock()

_ONE_MORE_BEAT_SECONDS = 2.5


def options() -> StoreOptions:
    """As the settings say. Raises InvalidSettings."""
    return store_options(settled())


class Opener(Struct, frozen=True, kw_only=True):
    """A process that has the store open, or had it and died."""

    id: str
    pid: int | None
    since: str | None
    silent_seconds: float = 0.0
    """How long a process that is alive has given no sign of it; 0 while it does."""


def run(store: Path, work: Coroutine[Any, Any, T]) -> T:
    """Raises what the work raises; an error of the operating system as the StoreError it means."""
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        raise
    except StoreError as error:
        named(error, store)
        raise
    except OSError as error:
        raise os_error(error, Path(error.filename or store)) from error


def named(error: StoreError, store: Path) -> StoreError:
    """With the store's name in what to do about damage: it is told where other stores may be meant."""
    if type(error) is StoreCorrupt and error.hint == StoreCorrupt.hint:
        check = store_command("check", store)
        error.hint = f"run '{check}': it says whether to salvage what can be read, or to restore a backup"
    return error


@asynccontextmanager
async def looking(store: Path, *, patience: float | None = None) -> AsyncIterator[LocalDatabase]:
    """The store as it is, for `read`: nothing is created, migrated or recovered.

    `patience`: seconds to wait for another program's lock, where that is less than the settings say.
    Also on a full disk, as long as no other process has it open: then one that has makes room for both.
    """
    require_store(store)
    opts = options()
    if patience is not None:
        opts = replace(opts, busy_timeout_seconds=min(patience, opts.busy_timeout_seconds))
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(
                LocalDatabase.open(store, opts, CLOCK, create=False, migrate=False)
            )
        except StoreFull:
            if (await openers(store))[0]:
                raise
            database = await stack.enter_async_context(LocalDatabase.open_frozen(store, opts))
        yield database


@asynccontextmanager
async def changing(store: Path) -> AsyncIterator[LocalPersistenceManager]:
    """The store opened as a worker does, with crashed processes recovered. Never created, never migrated."""
    from parcelpost.storage.lpm import LocalPersistenceManager

    require_store(store)
    async with LocalPersistenceManager.open(
        store, options=options(), clock=CLOCK, emit=_note, worker="cli", create=False, migrate=False
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
        raise NotAStore(f"{store} is a folder", hint="give --store the path of the store's file")
    if problem := db.file_problem(store) or ("" if store.stat().st_size else "is empty"):
        if backup.list_backups(store):
            raise StoreCorrupt(f"{store} {problem}, but there are backups of a store beside it")
        raise NotAStore(f"{store} {problem}")


async def openers(store: Path, *, with_silence: bool = False) -> tuple[list[Opener], list[Opener]]:
    """Who has the store open, and who died with it open. `with_silence` may take a few seconds where one hangs."""
    live = locks.live_folder(store)
    if not live.is_dir():
        return [], []
    try:
        async with locks.gate(live, CLOCK, options().busy_timeout_seconds):
            alive, dead = locks.owners(live)
    except StoreBusy:  # a process that hangs may hold the gate: then that is what should be told
        alive, dead = locks.owners(live)
    silent = await _silent(live, alive) if with_silence else {}
    return [_opener(live, one, silent.get(one, 0.0)) for one in alive], [_opener(live, one) for one in dead]


async def _silent(live: Path, alive: list[str]) -> dict[str, float]:
    """Those that give no sign of life, and for how long, in seconds by the machine's clock.

    As that may have been set, or the machine may have slept, they are given the time for one more.
    """
    now, longest = CLOCK.now().timestamp(), options().hung_after_seconds
    beats = {one: beat for one in alive if (beat := locks.last_beat(live, one)) is not None}
    late = {one: beat for one, beat in beats.items() if abs(now - beat) > longest}
    if late:
        await CLOCK.sleep(_ONE_MORE_BEAT_SECONDS)
    return {one: max(now - beat, longest) for one, beat in late.items() if locks.last_beat(live, one) == beat}


def _opener(live: Path, owner_id: str, silent_seconds: float = 0.0) -> Opener:
    facts = locks.owner_info(live, owner_id)
    return Opener(
        id=owner_id,
        pid=facts.pid if facts else None,
        since=facts.since if facts else None,
        silent_seconds=silent_seconds,
    )


def _note(event: Event) -> None:
    if isinstance(event, OwnerCrashed) and (event.tasks_recovered or event.tasks_given_up or event.raw_files_restored):
        print(
            f"note: {event.owner} crashed with the store open: {count(event.tasks_recovered, 'task')} recovered, "
            f"{event.tasks_given_up:,} given up, {count(event.raw_files_restored, 'raw file')} restored",
            file=sys.stderr,
        )
