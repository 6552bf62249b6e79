"""How the store is, and whether more may be taken in (I8)."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Signal
from parcelpost.storage import LocalPersistenceManager, StoreOptions, cache, migrations
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.locks import live_folder
from parcelpost.storage.snapshot import file_problems
from tests.storage.factories import a_result, deliver, list_results, save_one, the_result


@asynccontextmanager
async def opened(store: Path, clock: ManualClock, **options: int) -> AsyncIterator[LocalPersistenceManager]:
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(**options)) as lpm:  # type: ignore[arg-type]
        yield lpm


async def level_with(store: Path, clock: ManualClock, **options: int) -> Level:
    async with opened(store, clock, **options) as lpm:
        return (await lpm.maintenance.usage()).level


async def used(store: Path, clock: ManualClock) -> Usage:
    async with opened(store, clock) as lpm:
        return await lpm.maintenance.usage()


async def test_a_fresh_store_is_fine(lpm: LocalPersistenceManager) -> None:
    usage = await lpm.maintenance.usage()
    assert usage.level is Level.FINE
    assert (usage.raw, usage.journal) == (0, 0)
    assert (usage.max_bytes, usage.min_free_bytes) == (1024**3, 256 * 1024**2)
    assert usage.total == usage.database + usage.wal + usage.raw + usage.journal


async def test_at_the_cap_the_collector_stops_first_and_then_the_executor(store: Path, clock: ManualClock) -> None:
    """I8"""
    async with opened(store, clock) as lpm:
        for n in range(20):
            await save_one(lpm, f"t{n}", a_result(body=os.urandom(20_000)))
    total = (await used(store, clock)).total
    slack = 100_000  # the WAL and the journal of pages differ a little from opening to opening
    assert await level_with(store, clock, max_bytes=2 * total) is Level.FINE
    assert await level_with(store, clock, max_bytes=round(total / 0.9) + slack * 2) is Level.FINE
    assert await level_with(store, clock, max_bytes=round(total / 0.97)) is Level.COLLECTOR_STOPS
    assert await level_with(store, clock, max_bytes=total - slack) is Level.EXECUTOR_STOPS


async def test_on_a_full_disk_the_collector_stops_first_and_then_the_executor(store: Path, clock: ManualClock) -> None:
    """I8"""
    free = shutil.disk_usage(store.parent.parent).free
    assert await level_with(store, clock, min_free_bytes=free // 4) is Level.FINE
    assert await level_with(store, clock, min_free_bytes=free * 3 // 4) is Level.COLLECTOR_STOPS
    assert await level_with(store, clock, min_free_bytes=free * 2) is Level.EXECUTOR_STOPS


async def test_on_a_disk_short_of_inodes_the_collector_stops_first_and_then_the_executor(
    store: Path, clock: ManualClock
) -> None:
    """I8"""
    free = os.statvfs(store.parent.parent).f_favail
    if not free:
        pytest.skip("this file system does not count inodes")
    for least, level, lacks in (
        (free // 4, Level.FINE, False),
        (free * 3 // 4, Level.COLLECTOR_STOPS, True),
        (free * 2, Level.EXECUTOR_STOPS, True),
    ):
        async with opened(store, clock, min_free_inodes=least, min_free_bytes=0) as lpm:
            usage = await lpm.maintenance.usage()
        assert (usage.level, usage.lacks_inodes) == (level, lacks)


async def test_relief_brings_a_store_at_its_cap_back_and_loses_nothing_undelivered(
    store: Path, clock: ManualClock
) -> None:
    """I8: synced rows and cache go, what is unsynced stays."""
    async with opened(store, clock, max_bytes=1_500_000) as lpm:
        waiting = await save_one(lpm, "waiting", a_result(body=os.urandom(100_000)))
        for n in range(20):
            entry = await save_one(lpm, f"t{n}", a_result(body=os.urandom(40_000)))
            await deliver(lpm, entry.result_id)
            await lpm.cache.put(f"k{n}", os.urandom(20_000))
        await lpm.cache.delete("another")  # pages are written with the next change
        assert (await lpm.maintenance.usage()).level is Level.EXECUTOR_STOPS
        await lpm.maintenance.relieve()
    async with opened(store, clock, max_bytes=1_500_000) as lpm:
        usage = await lpm.maintenance.usage()
        assert usage.level is Level.FINE
        assert usage.raw == 102_400 + 4_096
        assert await the_result(lpm, "waiting") == waiting
        assert lpm.raw_path(str(waiting.html_path)).exists()
        assert len(await list_results(lpm)) == 1


async def test_relief_leaves_a_small_store_few_signals(store: Path, clock: ManualClock) -> None:
    """I8"""
    signal = Signal(platform="beacon", field="owner_names", selector="#a", selector_type="css", success=True)
    async with opened(store, clock, max_bytes=4 * 1024**2) as lpm:
        await lpm.signals.append([signal] * 5_000)
        await lpm.signals.mark_synced([entry.signal_id for entry in await lpm.signals.unsynced(limit=5_000)])
        assert (await lpm.maintenance.relieve()).signals == 5_000 - 2_048


async def test_the_wal_of_a_store_with_a_small_cap_stays_small(store: Path, clock: ManualClock) -> None:
    """I8: it counts, and would reach the cap before the store has much in it."""
    wal, sizes = store.with_name(f"{store.name}-wal"), [0]
    async with opened(store, clock, max_bytes=8_000_000) as lpm:
        for n in range(400):
            await save_one(lpm, f"t{n}", a_result(body=b"<p>"))
            sizes.append(wal.stat().st_size)
        assert max(sizes) < 2_000_000


async def test_relief_does_not_make_the_wal_larger(store: Path, clock: ManualClock) -> None:
    """I8: what it deletes is written to the WAL, too, and a store at its cap has no room for that."""
    wal = store.with_name(f"{store.name}-wal")
    async with opened(store, clock) as lpm:
        for n in range(60):
            await lpm.cache.put(f"k{n}", os.urandom(40_000))
        await lpm.cache.delete("another")  # pages are written with the next change
        before, sizes, is_over = wal.stat().st_size, [0], threading.Event()

        def sample() -> None:
            while not is_over.wait(0.0005):
                sizes.append(wal.stat().st_size)

        sampler = threading.Thread(target=sample)
        sampler.start()
        await lpm.maintenance.relieve()
        is_over.set()
        sampler.join()
        assert before > 2_000_000
        assert max(sizes) <= before
        assert wal.stat().st_size == 0


async def test_free_pages_do_not_count(lpm: LocalPersistenceManager) -> None:
    await lpm.cache.put("k", os.urandom(1_000_000))
    await lpm.cache.delete("another")  # pages are written with the next change
    before = await lpm.maintenance.usage()
    await lpm._db.write(cache.shrink, 0)
    after = await lpm.maintenance.usage()
    assert after.database < before.database - 900_000


async def test_raw_files_and_their_journal_count(lpm: LocalPersistenceManager, store: Path) -> None:
    await save_one(lpm, "t1", a_result(body=os.urandom(100_000)))
    usage = await lpm.maintenance.usage()
    assert usage.raw == 102_400 + 4_096
    assert usage.journal >= 100_000
    assert usage.journal == sum(path.stat().st_size for path in live_folder(store).glob("*.raw"))
    assert usage.wal == store.with_name("parcelpost.db-wal").stat().st_size


async def test_health_says_all_that_an_operator_asks(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    empty = await lpm.maintenance.health()
    assert (empty.last_change, empty.newest_backup, empty.newest_backup_age_seconds) == ("", None, None)
    await save_one(lpm)
    await lpm.cache.put("k", b"1")
    await lpm.cache.delete("another")  # pages are written with the next change
    clock.advance(90)
    made = await lpm.maintenance.backup()
    os.utime(made.path, (clock.now().timestamp(), clock.now().timestamp()))
    clock.advance(10)
    health = await lpm.maintenance.health()
    assert health.schema_version == migrations.load()[-1].version
    assert health.last_change == "2026-01-01T00:00:00.000Z"
    assert (health.newest_backup, health.newest_backup_age_seconds) == (made.path, 10.0)
    assert health.cache_bytes > 0


async def test_the_check_finds_a_result_without_its_task(lpm: LocalPersistenceManager, store: Path) -> None:
    await save_one(lpm)
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("DELETE FROM tasks")
        db.commit()
    (problem,) = file_problems(store)
    assert "results row 1 refers to a missing tasks" in problem
