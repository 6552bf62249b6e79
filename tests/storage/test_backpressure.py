"""A full or locked store is waited for, in one place, until the worker drains."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull
from parcelpost.events import Event, StoreNotWritable, StoreWritable
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import a_result, a_task, list_results

BUSY = StoreOptions(busy_timeout_seconds=0.01)


class Scene:
    def __init__(self, lpm: LocalPersistenceManager, events: list[Event]) -> None:
        self.lpm = lpm
        self.events = events

    def seen(self) -> list[str]:
        return [type(event).__name__ for event in self.events if isinstance(event, (StoreNotWritable, StoreWritable))]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Another program writes, and takes its time."""
        with contextlib.closing(sqlite3.connect(self.lpm.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    async def waiting(self, count: int) -> None:
        while self.lpm.backpressure.waiting != count:
            await asyncio.sleep(0.001)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    events: list[Event] = []
    store = LocalPersistenceManager.open(
        tmp_path / "store.db", clock=ManualClock(), options=BUSY, emit=events.append, waits=True
    )
    async with store as lpm:
        yield Scene(lpm, events)


async def test_every_write_that_must_not_be_lost_waits_and_one_event_tells_of_them_all(scene: Scene) -> None:
    lpm = scene.lpm
    await lpm.add_tasks(a_task(f"t{number}") for number in range(6))
    saved, ended, failed, retried, released, other = await lpm.claim(6)
    result_id = await lpm.save_result(other, a_result(body=None))
    assert result_id is not None
    with scene.locked():
        writes = [
            asyncio.create_task(write)
            for write in (
                lpm.save_result(saved, a_result()),
                lpm.finish(ended),
                lpm.give_up(failed, "no"),
                lpm.retry_later(retried, "no"),
                lpm.release(released),
                lpm.pause_platform("vgsi"),
                lpm.mark_synced([result_id]),
                lpm.add_tasks([a_task("t9")]),
                lpm.add_task(a_task("t10")),
                lpm.claim(platforms=["none"]),
            )
        ]
        await scene.waiting(len(writes))
        assert lpm.backpressure.problem.startswith("StoreBusy: ")
    await asyncio.gather(*writes)
    depth = await lpm.queue_depth()
    assert (depth.completed, depth.not_found, depth.failed, depth.pending) == (2, 1, 1, 4)
    assert scene.seen() == ["StoreNotWritable", "StoreWritable"]
    assert (lpm.backpressure.waiting, lpm.backpressure.problem) == (0, "")


async def test_a_worker_that_drains_waits_no_longer(scene: Scene) -> None:
    await scene.lpm.add_task(a_task())
    (claim,) = await scene.lpm.claim()
    with scene.locked():
        saving = asyncio.create_task(scene.lpm.save_result(claim, a_result()))
        await scene.waiting(1)
        scene.lpm.backpressure.stop_waiting()
        with pytest.raises(StoreBusy):
            await saving
        with pytest.raises(StoreBusy):
            await scene.lpm.release(claim)


async def test_a_worker_that_drains_waits_for_its_results_and_claims_no_more(scene: Scene) -> None:
    await scene.lpm.add_tasks([a_task("t1"), a_task("t2")])
    (claim,) = await scene.lpm.claim()
    with scene.locked():
        saving = asyncio.create_task(scene.lpm.save_result(claim, a_result()))
        claiming = asyncio.create_task(scene.lpm.claim())
        await scene.waiting(2)
        scene.lpm.backpressure.stop_claims()
        assert await claiming == []
        assert not saving.done()
    assert await saving is not None
    depth = await scene.lpm.queue_depth()
    assert (depth.completed, depth.pending, depth.processing) == (1, 1, 0)


async def test_a_write_that_is_cancelled_while_it_waits_is_made_whole_or_not_at_all(scene: Scene) -> None:
    await scene.lpm.add_task(a_task())
    (claim,) = await scene.lpm.claim()
    with scene.locked():
        saving = asyncio.create_task(scene.lpm.save_result(claim, a_result()))
        await scene.waiting(1)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert scene.lpm.backpressure.waiting == 0
    was_saved = await scene.lpm.save_result(claim, a_result()) is None  # then the claim is stale
    assert len(await list_results(scene.lpm)) == 1, was_saved
    assert (await scene.lpm.queue_depth()).completed == 1


async def test_a_claim_whose_release_fails_is_released_as_soon_as_the_store_can_be_written(tmp_path: Path) -> None:
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=BUSY, clock=ManualClock()) as lpm:
        await lpm.add_task(a_task())
        (claim,) = await lpm.claim()
        with Scene(lpm, []).locked():
            lpm.release_later(claim)
            await asyncio.sleep(0.05)
            assert (await lpm.queue_depth()).processing == 1
        while not (await lpm.queue_depth()).pending:
            await asyncio.sleep(0.001)


async def test_page_receipts_that_could_not_be_written_hold_back_those_of_their_results(tmp_path: Path) -> None:
    """I6: a receipt of a result counts only once its page's does."""
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=BUSY) as lpm:
        await lpm.add_task(a_task())
        (claim,) = await lpm.claim()
        result_id = await lpm.save_result(claim, a_result(body=b"<html></html>"))
        assert result_id is not None
        assert await lpm.mark_synced([result_id]) == 0
        assert await lpm.mark_raw_synced([result_id]) == 1
        assert await lpm.mark_synced([result_id]) == 1


async def test_a_command_does_not_wait(tmp_path: Path) -> None:
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=BUSY) as lpm:
        with Scene(lpm, []).locked(), pytest.raises(StoreBusy):
            await lpm.add_tasks([a_task()])


@pytest.mark.parametrize("error", [StoreFull("no room"), StoreCorrupt("damaged")])
async def test_only_what_waiting_can_cure_is_waited_for(scene: Scene, error: StoreError) -> None:
    attempts = 0

    async def write() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise error
        return "written"

    if error.retry_helps:
        assert await scene.lpm.backpressure.write(write) == "written"
    else:
        with pytest.raises(StoreCorrupt):
            await scene.lpm.backpressure.write(write)
        assert attempts == 1
