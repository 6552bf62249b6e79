"""A task that comes again under a lease: an upstream that waits for it must not wait in vain."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import PageRecord, Target, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import NOW, a_result, a_task, claim_one, the_result, the_task

SHORT, LONG = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)


async def test_an_open_task_has_the_longer_lease(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task(lease_expires_at=SHORT))
    for lease in (LONG, SHORT):
        added = await lpm.add_tasks([a_task(lease_expires_at=lease)], leased=True)
        assert (added.new, added.known) == (0, 1)
    assert (await the_task(lpm)).task.lease_expires_at == LONG
    clock.advance(120)
    (claim,) = await lpm.claim()
    assert claim.task.lease_expires_at == LONG


async def test_one_that_expired_is_done_once_more(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """Also when nobody upstream has heard of that end: it holds no longer."""
    await lpm.add_task(a_task(lease_expires_at=SHORT))
    clock.advance(61)
    assert await lpm.expire_tasks() == 1
    added = await lpm.add_tasks([a_task(lease_expires_at=LONG), a_task("new", lease_expires_at=LONG)], leased=True)
    assert (added.new, added.known) == (2, 0)
    again = await the_task(lpm)
    assert (again.status, again.error, again.created_at) == (TaskStatus.PENDING, None, clock.now())
    assert await lpm.get_unsynced_results(10) == []
    claims = {claim.task.task_id: claim for claim in await lpm.claim(2)}
    await lpm.save_result(claims["t1"], a_result())
    assert (await the_result(lpm)).success


async def test_one_that_failed_comes_again_only_when_that_was_reported(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=SHORT))
    await lpm.give_up(claim, "no luck")
    assert (await lpm.add_tasks([a_task(lease_expires_at=LONG)], leased=True)).known == 1
    assert (await the_task(lpm)).status is TaskStatus.FAILED
    await lpm.mark_synced([(await the_result(lpm)).result_id])
    assert (await lpm.add_tasks([a_task(lease_expires_at=LONG)], leased=True)).new == 1
    again = await the_task(lpm)
    assert (again.status, again.retries) == (TaskStatus.PENDING, 0)


@pytest.mark.parametrize("delivered", [False, True])
async def test_a_completed_one_stays(lpm: LocalPersistenceManager, delivered: bool) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=SHORT))
    await lpm.save_result(claim, a_result())
    if delivered:
        await lpm.mark_synced([(await the_result(lpm)).result_id])
    assert (await lpm.add_tasks([a_task(lease_expires_at=LONG)], leased=True)).known == 1
    assert (await the_task(lpm)).status is TaskStatus.COMPLETED


async def test_a_completed_one_whose_lease_has_another_name_is_ordered_again(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=LONG, lease_id="a"))
    await lpm.save_result(claim, a_result())
    target = Target(parcel_id="2", state="CT", county="x")
    anew = msgspec.structs.replace(a_task(lease_expires_at=SHORT, lease_id="b"), target=target)
    assert (await lpm.add_tasks([anew], leased=True)).known == 1, "its result is on its way, and ends that task, too"
    await lpm.mark_synced([(await the_result(lpm)).result_id])
    assert (await lpm.add_tasks([a_task(lease_expires_at=LONG, lease_id="a")], leased=True)).known == 1
    assert (await lpm.add_tasks([anew], leased=True)).new == 1
    (claim,) = await lpm.claim()
    assert (claim.task.lease_id, claim.task.target.parcel_id) == ("b", "2")
    await lpm.save_result(claim, a_result())
    (entry,) = await lpm.get_unsynced_results()
    assert (entry.task_id, entry.lease_id) == ("t1", "b")


async def test_a_page_whose_records_are_not_all_delivered_is_not_done_again(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=LONG, lease_id="a"))
    more = (PageRecord(parcel_id="2", county="", key="2", data={"a": 1}),)
    await lpm.save_result(claim, msgspec.structs.replace(a_result(), additional_records=more))
    first, second = await lpm.get_unsynced_results()
    await lpm.mark_synced([first.result_id])
    anew = a_task(lease_expires_at=LONG, lease_id="b")
    assert (await lpm.add_tasks([anew], leased=True)).known == 1
    await lpm.mark_synced([second.result_id])
    assert (await lpm.add_tasks([anew], leased=True)).new == 1


async def test_the_same_answer_twice_changes_nothing(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task(lease_expires_at=SHORT))
    clock.advance(61)
    await lpm.expire_tasks()
    assert (await lpm.add_tasks([a_task(lease_expires_at=SHORT)], leased=True)).known == 1
    assert (await the_task(lpm)).status is TaskStatus.EXPIRED


async def test_one_without_a_lease_changes_nothing(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task(lease_expires_at=SHORT))
    clock.advance(61)
    await lpm.expire_tasks()
    assert (await lpm.add_tasks([a_task()], leased=True)).known == 1
    assert (await the_task(lpm)).status is TaskStatus.EXPIRED


async def test_one_that_its_upstream_waits_to_hear_of_outlives_its_result(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    claim = await claim_one(lpm, a_task())
    await lpm.save_result(claim, a_result())
    await lpm.mark_synced([(await the_result(lpm)).result_id])
    await lpm.add_tasks([a_task()], leased=True)
    clock.advance(30 * 86_400)
    for _ in range(2):
        await lpm.maintenance.clean()
    assert await lpm.get_result("t1") is None
    ((info, _),) = await lpm.tasks_to_report_again()
    await lpm.mark_reported_again([info.seq])
    await lpm.maintenance.clean()
    assert await lpm.get_task("t1") is None


async def test_one_that_was_not_found_and_is_handed_out_again_is_answered_too(lpm: LocalPersistenceManager) -> None:
    await lpm.finish(await claim_one(lpm, a_task()), "no such parcel")
    await lpm.mark_synced([(await the_result(lpm)).result_id])
    await lpm.add_tasks([a_task()], leased=True)
    assert [(info.status, why) for info, why in await lpm.tasks_to_report_again()] == [(TaskStatus.NOT_FOUND, None)]


async def test_one_whose_record_was_rejected_is_answered_with_the_reason_and_not_done_again(
    lpm: LocalPersistenceManager,
) -> None:
    """Also under a new lease, which the answer names then; the rejected record is kept."""
    more = (PageRecord(parcel_id="2", county="", key="2", data={"a": 1}),)
    claim = await claim_one(lpm, a_task(lease_expires_at=SHORT, lease_id="a"))
    await lpm.save_result(claim, msgspec.structs.replace(a_result(), additional_records=more))
    first, second = await lpm.get_unsynced_results()
    for result, reason, lease_id in [(second, "no such field", "b"), (first, "of another parcel", "c")]:
        await lpm.mark_rejected([result.result_id], reason)
        anew = a_task(lease_expires_at=LONG, lease_id=lease_id)
        assert (await lpm.add_tasks([anew], leased=True)).new == 0
        if result is second:
            assert await lpm.tasks_to_report_again() == [], "the other record is on its way"
            continue
        ((info, why),) = await lpm.tasks_to_report_again()
        assert (why, info.task.lease_id, info.status) == (reason, lease_id, TaskStatus.COMPLETED)
    await lpm.operator.retry_results(Selection(task_ids=(first.task_id,)))
    assert await lpm.tasks_to_report_again() == [], "a person sends it again, and that answers"
    await lpm.mark_synced([first.result_id])
    assert [why for _, why in await lpm.tasks_to_report_again()] == ["no such field"]


async def test_one_that_failed_and_whose_report_was_rejected_is_done_again(lpm: LocalPersistenceManager) -> None:
    await lpm.give_up(await claim_one(lpm, a_task(lease_expires_at=SHORT)), "no luck")
    await lpm.mark_rejected([(await the_result(lpm)).result_id], "no such task")
    assert (await lpm.add_tasks([a_task(lease_expires_at=LONG)], leased=True)).new == 1
    (claim,) = await lpm.claim()
    await lpm.give_up(claim, "no luck again")
    assert [entry.error for entry in await lpm.get_unsynced_results()] == ["no luck again"]
