"""The first moments of an open store: one opener at a time, and what the dead left is brought back (I9)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from parcelpost.clock import Clock, iso
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
    state,
    tasks,
)
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.raw_files import HOLDER_FILE, RawFiles
from parcelpost.storage.reserve import Reserve
from parcelpost.storage.sqlite_errors import os_error

T = TypeVar("T")

_RETRY_SECONDS = 0.01
_ID_STATE = "store_id"


def live_folder(store: Path) -> Path:
    """Locks and journals of those who have the store open, beside the file that a link leads to."""
    store = store.resolve()
    return store.with_name(store.name + "-live")


class _Holder(msgspec.Struct, frozen=True):
    """The store whose pages a folder holds. Files are renamed and copied: only the name and the id together tell."""

    name: str
    id: str


class _StoreId(msgspec.Struct, frozen=True):
    id: str


def raw_folder(store: Path) -> Path:
    """The store's own folder of raw files: `data/` beside it, or `{name}-data/` where `data/` is another store's."""
    store = store.resolve()
    holders = {folder: found for folder in _raw_folders(store) if (found := _holder(folder)) is not None}
    named = [folder for folder, found in holders.items() if found.name == store.name]
    if len(named) == 1:
        return named[0]
    return _raw_folder(store, _id_of(store) if holders else None)  # a look into the file leaves SQLite's own beside it


def _raw_folders(store: Path) -> list[Path]:
    """Where its pages may be, the likeliest first."""
    return [store.with_name(f"{store.name}-data"), store.parent / "data", *sorted(store.parent.glob("*-data"))]


def _raw_folder(store: Path, store_id: str | None) -> Path:
    shared, own = store.parent / "data", store.with_name(f"{store.name}-data")
    for folder in _raw_folders(store):
        holder = _holder(folder)
        if holder is None or (store_id is not None and holder.id != store_id):
            continue
        if holder.name == store.name or (store_id and (folder == own or not _may_be(folder, holder))):
            return folder
    if _holder(shared) is None and not own.exists():
        return shared
    return own if _holder(own) is None or store_id is None else store.with_name(f"{store.name}-{store_id[:8]}-data")


def _may_be(folder: Path, holder: _Holder) -> bool:
    """Whether the store that a folder names is still there. One that cannot be read may be it."""
    named = folder.with_name(holder.name)
    return named.exists() and _id_of(named) in (None, holder.id)


def _holder(folder: Path) -> _Holder | None:
    """None where no store has taken the folder."""
    try:
        return msgspec.json.decode((folder / HOLDER_FILE).read_bytes(), type=_Holder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.MsgspecError:
        return _Holder("", "")  # somebody's, and nobody knows whose


def _id_of(store: Path) -> str | None:
    """None where the file is not there, cannot be read, or was never opened for writing."""
    try:
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
            kept = state.get(db, _ID_STATE, _StoreId)
    except sqlite3.Error:
        return None
    return None if kept is None else kept.id


async def _own_id(database: LocalDatabase, clock: Clock) -> str:
    """Kept in the store itself, where copies and backups of it have it too."""
    if kept := await database.read(state.get, _ID_STATE, _StoreId):
        return kept.id
    known = None
    if await database.read(outbox.names_a_page):  # not a new one: the id was lost to damage
        known = _holder(_raw_folder(database.path, None))
    new = _StoreId(known.id if known and known.name == database.path.name else secrets.token_hex(16))
    return (await database.write(state.settle, _ID_STATE, new, iso(clock.now()))).id


async def _take_raw_folder(database: LocalDatabase, store_id: str) -> Path:
    """Makes the store's raw folder, with a file in it that names the store, so that no other store takes it.

    One that should hold pages and is not there, or is empty, stays as it is: its volume may not be mounted yet.
    """
    store = database.path
    folder, me = _raw_folder(store, store_id), _Holder(store.name, store_id)
    holder = _holder(folder)
    if holder is not None and holder != me:  # it was renamed, or is a copy
        durable_files.replace(folder / HOLDER_FILE, msgspec.json.encode(me))
    elif holder is None and not (is_empty(folder) and await database.read(outbox.awaits_pages)):
        durable_files.make_folder(folder)
        _name_holder(folder, me)
    if _raw_folder(store, store_id) == folder:
        return folder
    return await _take_raw_folder(database, store_id)  # another store was first


def is_empty(folder: Path) -> bool:
    """Or not there."""
    return not folder.is_dir() or next(folder.iterdir(), None) is None


def _name_holder(folder: Path, holder: _Holder) -> None:
    """Of two stores that do this at once, the first is named. After a power cut the file is whole, or not there."""
    partial = folder / f"{HOLDER_FILE}-{secrets.token_hex(4)}"
    try:
        durable_files.replace(partial, msgspec.json.encode(holder))
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
    raw = RawFiles(await _take_raw_folder(database, await _own_id(database, clock)), live_folder(path), me.id)
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
