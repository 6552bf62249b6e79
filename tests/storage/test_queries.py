"""How the queue stands: counts, ages, lists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Priority, QueueDepth, Site, Source, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.claims import Pause
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import NOW, a_result, a_task, claim_one, list_tasks, save_one, task_counts, the_result

HOUR = timedelta(hours=1)


async def ready(lpm: LocalPersistenceManager, most: int) -> int:
    return sum(supply.ready for supply in (await lpm.supply(most)).values())


async def _one_of_each(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """On platform a: one in every status, and one delayed. On platform b: two pending."""
    await lpm.add_task(a_task("expired", platform="a", lease_expires_at=NOW + timedelta(seconds=1)))
    clock.advance(1)
    await lpm.expire_tasks()
    await save_one(lpm, a_task("completed", platform="a"))
    await lpm.give_up(await claim_one(lpm, a_task("failed", platform="a")), "no")
    await lpm.release(await claim_one(lpm, a_task("delayed", platform="a")), HOUR)
    await claim_one(lpm, a_task("processing", platform="a"))
    await lpm.add_tasks([a_task("pending", platform="a"), a_task("b1", platform="b"), a_task("b2", platform="b")])


async def test_counts_are_per_platform_and_status(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    assert await task_counts(lpm) == {}
    await _one_of_each(lpm, clock)
    one = dict.fromkeys(("pending", "delayed", "processing", "completed", "failed", "expired"), 1)
    assert await task_counts(lpm) == {"a": one, "b": {"pending": 2}}


async def test_the_depth_counts_every_state(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    assert await lpm.queue_depth() == QueueDepth()
    await _one_of_each(lpm, clock)
    await lpm.mark_rejected([(await the_result(lpm, "failed")).result_id], "unknown parcel")
    depth = await lpm.queue_depth()
    assert (depth.pending, depth.delayed, depth.processing) == (4, 1, 1)
    assert (depth.completed, depth.failed, depth.expired) == (1, 1, 1)
    assert (depth.unsynced, depth.rejected) == (2, 1)


async def test_ready_tasks_are_counted_no_further_than_asked(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    assert await ready(lpm, 5) == 0
    await _one_of_each(lpm, clock)
    assert await ready(lpm, 100) == 3  # neither the delayed one nor those that ended or are held
    assert max(supply.ready for supply in (await lpm.supply(1)).values()) == 1
    assert await ready(lpm, 0) == 0


async def test_supply_tells_what_is_delayed_and_paused_of_each_platform(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    for name in ("a1", "a2"):
        await lpm.add_task(a_task(name, platform="a"))
    await lpm.add_task(a_task("b1", platform="b"))
    (claim,) = await lpm.claim(1, platforms=["a"])
    await lpm.retry_later(claim, "later", timedelta(hours=1))
    await lpm.pause_platform("b", clock.now() + timedelta(minutes=1))
    found = await lpm.supply(10)
    assert (found["a"].ready, found["a"].delayed, found["a"].paused) == (1, 1, False)
    assert (found["b"].ready, found["b"].delayed, found["b"].paused) == (1, 0, True)
    clock.advance(61)
    assert not (await lpm.supply(10))["b"].paused


async def test_whether_any_task_is_open_is_known_per_platform(lpm: LocalPersistenceManager) -> None:
    assert not await lpm.is_any_open()
    await lpm.add_task(a_task("t1", platform="a"))
    (claim,) = await lpm.claim(1)
    assert await lpm.is_any_open(["a"])
    assert not await lpm.is_any_open(["b"])
    await lpm.retry_later(claim, "later", timedelta(hours=1))
    assert await lpm.is_any_open(["a", "b"])
    (info,) = await list_tasks(lpm)
    assert info.retries == 1
    await lpm.expire_tasks(timedelta(seconds=-1))
    assert not await lpm.is_any_open()


async def test_the_oldest_pending_task_is_found_in_every_platform_and_priority(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.add_task(a_task("oldest", platform="z", priority=Priority.BATCH))
    clock.advance(100)
    await lpm.add_tasks([a_task("a", platform="a", priority=Priority.URGENT), a_task("z", platform="z")])
    clock.advance(10)
    assert (await lpm.queue_depth()).oldest_pending_seconds == 110.0
    *_, oldest = await lpm.claim(3)
    assert oldest.task.task_id == "oldest"
    assert (await lpm.queue_depth()).oldest_pending_seconds == 0.0
    await lpm.release(oldest, HOUR)
    assert (await lpm.queue_depth()).oldest_pending_seconds == 110.0


async def test_the_oldest_unsynced_result_has_its_age(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    first = await save_one(lpm, "t1")
    clock.advance(60)
    second = await save_one(lpm, "t2")
    clock.advance(5)
    assert (await lpm.queue_depth()).oldest_unsynced_seconds == 65.0
    await lpm.mark_synced([first.result_id])
    assert (await lpm.queue_depth()).oldest_unsynced_seconds == 5.0
    await lpm.mark_rejected([second.result_id], "no")
    assert (await lpm.queue_depth()).oldest_unsynced_seconds == 0.0


async def test_an_age_is_never_negative_when_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await save_one(lpm, "t1")
    await lpm.add_task(a_task("t2"))
    clock.advance(-3600)
    depth = await lpm.queue_depth()
    assert (depth.oldest_pending_seconds, depth.oldest_unsynced_seconds) == (0.0, 0.0)


async def test_a_task_nobody_stored_is_not_there(lpm: LocalPersistenceManager) -> None:
    assert await lpm.get_task("unknown") is None


async def test_tasks_are_listed_in_pages(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(25))
    seen: list[str] = []
    after = 0
    while page := await list_tasks(lpm, limit=10, after=after):
        assert len(page) <= 10
        seen += [info.task.task_id for info in page]
        after = page[-1].seq
    assert seen == [f"t{n}" for n in range(25)]


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"completed", "failed", "delayed", "processing", "pending", "expired", "b1", "b2", "odd"}),
    ({"statuses": (TaskStatus.PENDING,)}, {"delayed", "pending", "b1", "b2", "odd"}),
    ({"statuses": (TaskStatus.EXPIRED,)}, {"expired"}),
    ({"platform": "b"}, {"b1", "b2"}),
    ({"platform": "b", "statuses": (TaskStatus.FAILED,)}, set()),
    ({"state": "FL"}, {"odd"}),
    ({"county": "Lee", "state": "fl"}, {"odd"}),
    ({"source": Source.LOCAL_FILE}, {"odd"}),
    ({"parcel_id": "99"}, {"odd"}),
    ({"parcel_id": "99", "state": "CT"}, set()),
    ({"platform": "' OR 1 = 1 --"}, set()),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
async def test_tasks_are_listed_by_each_filter(
    lpm: LocalPersistenceManager, clock: ManualClock, filters: dict[str, Any], expected: set[str]
) -> None:
    await _one_of_each(lpm, clock)
    odd = a_task("odd", platform="c", state="FL", county="lee", source=Source.LOCAL_FILE, parcel_id="99")
    await lpm.add_task(odd)
    assert {info.task.task_id for info in await list_tasks(lpm, Selection(**filters))} == expected


async def test_a_pause_is_replaced_by_the_next(lpm: LocalPersistenceManager) -> None:
    await lpm.pause_platform("vgsi", NOW + HOUR, "slow")
    assert await lpm.pauses() == {Site("vgsi", "", ""): Pause("2026-01-01T01:00:00.000Z", "slow")}
    await lpm.pause_platform("vgsi", None, "captcha")
    assert await lpm.pauses() == {Site("vgsi", "", ""): Pause(None, "captcha")}


async def test_a_pause_holds_for_tasks_that_come_later_and_not_for_claims_under_way(
    lpm: LocalPersistenceManager,
) -> None:
    claim = await claim_one(lpm, "held")
    await lpm.pause_platform("vgsi")
    await lpm.add_task(a_task("new"))
    assert await lpm.claim() == []
    assert await lpm.save_result(claim, a_result()) is not None
