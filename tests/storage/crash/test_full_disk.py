"""A disk without room: refused loudly, nothing confirmed is lost, what was delivered can be marked, and it heals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.chaos.disks import LoopDisk, why_not
from parcelpost.errors import StoreFull
from parcelpost.events import Event, ReserveUsed
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.health import Level
from parcelpost.storage.operator_actions import Selection
from tests.storage.crash.acknowledged import rows_without_file
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_result, a_task, claim_one, deliver, list_results, list_tasks, look, save_one

pytestmark = pytest.mark.xdist_group("disks")

PAGE = os.urandom(200_000)


@pytest.fixture
def store(loop_disk: LoopDisk) -> Path:
    return loop_disk.path / "local_data" / "parcelpost.db"


async def save_until_full(lpm: LocalPersistenceManager) -> list[str]:
    """The ids of the results that were confirmed before there was no room for the next."""
    confirmed: list[str] = []
    while True:
        try:
            claim = await claim_one(lpm, a_task(f"filling{len(confirmed)}"))
            result_id = await lpm.save_result(claim, a_result({"note": "x" * 20_000}, body=PAGE))
        except StoreFull:
            return confirmed
        assert result_id is not None
        confirmed.append(result_id)


def files(store: Path) -> set[Path]:
    return {path for path in (store.parent / "data").rglob("*") if path.is_file()}


async def test_a_full_disk_is_said_loses_nothing_and_heals_by_itself(loop_disk: LoopDisk, store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        filler = loop_disk.fill(leave_bytes=3_000_000)
        confirmed = await save_until_full(lpm)
        assert confirmed
        with pytest.raises(StoreFull) as full:
            await lpm.add_tasks(a_task(f"{n}", extra={"pad": "x" * 5_000}) for n in range(1_000))
        assert full.value.hint
        assert full.value.retry_helps
        kept = {entry.result_id for entry in await list_results(lpm, limit=1_000)}
        assert kept >= set(confirmed)
        filler.unlink()
        assert await lpm.add_task(a_task("after", platform="after"))
        await save_one(lpm, a_task("saved after", platform="after2"), a_result(body=PAGE))
    assert_whole(store)
    assert rows_without_file(store) == []
    assert {row[0] for row in look(store, "SELECT result_id FROM results")} >= set(confirmed)


async def test_what_was_delivered_can_be_marked_on_a_full_disk_thanks_to_the_reserve(
    loop_disk: LoopDisk, store: Path
) -> None:
    events: list[Event] = []
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number}") for number in range(300))
        saves = (lpm.save_result(claim, a_result(body=b"<p>page</p>")) for claim in await lpm.claim(300))
        await asyncio.gather(*saves)
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:  # with a WAL that has to grow
        entries = await lpm.get_unsynced_results(limit=300)
        loop_disk.fill()
        for start in range(0, 300, 20):
            await deliver(lpm, *(entry.result_id for entry in entries[start : start + 20]))
        assert (await lpm.queue_depth()).unsynced == 0
        assert [event for event in events if isinstance(event, ReserveUsed)]
    assert look(store, "SELECT count(*) FROM results WHERE synced = 1") == [(300,)]


async def test_the_reserve_is_for_marking_and_not_for_those_who_store_more(loop_disk: LoopDisk, store: Path) -> None:
    """Else the first results that come after it was given up take it, and nothing can be delivered any more."""
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number}") for number in range(600))
        claims = await lpm.claim(600)
        await asyncio.gather(*(lpm.save_result(claim, a_result(body=b"<p>page</p>")) for claim in claims[:300]))
    async with LocalPersistenceManager.open(store) as lpm:
        entries = await lpm.get_unsynced_results(limit=300)
        claims = await lpm.claim(300)
        loop_disk.fill()
        for start in range(0, 300, 20):
            await deliver(lpm, *(entry.result_id for entry in entries[start : start + 20]))
            saves = (lpm.save_result(claim, a_result(body=PAGE)) for claim in claims[start : start + 20])
            await asyncio.gather(*saves, return_exceptions=True)
        (loop_disk.path / "filler").unlink()
    assert_whole(store)


async def test_results_can_be_cleaned_away_on_a_full_disk_until_there_is_room(loop_disk: LoopDisk, store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        loop_disk.fill(leave_bytes=6_000_000)
        confirmed = await save_until_full(lpm)
        loop_disk.fill()
        await deliver(lpm, *confirmed)
        cleaned = await lpm.maintenance.relieve()
        assert cleaned.results == len(confirmed)
        await save_one(lpm, a_task("next", platform="next"), a_result(body=PAGE))
    assert_whole(store)
    assert rows_without_file(store) == []


async def test_a_full_disk_is_relieved_although_it_has_no_room_for_a_checkpoint(
    loop_disk: LoopDisk, store: Path
) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        with contextlib.closing(sqlite3.connect(store)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM cache").fetchone()  # keeps what is written next in the WAL
            for number in range(14):
                await lpm.cache.put(f"page {number}", os.urandom(300_000))
            await lpm.add_task(a_task())  # comes after them
        loop_disk.fill(leave_bytes=500_000)
        assert (await lpm.maintenance.relieve()).cache == 14
        (loop_disk.path / "filler").unlink()
    assert_whole(store)


async def test_saves_that_fail_for_want_of_room_leave_no_files_that_take_what_is_left(
    loop_disk: LoopDisk, store: Path
) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        claim = await claim_one(lpm)
        filler = loop_disk.fill()
        before = files(store)
        for _ in range(20):
            for body in (b"x", PAGE):
                with pytest.raises(StoreFull):
                    await lpm.save_result(claim, a_result({"note": "x" * 300_000}, body=body))
        assert files(store) == before
        filler.unlink()
        assert await lpm.save_result(claim, a_result(body=PAGE)) is not None


async def test_with_many_callers_a_full_disk_fails_those_who_do_not_fit_and_no_other(
    loop_disk: LoopDisk, store: Path
) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number:03}") for number in range(200))
        claims = await lpm.claim(200)
        filler = loop_disk.fill(leave_bytes=4_000_000)
        saves = (lpm.save_result(claim, a_result({"n": "x" * 8_000}, body=PAGE[:30_000])) for claim in claims)
        answers = await asyncio.gather(*saves, return_exceptions=True)
        confirmed = [answer for answer in answers if isinstance(answer, str)]
        failed = [claim for claim, answer in zip(claims, answers, strict=True) if isinstance(answer, StoreFull)]
        assert confirmed
        assert failed
        assert len(confirmed) + len(failed) == 200
        assert {entry.result_id for entry in await list_results(lpm, limit=1_000)} == set(confirmed)
        filler.unlink()
        again = [await lpm.save_result(claim, a_result(body=PAGE[:30_000])) for claim in failed]
        assert all(again)  # the claims still held
    assert_whole(store)
    assert rows_without_file(store) == []


async def test_a_store_on_a_full_disk_opens_or_says_that_there_is_no_room(loop_disk: LoopDisk, store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "t1", a_result(body=PAGE))
    shutil.rmtree(store.with_name(store.name + "-live") / "reserve")
    filler = loop_disk.fill()
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        try:
            async with LocalPersistenceManager.open(store) as lpm:
                assert len(await lpm.get_unsynced_results()) == 1
        except StoreFull as full:
            assert full.hint
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    assert list(store.with_name(store.name + "-live").glob("*.lock")) == []
    filler.unlink()
    async with LocalPersistenceManager.open(store) as lpm:
        assert (await lpm.queue_depth()).unsynced == 1
        await save_one(lpm, "t2")


async def test_a_store_that_is_closed_on_a_full_disk_gives_its_claims_back_at_the_next_opening(
    loop_disk: LoopDisk, store: Path
) -> None:
    with contextlib.suppress(StoreFull):  # closing may say so or not
        async with LocalPersistenceManager.open(store) as lpm:
            await claim_one(lpm)
            loop_disk.fill()
            await save_until_full(lpm)
    (loop_disk.path / "filler").unlink()
    async with LocalPersistenceManager.open(store) as lpm:
        assert [info.task.task_id for info in await list_tasks(lpm, Selection(statuses=(TaskStatus.PENDING,)))][:1] == [
            "t1"
        ]
        assert (await lpm.queue_depth()).processing == 0


@pytest.fixture
def disk_of_few_files(tmp_path: Path) -> Iterator[LoopDisk]:
    """256 MB, and no more than 600 files or so."""
    if reason := why_not():
        pytest.skip(reason)
    disk = LoopDisk(tmp_path, megabytes=256, inodes=600)
    try:
        yield disk
    finally:
        disk.remove()


async def test_a_disk_without_inodes_is_told_as_that_and_what_was_delivered_goes(disk_of_few_files: LoopDisk) -> None:
    store = disk_of_few_files.path / "local_data" / "parcelpost.db"
    options = StoreOptions(min_free_bytes=0, min_free_inodes=50)
    async with LocalPersistenceManager.open(store, options=options) as lpm:
        saved = [await save_one(lpm, a_task(f"t{n}", parcel_id=f"{n}"), a_result(body=b"<p>page")) for n in range(60)]
        assert (await lpm.maintenance.usage()).level is Level.FINE
        disk_of_few_files.take_all_inodes()
        usage = await lpm.maintenance.usage()
        assert (usage.level, usage.lacks_inodes, usage.lacks_disk) == (Level.EXECUTOR_STOPS, True, False)
        claim = await claim_one(lpm, a_task("next", parcel_id="next", platform="next"))
        with pytest.raises(StoreFull, match="no free inodes") as full:
            await lpm.save_result(claim, a_result(body=b"<p>next"))
        assert "free some disk space" not in full.value.hint
        await deliver(lpm, *(entry.result_id for entry in saved[:30]))
        assert (await lpm.maintenance.relieve()).results == 30
        assert (await lpm.maintenance.usage()).free_inodes >= 60
        assert await lpm.save_result(claim, a_result(body=b"<p>next")) is not None
    assert_whole(store)
    assert rows_without_file(store) == []


async def test_a_store_on_a_disk_without_inodes_can_be_opened_and_relieved(disk_of_few_files: LoopDisk) -> None:
    store = disk_of_few_files.path / "local_data" / "parcelpost.db"
    async with LocalPersistenceManager.open(store) as lpm:
        saved = [await save_one(lpm, a_task(f"t{n}", parcel_id=f"{n}"), a_result(body=b"<p>page")) for n in range(60)]
        await deliver(lpm, *(entry.result_id for entry in saved[:30]))
    taken = disk_of_few_files.take_all_inodes()
    async with LocalPersistenceManager.open(store) as lpm:
        cleaned = await lpm.maintenance.relieve()
        assert (cleaned.results, cleaned.files) == (30, 60)
        assert (await lpm.queue_depth()).unsynced == 30
    shutil.rmtree(store.with_name(store.name + "-live") / "reserve")
    disk_of_few_files.take_all_inodes()
    with pytest.raises(StoreFull, match="no free inodes"):
        async with LocalPersistenceManager.open(store):
            pass
    taken[0].unlink()
    for path in taken[1:20]:
        path.unlink()
    async with LocalPersistenceManager.open(store) as lpm:
        assert (await lpm.queue_depth()).unsynced == 30
