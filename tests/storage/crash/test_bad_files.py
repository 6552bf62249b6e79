"""Files that are damaged, not ours, too new or held by another program: a clear error, and they stay as they are."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from parcelpost.errors import (
    MigrationEdited,
    NotAStore,
    ParcelpostError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreNotFound,
    StoreTooNew,
)
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.snapshot import file_problems
from tests.storage.factories import a_result, a_task, claim_one, everything, list_results, list_tasks, save_one

IMPATIENT = StoreOptions(busy_timeout_seconds=0.2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store that was closed, so that all of it is in the one file. Made once: it takes longer than most tests."""
    store = tmp_path_factory.mktemp("made") / "store.db"

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_tasks(a_task(f"t{number}", extra={"pad": "x" * 500}) for number in range(300))
            for claim in await lpm.claim(50):
                await lpm.save_result(claim, a_result({"note": "y" * 500}))

    asyncio.run(make())
    return store.read_bytes()


def write(store: Path, content: bytes | bytearray) -> None:
    store.parent.mkdir(mode=0o700)
    store.write_bytes(content)
    store.chmod(0o600)


async def use(store: Path) -> None:
    """Everything that reads or writes much of it."""
    async with LocalPersistenceManager.open(store) as lpm:
        await list_tasks(lpm, limit=10_000)
        await list_results(lpm, limit=10_000)
        await lpm.queue_depth()
        if problems := file_problems(store):
            raise StoreCorrupt(problems[0])
        await lpm.add_tasks(a_task(f"new{number}", extra={"pad": "x" * 500}) for number in range(100))


async def refused_as(store: Path, *errors: type[ParcelpostError]) -> ParcelpostError:
    """The error that opening gives; the file is byte for byte what it was, and nothing of ours is beside it."""
    before = store.read_bytes()
    with pytest.raises(errors) as refused:
        await use(store)
    assert store.read_bytes() == before
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("end", [1, 50, 100, 4_000, 4_096, 10_000, 40_960, -100_000, -4_096])
async def test_a_truncated_file_is_refused_and_kept(store: Path, made: bytes, end: int) -> None:
    write(store, made[:end])
    await refused_as(store, StoreCorrupt, NotAStore)


@pytest.mark.parametrize(("start", "length"), [(0, 16), (0, 100), (0, 4_096), (16, 8), (100, 3_900)])
async def test_a_damaged_beginning_is_refused_and_kept(store: Path, made: bytes, start: int, length: int) -> None:
    content = bytearray(made)
    content[start : start + length] = b"\xa5" * length
    write(store, content)
    await refused_as(store, StoreCorrupt, NotAStore)


@pytest.mark.parametrize("seed", range(25))
async def test_damage_in_the_middle_never_gives_another_error_than_ours(store: Path, made: bytes, seed: int) -> None:
    content = bytearray(made)
    pick = random.Random(seed)
    for _ in range(pick.randrange(1, 6)):
        start = pick.randrange(4_096, len(content) - 600)
        length = pick.randrange(1, 600)
        content[start : start + length] = pick.randbytes(length)
    write(store, content)
    with contextlib.suppress(StoreError):
        await use(store)


async def test_a_page_of_zeros_in_a_table_is_said_to_be_corrupt(store: Path, made: bytes) -> None:
    content = bytearray(made)
    write(store, made)
    with contextlib.closing(sqlite3.connect(store)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'tasks'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content[(page - 1) * size : page * size] = bytes(size)
    store.write_bytes(content)
    for end in ("-wal", "-shm"):
        store.with_name(store.name + end).unlink(missing_ok=True)
    await refused_as(store, StoreCorrupt)


@pytest.mark.parametrize("content", [b"hello\n", b"\x00" * 5_000, b"SQLite format 3\x00", b"SQLite format 3\x00" * 400])
async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    await refused_as(file, NotAStore, StoreCorrupt)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_another_programs_database_is_refused_and_kept(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "contacts.db"
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE contacts (name)")
        db.execute("INSERT INTO contacts VALUES ('Ann')")
        db.commit()
    await refused_as(file, NotAStore)


async def test_another_programs_database_keeps_its_wal(tmp_path: Path) -> None:
    """It crashed, or it is running: what it has not yet brought into the file is its own affair."""
    file, wal = tmp_path / "contacts.db", tmp_path / "contacts.db-wal"
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE contacts (name)")
        db.commit()
        left = (file.read_bytes(), wal.read_bytes())
    file.write_bytes(left[0])
    wal.write_bytes(left[1])
    with pytest.raises(NotAStore):
        await use(file)
    assert (file.read_bytes(), wal.read_bytes()) == left


async def test_our_mark_without_our_tables_is_said_to_be_no_store_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "half.db"
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA application_id = 0x50504F53")
        db.execute("CREATE TABLE something (a)")
        db.commit()
    await refused_as(file, NotAStore, StoreCorrupt)


async def test_a_newer_schema_is_refused_and_kept(store: Path, made: bytes) -> None:
    write(store, made)
    change(store, "INSERT INTO schema_version VALUES (999, '2030-01-01T00:00:00.000Z', 'future', 'x')")
    await refused_as(store, StoreTooNew)


async def test_an_edited_migration_is_noticed_and_the_file_kept(store: Path, made: bytes) -> None:
    write(store, made)
    change(store, "UPDATE schema_version SET checksum = 'x' WHERE version = 1")
    await refused_as(store, MigrationEdited)


async def test_a_folder_in_the_stores_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await use(tmp_path)


async def test_a_store_that_must_be_there_and_is_not_is_not_made(store: Path) -> None:
    with pytest.raises(StoreNotFound):
        async with LocalPersistenceManager.open(store, create=False):
            pass
    assert not store.parent.exists()


async def test_a_store_held_by_another_program_is_busy_and_works_again_after(store: Path) -> None:
    async with LocalPersistenceManager.open(store, options=IMPATIENT) as lpm:
        claim = await claim_one(lpm)
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            before = everything(store)
            calls = [
                lpm.add_task(a_task("new")),
                lpm.claim(),
                lpm.save_result(claim, a_result(body=b"<p>page</p>")),
                lpm.give_up(claim, "no"),
                lpm.mark_synced(["x"]),
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreBusy}
            assert (await lpm.queue_depth()).processing == 1  # looks are not in anybody's way
            assert everything(store) == before
            other.execute("ROLLBACK")
        assert await lpm._db.write(patience_ms) == 200, "it waited as long as its options say, not as usual"
        assert await lpm.add_task(a_task("new"))
        assert await lpm.save_result(claim, a_result(body=b"<p>page</p>")) is not None


async def test_a_store_that_is_opened_while_another_program_holds_it_says_so_and_opens_after(
    store: Path, made: bytes
) -> None:
    write(store, made)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy):
            async with LocalPersistenceManager.open(store, options=IMPATIENT) as lpm:
                await lpm.add_task(a_task("new"))
        other.execute("ROLLBACK")
    async with LocalPersistenceManager.open(store, options=IMPATIENT) as lpm:
        await save_one(lpm, a_task("new", platform="new"))


async def test_a_busy_moment_shorter_than_the_patience_is_waited_for(store: Path) -> None:
    async with LocalPersistenceManager.open(store, options=StoreOptions(busy_timeout_seconds=10)) as lpm:
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.create_task(lpm.add_task(a_task()))
            assert await lpm.get_result("t1") is None
            assert not waiting.done()
            other.execute("ROLLBACK")
            assert await waiting


def patience_ms(db: sqlite3.Connection) -> int:
    found: int = db.execute("PRAGMA busy_timeout").fetchone()[0]
    return found


def change(store: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute(statement)
        db.commit()
