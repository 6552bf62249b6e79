"""What a dead process held comes back (I9). Real kills are in crash/."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.events import Event, OwnerCrashed
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.locks import live_folder
from tests.storage.factories import a_result, a_task, claim_one, everything, list_tasks, save_one, the_result, the_task


def forget_lock(store: Path, worker: str) -> None:
    """To all others, the process that opened the store under that name has died: its lock is gone."""
    (lock,) = live_folder(store).glob(f"{worker}-*.lock")
    lock.unlink()


async def test_what_a_dead_owner_held_is_pending_again(lpm: LocalPersistenceManager, store: Path) -> None:
    """I9"""
    async with LocalPersistenceManager.open(store, worker="doomed") as doomed:
        claim = await claim_one(doomed)
        await doomed.browsers.assign("t1", 2)
        forget_lock(store, "doomed")
        assert await lpm.recover_abandoned() == 1
        back = await the_task(lpm)
        assert (back.status, back.recoveries, back.retries) == (TaskStatus.PENDING, 1, 0)
        assert (back.claimed_by, back.assigned_browser, back.started_at) == (None, None, None)
        before = everything(store)
        assert await doomed.save_result(claim, a_result()) is None
        assert everything(store) == before


async def test_what_a_live_peer_holds_is_not_touched(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    """I9"""
    async with LocalPersistenceManager.open(store, worker="peer") as peer:
        claim = await claim_one(peer)
        clock.advance(86_400)
        before = everything(store)
        assert await lpm.recover_abandoned() == 0
        async with LocalPersistenceManager.open(store, worker="third"):
            assert everything(store) == before
        assert await peer.save_result(claim, a_result()) is not None


async def test_opening_the_store_recovers_and_says_so(store: Path, clock: ManualClock) -> None:
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, worker="doomed", clock=clock) as doomed:
        await claim_one(doomed)
        forget_lock(store, "doomed")
        async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
            assert (await the_task(lpm)).recoveries == 1
    (died,) = [event for event in events if isinstance(event, OwnerCrashed)]
    assert died.owner.startswith("doomed-")
    assert (died.tasks_recovered, died.tasks_given_up, died.raw_files_restored) == (1, 0, 0)
    assert died.last_change == "2026-01-01T00:00:00.000Z"


async def test_a_task_that_sees_too_many_deaths_is_failed_and_reported(store: Path, clock: ManualClock) -> None:
    """I1: after max_recoveries it is given up, with its report in the outbox."""
    options = StoreOptions(max_recoveries=3)
    async with (
        LocalPersistenceManager.open(store, clock=clock, options=options, worker="doomed") as doomed,
        LocalPersistenceManager.open(store, clock=clock, options=options) as lpm,
    ):
        await lpm.add_task(a_task())
        forget_lock(store, "doomed")
        for deaths in range(1, 5):
            assert len(await doomed.claim()) == 1
            assert await lpm.recover_abandoned() == 1
            found = await the_task(lpm)
            assert found.status is (TaskStatus.FAILED if deaths == 4 else TaskStatus.PENDING)
        report = await the_result(lpm)
        assert (report.status, report.success) == (TaskStatus.FAILED, False)
        assert ("crashed 4 times" in str(report.error), report.attempts) == (True, 4)


async def test_a_task_that_sees_many_deaths_waits_longer_each_time_and_apart_from_its_neighbours(
    store: Path, clock: ManualClock
) -> None:
    async with (
        LocalPersistenceManager.open(store, clock=clock, worker="doomed") as doomed,
        LocalPersistenceManager.open(store, clock=clock) as lpm,
    ):
        await lpm.add_tasks(a_task(f"t{n}") for n in range(20))
        forget_lock(store, "doomed")
        for _ in range(10):
            assert len(await doomed.claim(20)) == 20
            assert await lpm.recover_abandoned() == 20
            assert (await lpm.queue_depth()).delayed == 0
        longest = 60.0
        for _ in range(8):
            assert len(await doomed.claim(20)) == 20
            await lpm.recover_abandoned()
            due = [info.available_at for info in await list_tasks(lpm)]
            delays = [(moment - clock.now()).total_seconds() for moment in due if moment is not None]
            assert len(set(delays)) == 20
            assert longest * 0.5 - 0.001 <= min(delays) <= max(delays) <= longest * 1.5
            assert max(delays) - min(delays) > longest * 0.5
            clock.advance(longest * 1.5)
            longest = min(longest * 2, 3600.0)


async def test_a_task_that_was_done_is_not_recovered(lpm: LocalPersistenceManager, store: Path) -> None:
    async with LocalPersistenceManager.open(store, worker="doomed") as doomed:
        await save_one(doomed, "done")
        await doomed.retry_later(await claim_one(doomed, "later"), "busy", timedelta(days=1))
        forget_lock(store, "doomed")
        before = everything(store)
        assert await lpm.recover_abandoned() == 0
        assert everything(store) == before


@pytest.mark.parametrize("name", ["", "worker/../../x", "w\n\0", "x" * 500, "Zürich 1"])
async def test_any_worker_name_will_do(store: Path, clock: ManualClock, name: str) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, worker=name) as lpm:
        await claim_one(lpm)
        (lock,) = live_folder(store).glob("*.lock")
        assert (await the_task(lpm)).claimed_by == lock.stem
        async with LocalPersistenceManager.open(store, clock=clock, worker=name):
            assert (await the_task(lpm)).status is TaskStatus.PROCESSING
    assert list(live_folder(store).glob("*.lock")) == []
