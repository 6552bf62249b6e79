"""Tasks that failed lately: counted while they are failed, with the reason that comes most often."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.clock import ManualClock
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.queries import Ends
from tests.storage.factories import NOW, a_task, requeue, save_one


async def fail(lpm: LocalPersistenceManager, task_id: str, reason: str, platform: str = "vgsi") -> None:
    await lpm.add_task(a_task(task_id, platform=platform))
    (claim,) = await lpm.claim()
    await lpm.give_up(claim, reason)


async def test_the_commonest_reason_is_found_though_each_names_its_own_parcel(lpm: LocalPersistenceManager) -> None:
    await fail(lpm, "a", "the site is closed")
    for number in range(3):
        await fail(lpm, f"b{number}", f"no table on https://example.org/{number}")
    found = await lpm.failures_since(NOW)
    assert (found.failed, found.ended) == (4, 4)
    assert found.commonest.startswith("no table on https://example.org/")


async def test_a_few_among_many_are_told_and_are_no_alarm(lpm: LocalPersistenceManager) -> None:
    for number in range(39):
        await save_one(lpm, f"t{number}")
    await fail(lpm, "a", "no table")
    found = await lpm.failures_since(NOW)
    assert found.platforms == {"vgsi": Ends(failed=1, ended=40)}
    assert not found.are_many
    for number in range(2):
        await fail(lpm, f"b{number}", "no table")
    assert (await lpm.failures_since(NOW)).are_many


async def test_a_platform_of_which_everything_fails_is_an_alarm_however_small_it_is(
    lpm: LocalPersistenceManager,
) -> None:
    for number in range(39):
        await save_one(lpm, f"t{number}")
    await fail(lpm, "a", "no table", platform="beacon")
    found = await lpm.failures_since(NOW)
    assert found.hopeless == ["beacon"]
    assert found.are_many


async def test_what_is_long_ago_requeued_or_expired_does_not_count(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await fail(lpm, "old", "no")
    clock.advance(3600)
    await fail(lpm, "again", "no")
    await requeue(lpm, status=TaskStatus.FAILED, platform="vgsi")
    (claim, _) = await lpm.claim(2)
    await lpm.give_up(claim, "no")
    await lpm.add_task(a_task("late", lease_expires_at=NOW - timedelta(hours=1)))
    await lpm.expire_tasks()
    found = await lpm.failures_since(NOW + timedelta(minutes=1))
    assert (found.failed, found.ended) == (1, 1)
    clock.advance(3600)
    assert not (await lpm.failures_since(clock.now())).are_many
