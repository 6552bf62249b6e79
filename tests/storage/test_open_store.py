"""Opening a store: fresh, older, newer, somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import parcelpost
from parcelpost.clock import ManualClock
from parcelpost.errors import (
    MigrationEdited,
    NotAStore,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreNotFound,
    StoreTooNew,
)
from parcelpost.events import Event, StoreOpened
from parcelpost.storage import LocalPersistenceManager, StoreOptions, migrations
from parcelpost.storage.snapshot import file_problems
from tests.storage.factories import a_result, a_task, claim_one, everything, look, save_one, the_result

NEXT = "-- Notes on tasks\nALTER TABLE tasks ADD COLUMN note TEXT NOT NULL DEFAULT 'none';\n"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The next release: this program with one more migration."""
    package = tmp_path / "newer" / "parcelpost"
    shutil.copytree(Path(parcelpost.__file__).parent, package)
    known = len(migrations.load())
    (package / "storage" / "migrations" / f"{known + 1:04}_notes.sql").write_text(NEXT)
    return package.parent


def run_newer(newer: Path, store: Path, **options: object) -> None:
    script = f"""
import asyncio
from parcelpost.storage import LocalPersistenceManager

async def main():
    async with LocalPersistenceManager.open({str(store)!r}, **{options!r}) as lpm:
        print(await lpm.queue_depth())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(newer)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


async def test_an_older_store_is_migrated_after_a_verified_backup(store: Path, clock: ManualClock, newer: Path) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await save_one(lpm)
    before = everything(store)
    with pytest.raises(RuntimeError, match="StoreOutdated"):
        run_newer(newer, store, migrate=False)
    assert everything(store) == before
    run_newer(newer, store)
    assert look(store, "SELECT task_id, note FROM tasks") == [("t1", "none")]
    (backup,) = (store.parent / "backups").iterdir()
    assert "_before_v" in backup.name
    assert file_problems(backup) == []
    assert backup.stat().st_mode & 0o777 == 0o600
    assert everything(backup) == before
    with pytest.raises(StoreTooNew) as refusal:
        async with LocalPersistenceManager.open(store):
            pass
    assert "upgrade" in refusal.value.hint
    async with LocalPersistenceManager.open(backup, clock=clock) as lpm:
        assert (await the_result(lpm)).task_id == "t1"


async def test_a_fresh_store_says_what_was_applied(store: Path) -> None:
    events: list[Event] = []
    versions = [migration.version for migration in migrations.load()]
    for migrated in (versions, []):
        async with LocalPersistenceManager.open(store, emit=events.append, migrate=False):
            pass
        assert events.pop() == StoreOpened(path=str(store), schema_version=versions[-1], migrated=migrated)
    assert not (store.parent / "backups").exists()


async def test_a_store_that_should_be_there_is_not_made(store: Path) -> None:
    with pytest.raises(StoreNotFound):
        async with LocalPersistenceManager.open(store, create=False):
            pass
    assert not store.parent.exists()


async def test_openers_at_once_of_a_fresh_store_all_get_it(store: Path) -> None:
    async def add(n: int) -> bool:
        async with LocalPersistenceManager.open(store, worker=f"w{n}") as lpm:
            return await lpm.add_task(a_task(f"t{n}"))

    assert await asyncio.gather(*map(add, range(8))) == [True] * 8
    assert look(store, "SELECT count(*) FROM tasks") == [(8,)]


def _another_programs_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
        db.commit()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a database": _another_programs_database,
    "text": lambda path: path.write_text("dear diary\n" * 1_000),
    "a zip": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(5_000)),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
async def test_a_file_of_another_program_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "other.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(NotAStore):
        async with LocalPersistenceManager.open(path):
            pass
    assert path.read_bytes() == before


async def test_an_older_store_is_not_migrated_under_a_live_peer(store: Path, clock: ManualClock, newer: Path) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, worker="peer") as peer:
        await save_one(peer)
        before = everything(store)
        with pytest.raises(RuntimeError, match=r"StoreInUse: .* must be migrated .* and is open in peer-"):
            run_newer(newer, store)
        assert everything(store) == before
        await save_one(peer, "t2")
    run_newer(newer, store)
    assert look(store, "SELECT task_id, note FROM tasks") == [("t1", "none"), ("t2", "none")]


async def test_an_edited_migration_is_refused_by_the_store(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock):
        pass
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("UPDATE schema_version SET checksum = 'edited'")
        db.commit()
    with pytest.raises(MigrationEdited):
        async with LocalPersistenceManager.open(store):
            pass


async def test_a_damaged_store_is_refused_and_left_as_it_is(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await save_one(lpm)
    content = bytearray(store.read_bytes())
    content[100:4096] = b"\xff" * 3996
    store.write_bytes(content)
    with pytest.raises(StoreCorrupt) as refusal:
        async with LocalPersistenceManager.open(store):
            pass
    assert "restore" in refusal.value.hint
    assert store.read_bytes() == bytes(content)


async def test_a_store_locked_for_too_long_says_so_and_comes_back(store: Path, clock: ManualClock) -> None:
    options = StoreOptions(busy_timeout_seconds=0.05)
    async with LocalPersistenceManager.open(store, clock=clock, options=options) as lpm:
        claim = await claim_one(lpm)
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                await lpm.give_up(claim, "no")
            assert (await lpm.get_result("t1")) is None
        assert await lpm.give_up(claim, "no") is True


async def test_a_closed_store_says_so(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        claim = await claim_one(lpm)
    for call in (lpm.get_result("t1"), lpm.queue_depth(), lpm.add_task(a_task("t2")), lpm.give_up(claim, "no"),
                 lpm.cache.get("k"), lpm.claim(), lpm.maintenance.usage()):  # fmt: skip
        with pytest.raises(StoreClosed):
            await call


async def test_a_store_opened_by_a_relative_path_stays_where_it_is_when_the_process_moves(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with LocalPersistenceManager.open("a/store.db", clock=clock) as lpm:
        monkeypatch.chdir(tmp_path / "elsewhere")
        entry = await save_one(lpm, "t1", a_result(body=b"<p>"))
        await lpm.maintenance.backup()
        assert (await lpm.maintenance.usage()).journal > 0
        assert await lpm.recover_abandoned() == 0
        assert lpm.raw_path(str(entry.html_path)).exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (tmp_path / "a" / "data" / str(entry.html_path)).exists()
    assert len(list((tmp_path / "a" / "backups").iterdir())) == 1


async def test_a_store_is_found_by_text_too_and_at_odd_places(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "a b" / "50% [1] ü #?" / "my store.db"
    async with LocalPersistenceManager.open(str(path), clock=clock) as lpm:
        await save_one(lpm)
        assert (await lpm.maintenance.backup()).removed == 0
        assert (await lpm.maintenance.health()).newest_backup is not None
    assert path.exists()


async def test_an_sqlite_without_the_json_operators_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(StoreError) as refused:
        async with LocalPersistenceManager.open(tmp_path / "store.db"):
            pass
    assert "3.38" in (refused.value.hint or "")
