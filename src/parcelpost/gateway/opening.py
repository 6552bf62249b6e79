"""Opening the ledger that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings
from parcelpost.events import Emit
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.ledger_sqlite import SqliteLedger
from parcelpost.gateway.ledger_sqlite.connecting import prepare


@asynccontextmanager
async def open_ledger(database: str, max_attempts: int, clock: Clock, emit: Emit) -> AsyncIterator[Ledger]:
    """A path is an SQLite file, made where there is none; `postgresql://...` is a database that exists.

    Raises InvalidSettings for what names no ledger, LedgerError for one that cannot be used, LedgerAway for one that
    does not answer for now.
    """
    if not database:
        raise InvalidSettings("server.database is empty", hint="name an SQLite file or postgresql://...")
    path = Path(database)
    await asyncio.to_thread(prepare, path, clock.now())
    ledger = SqliteLedger(path, max_attempts)
    try:
        yield ledger
    finally:
        await ledger.close()
