"""Tasks and leases, in both ledgers."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import encode

from parcelpost.errors import InvalidInput
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.sqlite import SqliteLedger
from parcelpost.gateway.models import (
    AddCounts,
    ExpiredLeases,
    Grant,
    LeaseEnd,
    RefreshFilter,
    TaskFilter,
    TaskOutcome,
    TaskRow,
    TaskState,
    WorkerHeartbeat,
)
from parcelpost.model import Priority, Target, Task
from tests.gateway.conftest import MAX_ATTEMPTS
from tests.gateway.factories import arrival, task

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def granted(ledger: Ledger, now: datetime, capacity: int = 100, worker: str = "w1") -> list[str]:
    return [grant.task.task_id for grant in await ledger.grant(worker, ["echo"], capacity, now, now + HOUR)]


async def known(ledger: Ledger, task_id: str) -> TaskRow:
    found = await ledger.task(task_id)
    assert found is not None
    return found


async def test_a_task_that_is_known_is_not_added_again(ledger: Ledger, now: datetime) -> None:
    assert await ledger.add_tasks([task("a"), task("b")], now) == AddCounts(new=2, known=0)
    await granted(ledger, now)
    assert await ledger.add_tasks([task("b", priority=Priority.URGENT), task("c"), task("c")], now) == AddCounts(1, 2)
    assert (await known(ledger, "b")).state is TaskState.LEASED
    assert await ledger.add_tasks([], now) == AddCounts(0, 0)


async def test_a_grant_carries_the_task_as_it_was_added(ledger: Ledger, now: datetime) -> None:
    added = task("a", odd={"text": "\u0000 \u2028 ''", "n": [1, None]})
    await ledger.add_tasks([added], now)
    (grant,) = await ledger.grant("w1", ["echo"], 1, now, now + HOUR)
    assert grant == Grant(task=grant.task, attempt=1, created_at=now)
    assert grant.task.target == added.target
    assert grant.task.lease_expires_at == now + HOUR


async def test_tasks_go_by_priority_then_age(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("old"), task("older", "other"), task("batch", priority=Priority.BATCH)], now)
    await ledger.add_tasks([task("young"), task("urgent", "other", Priority.URGENT)], now - HOUR)
    grants = await ledger.grant("w1", ["echo", "other", "echo"], 4, now, now + HOUR)
    assert [grant.task.task_id for grant in grants] == ["urgent", "old", "older", "young"]
    assert await granted(ledger, now) == ["batch"]


async def test_only_platforms_that_were_asked_for_are_granted(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a"), task("b", "other")], now)
    assert await ledger.grant("w1", ["a,b", "%", ""], 10, now, now + HOUR) == []
    assert await ledger.grant("w1", [], 10, now, now + HOUR) == []
    assert await granted(ledger, now) == ["a"]
    assert await granted(ledger, now) == []


async def test_a_lease_that_is_over_brings_its_task_back_until_it_is_dead(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a")], now)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        (grant,) = await ledger.grant("w1", ["echo"], 1, now, now + HOUR)
        assert grant.attempt == attempt
        assert await ledger.expire_leases(now + HOUR - timedelta(milliseconds=1), 10) == ExpiredLeases([], [])
        last = attempt == MAX_ATTEMPTS
        expected = ExpiredLeases([], ["echo"]) if last else ExpiredLeases(["echo"], [])
        assert await ledger.expire_leases(now + HOUR, 10) == expected
    found = await known(ledger, "a")
    assert (found.state, found.ended_at, found.attempts) == (TaskState.DEAD, now + HOUR, MAX_ATTEMPTS)
    assert [lease.end for lease in found.leases] == [LeaseEnd.EXPIRED] * MAX_ATTEMPTS
    assert await granted(ledger, now) == []


async def test_leases_are_brought_back_a_few_at_a_time_the_oldest_first(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task(str(n)) for n in range(5)], now)
    for n in range(5):
        await ledger.grant("w1", ["echo"], 1, now, now + timedelta(minutes=n))
    assert await ledger.expire_leases(now + HOUR, 2) == ExpiredLeases(["echo", "echo"], [])
    assert sorted(await granted(ledger, now)) == ["0", "1"]


async def test_its_holder_ends_a_task(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("done"), task("none"), task("bad"), task("again")], now)
    await granted(ledger, now)
    assert await ledger.end_task("done", "w1", error=None, again=False, now=now) == TaskOutcome("echo", TaskState.DONE)
    none = await ledger.end_task("none", "w1", error="no such parcel", again=False, now=now, not_found=True)
    assert none == TaskOutcome("echo", TaskState.NOT_FOUND)
    bad = await ledger.end_task("bad", "w1", error="no such page", again=False, now=now)
    assert bad == TaskOutcome("echo", TaskState.FAILED)
    again = await ledger.end_task("again", "w1", error="timeout", again=True, now=now)
    assert again == TaskOutcome("echo", TaskState.QUEUED)
    ends = {name: await known(ledger, name) for name in ("done", "none", "bad", "again")}
    assert {name: (row.state, row.error, row.leases[-1].end) for name, row in ends.items()} == {
        "done": (TaskState.DONE, None, LeaseEnd.DONE),
        "none": (TaskState.NOT_FOUND, "no such parcel", LeaseEnd.DONE),
        "bad": (TaskState.FAILED, "no such page", LeaseEnd.FAILED),
        "again": (TaskState.QUEUED, "timeout", LeaseEnd.RETURNED),
    }
    assert ends["again"].ended_at is None
    assert await granted(ledger, now) == ["again"]


async def test_a_task_that_is_given_back_too_often_is_dead(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a")], now)
    ended = None
    for _ in range(MAX_ATTEMPTS):
        assert await granted(ledger, now) == ["a"]
        ended = await ledger.end_task("a", "w1", error="timeout", again=True, now=now)
    assert ended == TaskOutcome("echo", TaskState.DEAD)
    assert (await known(ledger, "a")).state is TaskState.DEAD


async def test_who_does_not_hold_a_task_cannot_end_it(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a"), task("b")], now)
    assert await granted(ledger, now, capacity=1) == ["a"]
    assert not await ledger.end_task("a", "stale", error="x", again=False, now=now)
    assert not await ledger.end_task("b", "w1", error="x", again=False, now=now)
    assert not await ledger.end_task("unknown", "w1", error=None, again=False, now=now)
    await ledger.end_task("a", "w1", error=None, again=False, now=now)
    assert not await ledger.end_task("a", "w1", error="x", again=True, now=now)
    assert (await known(ledger, "a")).state is TaskState.DONE


async def test_a_heartbeat_extends_the_leases_of_its_worker(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("old"), task("mine"), task("other")], now)
    await ledger.grant("w1", ["echo"], 1, now - 2 * HOUR, now)
    await ledger.grant("w1", ["echo"], 1, now, now + HOUR)
    await ledger.grant("w2", ["echo"], 1, now, now + HOUR)
    await ledger.record_heartbeat(WorkerHeartbeat(worker_id="w1"), now, now + 2 * HOUR, oldest_grant=now - HOUR)
    expiries = [(await known(ledger, name)).leases[0].expires_at for name in ("old", "mine", "other")]
    assert expiries == [now, now + 2 * HOUR, now + HOUR]
    await ledger.record_heartbeat(WorkerHeartbeat(worker_id="w1"), now, now + HOUR, oldest_grant=now - HOUR)
    assert (await known(ledger, "mine")).leases[0].expires_at == now + 2 * HOUR, "never shorter"


async def test_a_worker_that_holds_nothing_extends_nothing(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a")], now)
    await granted(ledger, now)
    idle = WorkerHeartbeat(worker_id="w1", queue={"pending": 0, "completed": 5})
    await ledger.record_heartbeat(idle, now, now + 2 * HOUR, oldest_grant=now - HOUR)
    assert (await known(ledger, "a")).leases[0].expires_at == now + HOUR


async def test_what_a_worker_does_not_hold_is_queued_again_at_once(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("lost"), task("on-its-way"), task("other")], now)
    await ledger.grant("w1", ["echo"], 1, now - MINUTE, now + HOUR)
    await ledger.grant("w1", ["echo"], 1, now, now + HOUR)
    await ledger.grant("w2", ["echo"], 1, now - MINUTE, now + HOUR)
    await ledger.release_leases("w1", now - MINUTE / 2, now)
    assert await ledger.expire_leases(now, 100) == ExpiredLeases(["echo"], [])
    states = [(await known(ledger, name)).state for name in ("lost", "on-its-way", "other")]
    assert states == [TaskState.QUEUED, TaskState.LEASED, TaskState.LEASED]


def of(states: list[str], platform: str = "", **more: Any) -> TaskFilter:
    return TaskFilter(states=[TaskState(name) for name in states], platform=platform, **more)


async def test_an_operator_queues_ended_tasks_again(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("bad"), task("none"), task("dead"), task("other", "other")], now)
    for name in await granted(ledger, now):
        if name != "dead":
            await ledger.end_task(name, "w1", error="x", again=False, now=now, not_found=name == "none")
    for _ in range(MAX_ATTEMPTS):
        await ledger.expire_leases(now + HOUR, 10)
        await granted(ledger, now)
    await ledger.expire_leases(now + HOUR, 10)
    assert await ledger.requeue(of(["failed"], "other")) == 0
    assert await ledger.requeue(of(["failed", "dead", "failed"], "")) == 2
    assert (await known(ledger, "bad")).attempts == 0
    assert await granted(ledger, now) == ["bad", "dead"]
    assert await ledger.requeue(of(["not_found"], "")) == 1
    assert await granted(ledger, now) == ["none"]


async def test_nobody_knows_a_task_of_that_name(subtests: pytest.Subtests, ledger: Ledger) -> None:
    for nonsense in ["", "x\0y", "\ud800", "' OR 1=1 --", "x" * 100_000]:
        with subtests.test(nonsense=nonsense):
            assert await ledger.task(nonsense) is None


async def test_the_queue_is_counted_by_platform_priority_and_state(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a"), task("b"), task("c"), task("u", "other", Priority.URGENT)], now)
    await ledger.add_tasks([task("d")], now + HOUR)
    await granted(ledger, now, capacity=2)
    await ledger.store([arrival("a")], "w1", now)
    await ledger.end_task("b", "w1", error="", again=False, now=now, not_found=True)
    found = {(row.platform, row.priority, row.state): (row.tasks, row.oldest_at) for row in await ledger.queue()}
    assert found == {
        ("echo", 3, TaskState.QUEUED): (2, now),
        ("echo", 3, TaskState.NOT_FOUND): (1, None),
        ("echo", 3, TaskState.DONE): (1, None),
        ("other", 1, TaskState.QUEUED): (1, now),
    }


async def test_ended_tasks_are_pruned_in_small_steps_and_their_results_stay(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task(str(n)) for n in range(6)], now)
    await granted(ledger, now, capacity=5)
    await ledger.store([arrival(str(n)) for n in range(4)], "w1", now)
    assert await ledger.prune(now, now, 10) == 0
    assert [await ledger.prune(now + HOUR, now, 3) for _ in range(3)] == [3, 1, 0]
    assert await ledger.task("0") is None
    assert (await known(ledger, "4")).state is TaskState.LEASED
    assert await ledger.store([arrival("0")], "w1", now) == ["duplicate"]


async def test_of_changes_made_at_once_the_one_that_fails_fails_alone(ledger: Ledger, now: datetime) -> None:
    names = [str(n) for n in range(20)]
    changes = [ledger.add_tasks([task(name), *([task("bad", "\ud800")] if name == "7" else [])], now) for name in names]
    answers = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(answer) for answer in answers] == [InvalidInput if name == "7" else AddCounts for name in names]
    assert sorted(await granted(ledger, now)) == sorted(set(names) - {"7"})


async def test_tasks_that_ended_without_a_record_are_listed_the_last_one_first(ledger: Ledger, now: datetime) -> None:
    names = ["a", "b", "c", "d"]
    await ledger.add_tasks([*map(task, names), task("failed"), task("done"), task("e", "other")], now)
    for grant in await ledger.grant("w1", ["echo", "other"], 10, now, now + HOUR):
        name = grant.task.task_id
        at = now + (MINUTE if name == "a" else 2 * MINUTE)
        error = None if name == "done" else "no such parcel"
        await ledger.end_task(
            name, "w1", error=error, again=False, now=at, not_found=error is not None and name != "failed"
        )
    found = await ledger.tasks(of(["not_found"], ""), 10)
    assert [one.task.task_id for one in found] == ["e", "d", "c", "b", "a"]
    assert (found[0].state, found[0].error, found[0].leases) == ("not_found", "no such parcel", ())
    page = await ledger.tasks(of(["not_found"], "echo"), 2)
    assert [one.task.task_id for one in page] == ["d", "c"]
    ended_at = page[-1].ended_at
    assert ended_at is not None
    rest = await ledger.tasks(of(["not_found"], "echo"), 2, (ended_at, page[-1].seq))
    assert [one.task.task_id for one in rest] == ["b", "a"]
    assert [one.task.task_id for one in await ledger.tasks(of(["failed"], ""), 10)] == ["failed"]
    assert await ledger.tasks(of(["dead"], ""), 10) == []


async def test_tasks_that_have_not_ended_are_listed_the_last_added_first(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task(name) for name in "abcde"], now)
    assert await granted(ledger, now, capacity=2) == ["a", "b"]
    assert [one.task.task_id for one in await ledger.tasks(of(["leased"]), 10)] == ["b", "a"]
    page = await ledger.tasks(of(["queued"], "echo"), 2)
    assert [one.task.task_id for one in page] == ["e", "d"]
    assert [one.task.task_id for one in await ledger.tasks(of(["queued"]), 2, (None, page[-1].seq))] == ["c"]
    assert await ledger.count_tasks(of(["queued"])) == 3


async def fail_some(ledger: Ledger, now: datetime) -> None:
    """Six tasks: three that differ only in what their error names, one of another county, one not found, one queued."""
    counties = {"a": "ocean", "b": "ocean", "c": "ocean", "d": "essex", "none": "ocean"}
    tasks = [
        Task(task_id=name, platform="echo", target=Target(parcel_id=name, state="NJ", county=county))
        for name, county in counties.items()
    ]
    await ledger.add_tasks([*tasks, task("waits", "other")], now)
    for number, name in enumerate(await granted(ledger, now)):
        error = f"https://site.example/parcel?id={name}00{number}: HTTP 404 for parcel 12-34-567{number}"
        await ledger.end_task(name, "w1", error=error, again=False, now=now + number * MINUTE, not_found=name == "none")


async def test_failures_are_grouped_by_reason_and_county(ledger: Ledger, now: datetime) -> None:
    await fail_some(ledger, now)
    largest, other = await ledger.failures(of(["failed", "dead"]), 10)
    assert (largest.tasks, largest.county, largest.example) == (3, "ocean", "c")
    assert largest.reason == "site.example/…: HTTP 404 for parcel …"
    assert largest.last_ended_at == now + 3 * MINUTE
    assert (other.tasks, other.county, other.state) == (1, "essex", "NJ")
    wanted = of(["failed"], reason=largest.reason, site="NJ/ocean")
    assert [one.task.task_id for one in await ledger.tasks(wanted, 10)] == ["c", "b", "a"]
    assert [group.county for group in await ledger.failures(of(["failed"], "echo", site="nj/essex"), 10)] == ["essex"]
    assert await ledger.failures(of(["failed"], reason="\0"), 10) == []
    assert len(await ledger.failures(of(["failed"]), 1)) == 1


async def test_an_attempt_keeps_its_own_error(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a")], now)
    await granted(ledger, now)
    await ledger.end_task("a", "w1", error="HTTP 503", again=True, now=now)
    await granted(ledger, now)
    await ledger.end_task("a", "w1", error="no owner", again=False, now=now)
    row = await known(ledger, "a")
    assert [lease.error for lease in row.leases] == ["HTTP 503", "no owner"]
    assert row.error == "no owner"


async def test_an_operator_deletes_tasks_that_nobody_works_on(ledger: Ledger, now: datetime) -> None:
    await fail_some(ledger, now)
    await ledger.grant("w1", ["other"], 1, now, now + HOUR)
    assert await ledger.delete_tasks(TaskFilter(task_ids=["a", "waits", "unknown"])) == 1
    assert await ledger.task("a") is None
    assert (await known(ledger, "waits")).state is TaskState.LEASED
    assert await ledger.delete_tasks(TaskFilter(task_ids=[])) == 0
    assert await ledger.requeue(of([], task_ids=["b", "c"])) == 2
    assert await ledger.delete_tasks(of(["failed"], site="NJ/essex")) == 1
    assert await ledger.count_tasks(TaskFilter()) == 4


async def test_a_large_refresh_lets_others_write_in_between(
    ledger: Ledger, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.gateway.ledger.sql._REFRESHED_AT_ONCE", 2)
    target = encode(Target(parcel_id="P", state="FL", county="union")).decode()
    known = [structs.replace(arrival(f"t{n}", f"P{n}"), target=target) for n in range(25)]
    await ledger.store(known, "w1", now)
    queued, _ = await asyncio.gather(
        ledger.refresh(RefreshFilter(), Priority.NORMAL, now, 21), ledger.add_tasks([task("new")], now)
    )
    assert queued == 21
    granted = await ledger.grant("w1", ["echo"], 100, now, now + timedelta(hours=1))
    tasks = [await ledger.task(grant.task.task_id) for grant in granted]
    in_order = [row.task.task_id for row in sorted(filter(None, tasks), key=lambda row: row.seq)]
    assert (len(in_order), len(set(in_order))) == (22, 22)
    if isinstance(ledger, SqliteLedger):  # which has one writer
        assert in_order[-1] != "new"
    assert await ledger.refresh(RefreshFilter(), Priority.NORMAL, now + timedelta(hours=1), 100) == 4
