"""Backups: whole, verified, made while others write; restores that lose nothing unasked."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import BackupFailed
from parcelpost.events import BackupMade, Event
from parcelpost.storage import LocalPersistenceManager, StoreOptions, backup
from parcelpost.storage.snapshot import file_problems, snapshot
from tests.storage.factories import NOW, a_result, a_task, everything, look, save_one, the_result


async def test_a_backup_is_a_whole_store_of_its_own(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock, events: list[Event]
) -> None:
    await save_one(lpm, "t1", a_result(body=b"<p>"))
    made = await lpm.maintenance.backup()
    path = Path(made.path)
    assert path == store.parent / "backups" / "parcelpost_20260101T000000.db"
    assert made.bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert file_problems(path) == []
    assert everything(path) == everything(store)
    assert events[-1] == BackupMade(path=made.path, bytes=made.bytes, removed=0)
    assert [child.name for child in path.parent.iterdir()] == [path.name], "one file: no WAL, nothing half"
    async with LocalPersistenceManager.open(path, clock=clock) as copy:
        assert (await the_result(copy)).task_id == "t1"


async def test_the_last_seven_backups_are_kept(lpm: LocalPersistenceManager, store: Path, clock: ManualClock) -> None:
    removed = []
    for _ in range(10):
        removed.append((await lpm.maintenance.backup()).removed)
        clock.advance(86_400)
    assert removed == [0] * 7 + [1] * 3
    names = [path.name for path in backup.list_backups(store)]
    assert names == [f"parcelpost_202601{day:02}T000000.db" for day in range(4, 11)]


async def test_copies_made_before_a_migration_or_a_restore_are_nobodys_surplus(store: Path, clock: ManualClock) -> None:
    others = ["parcelpost_before_v2_20250101T000000.db", "parcelpost_before_restore_20250101T000000.db", "mine.db"]
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(keep_backups=1)) as lpm:
        await lpm.maintenance.backup()
        for name in others:
            (store.parent / "backups" / name).write_bytes(b"precious")
        clock.advance(86_400)
        assert (await lpm.maintenance.backup()).removed == 1
    assert set(others) < {path.name for path in (store.parent / "backups").iterdir()}


async def test_a_new_backup_is_kept_when_the_clock_was_set_back(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(keep_backups=2)) as lpm:
        for _ in range(4):
            made = await lpm.maintenance.backup()
            assert Path(made.path).exists()
            clock.advance(-86_400)
    assert len(backup.list_backups(store)) == 2


async def test_a_store_whose_name_is_a_pattern_keeps_its_own_backups_only(tmp_path: Path, clock: ManualClock) -> None:
    options = StoreOptions(keep_backups=1)
    async with (
        LocalPersistenceManager.open(tmp_path / "s[1].db", clock=clock, options=options) as odd,
        LocalPersistenceManager.open(tmp_path / "s1.db", clock=clock, options=options) as plain,
    ):
        await plain.maintenance.backup()
        await odd.maintenance.backup()
        clock.advance(86_400)
        assert (await odd.maintenance.backup()).removed == 1
        assert (await odd.maintenance.health()).newest_backup == str(tmp_path / "backups" / "s[1]_20260102T000000.db")
    assert len(backup.list_backups(tmp_path / "s1.db")) == 1


async def test_a_backup_made_while_others_write_is_one_moment_of_the_store(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """I3: in the copy too, a result is there exactly if its task is completed."""
    await lpm.add_tasks(a_task(f"t{n}", extra={"pad": "x" * 3_000}) for n in range(3_000))
    is_done = asyncio.Event()

    async def work() -> int:
        saved = 0
        while not is_done.is_set():
            for claim in await lpm.claim(8):
                await lpm.save_result(claim, a_result({"pad": "y" * 2_000}))
                saved += 1
        return saved

    workers = [asyncio.create_task(work()) for _ in range(8)]
    seen: list[tuple[int, int]] = []
    made = await lpm.maintenance.backup(lambda done, total: seen.append((done, total)))
    is_done.set()
    saved = sum(await asyncio.gather(*workers))
    assert saved > 0
    path = Path(made.path)
    assert file_problems(path) == []
    wrong = """SELECT count(*) FROM tasks LEFT JOIN results USING (task_id)
               WHERE (tasks.status = 'completed') != (results.task_id IS NOT NULL)"""
    assert look(path, wrong) == [(0,)]
    assert look(path, "SELECT count(*) FROM tasks") == [(3_000,)]
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("damage", ["a page", "the header", "the end"])
async def test_a_copy_of_a_damaged_store_is_not_a_backup(store: Path, clock: ManualClock, damage: str) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await lpm.add_tasks(a_task(f"t{n}", extra={"pad": "x" * 500}) for n in range(500))
    content = bytearray(store.read_bytes())
    if damage == "a page":
        content[4096 * 20 : 4096 * 60] = b"\xab" * 4096 * 40
    elif damage == "the header":
        content[:16] = b"another format\0\0"
    else:
        del content[4096 * 30 :]
    store.write_bytes(content)
    good = store.parent / "backups" / "parcelpost_20251231T000000.db"
    good.parent.mkdir()
    good.write_bytes(b"an older one")
    with pytest.raises(BackupFailed):
        backup.make(store, NOW, keep=1)
    assert [path.name for path in good.parent.iterdir()] == [good.name]


async def test_a_backup_that_cannot_be_put_in_place_leaves_nothing(lpm: LocalPersistenceManager, store: Path) -> None:
    """A folder of the backup's name stands for a disk that does not take it."""
    folder = store.parent / "backups"
    (folder / "parcelpost_20260101T000000.db").mkdir(parents=True)
    with pytest.raises(BackupFailed):
        await lpm.maintenance.backup()
    assert [path.name for path in folder.iterdir()] == ["parcelpost_20260101T000000.db"]


async def test_a_partial_copy_of_an_earlier_try_is_not_in_the_way(lpm: LocalPersistenceManager, store: Path) -> None:
    folder = store.parent / "backups"
    folder.mkdir()
    (folder / "parcelpost_20260101T000000.db.partial").write_bytes(b"half")
    made = await lpm.maintenance.backup()
    assert file_problems(Path(made.path)) == []
    assert len(list(folder.iterdir())) == 1


def test_a_snapshot_of_nothing_fails_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed):
        snapshot(tmp_path / "gone.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_the_check_tells_a_whole_file_from_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a UNIQUE)")
        db.executemany("INSERT INTO t VALUES (?)", [("x" * 200 + str(n),) for n in range(500)])
        db.commit()
    assert file_problems(path) == []
    content = bytearray(path.read_bytes())
    content[4096 * 5 : 4096 * 9] = bytes(4096 * 4)
    path.write_bytes(content)
    assert file_problems(path) != []
    path.write_bytes(b"not a database at all" * 100)
    assert file_problems(path) != []
    assert file_problems(tmp_path / "gone.db") != []
