"""Who gets which task, and when."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput, StoreBusy
from parcelpost.model import Claim, Priority, Site, TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.claims import Pause
from tests.storage.factories import NOW, a_result, a_task, claim_one, everything, look, the_result, the_task

HOUR = timedelta(hours=1)
_PROCESSING = "SELECT count(*) FROM tasks WHERE status = 'processing'"


def ids(claims: Sequence[Claim]) -> list[str]:
    return [claim.task.task_id for claim in claims]


async def test_an_empty_store_has_nothing_to_claim(lpm: LocalPersistenceManager) -> None:
    assert await lpm.claim() == []
    assert await lpm.claim(10, platforms=["vgsi"]) == []


async def test_a_claim_carries_the_task_and_holds_it(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    task = a_task(url="https://x", extra={"a": 1}, lease_expires_at=NOW + HOUR)
    await lpm.add_task(task)
    clock.advance(5)
    (claim,) = await lpm.claim()
    assert (claim.task, claim.retries, claim.created_at) == (task, 0, NOW)
    held = await the_task(lpm)
    assert (held.status, held.started_at) == (TaskStatus.PROCESSING, NOW + timedelta(seconds=5))
    assert held.claimed_by is not None
    assert held.claimed_by.startswith("test-")
    assert await lpm.claim() == []


async def test_claims_come_by_priority_and_then_by_age(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    for n, priority in enumerate((4, 3, 2, 1, 3, 1, 4, 2)):
        await lpm.add_task(a_task(f"{n}p{priority}", platform=f"platform{n % 3}", priority=Priority(priority)))
        clock.advance(1)
    assert ids(await lpm.claim(8)) == ["3p1", "5p1", "2p2", "7p2", "1p3", "4p3", "0p4", "6p4"]


async def test_age_is_the_order_of_arrival_even_when_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    for n in range(4):
        await lpm.add_task(a_task(f"t{n}", platform=f"platform{n % 2}"))
        clock.advance(-3600)
    assert ids(await lpm.claim(4)) == ["t0", "t1", "t2", "t3"]


async def test_a_more_urgent_arrival_goes_first(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"batch{n}", priority=Priority.BATCH) for n in range(20))
    assert ids(await lpm.claim(2)) == ["batch0", "batch1"]
    await lpm.add_task(a_task("urgent", platform="another", priority=Priority.URGENT))
    assert ids(await lpm.claim()) == ["urgent"]
    assert ids(await lpm.claim()) == ["batch2"]


async def test_a_claim_takes_at_most_its_limit(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(5))
    assert await lpm.claim(0) == []
    assert len(await lpm.claim(3)) == 3
    assert len(await lpm.claim(3)) == 2


async def test_callers_at_once_get_different_tasks_in_the_order_they_came(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(40))
    answers = await asyncio.gather(*(lpm.claim(1 + n % 3) for n in range(24)))
    assert [len(claims) for claims in answers[:18]] == [1 + n % 3 for n in range(18)]
    assert [name for claims in answers for name in ids(claims)] == [f"t{n}" for n in range(40)]


async def test_callers_at_once_with_other_wishes_get_what_they_wished(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"{platform}{n}", platform=platform) for n in range(3) for platform in "abc")
    only_a, anything, only_c, none, only_a_too = await asyncio.gather(
        lpm.claim(2, platforms=["a"]),
        lpm.claim(2),
        lpm.claim(9, platforms=["c"]),
        lpm.claim(9, platforms=[]),
        lpm.claim(9, platforms={"a", "x"}),
    )
    assert ids(only_a) == ["a0", "a1"]
    assert ids(anything) == ["b0", "c0"]
    assert ids(only_c) == ["c1", "c2"]
    assert none == []
    assert ids(only_a_too) == ["a2"]


async def test_what_is_not_due_yet_is_passed_over_until_it_is(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    claim = await claim_one(lpm, a_task("later", priority=Priority.URGENT))
    await lpm.retry_later(claim, "busy", timedelta(seconds=30))
    await lpm.add_task(a_task("now"))
    assert ids(await lpm.claim(5)) == ["now"]
    clock.advance(29.999)
    assert await lpm.claim() == []
    clock.advance(0.001)
    (again,) = await lpm.claim()
    assert (again.task.task_id, again.retries) == ("later", 1)


async def test_a_paused_platform_is_passed_over_until_it_is_resumed(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks([a_task("a", platform="a", priority=Priority.URGENT), a_task("b", platform="b")])
    await lpm.pause_platform("a", reason="captcha")
    assert await lpm.pauses() == {Site("a", "", ""): Pause(None, "captcha")}
    assert ids(await lpm.claim(5)) == ["b"]
    assert await lpm.claim(5, platforms=["a"]) == []
    assert await lpm.resume_platform("a") is True
    assert await lpm.resume_platform("a") is False
    assert ids(await lpm.claim(5)) == ["a"]


async def test_a_pause_ends_at_its_time(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_task(a_task())
    await lpm.pause_platform("vgsi", NOW + HOUR)
    assert await lpm.claim() == []
    clock.advance(3600)
    assert await lpm.pauses() == {}
    assert ids(await lpm.claim()) == ["t1"]


async def test_a_pause_until_a_moment_in_the_past_is_none(lpm: LocalPersistenceManager) -> None:
    await lpm.add_task(a_task())
    await lpm.pause_platform("vgsi")
    await lpm.pause_platform("vgsi", NOW - HOUR)
    assert await lpm.pauses() == {}
    assert ids(await lpm.claim()) == ["t1"]


async def test_no_platform_blocks_those_behind_it(lpm: LocalPersistenceManager) -> None:
    """A thousand urgent tasks that cannot run now stand before one that can."""
    await lpm.add_tasks(a_task(f"p{n}", platform="paused", priority=Priority.URGENT) for n in range(1_000))
    await lpm.add_tasks(a_task(f"d{n}", platform="delayed", priority=Priority.URGENT) for n in range(200))
    for claim in await lpm.claim(200, platforms=["delayed"]):
        await lpm.release(claim, HOUR)
    await lpm.pause_platform("paused")
    await lpm.add_task(a_task("free", platform="free", priority=Priority.BATCH))
    assert ids(await lpm.claim(5)) == ["free"]


@pytest.mark.parametrize("waiting", [1, 600])
async def test_a_task_whose_lease_is_over_is_never_claimed(
    lpm: LocalPersistenceManager, clock: ManualClock, waiting: int
) -> None:
    """I1: it ends expired instead, with its report."""
    await lpm.add_tasks(a_task(f"t{n}", lease_expires_at=NOW + timedelta(seconds=10)) for n in range(waiting))
    await lpm.add_task(a_task("without", priority=Priority.BATCH))
    clock.advance(10)
    assert ids(await lpm.claim(5)) == ["without"]
    assert (await the_task(lpm, "t0")).status is TaskStatus.EXPIRED
    assert (await the_result(lpm, "t0")).status is TaskStatus.EXPIRED


async def test_a_negative_limit_is_refused_and_disturbs_nobody(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(3))
    bad, good = await asyncio.gather(lpm.claim(-1), lpm.claim(2), return_exceptions=True)
    assert isinstance(bad, InvalidInput)
    assert isinstance(good, list)
    assert ids(good) == ["t0", "t1"]
    assert (await lpm.queue_depth()).processing == 2


async def test_closing_the_store_gives_its_claims_back(store: Path, clock: ManualClock) -> None:
    """I9, and at no cost: neither a retry nor a recovery."""
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        old = await claim_one(lpm)
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        found = await the_task(lpm)
        assert (found.status, found.retries, found.recoveries) == (TaskStatus.PENDING, 0, 0)
        (new,) = await lpm.claim()
        before = everything(store)
        assert await lpm.save_result(old, a_result()) is None
        assert everything(store) == before
        assert await lpm.save_result(new, a_result()) is not None


async def test_callers_at_once_are_served_by_one_statement_each_with_what_it_asked_for(
    lpm: LocalPersistenceManager,
) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(5))
    answers = await asyncio.gather(lpm.claim(1), lpm.claim(3), lpm.claim(5), lpm.claim(1))
    assert [ids(claims) for claims in answers] == [["t0"], ["t1", "t2", "t3"], ["t4"], []]
    assert len({claim.token for claims in answers for claim in claims}) == 1


async def test_a_task_is_processing_when_it_was_handed_out_and_only_then(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """Also for callers that come fast, and for anybody who looks into the file."""
    await lpm.add_tasks(a_task(f"t{n}") for n in range(60))
    for handed_out in range(1, 31):
        await lpm.claim()
        assert look(store, _PROCESSING) == [(handed_out,)]
    await asyncio.gather(*(lpm.claim() for _ in range(10)))
    assert look(store, _PROCESSING) == [(40,)]


async def test_what_was_claimed_for_a_cancelled_caller_is_back_when_the_caller_has_ended(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(3))
    for turns in range(12):
        claiming = asyncio.create_task(lpm.claim(3))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            for claim in await claiming:
                await lpm.release(claim)
        assert look(store, _PROCESSING) == [(0,)]
    assert ids(await lpm.claim(3)) == ["t0", "t1", "t2"]


async def test_what_was_claimed_for_a_cancelled_caller_comes_back_when_another_program_lets_go_of_the_store(
    store: Path,
) -> None:
    async with LocalPersistenceManager.open(store, options=StoreOptions(busy_timeout_seconds=0.02)) as lpm:
        await lpm.add_tasks(a_task(f"t{n}") for n in range(3))
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
            claiming = asyncio.create_task(lpm.claim(3))
            await asyncio.sleep(0)  # the caller asks for it,
            await asyncio.sleep(0)  # the writer gets it,
            while look(store, _PROCESSING) == [(0,)]:
                time.sleep(0.001)  # and while the event loop stands still, the caller does not know of the answer
            other.execute("BEGIN IMMEDIATE")
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            with pytest.raises(StoreBusy):
                await lpm.claim()
            assert look(store, _PROCESSING) == [(3,)]
        async with asyncio.timeout(60):
            while (await lpm.queue_depth()).processing:
                await asyncio.sleep(0.01)
        assert ids(await lpm.claim(3)) == ["t0", "t1", "t2"]


async def test_in_a_crowd_that_comes_and_goes_nothing_is_lost_or_given_twice(lpm: LocalPersistenceManager) -> None:
    """I1, I4: callers with different wishes, some of them cancelled, while tasks arrive and are given back."""
    chance = random.Random(7)
    platforms: list[list[str] | None] = [None, ["a", "b"], ["c"]]
    done: list[str] = []

    async def arrive(name: str) -> None:
        for n in range(50):
            priority = chance.choice(list(Priority))
            await lpm.add_task(a_task(f"{name}{n}", platform=chance.choice("abc"), priority=priority))

    async def give_up_waiting() -> None:
        claiming = asyncio.create_task(lpm.claim(2))
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        claiming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            for claim in await claiming:
                assert await lpm.release(claim)

    async def work() -> None:
        while len(done) < 200:
            for claim in await lpm.claim(chance.randint(1, 4), platforms=chance.choice(platforms)):
                if chance.random() < 0.6:
                    assert await lpm.save_result(claim, a_result()) is not None
                    done.append(claim.task.task_id)
                else:
                    assert await lpm.release(claim)
            await give_up_waiting()

    async with asyncio.timeout(60):
        await asyncio.gather(*map(arrive, "wxyz"), *(work() for _ in range(8)))
    assert sorted(done) == sorted(f"{name}{n}" for name in "wxyz" for n in range(50))
    depth = await lpm.queue_depth()
    assert (depth.completed, depth.processing, depth.pending) == (200, 0, 0)
