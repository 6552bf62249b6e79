"""Opens the ledger that the settings name."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings, LedgerError, LedgerUnavailable, extra_hint
from parcelpost.gateway.ledger import search_schema, sql
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.sqlite import SqliteLedger
from parcelpost.gateway.ledger.sqlite_connections import BUSY_SECONDS, prepare, translate_errors
from parcelpost.settings.schema import POSTGRES
from parcelpost.settings.secrets import without_password

_SCHEMAS = Path(__file__).parent / "schema"
_HAS_VERSION = {"schema_version"}
_START_HINT = "check server.database, that the database is running, and that its disk is not full; then start again"


@asynccontextmanager
async def open_ledger(database: str, max_attempts: int, clock: Clock, *, migrate: bool = True) -> AsyncIterator[Ledger]:
    """Opens an SQLite file, created if missing, or an existing database named by `postgresql://...`.

    Without `migrate`, nothing is created or brought up to date: a ledger must be of this version.

    Raises InvalidSettings for an invalid name, LedgerError for a ledger that cannot be used, LedgerUnavailable for one
    that cannot be reached.
    """
    if database.startswith(POSTGRES):
        async with _postgres(database, max_attempts, clock, migrate=migrate) as ledger:
            yield ledger
    elif not database or "://" in database:
        raise InvalidSettings(
            "server.database is not a valid ledger", hint="use the path of an SQLite file, or postgresql://..."
        )
    else:
        async with _sqlite(Path(database), max_attempts, clock, migrate=migrate) as ledger:
            yield ledger


@asynccontextmanager
async def _sqlite(path: Path, max_attempts: int, clock: Clock, *, migrate: bool) -> AsyncIterator[Ledger]:
    with _startup_errors(str(path)):
        if migrate:
            await asyncio.to_thread(prepare, path, clock.now())
        else:
            _require_current(str(path), "sqlite", *await asyncio.to_thread(_sqlite_versions, path))
    ledger = SqliteLedger(path, max_attempts)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def _postgres(url: str, max_attempts: int, clock: Clock, *, migrate: bool) -> AsyncIterator[Ledger]:
    try:
        from parcelpost.gateway.ledger.postgres import PostgresLedger, connect  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"server.database is PostgreSQL, and {error.name} is not installed",
            hint=extra_hint("postgres"),
        ) from error
    async with AsyncExitStack() as stack:
        with _startup_errors(url):
            if not migrate:
                _require_current(without_password(url), "postgres", *await _postgres_versions(url))
            pools = await stack.enter_async_context(connect(url, clock.now()))
        yield PostgresLedger(pools, max_attempts)


def _sqlite_versions(path: Path) -> tuple[int, int]:
    """Returns the versions of the schema and of the search index, 0 without one."""
    address = f"{path.absolute().as_uri()}?mode=rw"  # not created; a reader would leave the files of its log behind
    with translate_errors(path), closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        version = db.execute(sql.SCHEMA_VERSION).fetchone()[0] if tables >= _HAS_VERSION else 0
        index = db.execute(search_schema.STATE_VERSION).fetchone() if tables >= search_schema.TABLES else None
    return version, index[0] if index else 0


async def _postgres_versions(url: str) -> tuple[int, int]:
    import asyncpg  # noqa: PLC0415 - an extra

    from parcelpost.gateway.ledger.postgres import translate_errors as translate_postgres_errors  # noqa: PLC0415

    with translate_postgres_errors():
        db = await asyncpg.connect(url, timeout=BUSY_SECONDS)
        try:
            rows = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))")
            tables = {row["tablename"] for row in rows}
            version = await db.fetchval(sql.SCHEMA_VERSION) if tables >= _HAS_VERSION else 0
            index = await db.fetchval(search_schema.STATE_VERSION) if tables >= search_schema.TABLES else 0
        finally:
            await db.close()
    return version, index or 0


def _require_current(database: str, kind: str, version: int, index: int) -> None:
    if sql.migrations_after(version, _SCHEMAS / kind) or index != search_schema.INDEX_VERSION:
        raise LedgerError(
            f"{database} has no ledger of this version",
            hint="check server.database; a gateway of this version brings an older ledger up to date when it starts",
        )


@contextmanager
def _startup_errors(database: str) -> Iterator[None]:
    """Adds a hint: a gateway that has not started does not retry."""
    try:
        yield
    except LedgerUnavailable as error:
        raise LedgerUnavailable(
            f"the ledger {without_password(database)} cannot be reached: {error}", hint=_START_HINT
        ) from error
