"""How a claim ends, and that only the current one can end it (I4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Claim, Priority, TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import NOW, a_result, a_task, claim_one, everything, list_tasks, look, the_result, the_task

MINUTE = timedelta(minutes=1)


async def test_a_task_finished_without_a_record_is_not_found_and_reported(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I1: its end is in the outbox."""
    claim = await claim_one(lpm)
    clock.advance(7)
    assert await lpm.finish(claim, "no such parcel") is True
    done = await the_task(lpm)
    assert (done.status, done.completed_at) == (TaskStatus.NOT_FOUND, NOW + timedelta(seconds=7))
    assert done.error == "no such parcel"
    (report,) = await lpm.get_unsynced_results()
    assert (report.task_id, report.status, report.success, report.data) == ("t1", TaskStatus.NOT_FOUND, True, None)
    depth = await lpm.queue_depth()
    assert (depth.completed, depth.not_found) == (0, 1)


async def test_a_task_given_up_is_failed_and_reported(lpm: LocalPersistenceManager) -> None:
    """I1: its end is in the outbox."""
    assert await lpm.give_up(await claim_one(lpm), "no such parcel") is True
    failed = await the_task(lpm)
    assert (failed.status, failed.error, failed.claimed_by) == (TaskStatus.FAILED, "no such parcel", None)
    (report,) = await lpm.get_unsynced_results()
    assert (report.task_id, report.status, report.success) == ("t1", TaskStatus.FAILED, False)
    assert (report.error, report.data, report.parcel_id) == ("no such parcel", None, "1-2")


async def test_a_retry_comes_back_after_its_delay_with_one_more_retry(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    claim = await claim_one(lpm)
    assert await lpm.retry_later(claim, "timeout", MINUTE) is TaskStatus.PENDING
    waiting = await the_task(lpm)
    assert (waiting.status, waiting.retries, waiting.available_at) == (TaskStatus.PENDING, 1, NOW + MINUTE)
    assert (waiting.error, waiting.claimed_by) == ("timeout", None)
    assert await lpm.get_unsynced_results() == []
    clock.advance(60)
    (again,) = await lpm.claim()
    assert again.retries == 1


async def test_the_delay_doubles_within_its_bounds(store: Path, clock: ManualClock) -> None:
    options = StoreOptions(retry_min_seconds=10, retry_max_seconds=100)
    async with LocalPersistenceManager.open(store, clock=clock, options=options) as lpm:
        await lpm.add_task(a_task(max_retries=8))
        for longest in (10, 20, 40, 80, 100, 100, 100, 100):
            (claim,) = await lpm.claim()
            assert await lpm.retry_later(claim, "timeout") is TaskStatus.PENDING
            due = (await the_task(lpm)).available_at
            assert due is not None
            delay = (due - clock.now()).total_seconds()
            assert longest / 2 - 0.001 <= delay <= longest
            clock.advance(longest)
        (claim,) = await lpm.claim()
        assert await lpm.retry_later(claim, "timeout") is TaskStatus.FAILED


async def test_many_tasks_that_fail_at_once_do_not_come_back_at_once(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(50))
    for claim in await lpm.claim(50):
        await lpm.retry_later(claim, "gateway timeout")
    assert len({info.available_at for info in await list_tasks(lpm)}) > 25


async def test_a_task_whose_retries_are_used_up_is_failed_and_reported(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I1: its end is in the outbox."""
    await lpm.add_task(a_task(max_retries=2))
    for attempt in range(3):
        (claim,) = await lpm.claim()
        status = await lpm.retry_later(claim, f"timeout {attempt}", MINUTE)
        assert status is (TaskStatus.FAILED if attempt == 2 else TaskStatus.PENDING)
        clock.advance(60)
    failed = await the_task(lpm)
    assert (failed.status, failed.retries, failed.attempts, failed.error) == (TaskStatus.FAILED, 2, 3, "timeout 2")
    report = await the_result(lpm)
    assert (report.attempts, report.error) == (3, "timeout 2")
    assert await lpm.claim() == []


async def test_a_task_without_retries_fails_at_the_first(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm, a_task(max_retries=0))
    assert await lpm.retry_later(claim, "timeout") is TaskStatus.FAILED


async def test_a_released_task_costs_no_retry_and_may_be_delayed(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    claim = await claim_one(lpm)
    assert await lpm.release(claim) is True
    (again,) = await lpm.claim()
    assert (again.retries, again.seq) == (0, claim.seq)
    assert again.token != claim.token
    assert await lpm.release(again, MINUTE) is True
    assert await lpm.claim() == []
    assert (await the_task(lpm)).started_at is None
    clock.advance(60)
    assert len(await lpm.claim()) == 1


async def test_a_browser_is_assigned_to_a_claim_and_leaves_with_it(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm)
    await lpm.browsers.assign("t1", 3)
    assert (await the_task(lpm)).assigned_browser == 3
    await lpm.release(claim)
    assert (await the_task(lpm)).assigned_browser is None
    await lpm.browsers.assign("t1", 4)
    assert (await the_task(lpm)).assigned_browser is None


End = Callable[[LocalPersistenceManager, Claim], Awaitable[object]]

ENDS: dict[str, End] = {
    "save_result": lambda lpm, claim: lpm.save_result(claim, a_result(body=b"<p>late</p>")),
    "finish": lambda lpm, claim: lpm.finish(claim),
    "give_up": lambda lpm, claim: lpm.give_up(claim, "late"),
    "retry_later": lambda lpm, claim: lpm.retry_later(claim, "late"),
    "release": lambda lpm, claim: lpm.release(claim),
    "release with a delay": lambda lpm, claim: lpm.release(claim, MINUTE),
}


@pytest.mark.parametrize("first", ["save_result", "finish", "give_up", "retry_later", "release", "claimed again"])
async def test_a_stale_claim_changes_nothing(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path, first: str
) -> None:
    """I4, against the whole rows before and after."""
    claim = await claim_one(lpm)
    await ENDS["release" if first == "claimed again" else first](lpm, claim)
    if first == "claimed again":
        assert len(await lpm.claim()) == 1
    before = everything(store)
    for name, late in ENDS.items():
        clock.advance(60)
        assert not await late(lpm, claim), name
        assert everything(store) == before, name
    assert len(look(store, "SELECT * FROM results")) == (first in ("save_result", "finish", "give_up"))


async def test_leases_are_extended_for_all_that_was_granted_since(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    lease, later = NOW + timedelta(minutes=15), NOW + timedelta(minutes=25)
    await lpm.add_task(a_task("old", lease_expires_at=lease))
    clock.advance(60)
    await claim_one(lpm, a_task("held", priority=Priority.URGENT, lease_expires_at=lease))
    await lpm.add_tasks([a_task("waits", lease_expires_at=lease), a_task("over", lease_expires_at=clock.now())])
    await lpm.add_tasks([a_task("own"), a_task("longer", lease_expires_at=later + timedelta(hours=1))])
    assert await lpm.leases.extend_all(later, NOW + timedelta(seconds=30)) == 2
    found = {
        name: (await the_task(lpm, name)).task.lease_expires_at for name in ("old", "held", "waits", "over", "own")
    }
    assert found == {"old": lease, "held": later, "waits": later, "over": clock.now(), "own": None}
    clock.advance(20 * 60)
    assert await lpm.expire_tasks() == 2
    assert [claim.task.task_id for claim in await lpm.claim(9)] == ["waits", "own", "longer"]
