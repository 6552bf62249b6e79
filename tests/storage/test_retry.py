"""Ended tasks that a person sends around again."""

from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import REFRESH, Source, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    deliver,
    everything,
    list_results,
    look,
    requeue,
    save_one,
    the_result,
    the_task,
)


async def _failed(lpm: LocalPersistenceManager, task_id: str = "t1", platform: str = "vgsi") -> str:
    """A task that failed; answers its report's id."""
    await lpm.give_up(await claim_one(lpm, a_task(task_id, platform=platform)), "no such parcel")
    return (await the_result(lpm, task_id)).result_id


@pytest.mark.parametrize("reported", [False, True], ids=["report unsynced", "report synced"])
async def test_a_failed_task_starts_anew(lpm: LocalPersistenceManager, clock: ManualClock, reported: bool) -> None:
    report = await _failed(lpm)
    if reported:
        await deliver(lpm, report)
    clock.advance(60)
    assert await requeue(lpm, ["t1"]) == 1
    anew = await the_task(lpm)
    assert (anew.status, anew.retries, anew.recoveries, anew.error) == (TaskStatus.PENDING, 0, 0, None)
    assert (anew.started_at, anew.completed_at, anew.created_at) == (None, None, NOW)
    assert await lpm.get_unsynced_results() == []
    (claim,) = await lpm.claim()
    saved = await lpm.save_result(claim, a_result({"owner": "found"}))
    (entry,) = await list_results(lpm)
    assert (entry.result_id, entry.success, entry.data) == (saved, True, b'{"owner":"found"}')
    assert entry.synced_at is None


async def test_a_requeued_task_that_fails_again_is_reported_again(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I1: and under another idempotency key, or the gateway would not see it."""
    report = await the_result(lpm) if await _failed(lpm) else None
    assert report is not None
    await deliver(lpm, report.result_id)
    await requeue(lpm, ["t1"])
    clock.advance(60)
    (claim,) = await lpm.claim()
    assert await lpm.give_up(claim, "still no such parcel")
    (again,) = await lpm.get_unsynced_results()
    assert again.error == "still no such parcel"
    assert again.idempotency_key != report.idempotency_key


async def test_an_expired_task_starts_anew_without_its_lease(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task(lease_expires_at=NOW + timedelta(seconds=1)))
    clock.advance(1)
    await lpm.expire_tasks()
    assert await requeue(lpm, ["t1"]) == 1
    assert (await the_task(lpm)).task.lease_expires_at is None
    assert len(await lpm.claim()) == 1


async def test_a_completed_task_starts_anew_only_on_demand_and_once_delivered(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """I2: what is not delivered keeps its place."""
    entry = await save_one(lpm)
    before = everything(store)
    assert await requeue(lpm) == 0
    assert await requeue(lpm, completed=True) == 0
    assert await requeue(lpm, ["t1"], status=TaskStatus.COMPLETED, completed=True) == 0
    assert everything(store) == before
    await deliver(lpm, entry.result_id)
    assert await requeue(lpm, ["t1"]) == 0
    assert await requeue(lpm, status=TaskStatus.COMPLETED) == 0
    assert await requeue(lpm, completed=True) == 1
    assert (await the_task(lpm)).status is TaskStatus.PENDING


async def test_a_local_task_whose_record_was_not_delivered_is_scraped_again_by_a_new_one(
    lpm: LocalPersistenceManager,
) -> None:
    """I2: the record that was not delivered stays, and a parcel has one such task at a time."""
    await lpm.add_task(a_task("t1", source=Source.CLI))
    for number in range(3):
        (claim,) = await lpm.claim()
        assert await lpm.save_result(claim, a_result({"n": number}))
        assert await requeue(lpm) == 0
        assert await requeue(lpm, completed=True) == 1
        assert await requeue(lpm, completed=True) == 0, "it is pending"
    (claim,) = await lpm.claim()
    assert (claim.task.type, claim.task.target) == (REFRESH, a_task().target)
    assert sorted(entry.data for entry in await list_results(lpm) if entry.data) == [
        b'{"n":0}',
        b'{"n":1}',
        b'{"n":2}',
    ]


async def test_a_parcel_that_several_kept_tasks_scraped_is_scraped_again_once(lpm: LocalPersistenceManager) -> None:
    for name, kind in (("t1", "scrape"), ("refresh-7-r1", REFRESH), ("refresh-7-r2", REFRESH)):
        await deliver(lpm, (await save_one(lpm, a_task(name, type=kind))).result_id)
    await deliver(lpm, (await save_one(lpm, a_task("other", parcel_id="P2"))).result_id)
    assert await requeue(lpm, completed=True) == 2
    assert sorted(claim.task.task_id for claim in await lpm.claim(9)) == ["other", "refresh-7-r2"]
    assert await requeue(lpm, completed=True) == 0, "it is being scraped"


async def test_a_parcel_is_scraped_once_if_its_newer_task_gets_a_new_one_or_has_scraped_nothing(
    lpm: LocalPersistenceManager,
) -> None:
    old = await save_one(lpm, a_task("t1", source=Source.CLI))
    assert await requeue(lpm, completed=True) == 1
    (claim,) = await lpm.claim()
    assert await lpm.save_result(claim, a_result({"n": 1}))
    await deliver(lpm, old.result_id)
    assert await requeue(lpm, completed=True) == 1, "the newer one, whose record was not delivered"
    (claim,) = await lpm.claim(9)
    assert claim.task.type == REFRESH

    await deliver(lpm, (await the_result(lpm, "refresh:1")).result_id)
    assert await lpm.give_up(claim, "site is down")
    await deliver(lpm, (await the_result(lpm, claim.task.task_id)).result_id)
    assert await requeue(lpm, ["t1"], completed=True) == 0
    assert await requeue(lpm, ["refresh:1"], completed=True) == 1, "the failed one scraped nothing"


async def test_a_rejected_result_keeps_its_place_too(lpm: LocalPersistenceManager) -> None:
    entry = await save_one(lpm)
    await lpm.mark_rejected([entry.result_id], "unknown county")
    assert await requeue(lpm, completed=True) == 0


async def test_the_new_result_takes_the_place_of_the_delivered_one_with_its_files(
    lpm: LocalPersistenceManager,
) -> None:
    old = await save_one(lpm, "t1", a_result({"n": 1}, body=b"<p>1</p>"))
    await deliver(lpm, old.result_id)
    await requeue(lpm, ["t1"], completed=True)
    assert (await the_result(lpm)).result_id == old.result_id
    (claim,) = await lpm.claim()
    assert await lpm.save_result(claim, a_result({"n": 2}, body=b"<p>2</p>"))
    (new,) = await list_results(lpm)
    assert (new.data, new.sync_attempts, new.raw_synced_at, new.synced_at) == (b'{"n":2}', 0, None, None)
    assert old.html_path and old.json_path and new.html_path
    assert not lpm.raw_path(old.html_path).exists()
    assert not lpm.raw_path(old.json_path).exists()
    assert gzip.decompress(lpm.raw_path(new.html_path).read_bytes()) == b"<p>2</p>"


async def test_a_delivered_record_stays_when_the_requeued_task_fails(lpm: LocalPersistenceManager) -> None:
    old = await save_one(lpm)
    await deliver(lpm, old.result_id)
    await requeue(lpm, completed=True)
    (claim,) = await lpm.claim()
    assert await lpm.give_up(claim, "site is down")
    assert (await the_task(lpm)).status is TaskStatus.FAILED
    kept = await the_result(lpm)
    assert (kept.result_id, kept.data) == (old.result_id, old.data)


async def test_a_task_finished_without_a_record_can_be_scraped_anew(lpm: LocalPersistenceManager) -> None:
    await lpm.finish(await claim_one(lpm))
    await deliver(lpm, (await the_result(lpm)).result_id)
    assert await requeue(lpm, ["t1"], completed=True) == 1
    (claim,) = await lpm.claim()
    assert await lpm.save_result(claim, a_result({"n": 1}))
    assert (await the_result(lpm)).data == b'{"n":1}'


async def test_tasks_are_requeued_by_status_and_platform(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    for platform in ("a", "b"):
        await _failed(lpm, f"f{platform}", platform)
        await lpm.add_task(a_task(f"e{platform}", platform=platform, lease_expires_at=NOW + timedelta(seconds=9)))
    clock.advance(9)
    await lpm.expire_tasks()
    assert await requeue(lpm, ["fa", "fb"], platform="b") == 1
    assert await requeue(lpm, status=TaskStatus.EXPIRED, platform="a") == 1
    assert await requeue(lpm, status=TaskStatus.FAILED) == 1
    assert await requeue(lpm) == 1
    assert (await lpm.queue_depth()).pending == 4


async def test_what_is_pending_or_under_way_is_not_requeued(lpm: LocalPersistenceManager, store: Path) -> None:
    await claim_one(lpm, "held")
    await lpm.add_task(a_task("pending"))
    before = everything(store)
    assert await requeue(lpm) == 0
    assert await requeue(lpm, ["held", "pending", "unknown"], completed=True) == 0
    assert everything(store) == before


async def test_a_task_named_twice_is_requeued_once(lpm: LocalPersistenceManager) -> None:
    await _failed(lpm)
    assert await requeue(lpm, ["t1", "t1"]) == 1


async def test_no_names_requeue_nothing(lpm: LocalPersistenceManager) -> None:
    await _failed(lpm)
    assert await requeue(lpm, []) == 0


async def test_of_results_saved_at_once_the_replacing_one_disturbs_no_other(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    old = await save_one(lpm, "old")
    await deliver(lpm, old.result_id)
    await requeue(lpm, completed=True)
    await lpm.add_tasks(a_task(f"t{n}") for n in range(20))
    claims = await lpm.claim(21)
    saved = await asyncio.gather(*(lpm.save_result(claim, a_result({"n": claim.seq})) for claim in claims))
    assert None not in saved
    assert look(store, "SELECT count(*), count(DISTINCT task_id), sum(synced) FROM results") == [(21, 21, 0)]
