"""SQLite connections: schema, error translation, reader threads and the writer thread with group commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from queue import Empty, LifoQueue, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct

from parcelpost.clock import SystemClock, iso
from parcelpost.errors import InvalidInput, LedgerError, LedgerUnavailable
from parcelpost.files_and_sockets import make_private
from parcelpost.gateway.ledger import search_schema, sql
from parcelpost.gateway.ledger.queries import too_slow

BUSY_SECONDS = 10.0
"""How long to wait for another process's lock."""

_CLOCK = SystemClock()
_CACHED_STATEMENTS = 512  # kept prepared: bulk writes have one for each number of rows
_APPLICATION_ID = 0x50504C47  # "PPLG": marks our files
_IDENTITY = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)"

_PRAGMAS = (
    "PRAGMA page_size = 8192",  # of a new file: three records of 2 KB to a page instead of one
    "PRAGMA journal_mode = WAL",  # readers and the writer do not wait for each other
    "PRAGMA synchronous = FULL",  # acknowledged writes survive power loss
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves the bytes in the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = OFF",  # Debian's default writes zeros over everything deleted
    "PRAGMA trusted_schema = OFF",  # a file from elsewhere runs no functions of its own
    "PRAGMA cache_size = -32000",
    "PRAGMA journal_size_limit = 67108864",
)

_SCHEMA = Path(__file__).parent / "schema" / "sqlite"

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
}


def connect(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=busy_seconds, isolation_level=None, cached_statements=_CACHED_STATEMENTS, check_same_thread=False
    )
    try:
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def prepare(path: Path, now: datetime) -> None:
    """Creates the folder (mode 700) and the file (600) and brings the schema up to date; safe to run concurrently."""
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}", hint="set server.database to another file") from error
    with translate_errors(path):
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
            _refuse_others(db, path)  # before any pragma has written to it
        with closing(connect(path)) as db:
            _bring_up_to_date(db, now)


def _refuse_others(db: sqlite3.Connection, path: Path) -> None:
    application_id, tables = db.execute(_IDENTITY).fetchone()
    if application_id != _APPLICATION_ID and tables:
        raise LedgerError(
            f"{path} is another program's database",
            hint="set server.database to another file; this one was not changed",
        )


def _bring_up_to_date(db: sqlite3.Connection, now: datetime) -> None:
    if _is_up_to_date(db):
        return
    db.execute("BEGIN EXCLUSIVE")
    try:
        db.execute(sql.VERSION_TABLE)
        (version,) = db.execute(sql.SCHEMA_VERSION).fetchone()
        for step in sql.migrations_after(version, _SCHEMA):
            for statement in _split_statements(step.sql):
                db.execute(statement)
            db.execute(sql.RECORD_VERSION, (step.version, iso(now)))
        if not _has_search_index(db):
            for statement in search_schema.create_statements(search_schema.SQLITE):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_up_to_date(db: sqlite3.Connection) -> bool:
    """Read-only: reading works while another process writes, and on a full disk."""
    (application_id, _) = db.execute(_IDENTITY).fetchone()
    if application_id != _APPLICATION_ID:
        return False
    (version,) = db.execute(sql.SCHEMA_VERSION).fetchone()
    return not sql.migrations_after(version, _SCHEMA) and _has_search_index(db)


def _has_search_index(db: sqlite3.Connection) -> bool:
    """Whether there is one of this version, however much of the ledger it holds yet."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    return tables >= search_schema.TABLES and db.execute(search_schema.STATE_VERSION).fetchone() == (
        search_schema.INDEX_VERSION,
    )


def _split_statements(sql: str) -> Iterator[str]:
    """Not executescript, which commits the open transaction."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def bind_values(args: Sequence[Any]) -> list[Any]:
    """Converts times to the text that is stored."""
    return [iso(value) if isinstance(value, datetime) else value for value in args]


def translate(error: Exception, path: Path) -> Exception:
    """Translates database failures to ours; programming errors pass through."""
    if isinstance(error, UnicodeEncodeError | OverflowError | sqlite3.DataError):
        return InvalidInput(f"the ledger cannot store a value: {error}")
    if isinstance(error, sqlite3.DatabaseError):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _UNAVAILABLE:
            return LedgerUnavailable(f"{path}: {error}")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM):
            return LedgerError(f"{path}: {error}")
    return error


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        translation = translate(error, path)
        if translation is error:
            raise
        raise translation from error


T = TypeVar("T")

_READERS = 3


_STEPS_BETWEEN_LOOKS = 10_000


class Readers:
    def __init__(self, path: Path, threads: int = _READERS, most_seconds: float = 0.0) -> None:
        """`most_seconds`: a query that takes longer is interrupted. 0: none is."""
        self._path = path
        self._most_seconds = most_seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ledger reader")
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._opened: list[sqlite3.Connection] = []

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._query, query)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for db in self._opened:
            db.interrupt()  # nobody waits for its query any more
        await asyncio.to_thread(self._threads.shutdown)
        for db in self._opened:
            db.close()

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with translate_errors(self._path):
            db = self._connection()
            try:
                if self._most_seconds:
                    until = _CLOCK.monotonic() + self._most_seconds
                    db.set_progress_handler(lambda: _CLOCK.monotonic() > until, _STEPS_BETWEEN_LOOKS)
                return query(db)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise too_slow(self._most_seconds) from None
                raise
            finally:
                self._idle.put(db)

    def _connection(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            pass
        db = connect(self._path)
        db.execute("PRAGMA query_only = ON")
        self._opened.append(db)
        return db


P = ParamSpec("P")

_MAX_GROUP = 64


class _Job(Struct):
    change: Callable[..., Any]
    args: tuple[Any, ...]
    future: asyncio.Future[Any]
    result: Any = None


class Writer:
    """Group commit: one transaction and one fsync for all waiting changes. A failing change fails alone."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="ledger writer", daemon=True)
        self._thread.start()

    async def run(self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """Returns the result of `change(db, ...)` once it is on disk. If the caller is cancelled, all of the change is
        made or none of it.

        The change must touch nothing but the database.
        """
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        job = _Job(change, args, self._loop.create_future())
        self._jobs.put(job)
        return cast(T, await job.future)

    async def close(self) -> None:
        """Writes what is waiting, then stops."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        while group := self._next_group():
            self._write(group)
            self._loop.call_soon_threadsafe(_deliver, group)
        if self._db is not None:
            self._db.close()

    def _next_group(self) -> list[_Job]:
        group: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == _MAX_GROUP or self._jobs.empty():  # nobody else takes from it
                return group
            job = self._jobs.get()
        if group:
            self._jobs.put(None)
        return group

    def _write(self, group: list[_Job]) -> None:
        try:
            db = self._db = self._db or connect(self._path, self._busy_seconds)
            if not self._write_all(db, group):
                self._write_each(db, group)
        except Exception as error:  # noqa: BLE001 - nothing of the group was written: each caller gets the error
            self._drop_connection()
            for job in group:
                job.result = translate(error, self._path)

    def _write_all(self, db: sqlite3.Connection, group: list[_Job]) -> bool:
        """Returns False, with nothing written, if a change fails."""
        db.execute("BEGIN IMMEDIATE")
        try:
            for job in group:
                job.result = job.change(db, *job.args)
        except Exception:
            if not db.in_transaction:  # SQLite has rolled back everything by itself: a full or failing disk
                raise
            db.execute("ROLLBACK")
            return False
        db.execute("COMMIT")
        return True

    def _write_each(self, db: sqlite3.Connection, group: list[_Job]) -> None:
        """Replays the group without the failing changes. Savepoints would cost every change two statements."""
        db.execute("BEGIN IMMEDIATE")
        for job in group:
            db.execute("SAVEPOINT job")
            try:
                job.result = job.change(db, *job.args)
            except Exception as error:
                if not db.in_transaction:
                    raise
                db.execute("ROLLBACK TO job")
                job.result = translate(error, self._path)
            db.execute("RELEASE job")
        db.execute("COMMIT")

    def _drop_connection(self) -> None:
        """After a failed commit the connection is not trusted: the next group opens another."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _deliver(group: list[_Job]) -> None:
    for job in group:
        if job.future.done():
            continue  # its caller was cancelled
        if isinstance(job.result, BaseException):
            job.future.set_exception(job.result)
        else:
            job.future.set_result(job.result)
