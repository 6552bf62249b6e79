"""Moments that the other tests meet only by chance, each one by itself."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.raw_files import HOLDER_FILE, NewPage, RawFiles
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    deliver,
    list_tasks,
    requeue,
    save_one,
    task_counts,
    the_result,
    the_task,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def test_a_claim_finds_its_platforms_task_while_others_find_nothing_on_theirs(
    lpm: LocalPersistenceManager,
) -> None:
    await lpm.add_task(a_task(platform="vgsi"))
    found = await asyncio.gather(
        lpm.claim(platforms=["beacon"]), lpm.claim(platforms=["beacon"]), lpm.claim(platforms=["vgsi"])
    )
    assert [len(claims) for claims in found] == [0, 0, 1]


async def test_callers_that_ask_for_more_than_there_is_get_all_there_is(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{number}") for number in range(5))
    found = await asyncio.gather(lpm.claim(2), lpm.claim(2), lpm.claim(2))
    assert sorted(len(claims) for claims in found) == [1, 2, 2]


async def test_no_task_is_given_out_whose_lease_is_over_however_many_there_are(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.add_tasks(a_task(f"t{number}", lease_expires_at=NOW + HOUR) for number in range(1_200))
    clock.advance(3601)
    assert await lpm.claim(100) == []
    assert await lpm.expire_tasks() + (await lpm.queue_depth()).expired >= 1_200


async def test_tasks_too_old_expire_though_younger_ones_stand_before_them(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """The clock was ahead when the first ones came, and was then set right."""
    clock.advance(10 * 86_400)
    await lpm.add_tasks(a_task(f"young{number}") for number in range(600))
    clock.advance(-10 * 86_400)
    await lpm.add_task(a_task("old"))
    clock.advance(5 * 86_400)
    assert await lpm.expire_tasks(4 * DAY) == 1
    assert (await the_task(lpm, "old")).status is TaskStatus.EXPIRED


async def test_a_task_that_is_due_does_not_count_as_delayed(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.retry_later(await claim_one(lpm), "timeout", HOUR)
    assert (await lpm.queue_depth()).delayed == 1
    clock.advance(3600)
    depth = await lpm.queue_depth()
    assert (depth.pending, depth.delayed) == (1, 0)
    assert await task_counts(lpm) == {"vgsi": {"pending": 1}}


async def test_a_task_named_twice_is_requeued_once(lpm: LocalPersistenceManager) -> None:
    await lpm.give_up(await claim_one(lpm), "no such parcel")
    assert await requeue(lpm, ["t1", "t1"]) == 1


async def test_a_parcel_can_be_saved_again_after_somebody_removed_its_raw_file(lpm: LocalPersistenceManager) -> None:
    """As after the restore of a backup that names files which were cleaned up since."""
    first = await save_one(lpm, "t1", a_result(body=b"<p>one</p>"))
    lpm.raw_path(str(first.html_path)).unlink()
    claim = await claim_one(lpm, "t2")
    assert await lpm.save_result(claim, a_result(body=b"<p>two</p>")) is not None
    second = await the_result(lpm, "t2")
    assert second.html_path != first.html_path
    assert lpm.raw_path(str(second.html_path)).exists()


async def test_a_record_beside_a_page_survives_the_removal_of_an_older_one_of_that_name(tmp_path: Path) -> None:
    """A file's name is free for the next result as soon as the old page is gone: its record must be gone before."""
    live = tmp_path / "live"
    live.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / HOLDER_FILE).touch()
    raw = RawFiles(tmp_path / "data", live, "owner")
    lost = 0
    try:
        for number in range(400):
            page = NewPage("vgsi", "CT", "hartford", "1-2", f"{number:032x}", b"%d" % number, b'{"a": 1}')
            old = await raw.keep(page)
            _, new = await asyncio.gather(raw.discard([old.html_path, old.json_path]), raw.keep(page))
            lost += not raw.path(new.json_path).exists()
            await raw.discard([new.html_path, new.json_path])
    finally:
        await raw.close()
    assert lost == 0


async def test_a_save_that_could_not_be_stored_leaves_no_file(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm)
    await lpm.release(claim)
    assert await lpm.save_result(claim, a_result(body=b"<p>stale</p>")) is None
    with pytest.raises(Exception, match="zone"):
        await lpm.save_result(claim, a_result(body=b"<p>x</p>", scraped_at=NOW.replace(tzinfo=None)))
    assert [path for path in lpm.raw_path("").rglob("*") if path.suffix] == []


async def test_reads_under_way_do_not_keep_a_closed_store_open(store: Path) -> None:
    before = set(threading.enumerate())
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number}") for number in range(500))
        reads = [asyncio.create_task(list_tasks(lpm, limit=500)) for _ in range(8)]
        await asyncio.sleep(0)
    await asyncio.wait(reads)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive(), thread


async def test_a_delivered_result_is_replaced_by_the_next_of_its_task_and_its_files_go(
    lpm: LocalPersistenceManager,
) -> None:
    first = await save_one(lpm, "t1", a_result(body=b"<p>one</p>"))
    await deliver(lpm, first.result_id)
    assert await requeue(lpm, ["t1"], completed=True) == 1
    (claim,) = await lpm.claim()
    assert await lpm.save_result(claim, a_result(body=b"<p>two</p>")) is not None
    assert not lpm.raw_path(str(first.html_path)).exists()
    assert not lpm.raw_path(str(first.json_path)).exists()
    second = await the_result(lpm, "t1")
    assert lpm.raw_path(str(second.html_path)).exists()
    assert lpm.raw_path(str(second.json_path)).exists()


@pytest.mark.parametrize("label", [b"", b'{"name": "parcel'])
async def test_a_raw_folder_with_a_damaged_label_is_used_and_gets_a_new_one(store: Path, label: bytes) -> None:
    """As after a power cut, shortly after somebody had copied the folder."""
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "t1", a_result(body=b"<p>page</p>"))
    file = store.parent / "data" / HOLDER_FILE
    whole = file.read_bytes()
    file.write_bytes(label)
    async with LocalPersistenceManager.open(store) as lpm:
        entry = await the_result(lpm, "t1")
        assert lpm.raw_path(str(entry.html_path)).exists()
    assert file.read_bytes() == whole
