"""Opens the ledger that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings, LedgerUnavailable, extra_hint
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.sqlite import SqliteLedger
from parcelpost.gateway.ledger.sqlite_connections import prepare
from parcelpost.settings.schema import POSTGRES
from parcelpost.settings.secrets import without_password

_START_HINT = "check server.database, that the database is running, and that its disk is not full; then start again"


@asynccontextmanager
async def open_ledger(database: str, max_attempts: int, clock: Clock) -> AsyncIterator[Ledger]:
    """Opens an SQLite file, created if missing, or an existing database named by `postgresql://...`.

    Raises InvalidSettings for an invalid name, LedgerError for a ledger that cannot be used, LedgerUnavailable for one
    that cannot be reached.
    """
    if database.startswith(POSTGRES):
        async with _postgres(database, max_attempts, clock) as ledger:
            yield ledger
    elif not database or "://" in database:
        raise InvalidSettings(
            "server.database is not a valid ledger", hint="use the path of an SQLite file, or postgresql://..."
        )
    else:
        async with _sqlite(Path(database), max_attempts, clock) as ledger:
            yield ledger


@asynccontextmanager
async def _sqlite(path: Path, max_attempts: int, clock: Clock) -> AsyncIterator[Ledger]:
    with _startup_errors(str(path)):
        await asyncio.to_thread(prepare, path, clock.now())
    ledger = SqliteLedger(path, max_attempts)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def _postgres(url: str, max_attempts: int, clock: Clock) -> AsyncIterator[Ledger]:
    try:
        from parcelpost.gateway.ledger.postgres import PostgresLedger, connect  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"server.database is PostgreSQL, and {error.name} is not installed",
            hint=extra_hint("postgres"),
        ) from error
    async with AsyncExitStack() as stack:
        with _startup_errors(url):
            pools = await stack.enter_async_context(connect(url, clock.now()))
        yield PostgresLedger(pools, max_attempts)


@contextmanager
def _startup_errors(database: str) -> Iterator[None]:
    """Adds a hint: a gateway that has not started does not retry."""
    try:
        yield
    except LedgerUnavailable as error:
        raise LedgerUnavailable(
            f"the ledger {without_password(database)} cannot be reached: {error}", hint=_START_HINT
        ) from error
