"""What is old and delivered goes; what is not delivered never does (I2)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from parcelpost.clock import ManualClock
from parcelpost.events import Event, StoreCleaned
from parcelpost.model import Signal, TaskStatus
from parcelpost.storage import LocalPersistenceManager, backup, cache
from parcelpost.storage.history import Sample, SyncRound
from parcelpost.storage.learning_signals import REMEMBERED
from parcelpost.storage.raw_files import raw_folder
from parcelpost.storage.snapshot import file_problems
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    deliver,
    list_results,
    list_tasks,
    look,
    requeue,
    save_one,
    the_result,
    the_task,
)

DAY = 86_400
NOTHING = StoreCleaned(tasks=0, results=0, cache=0, signals=0, metrics=0, sync_log=0, files=0, artifacts=0)


def count(store: Path, table: str) -> int:
    found: int = look(store, f"SELECT count(*) FROM {table}")[0][0]
    return found


async def test_a_delivered_result_and_its_task_go_after_seven_days(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path, events: list[Event]
) -> None:
    entry = await save_one(lpm)
    await deliver(lpm, entry.result_id)
    clock.advance(7 * DAY)
    assert await lpm.maintenance.clean() == NOTHING
    clock.advance(0.001)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.tasks) == (1, 1)
    assert events[-1] == cleaned
    assert (count(store, "tasks"), count(store, "results")) == (0, 0)


async def test_what_is_not_delivered_stays_however_old(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I2: records and reports, waiting or rejected, with their tasks and pages."""
    page = await save_one(lpm, "page", a_result(body=b"<p>"))
    await lpm.give_up(await claim_one(lpm, "failed"), "no")
    rejected = await save_one(lpm, "rejected")
    await lpm.mark_rejected([rejected.result_id], "no")
    raw_only = await save_one(lpm, "raw only", a_result(body=b"<p>2"))
    await lpm.mark_raw_synced([raw_only.result_id])
    for path in lpm.raw_path(str(page.html_path)), lpm.raw_path(str(raw_only.html_path)):
        os.utime(path, (0, 0))
    clock.advance(400 * DAY)
    assert await lpm.maintenance.clean() == NOTHING
    assert await lpm.maintenance.relieve() == NOTHING
    assert len(await list_results(lpm)) == 4
    assert lpm.raw_path(str(page.html_path)).exists()
    assert lpm.raw_path(str(raw_only.html_path)).exists()


async def test_what_has_not_ended_stays_however_old(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I1"""
    await claim_one(lpm, "held")
    await lpm.add_task(a_task("pending"))
    clock.advance(400 * DAY)
    assert await lpm.maintenance.clean() == NOTHING
    assert await lpm.maintenance.relieve() == NOTHING
    depth = await lpm.queue_depth()
    assert (depth.pending, depth.processing) == (1, 1)


async def test_a_task_goes_only_after_its_result(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I2: it ended long ago, but its result was delivered only yesterday."""
    entry = await save_one(lpm)
    clock.advance(20 * DAY)
    await deliver(lpm, entry.result_id)
    clock.advance(DAY)
    assert await lpm.maintenance.clean() == NOTHING
    clock.advance(7 * DAY)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.tasks) == (1, 1)


async def test_a_delivered_task_that_was_requeued_is_not_cleaned_away(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I1"""
    await deliver(lpm, (await save_one(lpm)).result_id)
    await requeue(lpm, completed=True)
    clock.advance(30 * DAY)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.tasks) == (1, 0)
    assert (await the_task(lpm)).status is TaskStatus.PENDING
    (claim,) = await lpm.claim()
    assert await lpm.save_result(claim, a_result()) is not None


async def test_files_go_with_their_rows(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    gone = await save_one(lpm, "gone", a_result(body=b"<p>1"))
    kept = await save_one(lpm, "kept", a_result(body=b"<p>2"))
    await deliver(lpm, gone.result_id)
    clock.advance(8 * DAY)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.files) == (1, 2)
    files = {path.name for path in (store.parent / "data" / "vgsi").rglob("*") if path.is_file()}
    assert files == {Path(str(kept.html_path)).name, Path(str(kept.json_path)).name}
    assert look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'") == [(8_192,)]


@pytest.mark.parametrize(
    ("table", "days"), [("cache", 1), ("agent_metrics", 30), ("sync_log", 14), ("learning_signals", 30)]
)
async def test_each_kind_has_its_time(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path, table: str, days: int
) -> None:
    async def put_one_of_each() -> None:
        await lpm.cache.put(f"k{clock.now()}", b"1")
        await lpm.metrics.record(Sample())
        await lpm.sync_log.record(SyncRound(direction="upload", record_type="r", record_count=1, success=True))
        await lpm.signals.append([Signal(platform="p", field="f", selector="s", selector_type="css", success=True)])
        await lpm.signals.mark_synced([entry.signal_id for entry in await lpm.signals.unsynced()])

    await put_one_of_each()
    clock.advance(days * DAY - 1)
    await put_one_of_each()
    await lpm.maintenance.clean()
    assert count(store, table) == 2
    clock.advance(1.001)
    await lpm.maintenance.clean()
    assert count(store, table) == 1


async def test_more_than_one_batch_goes(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    await lpm.add_tasks(a_task(f"t{n}", lease_expires_at=NOW + timedelta(seconds=1)) for n in range(1_300))
    clock.advance(1)
    await lpm.expire_tasks()
    waiting = await lpm.get_unsynced_results(limit=2_000)
    await deliver(lpm, *(entry.result_id for entry in waiting[:1_200]))
    clock.advance(8 * DAY)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.tasks) == (1_200, 1_200)
    assert (count(store, "tasks"), count(store, "results")) == (100, 100)


async def test_files_that_no_result_names_go_after_a_day(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    """What a crash leaves between the page and its row."""
    entry = await save_one(lpm, "t1", a_result(body=b"<p>"))
    folder = lpm.raw_path(str(entry.html_path)).parent
    young, old = NOW.timestamp() - DAY + 1, NOW.timestamp() - DAY - 1
    for name, age in {"old.html.gz": old, "old.json": old, "young.html.gz": young, "young.json": young}.items():
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (age, age))
    os.utime(lpm.raw_path(str(entry.html_path)), (0, 0))
    cleaned = await lpm.maintenance.clean()
    assert cleaned.files >= 1
    assert {path.name for path in folder.iterdir()} == {"1-2.html.gz", "1-2.json", "young.html.gz", "young.json"}


async def test_a_file_that_vanishes_while_it_is_looked_at_is_no_reason_to_fail(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """A link to nothing is listed and cannot be looked at, like a file that another process has just removed."""
    entry = await save_one(lpm, "t1", a_result(body=b"<p>"))
    (lpm.raw_path(str(entry.html_path)).parent / "gone.html.gz").symlink_to(store.parent / "nowhere")
    await lpm.maintenance.clean()
    assert lpm.raw_path(str(entry.html_path)).exists()


async def test_relief_takes_what_is_delivered_and_the_cache_and_leaves_the_rest(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    """I8"""
    delivered = await save_one(lpm, "delivered", a_result(body=b"<p>1"))
    waiting = await save_one(lpm, "waiting", a_result(body=b"<p>2"))
    await deliver(lpm, delivered.result_id)
    await lpm.add_task(a_task("pending"))
    for n in range(5):
        await lpm.cache.put(f"k{n}", b"x" * 100)
    relieved = await lpm.maintenance.relieve()
    assert (relieved.results, relieved.tasks, relieved.files, relieved.cache) == (1, 1, 2, 5)
    assert (await lpm.maintenance.health()).cache_bytes == 0
    assert await the_result(lpm, "waiting") == waiting
    assert lpm.raw_path(str(waiting.html_path)).exists()
    assert not lpm.raw_path(str(delivered.html_path)).exists()
    assert [info.task.task_id for info in await list_tasks(lpm)] == ["waiting", "pending"]
    clock.advance(1)
    assert await lpm.maintenance.relieve() == NOTHING


async def test_relief_takes_delivered_signals_that_no_worker_learns_from(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """I8: in a small store they would take all its room in the end, and nothing would be scraped any more."""
    signal = Signal(platform="beacon", field="owner_names", selector="#a", selector_type="css", success=True)
    await lpm.signals.append(structs.replace(signal, selector=f"#{n}") for n in range(REMEMBERED + 700))
    delivered = await lpm.signals.unsynced(limit=650)
    await lpm.signals.mark_synced([entry.signal_id for entry in delivered])
    assert (await lpm.maintenance.relieve()).signals == 650
    assert (await lpm.signals.unsynced(limit=1))[0].signal.selector == "#650"
    await lpm.signals.mark_synced([entry.signal_id for entry in await lpm.signals.unsynced(limit=REMEMBERED)])
    assert (await lpm.maintenance.relieve()).signals == 50
    assert count(store, "learning_signals") == REMEMBERED


async def test_relief_takes_what_was_delivered_before_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I8"""
    await deliver(lpm, (await save_one(lpm)).result_id)
    clock.advance(-3600)
    assert (await lpm.maintenance.relieve()).results == 1


async def test_cleaning_gives_the_space_back(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    for n in range(40):
        await lpm.cache.put(f"k{n}", os.urandom(50_000))
    await lpm.cache.delete("another")  # pages are written with the next change
    clock.advance(2 * DAY)
    before = (await lpm.maintenance.usage()).database
    assert (await lpm.maintenance.clean()).cache == 40
    assert (await lpm.maintenance.usage()).database < before / 3
    assert look(store, "PRAGMA freelist_count") == [(0,)]


@pytest.mark.parametrize("full", [False, True])
async def test_a_vacuum_loses_nothing_and_lets_writers_write(
    lpm: LocalPersistenceManager, store: Path, full: bool
) -> None:
    await lpm.cache.put("k", os.urandom(2_000_000))
    entry = await save_one(lpm)
    await lpm._db.write(cache.shrink, 0)
    free, added = await asyncio.gather(lpm.maintenance.vacuum(full=full), lpm.add_task(a_task("t2")))
    assert free > 200
    assert added is True
    assert await the_result(lpm) == entry
    assert file_problems(store) == []
    assert await lpm.maintenance.vacuum(full=full) < 50


async def test_cleaning_while_another_program_reads_works(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    await deliver(lpm, (await save_one(lpm)).result_id)
    clock.advance(8 * DAY)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM results").fetchone() == (1,)
        assert (await lpm.maintenance.clean()).results == 1
        assert reader.execute("SELECT count(*) FROM results").fetchone() == (1,)


async def test_a_store_keeps_its_hands_off_the_pages_of_another_in_the_same_folder(tmp_path: Path) -> None:
    stores = [tmp_path / name for name in ("a.sqlite", "b.sqlite", "b.db", "c")]
    pages: dict[Path, Path] = {}
    clock = ManualClock()
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(LocalPersistenceManager.open(one, clock=clock)) for one in stores]
        for store, lpm in zip(stores, opened, strict=True):
            entry = await save_one(lpm, "t1", a_result(body=store.name.encode()))
            pages[store] = lpm.raw_path(str(entry.html_path))
            assert pages[store].is_relative_to(raw_folder(store))
            os.utime(pages[store], (0, 0))  # old enough to be taken for a crash's
        for lpm in opened:
            assert (await lpm.maintenance.clean()).files == 0
    assert pages[stores[0]].relative_to(tmp_path).parts[0] == "data"
    assert {store: gzip.decompress(page.read_bytes()) for store, page in pages.items()} == {
        store: store.name.encode() for store in stores
    }
    names = [Path((backup.make(store, clock.now(), keep=1)).path) for store in stores]
    assert all(name.exists() for name in names)


async def test_a_renamed_store_has_its_pages_still_and_a_copy_shares_none(tmp_path: Path) -> None:
    old, new, copy = tmp_path / "old.db", tmp_path / "new.db", tmp_path / "copy.db"
    async with LocalPersistenceManager.open(old) as lpm:
        path = str((await save_one(lpm, "t1", a_result(body=b"<p>1"))).html_path)
    old.rename(new)
    shutil.copy(new, copy)
    for store, is_there in ((new, True), (copy, False), (new, True)):
        async with LocalPersistenceManager.open(store) as lpm:
            assert lpm.raw_path(path).exists() is is_there
    new.unlink()
    for store, is_there in ((tmp_path / "another.db", False), (copy, True)):  # the copy takes the place of what is gone
        async with LocalPersistenceManager.open(store) as lpm:
            assert lpm.raw_path(path).exists() is is_there


async def test_a_new_store_under_the_old_name_of_another_takes_none_of_its_pages(tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    pages: dict[str, str] = {}
    for store in (first, second):  # in data/ and in second.db-data/
        async with LocalPersistenceManager.open(store) as lpm:
            entry = await save_one(lpm, "t1", a_result(body=store.name.encode()))
            pages[store.name] = str(entry.html_path)
            os.utime(lpm.raw_path(pages[store.name]), (0, 0))  # old enough to be taken for a crash's
        store.rename(store.with_name(f"renamed-{store.name}"))
    for store in (first, second):
        async with LocalPersistenceManager.open(store) as lpm:
            assert (await lpm.maintenance.clean()).files == 0
            await save_one(lpm, "t1", a_result(body=b"new"))
    for store in (first, second):
        renamed = store.with_name(f"renamed-{store.name}")
        async with LocalPersistenceManager.open(renamed) as lpm:
            page = lpm.raw_path(pages[store.name])
            assert gzip.decompress(page.read_bytes()) == store.name.encode()
            assert page.is_relative_to(raw_folder(renamed))
            assert not page.is_relative_to(raw_folder(store))
