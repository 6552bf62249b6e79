"""The first moments of an open store: one opener at a time, and what the dead left is brought back (I9)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from parcelpost.clock import Clock
from parcelpost.errors import NotAStore, StoreBusy, StoreFull, StoreGone, StoreInUse, StoreNotFound, StoreOutdated
from parcelpost.events import Emit, OwnerDied, ReserveUsed, StoreOpened
from parcelpost.storage import (
    backup,
    durable_files,
    header,
    migrations,
    outbox,
    owner,
    queue_state,
    raw_recovery,
    tasks,
)
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.raw_files import HOLDER_FILE, RawFiles
from parcelpost.storage.reserve import Reserve
from parcelpost.storage.sqlite_errors import os_error

T = TypeVar("T")

_RETRY_SECONDS = 0.01


def live_folder(store: Path) -> Path:
    """Locks and journals of those who have the store open, beside the file that a link leads to."""
    store = store.resolve()
    return store.with_name(store.name + "-live")


def raw_folder(store: Path) -> Path:
    """The store's own folder of raw files: `data/` beside it, or `{name}-data/` where `data/` is another store's."""
    store = store.resolve()
    shared, own = store.parent / "data", store.with_name(f"{store.name}-data")
    return own if own.exists() or _holder(shared) not in (None, store.name) else shared


def _holder(folder: Path) -> str | None:
    """The name of the store whose pages a folder holds; None where no store has taken it."""
    try:
        return (folder / HOLDER_FILE).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


async def _take_raw_folder(database: LocalDatabase) -> Path:
    """Makes the store's raw folder, with a file in it that names the store, so that no other store takes it.

    One that should hold pages and is not there, or is empty, stays as it is: its volume may not be mounted yet.
    """
    store = database.path
    shared = store.parent / "data"
    if await _was_renamed(database, shared):
        durable_files.replace(shared / HOLDER_FILE, store.name.encode())
    folder = raw_folder(store)
    if _holder(folder) is None and not (is_empty(folder) and await database.read(outbox.awaits_pages)):
        durable_files.make_folder(folder)
        _name_holder(folder, store.name)
    return folder if raw_folder(store) == folder else await _take_raw_folder(database)  # another store was first


def is_empty(folder: Path) -> bool:
    """Or not there."""
    return not folder.is_dir() or next(folder.iterdir(), None) is None


async def _was_renamed(database: LocalDatabase, shared: Path) -> bool:
    """Whether `data/` is this store's under an older name: nobody has that name, and the store names pages."""
    store, old_name = database.path, _holder(shared)
    if raw_folder(store) == shared or old_name is None or raw_folder(store).exists():
        return False
    return not (store.parent / old_name).exists() and await database.read(outbox.names_a_page)


def _name_holder(folder: Path, name: str) -> None:
    """Of two stores that do this at once, the first is named. After a power cut the file is whole, or not there."""
    partial = folder / f"{HOLDER_FILE}-{secrets.token_hex(4)}"
    try:
        durable_files.replace(partial, name.encode())
        with contextlib.suppress(FileExistsError):
            (folder / HOLDER_FILE).hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)
    durable_files.sync_path(folder)
    durable_files.sync_path(folder.parent)


def check_not_away(store: Path) -> None:
    """Raises StoreGone where a live process has the store open, and its file is not there."""
    store = store.resolve()
    live = live_folder(store)
    alive, _ = owner.others(live)  # looked for first: whoever makes a store makes its file before they are its owner
    if not alive or _has_content(store):
        return
    pids = sorted({facts.pid for one in alive if (facts := owner.facts(live, one)) is not None})
    who = f"process {', '.join(map(str, pids))}" if pids else "a process"
    raise StoreGone(
        f"{who} has {store} open, but its file was moved or deleted", hint="put it back, or stop that process"
    )


def _check_nothing_is_lost_by_making(store: Path) -> None:
    """SQLite deletes the WAL that it finds beside a new file, and with it what was confirmed and is only there."""
    check_not_away(store)
    wal = store.with_name(store.name + "-wal")
    if _has_content(wal) and not _has_content(store):
        raise StoreGone(
            f"there is no store at {store}, but {wal.name} beside it holds a part of one",
            hint="put the store's file back; if it is lost, bring back a backup with 'parcelpost store restore "
            f"--latest', or move {wal.name} away to begin anew",
        )


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


@asynccontextmanager
async def gate(live: Path, clock: Clock, timeout: float) -> AsyncIterator[None]:
    """Held while a store is opened or searched for the dead. Raises StoreBusy after `timeout` seconds."""
    handle = os.open(live / "gate", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        give_up_at = clock.monotonic() + timeout
        while not _locked(handle):
            if clock.monotonic() > give_up_at:
                silent = owner.silent_pids(live, clock.now().timestamp() - timeout)
                hint = f"process {silent[0]} gives no sign of life: let it go on, or end it" if silent else ""
                what = f"another process has been opening {live} for {timeout:g} s"
                raise StoreBusy(what, hint=hint or "try again later")
            await clock.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


class OpenStore(NamedTuple):
    """The parts of a store that is open."""

    database: LocalDatabase
    raw: RawFiles
    owner: owner.Owner
    reserve: Reserve
    live: Path

    async def even_if_full(self, write: Callable[[], Awaitable[T]], emit: Emit) -> T:
        """For a write that lets the disk become less full: on a full disk the reserve is given up for it."""
        try:
            return await write()
        except StoreFull:
            given_up = self.reserve.give_up()
            if not given_up:
                raise
            emit(ReserveUsed(bytes=given_up))
            return await write()


@asynccontextmanager
async def opened(
    path: Path, options: StoreOptions, clock: Clock, emit: Emit, *, worker: str, create: bool, migrate: bool
) -> AsyncIterator[OpenStore]:
    """Opens or makes the store and brings back what the dead held; on leaving, everything is closed."""
    path = path.resolve()  # one store, one set of locks, by whatever link it is opened and wherever the process moves
    if not create and not path.exists():
        check_not_away(path)
        raise StoreNotFound(f"there is no store at {path}")
    if path.exists() and (problem := header.problem(path)):
        raise NotAStore(f"{path} {problem}")
    live = live_folder(path)
    reserve = Reserve(live / "reserve")
    async with AsyncExitStack() as stack:
        try:
            durable_files.make_folder(live)
            async with gate(live, clock, options.busy_timeout_seconds):
                _check_nothing_is_lost_by_making(path)
                try:
                    store = await _open_parts(stack, path, options, clock, reserve, worker, create, migrate)
                except StoreFull:
                    if not reserve.give_up():
                        raise
                    await stack.aclose()
                    store = await _open_parts(stack, path, options, clock, reserve, worker, create, migrate)
                await store.even_if_full(partial(_recover, store, options, clock, emit), emit)
        except OSError as error:
            raise os_error(error, path) from error
        store.reserve.fill()
        version = await store.database.read(migrations.version)
        emit(StoreOpened(path=str(path), schema_version=version, migrated=store.database.migrated))
        yield store


async def _open_parts(
    stack: AsyncExitStack,
    path: Path,
    options: StoreOptions,
    clock: Clock,
    reserve: Reserve,
    worker: str,
    create: bool,
    migrate: bool,
) -> OpenStore:
    database = await _open_database(stack, path, options, clock, create=create, migrate=migrate)
    me = owner.Owner.take(live_folder(path), worker, options.synchronous, clock)
    stack.callback(me.leave)
    raw = RawFiles(await _take_raw_folder(database), live_folder(path), me.id)
    stack.push_async_callback(raw.close)
    return OpenStore(database, raw, me, reserve, live_folder(path))


async def _open_database(
    stack: AsyncExitStack, path: Path, options: StoreOptions, clock: Clock, *, create: bool, migrate: bool
) -> LocalDatabase:
    """Raises StoreInUse where it would have to be migrated under a live sister process."""
    alive, _ = owner.others(live_folder(path))
    opened = LocalDatabase.open(path, options, clock, create=create, migrate=migrate and not alive)
    try:
        return await stack.enter_async_context(opened)
    except StoreOutdated as error:
        if not migrate:
            raise
        raise StoreInUse(f"{path} must be migrated ({error}) and is open in {', '.join(alive)}") from error


async def recover(store: OpenStore, options: StoreOptions, clock: Clock, emit: Emit) -> int:
    """Tasks and raw files of owners that died since are made good. Answers the number of tasks."""
    try:
        async with gate(store.live, clock, options.busy_timeout_seconds):
            return await _recover(store, options, clock, emit)
    except OSError as error:
        raise os_error(error, store.live) from error


async def _recover(store: OpenStore, options: StoreOptions, clock: Clock, emit: Emit) -> int:
    database, live = store.database, store.live
    _, dead = owner.others(live, store.owner.id)
    left_pages = {path.name.rsplit(".", 2)[0] for path in live.glob("*.raw")}
    holders = set(await database.read(tasks.owners))
    total = 0
    for owner_id in sorted((set(dead) | left_pages | holders) - {store.owner.id}):
        if owner.is_alive(live, owner_id):
            continue
        last_change = await database.read(backup.last_change)
        facts = owner.facts(live, owner_id)
        restored, without_result = await raw_recovery.mend(database, live, owner_id, store.raw.root)
        recovered, gave_up = await database.write(queue_state.recover, [owner_id], clock.now(), options.max_recoveries)
        owner.bury(live, owner_id)
        total += recovered + gave_up
        emit(
            OwnerDied(
                owner=owner_id,
                synchronous=facts.synchronous if facts else "unknown",
                tasks_recovered=recovered,
                tasks_given_up=gave_up,
                raw_files_restored=restored,
                pages_without_result=without_result,
                last_change=last_change,
            )
        )
    return total


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
