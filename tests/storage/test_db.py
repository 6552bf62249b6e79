"""LocalDatabase: changes in transactions, looks at one unchanging view."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import StoreClosed, StoreNotFound, StoreReadOnly
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import StoreOptions
from tests.storage.factories import look


@pytest.fixture
async def database(store: Path, clock: ManualClock) -> AsyncIterator[LocalDatabase]:
    async with LocalDatabase.open(store, StoreOptions(), clock) as opened:
        yield opened


def pause(db: sqlite3.Connection, platform: str) -> int:
    db.execute("INSERT INTO platform_pauses (platform, created_at) VALUES (?, '')", (platform,))
    return len(platform)


def paused(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM platform_pauses").fetchone()[0]
    return found


async def test_a_change_is_there_for_every_look_after_it(database: LocalDatabase, store: Path) -> None:
    for n in range(20):
        assert await (database.write if n % 2 else database.write_lossy)(pause, "p" * (n + 1)) == n + 1
        assert await database.read(paused) == n + 1
        assert look(store, "SELECT count(*) FROM platform_pauses") == [(n + 1,)]


async def test_a_look_cannot_change_anything(database: LocalDatabase) -> None:
    with pytest.raises(StoreReadOnly):
        await database.read(pause, "a")
    assert await database.read(paused) == 0


async def test_a_look_sees_one_moment_while_others_write(database: LocalDatabase) -> None:
    has_looked, go_on = threading.Event(), threading.Event()

    def look_twice(db: sqlite3.Connection) -> tuple[int, int]:
        first = paused(db)
        has_looked.set()
        assert go_on.wait(60)
        return first, paused(db)

    looking = asyncio.create_task(database.read(look_twice))
    await asyncio.to_thread(has_looked.wait, 10)
    await database.write(pause, "a")
    go_on.set()
    assert await looking == (0, 0)
    assert await database.read(paused) == 1


async def test_more_looks_than_readers_are_all_answered(database: LocalDatabase) -> None:
    await database.write(pause, "a")
    assert await asyncio.gather(*(database.read(paused) for _ in range(50))) == [1] * 50


async def test_a_failed_look_leaves_its_reader_usable(database: LocalDatabase) -> None:
    for _ in range(5):
        with pytest.raises(sqlite3.OperationalError):
            await database.read(lambda db: db.execute("SELECT * FROM nowhere"))
    assert await database.read(paused) == 0


async def test_a_cancelled_change_is_there_whole_or_not_at_all(database: LocalDatabase) -> None:
    def pause_two(db: sqlite3.Connection, n: int) -> None:
        pause(db, f"a{n}")
        pause(db, f"b{n}")

    for n in range(50):
        writing = asyncio.create_task(database.write(pause_two, n))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
    await database.write(pause, "last")
    halves = "SELECT substr(platform, 2) FROM platform_pauses WHERE platform != 'last' GROUP BY 1 HAVING count(*) != 2"
    assert await database.read(lambda db: db.execute(halves).fetchall()) == []


async def test_a_function_that_runs_alone_is_outside_a_transaction(database: LocalDatabase) -> None:
    writes = [asyncio.create_task(database.write(pause, f"p{n}")) for n in range(20)]
    assert await database.exclusively(lambda db: db.in_transaction) is False
    await database.exclusively(lambda db: db.execute("VACUUM").fetchall())
    await asyncio.gather(*writes)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        await database.exclusively(lambda db: db.execute("SELECT * FROM nowhere"))
    assert await database.read(paused) == 20


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_the_file_is_set_up_as_the_design_says(store: Path, clock: ManualClock, synchronous: str) -> None:
    options = StoreOptions(synchronous="FULL" if synchronous == "FULL" else "NORMAL")
    names = ("journal_mode", "synchronous", "auto_vacuum", "foreign_keys", "journal_size_limit")
    async with LocalDatabase.open(store, options, clock) as database:
        await database.write(pause, "a")
        found = await database.exclusively(
            lambda db: {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        )
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2 if synchronous == "FULL" else 1,
        "auto_vacuum": 2,
        "foreign_keys": 1,
        "journal_size_limit": 33_554_432,
    }


async def test_every_table_is_strict(database: LocalDatabase) -> None:
    tables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND NOT strict AND name NOT LIKE 'sqlite_%'"
    assert await database.read(lambda db: db.execute(tables).fetchall()) == []


async def test_the_wal_does_not_grow_without_bound(database: LocalDatabase, store: Path) -> None:
    """I8: checkpoints come by themselves."""

    def fill(db: sqlite3.Connection, n: int) -> None:
        row = """INSERT INTO sync_log (sync_id, direction, record_type, record_count, success, created_at)
                 VALUES (?, 'upload', ?, 0, 1, '')"""
        db.executemany(row, [(f"{n}-{m}", "x" * 800) for m in range(1_000)])

    for n in range(60):
        await database.write(fill, n)
    assert store.with_name(store.name + "-wal").stat().st_size < 40_000_000
    assert look(store, "SELECT count(*) FROM sync_log") == [(60_000,)]


async def test_closing_leaves_one_file_and_no_thread(store: Path, clock: ManualClock) -> None:
    before = set(threading.enumerate())
    async with LocalDatabase.open(store, StoreOptions(), clock) as database:
        await asyncio.gather(*(database.write(pause, f"p{n}") for n in range(10)))
        await asyncio.gather(*(database.read(paused) for _ in range(10)))
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # each is past its last work, and ends in a moment
        assert not thread.is_alive()
    assert [path.name for path in store.parent.iterdir()] == [store.name]
    for call in (database.read(paused), database.write(pause, "late"), database.exclusively(paused)):
        with pytest.raises(StoreClosed):
            await call
    database.write_soon(pause, "late")
    assert look(store, "SELECT count(*) FROM platform_pauses") == [(10,)]


async def test_a_file_that_should_be_there_is_not_made(store: Path, clock: ManualClock) -> None:
    with pytest.raises(StoreNotFound):
        async with LocalDatabase.open(store, StoreOptions(), clock, create=False):
            pass
    assert not store.exists()
