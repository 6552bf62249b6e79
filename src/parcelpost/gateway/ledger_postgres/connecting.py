"""The pool of connections, the schema, and PostgreSQL's errors in our words."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path

import asyncpg

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, InvalidSettings, LedgerError, LedgerUnavailable, ParcelpostError
from parcelpost.gateway.sql import schema
from parcelpost.gateway.sql.statements import numbered

_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 60.0
_STEP_SECONDS = 3_600.0  # an index of a large table takes its time, and others wait for whoever makes it
_MAX_CONNECTIONS = 10

_SERVER_SETTINGS = {
    "application_name": "parcelpost gateway",
    "jit": "off",  # its statements are short: compiling them takes longer than they do
    "lock_timeout": "30s",
    "statement_timeout": "55s",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}

_SCHEMA_LOCK = 0x7061_7263_656C  # "parcel": one process at a time changes the schema

_AWAY_CLASSES = {
    "08",  # the connection
    "40",  # rolled back: a deadlock, a failed serialization
    "53",  # no room, no memory, no connection left
    "55",  # a lock not available
    "57",  # shutting down, starting up, cancelled
    "58",  # an I/O error of the server
}
_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # used between the server's last word and the end of its connection
    OSError,
    TimeoutError,
    UnicodeEncodeError,
)
_READ_ONLY = "25006"  # a standby, for as long as another server takes over


@asynccontextmanager
async def connected(url: str, now: datetime) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    """A pool that connects anew by itself, to a database whose schema is up to date."""
    with translated():
        pool = await _pool(url)
    try:
        with translated():
            await _bring_up_to_date(pool, now)
        yield pool
    finally:
        pool.terminate()  # every call is one transaction: there is nothing to wait for


async def _pool(url: str) -> asyncpg.Pool[asyncpg.Record]:
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its tracebacks while the database is away; events say so
    try:
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=_MAX_CONNECTIONS,
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS,
            server_settings=_SERVER_SETTINGS,
        )
    except ValueError as error:  # the driver's own words about an address that it cannot read
        raise InvalidSettings(f"server.database: {error}") from error


async def _bring_up_to_date(pool: asyncpg.Pool[asyncpg.Record], now: datetime) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _SCHEMA_LOCK, timeout=_STEP_SECONDS)
        await connection.execute(schema.VERSION_TABLE)
        version = await connection.fetchval(schema.VERSION)
        for step in schema.steps_after(version, Path(__file__).with_name("schema")):
            await connection.execute(step.sql, timeout=_STEP_SECONDS)
            await connection.execute(numbered(schema.NOTE_VERSION), step.version, iso(now))


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except ParcelpostError:
        raise
    except _FAILURES as error:
        translation = _translate(error)
        if translation is error:
            raise
        raise translation from error


def _translate(error: Exception) -> Exception:
    what = f"PostgreSQL: {str(error) or type(error).__name__}"
    if isinstance(error, asyncpg.PostgresError):
        return _of_state(error, error.sqlstate or "", what)
    if isinstance(error, ValueError):  # found by the driver: half a character, a number beyond 64 bits
        return InvalidInput(f"a value that the ledger cannot hold: {error}")
    return LedgerUnavailable(what)


def _of_state(error: Exception, state: str, what: str) -> Exception:
    if state[:2] in _AWAY_CLASSES or state == _READ_ONLY:
        return LedgerUnavailable(what)
    if state[:2] in ("22", "54"):  # no such text or number; too long for an index
        return InvalidInput(f"a value that the ledger cannot hold: {error}")
    if state[:2] in ("28", "3D", "3F") or state == "42501":
        return LedgerError(what, hint="check the user, its rights and the database's name in server.database")
    return error
