"""Opens a store, one process at a time, and recovers the tasks and pages of crashed processes (I9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from parcelpost.clock import Clock
from parcelpost.errors import NotAStore, StoreFull, StoreGone, StoreInUse, StoreNotFound, StoreOutdated
from parcelpost.events import Emit, OwnerCrashed, ReserveUsed, StoreOpened
from parcelpost.storage import backup, db, durable_files, locks, migrations, outbox, tasks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.durable_files import Reserve
from parcelpost.storage.errors import os_error
from parcelpost.storage.locks import gate, live_folder
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.raw_files import RawFiles, file_matches, inside, page_content, store_id, take_raw_folder
from parcelpost.storage.raw_journal import FAILED, JournalRecord, read_segment, segment_paths

T = TypeVar("T")

_CHUNK = 200


def check_not_moved(store: Path) -> None:
    """Raises StoreGone if a live process has the store open and its file is missing."""
    store = store.resolve()
    live = live_folder(store)
    alive, _ = locks.owners(live)  # first, because a new store's file is created before its lock
    if _has_content(store):
        return
    moved = locks.owners_of_moved(store)
    if not alive and not moved:
        return
    infos = [*moved, *(info for owner_id in alive if (info := locks.owner_info(live, owner_id)))]
    pids = sorted({info.pid for info in infos})
    process = f"process {', '.join(map(str, pids))}" if pids else "a process"
    raise StoreGone(
        f"{process} has {store} open, but its file was moved or deleted", hint="put it back, or stop that process"
    )


def _check_no_orphaned_wal(store: Path) -> None:
    """SQLite would delete a WAL next to a new file, and with it confirmed results that are only in the WAL."""
    check_not_moved(store)
    wal = store.with_name(store.name + "-wal")
    if _has_content(wal) and not _has_content(store):
        raise StoreGone(
            f"there is no store at {store}, but {wal.name} next to it contains part of one",
            hint="put the store's file back; if it is lost, restore a backup with 'parcelpost store restore "
            f"--latest', or move {wal.name} away to start with an empty store",
        )


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


class OpenRequest(NamedTuple):
    """How to open a store."""

    path: Path
    options: StoreOptions
    clock: Clock
    emit: Emit
    worker: str
    create: bool
    migrate: bool


class OpenStore(NamedTuple):
    """The parts of an open store."""

    database: LocalDatabase
    raw: RawFiles
    owner: locks.Owner
    reserve: Reserve
    live: Path
    options: StoreOptions
    clock: Clock
    emit: Emit

    async def even_if_full(self, write: Callable[[], Awaitable[T]]) -> T:
        """Runs a write that helps to free disk space. On a full disk it may use the reserve."""
        try:
            return await write()
        except StoreFull:
            given_up = self.reserve.give_up()
            if not given_up:
                raise
            self.emit(ReserveUsed(bytes=given_up))
            return await write()


@asynccontextmanager
async def open_store(request: OpenRequest) -> AsyncIterator[OpenStore]:
    """Opens or creates the store and recovers from crashed processes. Closes everything on exit."""
    path = request.path.resolve()  # one set of locks per store, even if it is opened through a link
    request = request._replace(path=path)
    if not path.exists():
        check_not_moved(path)  # before creating a folder, which would be in the way of moving the store back
        if not request.create:
            raise StoreNotFound(f"there is no store at {path}")
    if path.exists() and (problem := db.file_problem(path)):
        raise NotAStore(f"{path} {problem}")
    live = live_folder(path)
    reserve = Reserve(live / "reserve")
    async with AsyncExitStack() as stack:
        try:
            durable_files.make_folder(live)
            async with gate(live, request.clock, request.options.busy_timeout_seconds):
                _check_no_orphaned_wal(path)
                try:
                    store = await _open_parts(stack, request, reserve)
                except StoreFull:
                    if not reserve.give_up():
                        raise
                    await stack.aclose()
                    store = await _open_parts(stack, request, reserve)
                await store.even_if_full(partial(_recover, store))
        except OSError as error:
            raise os_error(error, path) from error
        store.reserve.fill()
        version = await store.database.read(migrations.version)
        store.emit(StoreOpened(path=str(path), schema_version=version, migrated=store.database.migrated))
        yield store


async def _open_parts(stack: AsyncExitStack, request: OpenRequest, reserve: Reserve) -> OpenStore:
    path, options, clock, emit, worker, _, _ = request
    live = live_folder(path)
    database = await _open_database(stack, request)
    owner = locks.Owner.take(live, worker, options.synchronous, clock)
    stack.callback(owner.release)
    folder = await take_raw_folder(database, await store_id(database, clock))
    raw = RawFiles(folder, live, owner.id, database.missing)
    stack.push_async_callback(raw.close)
    return OpenStore(database, raw, owner, reserve, live, options, clock, emit)


async def _open_database(stack: AsyncExitStack, request: OpenRequest) -> LocalDatabase:
    """Raises StoreInUse if the store needs a migration while a peer process has it open."""
    path, options, clock, _, _, create, migrate = request
    alive, _ = locks.owners(live_folder(path))
    opened = LocalDatabase.open(path, options, clock, create=create, migrate=migrate and not alive)
    try:
        return await stack.enter_async_context(opened)
    except StoreOutdated as error:
        if not migrate:
            raise
        raise StoreInUse(f"{path} must be migrated ({error}) and is open in {', '.join(alive)}") from error


async def recover(store: OpenStore) -> int:
    """Recovers the tasks and raw files of processes that crashed. Returns the number of tasks."""
    try:
        async with gate(store.live, store.clock, store.options.busy_timeout_seconds):
            return await _recover(store)
    except OSError as error:
        raise os_error(error, store.live) from error


async def _recover(store: OpenStore) -> int:
    database, live, clock = store.database, store.live, store.clock
    _, crashed = locks.owners(live, store.owner.id)
    with_pages = {path.name.rsplit(".", 2)[0] for path in live.glob("*.raw")}
    holders = set(await database.read(tasks.owners))
    total = 0
    for owner_id in sorted((set(crashed) | with_pages | holders) - {store.owner.id}):
        if locks.is_alive(live, owner_id):
            continue
        last_change = await database.read(backup.last_change)
        info = locks.owner_info(live, owner_id)
        restored, without_result = await restore_pages(database, live, owner_id, store.raw.root)
        recovered, gave_up = await database.write(tasks.recover, [owner_id], clock.now(), store.options.max_recoveries)
        locks.reap(live, owner_id)
        total += recovered + gave_up
        store.emit(
            OwnerCrashed(
                owner=owner_id,
                synchronous=info.synchronous if info else "unknown",
                tasks_recovered=recovered,
                tasks_given_up=gave_up,
                raw_files_restored=restored,
                pages_without_result=without_result,
                last_change=last_change,
            )
        )
    return total


async def restore_pages(database: LocalDatabase, live: Path, owner_id: str, root: Path) -> tuple[int, int]:
    """Restores files from the journal. Returns how many, and how many pages in it belong to no result."""
    segments = segment_paths(live, owner_id)
    records = ((record, FAILED in path.name) for path in segments for record in read_segment(path))
    restored, without_result = 0, 0
    files: list[str] = []
    with closing(durable_files.WrittenFiles(root)) as written:
        while chunk := list(islice(records, _CHUNK)):
            named = await database.read(outbox.named_by_a_result, [record.name for record, _ in chunk])
            for record, must_write in chunk:
                if record.name not in named:
                    without_result += 1
                    continue
                sha256, data = named[record.name]
                restored += _restore_file(root, record, sha256, data, must_write=must_write)
                files += [record.name, record.name.removesuffix(".html.gz") + ".json"]
        if files:
            written.sync(files)
    for path in segments:
        path.unlink()
    return restored, without_result


def _restore_file(root: Path, record: JournalRecord, sha256: str, data: str | None, *, must_write: bool) -> bool:
    path = inside(root, record.name)
    json_path = path.with_name(path.name.removesuffix(".html.gz") + ".json")
    if data is not None and page_content(json_path) != data.encode():
        durable_files.replace(json_path, data.encode())
    if not file_matches(record.body, sha256) or (page_content(path) == record.body and not must_write):
        return False
    durable_files.replace(path, record.body)
    return True
