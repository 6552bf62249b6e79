"""Claims taken ahead are invisible, whatever comes between."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import StoreBusy
from parcelpost.model import Priority, TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.filtering import Selection
from tests.storage.making import NOW, a_result, a_task, look

TASKS = 60


async def claim_fast(lpm: LocalPersistenceManager, count: int) -> list[str]:
    """One by one and without a pause: the way of callers for whom claims are taken ahead."""
    return [claim.task.task_id for _ in range(count) for claim in await lpm.claim()]


async def hold_ahead(lpm: LocalPersistenceManager, store: Path) -> list[str]:
    """Claims ten tasks; when this returns, some more are held ahead. A machine that stalls gets another try."""
    for _ in range(50):
        claims = [claim for _ in range(10) for claim in await lpm.claim()]
        if held_in(store) > 10:
            return [claim.task.task_id for claim in claims]
        for claim in claims:
            await lpm.release(claim)
    raise AssertionError("nothing is held ahead, so these tests show nothing")


@pytest.fixture
async def busy(lpm: LocalPersistenceManager, store: Path) -> AsyncIterator[LocalPersistenceManager]:
    """A store of which ten tasks are claimed, and some more are held ahead."""
    await lpm.add_tasks(a_task(f"t{n}", priority=Priority.BATCH) for n in range(TASKS))
    assert await hold_ahead(lpm, store) == [f"t{n}" for n in range(10)]
    yield lpm


def held_in(store: Path) -> int:
    count: int = look(store, "SELECT count(*) FROM tasks WHERE status = 'processing'")[0][0]
    return count


async def test_fast_callers_get_every_task_once_and_in_order(busy: LocalPersistenceManager) -> None:
    assert await claim_fast(busy, TASKS) == [f"t{n}" for n in range(10, TASKS)]
    assert await busy.claim() == []


async def test_a_look_at_the_queue_shows_only_what_was_handed_out(busy: LocalPersistenceManager, store: Path) -> None:
    depth = await busy.queue_depth()
    assert (depth.pending, depth.processing) == (TASKS - 10, 10)
    assert held_in(store) == 10
    await claim_fast(busy, 5)
    assert (await busy.task_counts())["vgsi"] == {"pending": TASKS - 15, "processing": 15}
    await claim_fast(busy, 5)
    assert len(await busy.list_tasks(Selection(statuses=(TaskStatus.PROCESSING,)), limit=TASKS)) == 20


async def test_a_more_urgent_arrival_goes_before_what_is_held_ahead(busy: LocalPersistenceManager) -> None:
    await busy.add_task(a_task("urgent", priority=Priority.URGENT))
    assert await claim_fast(busy, 2) == ["urgent", "t10"]
    await busy.add_tasks([a_task("normal"), a_task("high", platform="other", priority=Priority.HIGH)])
    assert await claim_fast(busy, 3) == ["high", "normal", "t11"]


async def test_a_pause_holds_for_what_is_held_ahead(busy: LocalPersistenceManager) -> None:
    await busy.add_task(a_task("other", platform="other", priority=Priority.BATCH))
    await busy.pause_platform("vgsi")
    assert await claim_fast(busy, 3) == ["other"]
    await busy.resume_platform("vgsi")
    assert await claim_fast(busy, 1) == ["t10"]


async def test_another_wish_is_answered_from_all_tasks(busy: LocalPersistenceManager) -> None:
    await busy.add_task(a_task("other", platform="other", priority=Priority.BATCH))
    (claim,) = await busy.claim(platforms=["other"])
    assert claim.task.task_id == "other"
    assert await claim_fast(busy, TASKS) == [f"t{n}" for n in range(10, TASKS)]


async def test_a_released_task_goes_before_the_younger_ones_held_ahead(busy: LocalPersistenceManager) -> None:
    (claim,) = await busy.claim()
    await busy.claim()
    assert await busy.release(claim)
    assert await claim_fast(busy, 2) == ["t10", "t12"]


async def test_a_retried_task_that_is_due_goes_before_the_younger_ones_held_ahead(
    busy: LocalPersistenceManager, clock: ManualClock
) -> None:
    (claim,) = await busy.claim()
    await busy.retry_later(claim, "busy", timedelta(seconds=5))
    assert await claim_fast(busy, 1) == ["t11"]
    clock.advance(5)
    assert await claim_fast(busy, 2) == ["t10", "t12"]


async def test_what_is_held_ahead_is_not_handed_out_after_its_lease(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    await lpm.add_tasks(a_task(f"t{n}", lease_expires_at=NOW + timedelta(seconds=5)) for n in range(TASKS))
    await lpm.add_task(a_task("without", priority=Priority.BATCH))
    await hold_ahead(lpm, store)
    clock.advance(5)
    assert await claim_fast(lpm, 3) == ["without"]
    assert (await lpm.queue_depth()).expired == TASKS - 10


async def test_what_is_held_ahead_expires_by_age_like_the_rest(
    busy: LocalPersistenceManager, clock: ManualClock
) -> None:
    clock.advance(100)
    assert await busy.expire_tasks(timedelta(seconds=50)) == TASKS - 10
    assert await busy.claim() == []


async def test_a_caller_is_not_told_that_nothing_is_there_because_another_found_nothing(
    lpm: LocalPersistenceManager,
) -> None:
    await lpm.add_tasks(a_task(f"{platform}{n}", platform=platform) for n in range(3) for platform in "ab")
    answers = await asyncio.gather(
        lpm.claim(9, platforms=["none"]), lpm.claim(3, platforms=["a"]), lpm.claim(9, platforms=["none"]),
        lpm.claim(2, platforms=["b"]), lpm.claim(5),
    )  # fmt: skip
    assert [len(claims) for claims in answers] == [0, 3, 0, 2, 1]


async def test_a_caller_whose_claims_were_taken_by_quicker_ones_is_not_told_that_nothing_is_there(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """One more caller in every turn of the event loop: some come between the store's answer and who waits for it."""
    await lpm.add_tasks(a_task(f"t{n}") for n in range(1_000))
    for _ in range(10):
        async with LocalPersistenceManager.open(store) as other:  # it has claimed nothing yet, so it takes none ahead
            callers = [asyncio.create_task(other.claim())]
            while not callers[0].done():
                if len(callers) < 500:
                    callers.append(asyncio.create_task(other.claim()))
                await asyncio.sleep(0)
            answers = await asyncio.gather(*callers)
            assert [len(claims) for claims in answers] == [1] * len(callers)


async def test_a_caller_gets_what_is_left_when_there_is_less_than_it_asked_for(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(5))
    answers = await asyncio.gather(lpm.claim(1), lpm.claim(3), lpm.claim(5), lpm.claim(1))
    assert [len(claims) for claims in answers] == [1, 3, 1, 0]


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

    async with asyncio.timeout(30):
        await asyncio.gather(*map(arrive, "wxyz"), *(work() for _ in range(8)))
    assert sorted(done) == sorted(f"{name}{n}" for name in "wxyz" for n in range(50))
    depth = await lpm.queue_depth()
    assert (depth.completed, depth.processing, depth.pending) == (200, 0, 0)


async def test_many_callers_share_what_is_there(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(500))

    async def work() -> list[str]:
        mine = []
        while claims := await lpm.claim(3):
            mine += [claim.task.task_id for claim in claims]
        return mine

    taken = await asyncio.gather(*(work() for _ in range(32)))
    assert sorted(name for mine in taken for name in mine) == sorted(f"t{n}" for n in range(500))


async def test_closing_gives_back_what_is_held_ahead(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await lpm.add_tasks(a_task(f"t{n}") for n in range(TASKS))
        await claim_fast(lpm, 10)
    assert look(store, "SELECT count(*), max(recoveries), max(retries) FROM tasks WHERE status = 'pending'") == [
        (TASKS, 0, 0)
    ]


async def test_what_was_held_ahead_when_a_claim_failed_is_not_lost(store: Path, clock: ManualClock) -> None:
    """I1: a lock that another program held for too long costs nobody a task."""
    options = StoreOptions(busy_timeout_seconds=0.05)
    async with LocalPersistenceManager.open(store, clock=clock, options=options) as lpm:
        await lpm.add_tasks(a_task(f"t{n}") for n in range(TASKS))
        handed_out = await hold_ahead(lpm, store)
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                await lpm.claim(platforms=["other"])
            with pytest.raises(StoreBusy):
                await lpm.claim()
        while claims := await lpm.claim(9):
            handed_out += [claim.task.task_id for claim in claims]
        assert sorted(handed_out) == sorted(f"t{n}" for n in range(TASKS))
