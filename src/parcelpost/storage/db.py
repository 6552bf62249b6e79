"""LocalDatabase: the SQLite file, its connections, pragmas, readers and checkpoints.

Each connection lives on one of aiosqlite's threads. aiosqlite has no public way to run a function there, but it calls
`commit()` of a connection class that we can choose. `ConnectionThread` makes that call run the next function, so that a
whole function costs one thread switch. All writes go through one writer (`writer.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import aiosqlite

from parcelpost.clock import Clock, iso
from parcelpost.errors import (
    NotAStore,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreGone,
    StoreNotFound,
    StoreOutdated,
)
from parcelpost.storage import durable_files, migrations
from parcelpost.storage.errors import os_error, primary_code, translated
from parcelpost.storage.migrations import APPLICATION_ID, IDENTITY, version
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.snapshot import copies, snapshot
from parcelpost.storage.writer import Batcher, GroupWriter, Job

T = TypeVar("T")

PRAGMAS = (
    "PRAGMA foreign_keys = ON",  # a result without its task cannot be stored
    "PRAGMA temp_store = MEMORY",  # sorting works on a full disk
    "PRAGMA secure_delete = OFF",  # Debian's default writes zeros over everything deleted
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves the bytes in the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA trusted_schema = OFF",  # a foreign file cannot run functions from its schema
)


class ConnectionThread:
    """Runs functions on a connection's thread, one after the other in the order of the calls.

    Must be closed: its thread keeps the process alive.
    """

    def __init__(self, connection: aiosqlite.Connection, jobs: deque[Callable[[sqlite3.Connection], None]]) -> None:
        self._is_stopped = False
        self._connection = connection
        self._jobs = jobs

    @classmethod
    async def open(
        cls, path: Path, *, busy_timeout: float, pragmas: tuple[str, ...] = (), how: str = "mode=rw"
    ) -> ConnectionThread:
        """`how`: query of the URI. Raises a StoreError that says what is wrong with the file."""
        jobs: deque[Callable[[sqlite3.Connection], None]] = deque()
        uri = f"{path.absolute().as_uri()}?{how}"

        class ThreadConnection(sqlite3.Connection):
            def __init__(self, *_: Any, **kwargs: Any) -> None:
                super().__init__(":memory:", **kwargs)

            def commit(self) -> None:
                jobs.popleft()(self)

        def connect(db: sqlite3.Connection) -> None:
            # Not left to aiosqlite: if connecting fails there, its thread is never stopped.
            try:
                sqlite3.Connection.__init__(
                    db, uri, uri=True, timeout=busy_timeout, isolation_level=None, cached_statements=256
                )
            except sqlite3.Error:
                sqlite3.Connection.__init__(db, ":memory:")  # an uninitialized connection cannot be closed
                raise
            for pragma in (*PRAGMAS, *pragmas):
                db.execute(pragma)

        thread = cls(await aiosqlite.connect(":memory:", factory=ThreadConnection), jobs)
        try:
            with translated(path):
                await thread.run(connect)
        except BaseException:
            await thread.close()
            raise
        return thread

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        answer: list[T] = []
        self._jobs.append(lambda db: answer.append(function(db)))
        await self._connection.commit()
        return answer[0]

    async def close(self) -> None:
        if not self._is_stopped:
            await self._connection.close()

    def stop(self) -> None:
        """Makes the thread close the connection and end, without waiting for it."""
        self._is_stopped = True
        self._connection.stop()


_SMALLEST_PAGE = 512  # SQLite treats a shorter file as empty


def file_problem(path: Path) -> str:
    """Returns why the file cannot be a store, '' if it can. An empty file can become one.

    Reads the file through SQLite, never with a plain open(): closing another handle of a database file drops the locks
    that this process has on it (POSIX), and peer processes would think that the store is closed.
    """
    if not path.is_file():
        return "is not a file"
    size = path.stat().st_size
    if size < _SMALLEST_PAGE:
        return "is not an SQLite database" if size else ""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as db:
            application_id, tables = db.execute(IDENTITY).fetchone()
            if application_id == APPLICATION_ID:
                version(db)
    except NotAStore as error:
        return f"is not a Parcelpost store: {error}"
    except UnicodeDecodeError:
        return ""
    except sqlite3.Error as error:
        # If it is busy, unreadable or damaged, opening it will raise the proper error.
        return "is not an SQLite database" if primary_code(error) == sqlite3.SQLITE_NOTADB else ""
    return "is another program's database" if tables and application_id != APPLICATION_ID else ""


P = ParamSpec("P")
R = TypeVar("R")

_READERS = 3
_MAX_GROUP = 512
_PAGE_BYTES = 8_192
_CHECKPOINT_PAGES = 1_000
_WAL_SHARE = 16
"""Checkpoints run often enough that the WAL takes about this part of the store's size limit, or less."""
_PAGES_A_GROUP, _PAGES_A_ROW = 4, 1
_BACKGROUND_PASSES = 2
_BACKSTOP_PAGES = 16_000

_FIRST_PRAGMAS = (
    f"PRAGMA page_size = {_PAGE_BYTES}",  # three records of 2 KB per page instead of one: fewer pages per commit
    "PRAGMA auto_vacuum = INCREMENTAL",  # free pages can be returned to the disk in small steps
)
_WRITER_PRAGMAS = (
    "PRAGMA cache_size = -64000",  # 64 MB, allocated as needed
    "PRAGMA journal_mode = WAL",  # readers and the writer do not wait for each other
    f"PRAGMA wal_autocheckpoint = {_BACKSTOP_PAGES}",  # a backstop: normally checkpoints run in the background
    "PRAGMA journal_size_limit = 33554432",  # the WAL file shrinks again after a burst
)


_READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -8000",  # there are several of them
)

_FROZEN_PRAGMAS = ("PRAGMA locking_mode = EXCLUSIVE",)

_NO_KEYWORDS: dict[str, Any] = {}


class LocalDatabase:
    """The database of a store. `write` changes it, `read` queries it."""

    def __init__(self, path: Path, options: StoreOptions, thread: ConnectionThread, migrated: list[int]) -> None:
        self.path = path
        self.migrated = migrated
        """The schema versions applied while opening."""
        self._options = options
        self._writing_thread = thread
        self._files: dict[str, tuple[int, int] | None] = {}
        """The open files, with device and inode."""
        self._writer = self._new_writer()
        self._db: sqlite3.Connection
        self._loop = asyncio.get_running_loop()
        self._batcher = Batcher(
            self._on_writing_thread,
            self._run_group,
            max_group=_MAX_GROUP,
            is_broken=self._is_broken,
            abandoned=self._stop_threads,
        )
        self._readers: list[ConnectionThread] = []
        self._reading = asyncio.Semaphore(_READERS)
        self._checkpointer: ConnectionThread | None = None
        self._checkpoint: asyncio.Task[None] | None = None
        self._closing = False
        self._counted_changes = 0
        self._wal_pages = 0
        self._checkpoint_pages = min(_CHECKPOINT_PAGES, options.max_bytes // (_WAL_SHARE * _PAGE_BYTES))

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, options: StoreOptions, clock: Clock, *, create: bool = True, migrate: bool = True
    ) -> AsyncIterator[LocalDatabase]:
        """Opens or creates the file (mode 600), and migrates its schema after a backup.

        Raises StoreNotFound, NotAStore, StoreTooNew, StoreOutdated (with migrate=False) or another StoreError.
        """
        if sqlite3.sqlite_version_info < (3, 38):
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old", hint="use a Python with SQLite 3.38 or newer"
            )
        _make_file(path, create=create)
        thread = await _open_writer(path, options)
        try:
            with translated(path):
                migrated = await _bring_up_to_date(path, thread, clock, migrate=migrate)
        except BaseException:
            await thread.close()
            raise
        database = cls(path, options, thread, migrated)
        database._files = {file: durable_files.identity(file) for file in (str(path), f"{path}-wal")}
        try:
            yield database
        finally:
            await database._close()

    @classmethod
    @asynccontextmanager
    async def open_frozen(cls, path: Path, options: StoreOptions) -> AsyncIterator[LocalDatabase]:
        """Opens the file read-only, for a full disk that has no room for SQLite's own files. Writes nothing.

        Use it only if no other process has the file open: it takes no lock and sees no changes. Raises StoreOutdated or
        another StoreError.
        """
        wal = path.with_name(path.name + "-wal")
        has_wal = wal.exists() and wal.stat().st_size
        # If a crashed process left a WAL, its index must be kept in memory, which requires exclusive mode.
        how, pragmas = ("mode=ro&vfs=unix-none", _FROZEN_PRAGMAS) if has_wal else ("immutable=1", ())
        thread = await ConnectionThread.open(path, busy_timeout=options.busy_timeout_seconds, pragmas=pragmas, how=how)
        database = cls(path, options, thread, [])
        try:
            with translated(path):
                todo = await thread.run(lambda db: migrations.pending(db, migrations.load()))
            if todo:
                raise StoreOutdated(f"the store needs schema version {todo[-1].version}")
            database._readers.append(thread)
            database._reading = asyncio.Semaphore(1)
            yield database
        finally:
            try:
                await database._batcher.close()
            finally:
                await thread.close()

    def missing(self) -> str:
        """Returns what is wrong if the open files are no longer those at the store's path, else ''."""
        for file, opened in self._files.items():
            try:
                present = durable_files.identity(file)
            except OSError:  # an unreadable folder says nothing about the file
                continue
            if present != opened:
                return f"{file} was {'replaced by another file' if present else 'deleted or moved'} while it was open"
        return ""

    @property
    def is_closed(self) -> bool:
        return self._batcher.closed

    async def write(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs `change(db, ...)` in a transaction and returns its result once the transaction is on disk.

        If the caller is cancelled, the change is applied completely or not at all.
        """
        return cast(T, await self._batcher.submit(Job(change, args, kwargs)))

    async def write_lossy(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `write`, but without an fsync: the change survives a kill and may be lost in a power cut."""
        return cast(T, await self._batcher.submit(Job(change, args, kwargs, durable=False)))

    def start_together(
        self,
        change: Callable[[sqlite3.Connection, list[R]], list[T]],
        request: R,
        *,
        durable: bool = True,
    ) -> asyncio.Future[T]:
        """Submits a request to a change that serves all callers of a group at once: it maps requests to answers.

        Returns a future with this request's answer.
        """
        return self._batcher.submit(Job(change, (request,), _NO_KEYWORDS, durable, together=True))

    async def read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs `query(db, ...)` on a read-only connection, on one snapshot of the store."""

        def in_one_view(db: sqlite3.Connection) -> T:
            db.execute("BEGIN")
            try:
                return query(db, *args, **kwargs)
            finally:
                if db.in_transaction:  # after an I/O error SQLite may have rolled back already
                    db.execute("ROLLBACK")

        async with self._reading:
            if self.is_closed:
                raise StoreClosed
            thread = self._readers.pop() if self._readers else await self._open_thread(*_READER_PRAGMAS)
            try:
                with translated(self.path):
                    return await thread.run(in_one_view)
            finally:
                self._readers.append(thread)

    def write_soon(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Like `write_lossy`, without waiting for it, and together with the next other write if one comes soon.

        A failure is ignored.
        """
        if self.is_closed:
            writing = self._loop.create_future()
            writing.cancel()
            return writing
        writing = self._batcher.submit(Job(change, args, kwargs, durable=False), soon=True)
        writing.add_done_callback(_retrieve)
        return writing

    async def exclusively(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function between two groups of writes, outside a transaction, for example VACUUM."""
        return cast(T, await self._batcher.submit(Job(function, (), {}, alone=True)))

    def _new_writer(self) -> GroupWriter:
        return GroupWriter(self.path, self._options.synchronous, self.missing)

    async def _open_thread(self, *pragmas: str) -> ConnectionThread:
        if problem := self.missing():
            raise StoreGone(problem)
        return await ConnectionThread.open(self.path, busy_timeout=self._options.busy_timeout_seconds, pragmas=pragmas)

    def _is_broken(self) -> bool:
        return self._writer.broken

    async def _on_writing_thread(self, serve: Callable[[], None]) -> None:
        if self._writer.broken:
            if problem := self.missing():
                raise StoreGone(problem)
            with contextlib.suppress(sqlite3.Error):
                await self._writing_thread.close()
            self._writing_thread = await _open_writer(self.path, self._options)
            with translated(self.path):
                await self._writing_thread.run(_settle_wal)
            self._writer = self._new_writer()
            self._counted_changes = 0

        def with_connection(db: sqlite3.Connection) -> None:
            self._db = db
            serve()

        await self._writing_thread.run(with_connection)

    def _run_group(self, jobs: list[Job]) -> list[Any]:
        answers = self._writer.run(self._db, jobs)
        rows = self._writer.changes - self._counted_changes
        self._counted_changes = self._writer.changes
        self._wal_pages += _PAGES_A_GROUP + rows * _PAGES_A_ROW  # an estimate: only a checkpoint returns the number
        if self._wal_pages > self._checkpoint_pages:
            self._wal_pages = 0
            self._loop.call_soon_threadsafe(self._start_checkpoint)
        return answers

    def _start_checkpoint(self) -> None:
        if not self._closing and (self._checkpoint is None or self._checkpoint.done()):
            self._checkpoint = self._loop.create_task(self._run_checkpoint())

    async def _run_checkpoint(self) -> None:
        # Runs on its own thread while the writer continues. Then the writer checkpoints the few pages written in the
        # meantime, so that the WAL restarts at its beginning: an fsync of a file that does not grow is cheaper. A
        # failure here loses nothing: the pages stay in the WAL, and the writer reports its own errors to its callers.
        with contextlib.suppress(StoreError, sqlite3.Error):
            if self._checkpointer is None:
                self._checkpointer = await self._open_thread()
            for _ in range(_BACKGROUND_PASSES):
                await self._checkpointer.run(_checkpoint)
            await self.exclusively(_checkpoint)

    async def _close(self) -> None:
        self._closing = True  # no new checkpoint
        try:
            await self._batcher.close()
            for _ in range(_READERS):
                await self._reading.acquire()  # wait for all readers
            self._reading = asyncio.Semaphore(_READERS)  # waiting readers find the store closed
            if self._checkpoint is not None:
                await asyncio.wait([self._checkpoint])
            for thread in self._threads():
                await thread.close()
        except asyncio.CancelledError:
            self._batcher.halt()
            self._stop_threads()
            raise

    def _stop_threads(self) -> None:
        for thread in self._threads():
            thread.stop()  # or the threads would keep the process alive

    def _threads(self) -> list[ConnectionThread]:
        return [thread for thread in (*self._readers, self._checkpointer, self._writing_thread) if thread is not None]


def _settle_wal(db: sqlite3.Connection) -> None:
    """After a disk failure: moves the WAL into the database and syncs it, before any other write."""
    busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise StoreBusy("other programs are reading the store while it recovers from a disk failure")


def _checkpoint(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _make_file(path: Path, *, create: bool) -> None:
    if path.exists():
        if problem := file_problem(path):
            raise NotAStore(f"{path} {problem}")
        if create or path.stat().st_size:
            return
    if not create:
        raise StoreNotFound(f"there is no store at {path}")
    try:
        durable_files.make_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise os_error(error, path) from error


async def _open_writer(path: Path, options: StoreOptions) -> ConnectionThread:
    first = () if path.stat().st_size else _FIRST_PRAGMAS  # they take effect only in an empty file
    pragmas = (*first, *_WRITER_PRAGMAS, f"PRAGMA synchronous = {options.synchronous}")
    return await ConnectionThread.open(path, busy_timeout=options.busy_timeout_seconds, pragmas=pragmas)


async def _bring_up_to_date(path: Path, thread: ConnectionThread, clock: Clock, *, migrate: bool) -> list[int]:
    known = migrations.load()
    todo = await thread.run(lambda db: migrations.pending(db, known))
    if not todo:
        return []
    old_version = await thread.run(migrations.version)
    if old_version:
        if not migrate:
            raise StoreOutdated(f"the store has schema version {old_version}, this program needs {known[-1].version}")
        stamp = clock.now().strftime("%Y%m%dT%H%M%S")
        copy = path.parent / "backups" / f"{copies(path)}_before_v{todo[-1].version}_{stamp}.db"
        await asyncio.to_thread(snapshot, path, copy)
    return await thread.run(lambda db: migrations.apply(db, known, iso(clock.now())))
