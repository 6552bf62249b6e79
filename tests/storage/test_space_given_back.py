"""Room that is held for speed goes back at the cap, and takes nothing with it (I2, I8)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import sqlite3
from pathlib import Path

from parcelpost.events import Event, OwnerCrashed
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.locks import live_folder
from parcelpost.storage.options import StoreOptions
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_result, a_task, list_results, save_one, the_result


async def test_the_journal_and_the_wal_go_and_the_pages_stay(lpm: LocalPersistenceManager, store: Path) -> None:
    body = os.urandom(100_000)
    entry = await save_one(lpm, "t1", a_result(body=body))
    before = await lpm.maintenance.usage()
    assert before.wal > 0
    assert before.journal >= 100_000
    await lpm.maintenance.give_back()
    after = await lpm.maintenance.usage()
    assert (after.wal, after.journal, after.raw) == (0, 0, before.raw)
    assert list(live_folder(store).glob("*.raw")) == []
    assert gzip.decompress(lpm.raw_path(str(entry.html_path)).read_bytes()) == body
    assert await the_result(lpm, "t1") == entry


async def test_with_nothing_to_give_back_nothing_happens(lpm: LocalPersistenceManager) -> None:
    await lpm.maintenance.give_back()
    await lpm.maintenance.give_back()
    assert (await lpm.maintenance.usage()).journal == 0


async def test_pages_that_are_kept_meanwhile_are_kept(lpm: LocalPersistenceManager, store: Path) -> None:
    await lpm.add_tasks(a_task(f"t{number}", parcel_id=f"p{number}") for number in range(60))
    claims = await lpm.claim(60)
    bodies = {claim.task.task_id: os.urandom(5_000) for claim in claims}
    saves = [lpm.save_result(claim, a_result(body=bodies[claim.task.task_id])) for claim in claims]
    others = [lpm.maintenance.give_back() for _ in range(10)]
    await asyncio.gather(*(one for pair in zip(saves[:10], others, strict=True) for one in pair), *saves[10:])
    entries = await list_results(lpm, limit=100)
    assert len(entries) == 60
    for entry in entries:
        kept = lpm.raw_path(str(entry.html_path)).read_bytes()
        assert gzip.decompress(kept) == bodies[entry.task_id]
    assert_whole(store)


async def test_a_reader_is_not_waited_for(store: Path) -> None:
    patient = StoreOptions(busy_timeout_seconds=200)
    async with LocalPersistenceManager.open(store, options=patient) as lpm:
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM tasks").fetchone()
            await save_one(lpm, "t1", a_result(body=b"<p>"))
            async with asyncio.timeout(60):
                await lpm.maintenance.give_back()
            assert (await lpm.maintenance.usage()).wal > 0
            assert reader.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
        await lpm.maintenance.give_back()
        assert (await lpm.maintenance.usage()).wal == 0


async def test_a_store_that_gave_back_its_journal_opens_again_with_nothing_to_mend(
    store: Path, events: list[Event]
) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "t1", a_result(body=b"<p>1"))
        await lpm.maintenance.give_back()
        await save_one(lpm, "t2", a_result(body=b"<p>2"))
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
        assert len(await list_results(lpm)) == 2
    assert not [event for event in events if isinstance(event, OwnerCrashed)]
    assert_whole(store)
