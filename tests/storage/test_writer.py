"""The one writer: many changes to a transaction, and a guilty one fails alone."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import InvalidInput, StoreBusy, StoreReadOnly
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.writer import Change, GroupWriter, Job
from tests.storage.factories import a_result, a_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("PRAGMA foreign_keys = ON")
        opened.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, parent INTEGER REFERENCES t (n)) STRICT")
        yield opened


@pytest.fixture
def writer(path: Path) -> GroupWriter:
    return GroupWriter(path, "FULL")


def insert(db: sqlite3.Connection, n: int) -> int:
    db.execute("INSERT INTO t (n) VALUES (?)", (n,))
    return n * 10


def insert_each(db: sqlite3.Connection, requests: list[int]) -> list[int]:
    return [insert(db, n) for n in requests]


def fail(db: sqlite3.Connection, n: int) -> None:
    insert(db, n)
    raise InvalidInput("not this one")


def orphan(db: sqlite3.Connection, n: int) -> None:
    """Breaks a rule that SQLite looks at only when the transaction ends."""
    db.execute("PRAGMA defer_foreign_keys = ON")
    db.execute("INSERT INTO t VALUES (?, 999)", (n,))


def job(change: Change, *args: Any, durable: bool = True) -> Job:
    return Job(change, args, {}, durable=durable)


def together(n: int) -> Job:
    return Job(insert_each, (n,), {}, together=True)


def stored(db: sqlite3.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT n FROM t ORDER BY n")]


def test_a_group_is_one_transaction_and_each_job_has_its_answer(db: sqlite3.Connection, writer: GroupWriter) -> None:
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    assert writer.run(db, [job(insert, n) for n in range(50)]) == [n * 10 for n in range(50)]
    assert [sql for sql in statements if "INSERT" not in sql] == ["BEGIN IMMEDIATE", "COMMIT"]


@pytest.mark.parametrize("guilty", [fail, orphan])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_guilty_job_fails_alone(db: sqlite3.Connection, writer: GroupWriter, guilty: Change, place: int) -> None:
    jobs = [job(insert, n) for n in range(5)]
    jobs[place] = job(guilty, place)
    answers = writer.run(db, jobs)
    assert isinstance(answers[place], InvalidInput if guilty is fail else sqlite3.IntegrityError)
    assert [answer for answer in answers if not isinstance(answer, Exception)] == [
        n * 10 for n in range(5) if n != place
    ]
    assert stored(db) == [n for n in range(5) if n != place]
    assert not db.in_transaction


def test_jobs_that_are_served_together_get_one_call_and_an_answer_each(
    db: sqlite3.Connection, writer: GroupWriter
) -> None:
    calls: list[list[int]] = []

    def noting(db: sqlite3.Connection, requests: list[int]) -> list[int]:
        calls.append(requests)
        return insert_each(db, requests)

    jobs = [Job(noting, (1,), {}, together=True), job(insert, 2), Job(noting, (3,), {}, together=True)]
    assert writer.run(db, jobs) == [10, 20, 30]
    assert calls == [[1, 3]]


def test_a_guilty_request_among_those_served_together_fails_alone(db: sqlite3.Connection, writer: GroupWriter) -> None:
    insert(db, 2)
    answers = writer.run(db, [together(1), together(2), together(3), job(insert, 4)])
    assert isinstance(answers[1], sqlite3.IntegrityError)
    assert [answers[n] for n in (0, 2, 3)] == [10, 30, 40]
    assert stored(db) == [1, 2, 3, 4]


def test_nothing_of_a_job_that_fails_alone_is_stored(db: sqlite3.Connection, writer: GroupWriter) -> None:
    (answer,) = writer.run(db, [job(fail, 1)])
    assert isinstance(answer, InvalidInput)
    assert stored(db) == []
    assert writer.run(db, [job(insert, 1)]) == [10]


def test_a_lock_is_told_to_all_and_the_next_group_goes_through(
    db: sqlite3.Connection, path: Path, writer: GroupWriter
) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = writer.run(db, [job(insert, 1), job(insert, 2)])
        assert [type(answer) for answer in answers] == [StoreBusy, StoreBusy]
        assert answers[0] is not answers[1], "a traceback of its own for each caller"
    assert writer.run(db, [job(insert, 1)]) == [10]
    assert not writer.broken


def test_errors_of_sqlite_come_in_our_words(db: sqlite3.Connection, writer: GroupWriter) -> None:
    db.execute("PRAGMA query_only = ON")
    (answer,) = writer.run(db, [job(insert, 1)])
    assert isinstance(answer, StoreReadOnly)
    db.execute("PRAGMA query_only = OFF")
    db.execute("CREATE TABLE texts (a TEXT)")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000)
    (answer,) = writer.run(db, [job(lambda db: db.execute("INSERT INTO texts VALUES (?)", ("x" * 2_000,)))])
    assert isinstance(answer, InvalidInput)


@pytest.mark.parametrize(
    ("durable", "level"), [((True,), 2), ((False,), 1), ((False, False), 1), ((False, True), 2), ((True, False), 2)]
)
def test_only_a_group_of_what_may_be_lost_does_without_its_fsync(
    db: sqlite3.Connection, writer: GroupWriter, durable: Sequence[bool], level: int
) -> None:
    """I2: at FULL, synchronous is 2 while anything durable is written."""

    def ask(db: sqlite3.Connection) -> int:
        found: int = db.execute("PRAGMA synchronous").fetchone()[0]
        return found

    db.execute("PRAGMA synchronous = FULL")
    for _ in range(2):
        assert writer.run(db, [job(ask, durable=is_durable) for is_durable in durable]) == [level] * len(durable)
        writer.run(db, [job(ask, durable=False)])
        assert writer.run(db, [job(ask)]) == [2]


# The writer at work in a store

FRAME = struct.Struct(">IIII")


def commits_in(store: Path) -> int:
    """How many transactions the WAL holds: each ends with a frame that says how large the database is."""
    wal = store.with_name(store.name + "-wal").read_bytes()
    page_bytes, salts = struct.unpack(">I", wal[8:12])[0], struct.unpack(">II", wal[16:24])
    found = 0
    for start in range(32, len(wal) - 24 - page_bytes + 1, 24 + page_bytes):
        _, pages_after, *frame_salts = FRAME.unpack(wal[start : start + 16])
        found += pages_after > 0 and tuple(frame_salts) == salts
    return found


async def test_callers_at_once_share_their_commits(lpm: LocalPersistenceManager, store: Path) -> None:
    before = commits_in(store)
    for n in range(10):
        await lpm.add_task(a_task(f"alone{n}"))
    assert commits_in(store) - before == 10
    before = commits_in(store)
    await asyncio.gather(*(lpm.add_task(a_task(f"t{n}")) for n in range(256)))
    assert commits_in(store) - before <= 10
    claims = await lpm.claim(256)
    before = commits_in(store)
    assert None not in await asyncio.gather(*(lpm.save_result(claim, a_result()) for claim in claims))
    assert commits_in(store) - before <= 20


async def test_many_tasks_in_one_call_need_few_commits(lpm: LocalPersistenceManager, store: Path) -> None:
    before = commits_in(store)
    await lpm.add_tasks(a_task(f"t{n}") for n in range(3_000))
    assert commits_in(store) - before <= 4
