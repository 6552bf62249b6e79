"""Tasks nobody started in time end expired, and say so upstream (I1)."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.clock import ManualClock
from parcelpost.model import Priority, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import NOW, a_task, claim_one, the_result, the_task

HOUR = timedelta(hours=1)


async def test_a_pending_task_expires_when_its_lease_ends(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I1: with a report in the outbox."""
    await lpm.add_tasks([a_task("leased", lease_expires_at=NOW + HOUR), a_task("free")])
    assert await lpm.expire_tasks() == 0
    clock.advance(3600)
    assert await lpm.expire_tasks() == 1
    expired = await the_task(lpm, "leased")
    assert (expired.status, expired.completed_at) == (TaskStatus.EXPIRED, NOW + HOUR)
    report = await the_result(lpm, "leased")
    assert (report.status, report.success, report.lease_expires_at) == (TaskStatus.EXPIRED, False, NOW + HOUR)
    assert report.error == expired.error
    assert "lease" in str(report.error)
    assert (await the_task(lpm, "free")).status is TaskStatus.PENDING


async def test_a_task_under_way_does_not_expire(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=NOW + HOUR))
    clock.advance(7200)
    assert await lpm.expire_tasks(max_age=timedelta(seconds=1)) == 0
    assert await lpm.finish(claim)


async def test_a_delayed_task_expires_too_when_its_lease_ends(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    claim = await claim_one(lpm, a_task(lease_expires_at=NOW + HOUR))
    await lpm.retry_later(claim, "busy", 5 * HOUR)
    clock.advance(3600)
    assert await lpm.expire_tasks() == 1


async def test_pending_tasks_expire_by_age(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I1: each with a report in the outbox; whatever their platform and priority."""
    await lpm.add_tasks(
        a_task(f"{platform}{priority}", platform=platform, priority=priority)
        for platform in ("a", "b")
        for priority in Priority
    )
    clock.advance(3600)
    await lpm.add_task(a_task("young"))
    clock.advance(3600)
    assert await lpm.expire_tasks(max_age=3 * HOUR) == 0
    assert await lpm.expire_tasks(max_age=1.5 * HOUR) == 8
    depth = await lpm.queue_depth()
    assert (depth.pending, depth.expired, depth.unsynced) == (1, 8, 8)
    assert "old" in str((await the_result(lpm, "a1")).error)


async def test_an_age_of_nothing_is_an_age(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task())
    clock.advance(1)
    assert await lpm.expire_tasks(max_age=timedelta(0)) == 1


async def test_a_paused_platforms_tasks_expire_by_age_too(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task())
    await lpm.pause_platform("vgsi")
    clock.advance(7200)
    assert await lpm.expire_tasks(max_age=HOUR) == 1


async def test_more_than_one_batch_expires(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_tasks(a_task(f"l{n}", lease_expires_at=NOW + HOUR) for n in range(1_100))
    await lpm.add_tasks(a_task(f"o{n}") for n in range(1_100))
    clock.advance(7200)
    assert await lpm.expire_tasks() == 1_100
    assert await lpm.expire_tasks(max_age=HOUR) == 1_100
    assert (await lpm.queue_depth()).unsynced == 2_200


async def test_an_old_delayed_task_expires_behind_many_young_ones(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.retry_later(await claim_one(lpm, "old"), "busy", timedelta(days=9))
    clock.advance(3600)
    await lpm.add_tasks(a_task(f"t{n}") for n in range(600))
    for claim in await lpm.claim(600):
        await lpm.release(claim, HOUR)
    assert await lpm.expire_tasks(max_age=HOUR / 2) == 1
    assert (await the_task(lpm, "old")).status is TaskStatus.EXPIRED


async def test_a_lease_ends_at_its_moment_even_when_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.add_task(a_task(lease_expires_at=NOW + HOUR))
    clock.advance(-86_400)
    assert await lpm.expire_tasks(max_age=HOUR) == 0
    clock.advance(86_400 + 3600)
    assert await lpm.expire_tasks() == 1
