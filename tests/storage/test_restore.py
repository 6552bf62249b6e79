"""Bringing a backup back: never over something newer, live or better without being told to."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import (
    BackupBehind,
    BackupFailed,
    NotAStore,
    StoreCorrupt,
    StoreInUse,
    StoreNotFound,
    StoreTooNew,
)
from parcelpost.storage import LocalPersistenceManager, backup
from parcelpost.storage.locks import live_folder
from parcelpost.storage.snapshot import file_problems
from tests.storage.factories import a_task, claim_one, deliver, everything, look, save_one, the_task


def restore(source: Path | str, store: Path, clock: ManualClock, *, force: bool = False) -> backup.Restored:
    return backup.restore(Path(source), store, live_folder(store), clock.now(), force=force)


@pytest.fixture
async def old(store: Path, clock: ManualClock) -> Path:
    """A backup with one result; the store has gone on since and has two."""
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await save_one(lpm, "t1")
        made = await lpm.maintenance.backup()
        clock.advance(60)
        await save_one(lpm, "t2")
    return Path(made.path)


async def test_a_store_that_is_gone_is_brought_back(store: Path, clock: ManualClock, old: Path) -> None:
    store.unlink()
    restored = restore(old, store, clock)
    assert (restored.previous, restored.contents.results, restored.contents.tasks) == (None, 1, 1)
    assert everything(store) == everything(old)
    assert store.stat().st_mode & 0o777 == 0o600
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        assert await lpm.claim() == []
        assert (await the_task(lpm, "t1")).task.task_id == "t1"


async def test_a_newer_store_is_not_replaced_unasked(store: Path, clock: ManualClock, old: Path) -> None:
    before = everything(store)
    with pytest.raises(BackupBehind, match="newer than the backup") as refusal:
        restore(old, store, clock)
    assert "2 results (2 not delivered)" in str(refusal.value)
    assert "--force" in refusal.value.hint
    assert everything(store) == before
    assert list(old.parent.iterdir()) == [old]


async def test_a_newer_store_that_is_replaced_is_set_aside_whole(store: Path, clock: ManualClock, old: Path) -> None:
    """I2: what was not delivered is still there, and can be opened."""
    before = everything(store)
    restored = restore(old, store, clock, force=True)
    assert everything(store) == everything(old)
    assert restored.previous is not None
    aside = Path(restored.previous)
    assert aside.parent == old.parent
    assert aside not in backup.list_backups(store)
    assert everything(aside) == before
    async with LocalPersistenceManager.open(aside, clock=clock) as lpm:
        assert [entry.task_id for entry in await lpm.get_unsynced_results()] == ["t1", "t2"]


async def test_what_is_only_in_the_wal_is_set_aside_too(
    store: Path, clock: ManualClock, old: Path, tmp_path: Path
) -> None:
    """As after a kill: the store's last changes are in its WAL, which must not be applied to the restored file."""
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        clock.advance(60)
        await save_one(lpm, "t3")
        copies = {end: store.with_name(store.name + end).read_bytes() for end in ("", "-wal")}
    for end, content in copies.items():
        store.with_name(store.name + end).write_bytes(content)
    restored = restore(old, store, clock, force=True)
    assert look(store, "SELECT task_id FROM results") == [("t1",)]
    assert restored.previous is not None
    assert look(Path(restored.previous), "SELECT task_id FROM results") == [("t1",), ("t2",), ("t3",)]


async def test_an_unchanged_store_may_be_replaced(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await save_one(lpm)
        made = await lpm.maintenance.backup()
    restored = restore(made.path, store, clock)
    assert restored.previous is not None


async def test_a_receipt_since_the_backup_counts_as_a_change(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        entry = await save_one(lpm)
        made = await lpm.maintenance.backup()
        clock.advance(60)
        await deliver(lpm, entry.result_id)
    with pytest.raises(BackupBehind):
        restore(made.path, store, clock)


async def test_a_store_in_use_is_not_replaced_unasked(store: Path, clock: ManualClock, old: Path) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, worker="busy"):
        before = everything(store)
        with pytest.raises(StoreInUse, match="busy-"):
            restore(old, store, clock)
        assert everything(store) == before


async def test_a_live_store_that_is_replaced_all_the_same_is_seen_by_its_process(
    store: Path, clock: ManualClock, old: Path
) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        stale = await claim_one(lpm, "t3")
        assert (await lpm.queue_depth()).completed == 2
        restored = restore(old, store, clock, force=True)
        depth = await lpm.queue_depth()
        assert (depth.completed, depth.processing, depth.unsynced) == (1, 0, 1)
        assert await lpm.give_up(stale, "gone") is False
        assert await lpm.add_task(a_task("t4")) is True
        await save_one(lpm, a_task("t5", platform="other"))
    assert look(store, "SELECT task_id FROM tasks ORDER BY seq") == [("t1",), ("t4",), ("t5",)]
    assert file_problems(store) == []
    assert restored.previous is not None
    assert look(Path(restored.previous), "SELECT count(*) FROM tasks") == [(3,)]
    assert file_problems(Path(restored.previous)) == []


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 12] = b"\xab" * 4096 * 9
    path.write_bytes(content)


def _change(path: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(sql)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("fault", ["missing", "damaged", "text", "empty", "another program's", "too new", "cut short"])
async def test_what_is_no_good_backup_is_refused_even_with_force(
    store: Path, clock: ManualClock, old: Path, fault: str, force: bool
) -> None:
    expected: dict[str, Any] = {
        "missing": StoreNotFound, "damaged": StoreCorrupt, "text": StoreCorrupt, "empty": NotAStore,
        "another program's": NotAStore, "too new": StoreTooNew, "cut short": StoreCorrupt,
    }  # fmt: skip
    content = old.read_bytes()
    old.unlink()
    if fault in ("damaged", "too new", "cut short"):
        old.write_bytes(content[: 4096 * 10] if fault == "cut short" else content)
    if fault == "damaged":
        _damage(old)
    elif fault == "text":
        old.write_text("dear diary " * 1_000)
    elif fault == "empty":
        old.touch()
    elif fault == "another program's":
        _change(old, "CREATE TABLE bookmarks (url)")
    elif fault == "too new":
        _change(old, "INSERT INTO schema_version VALUES (99, '', '', '')")
    before = everything(store)
    with pytest.raises(expected[fault]):
        restore(old, store, clock, force=force)
    assert everything(store) == before


@pytest.fixture
def damaged(store: Path, old: Path) -> Iterator[bytes]:
    """The store's file, no longer readable."""
    assert old.exists()
    store.write_bytes(b"\xab" * 50_000)
    yield store.read_bytes()


def test_a_damaged_store_is_replaced_only_with_force_and_kept(
    store: Path, clock: ManualClock, old: Path, damaged: bytes
) -> None:
    with pytest.raises((StoreCorrupt, NotAStore)) as refusal:
        restore(old, store, clock)
    assert "--force" in refusal.value.hint
    assert store.read_bytes() == damaged
    restored = restore(old, store, clock, force=True)
    assert everything(store) == everything(old)
    assert restored.previous is not None
    assert Path(restored.previous).read_bytes() == damaged


async def test_a_store_cannot_be_its_own_backup(store: Path, clock: ManualClock, old: Path) -> None:
    before = everything(store)
    with contextlib.suppress(BackupFailed, StoreInUse):
        restore(store, store, clock, force=True)
    assert everything(store) == before


async def test_what_a_process_held_when_the_backup_was_made_comes_back(store: Path, clock: ManualClock) -> None:
    """I9"""
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await claim_one(lpm)
        made = await lpm.maintenance.backup()
    restore(made.path, store, clock, force=True)
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        assert len(await lpm.claim()) == 1


async def test_two_restores_within_a_second_set_both_stores_aside(store: Path, clock: ManualClock, old: Path) -> None:
    """I2: what was not delivered is never written over."""
    first = restore(old, store, clock, force=True)
    second = restore(old, store, clock, force=True)
    assert first.previous != second.previous
    assert look(Path(str(first.previous)), "SELECT count(*) FROM results") == [(2,)]
    assert look(Path(str(second.previous)), "SELECT count(*) FROM results") == [(1,)]


def test_a_restore_that_is_killed_at_any_step_leaves_the_old_store_with_its_wal_or_the_new_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.storage.crash.restore_process", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    left = json.loads(ran.stdout)
    old, new = ["t1", "t2", "t3"], ["t1"]
    assert [state for state in left if state not in (old, new)] == []
    assert left[0] == old
    assert left[-1] == new
    assert left.count(old) > 5


async def test_a_wal_whose_store_is_gone_is_not_applied_to_the_backup(
    store: Path, clock: ManualClock, old: Path
) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await save_one(lpm, "t3")
        left = store.with_name(store.name + "-wal").read_bytes()
    store.unlink()
    store.with_name(store.name + "-wal").write_bytes(left)
    restore(old, store, clock)
    assert everything(store) == everything(old)
    assert [path.read_bytes() for path in old.parent.glob("*_before_restore_*-wal")] == [left]
