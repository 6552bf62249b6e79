"""Tasks go in once, whatever happens to them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.model import Priority, Source, Task, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.tasks import Added
from tests.storage.factories import NOW, a_result, a_task, claim_one, everything, list_tasks, look, the_task


async def test_a_new_task_is_stored_whole(lpm: LocalPersistenceManager) -> None:
    task = a_task(
        "t1",
        url="https://gis.vgsi.com/hartfordct?pid=1",
        extra={"pid": 7, "nested": {"list": [1, 2.5, None, True, "é"]}},
        source=Source.FIRESTORE,
        type="refresh",
        priority=Priority.HIGH,
        max_retries=5,
        lease_expires_at=NOW + timedelta(hours=1),
    )
    assert await lpm.add_task(task) is True
    stored = await the_task(lpm)
    assert stored.task == task
    assert (stored.status, stored.retries, stored.recoveries) == (TaskStatus.PENDING, 0, 0)
    assert stored.created_at == stored.updated_at == NOW
    assert (stored.available_at, stored.claimed_by, stored.started_at, stored.completed_at) == (None,) * 4


@pytest.mark.parametrize("source", list(Source))
async def test_a_task_may_come_from_every_source(lpm: LocalPersistenceManager, source: Source) -> None:
    await lpm.add_task(a_task(source=source))
    assert (await the_task(lpm)).task.source is source


@pytest.mark.parametrize("priority", list(Priority))
async def test_a_task_may_have_every_priority(lpm: LocalPersistenceManager, priority: Priority) -> None:
    await lpm.add_task(a_task(priority=priority))
    assert (await the_task(lpm)).task.priority is priority


async def _put_into(lpm: LocalPersistenceManager, clock: ManualClock, status: TaskStatus) -> None:
    """One task, brought to that status."""
    if status is TaskStatus.PENDING:
        await lpm.add_task(a_task())
    elif status is TaskStatus.EXPIRED:
        await lpm.add_task(a_task(lease_expires_at=NOW + timedelta(seconds=1)))
        clock.advance(2)
        await lpm.expire_tasks()
    else:
        claim = await claim_one(lpm)
        if status is TaskStatus.COMPLETED:
            await lpm.save_result(claim, a_result())
        if status is TaskStatus.NOT_FOUND:
            await lpm.finish(claim, "no such parcel")
        if status is TaskStatus.FAILED:
            await lpm.give_up(claim, "no such parcel")
    assert (await the_task(lpm)).status is status


@pytest.mark.parametrize("status", list(TaskStatus))
async def test_the_same_task_again_changes_nothing_in_any_status(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path, status: TaskStatus
) -> None:
    await _put_into(lpm, clock, status)
    before = everything(store)
    clock.advance(60)
    again = a_task(platform="other", parcel_id="9", priority=Priority.URGENT, lease_expires_at=NOW + timedelta(days=9))
    assert await lpm.add_task(again) is False
    assert await lpm.add_tasks([again, again]) == Added(known=2)
    assert everything(store) == before


async def test_many_tasks_are_stored_in_the_order_given(lpm: LocalPersistenceManager) -> None:
    added = await lpm.add_tasks(a_task(f"t{n}") for n in range(2_500))
    assert added == Added(new=2_500)
    stored = await list_tasks(lpm, limit=3_000)
    assert [info.task.task_id for info in stored] == [f"t{n}" for n in range(2_500)]
    assert [info.seq for info in stored] == sorted(info.seq for info in stored)


async def test_of_many_the_known_ones_are_counted_apart(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(10))
    assert await lpm.add_tasks(a_task(f"t{n}") for n in range(5, 1_505)) == Added(new=1_495, known=5)


async def test_the_same_task_twice_in_one_call_is_one_task(lpm: LocalPersistenceManager) -> None:
    assert await lpm.add_tasks([a_task("a"), a_task("a"), a_task("b")]) == Added(new=2, known=1)


async def test_no_tasks_are_no_work(lpm: LocalPersistenceManager) -> None:
    assert await lpm.add_tasks([]) == Added()


async def test_of_callers_at_once_exactly_one_adds_a_task(lpm: LocalPersistenceManager) -> None:
    answers = await asyncio.gather(*(lpm.add_task(a_task("same")) for _ in range(64)))
    assert sorted(answers) == [False] * 63 + [True]


async def test_callers_at_once_each_learn_about_their_own_task(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(0, 100, 2))
    answers = await asyncio.gather(*(lpm.add_task(a_task(f"t{n}")) for n in range(100)))
    assert answers == [n % 2 == 1 for n in range(100)]


async def test_an_iterator_that_fails_leaves_whole_tasks_and_can_be_repeated(lpm: LocalPersistenceManager) -> None:
    def broken() -> Iterator[Task]:
        yield from (a_task(f"t{n}") for n in range(2_500))
        raise OSError("the file ended early")

    with pytest.raises(OSError, match="ended early"):
        await lpm.add_tasks(broken())
    assert await lpm.add_task(a_task("after"))
    added = await lpm.add_tasks(a_task(f"t{n}") for n in range(2_500))
    assert added.new + added.known == 2_500
    assert (await lpm.queue_depth()).pending == 2_501


async def test_times_are_stored_as_sortable_text(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    clock.advance(1.5)
    await lpm.add_task(a_task(lease_expires_at=NOW + timedelta(days=1, microseconds=123_456)))
    (row,) = look(store, "SELECT created_at, updated_at, lease_expires_at FROM tasks")
    assert row == ("2026-01-01T00:00:01.500Z", "2026-01-01T00:00:01.500Z", "2026-01-02T00:00:00.123Z")


async def test_an_extra_named_like_a_field_is_refused(lpm: LocalPersistenceManager) -> None:
    with pytest.raises(InvalidInput, match="url, which has its own field"):
        await lpm.add_task(a_task(extra={"url": "of something else"}))
