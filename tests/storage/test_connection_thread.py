"""One SQLite connection on one thread: functions run in order, whatever becomes of their callers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parcelpost.errors import NotAStore, StoreError
from parcelpost.storage.db import ConnectionThread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.db"
    found.touch()
    return found


@pytest.fixture
async def thread(path: Path) -> AsyncIterator[ConnectionThread]:
    opened = await ConnectionThread.open(path, busy_timeout=1)
    yield opened
    await opened.close()


async def test_a_function_runs_on_its_own_thread_and_is_answered(thread: ConnectionThread) -> None:
    first, second = [await thread.run(lambda db: (threading.get_ident(), db)) for _ in range(2)]
    assert first == second
    assert first[0] != threading.get_ident()
    assert await thread.run(lambda db: db.execute("SELECT 1 + 1").fetchone()) == (2,)


async def test_functions_run_in_the_order_of_the_calls(thread: ConnectionThread) -> None:
    seen: list[int] = []
    await asyncio.gather(*(thread.run(lambda _, n=n: seen.append(n)) for n in range(100)))  # type: ignore[misc]
    assert seen == list(range(100))


async def test_an_error_reaches_its_caller_and_the_next_function_runs(thread: ConnectionThread) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await thread.run(lambda db: db.execute("SELECT * FROM nowhere"))
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda _: 1 // 0)
    assert await thread.run(lambda _: "still here") == "still here"


async def test_each_caller_gets_its_own_answer_when_others_are_cancelled(thread: ConnectionThread) -> None:
    go_on = threading.Event()
    seen: list[int] = []

    def slow(_: sqlite3.Connection, n: int) -> int:
        assert go_on.wait(60)
        seen.append(n)
        return n

    tasks = [asyncio.create_task(thread.run(lambda db, n=n: slow(db, n))) for n in range(6)]  # type: ignore[misc]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    go_on.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [1, 3, 5]
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert await thread.run(lambda _: 7) == 7
    assert seen == sorted(seen)


async def test_every_connection_is_set_up_with_care(path: Path) -> None:
    thread = await ConnectionThread.open(path, busy_timeout=2.5, pragmas=("PRAGMA query_only = ON",))
    names = (
        "foreign_keys",
        "temp_store",
        "secure_delete",
        "trusted_schema",
        "busy_timeout",
        "query_only",
    )
    found = await thread.run(lambda db: {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names})
    await thread.close()
    assert found == {
        "foreign_keys": 1, "temp_store": 2, "secure_delete": 0, "trusted_schema": 0,
        "busy_timeout": 2_500, "query_only": 1,
    }  # fmt: skip


async def test_what_is_not_a_database_is_refused_and_leaves_no_thread(path: Path) -> None:
    path.write_text("dear diary " * 1_000)
    before = set(threading.enumerate())
    with pytest.raises(NotAStore):
        await ConnectionThread.open(path, busy_timeout=1, pragmas=("PRAGMA journal_mode = WAL",))
    with pytest.raises(StoreError):
        await ConnectionThread.open(path.with_name("gone.db"), busy_timeout=1)
    assert not path.with_name("gone.db").exists()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


async def test_a_closed_thread_takes_no_more(path: Path) -> None:
    thread = await ConnectionThread.open(path, busy_timeout=1)
    await thread.close()
    with pytest.raises(ValueError, match=r"[Cc]onnection"):
        await thread.run(lambda _: 1)
    await thread.close()
