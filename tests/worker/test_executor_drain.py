"""Store trouble, draining and cancellation: nothing that was begun is lost."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.events import AttemptEnded, StoreNotWritable
from parcelpost.model import Busy, Done, TaskStatus
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from parcelpost.storage.options import StoreOptions
from tests.storage.factories import a_task, list_tasks, look, the_result
from tests.worker.executing import Works, at_work
from tests.worker.sandboxes import DONE, answering, blocks_its_loop, hang

BUSY = StoreOptions(busy_timeout_seconds=0.02)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another program writes, and takes its time."""
    with contextlib.closing(sqlite3.connect(folder / "store.db", isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


async def begun(works: Works, many: int = 1) -> None:
    async with asyncio.timeout(60):
        while works.executor.active < many:
            await asyncio.sleep(0)


# Store trouble


async def test_a_task_that_the_store_would_not_take_back_goes_back_later(tmp_path: Path) -> None:
    async with at_work(tmp_path, options=BUSY) as works:
        with contextlib.ExitStack() as trouble:
            await works.add(a_task(), lambda _: lock_and_put_off(trouble, tmp_path))
            attempt = works.start()
            await works.until_seen(StoreNotWritable)
            assert await works.status() is TaskStatus.PROCESSING
        assert await attempt == 0
        assert await works.status() is TaskStatus.PENDING


def lock_and_put_off(trouble: contextlib.ExitStack, folder: Path) -> Busy:
    trouble.enter_context(locked(folder))
    return Busy("others are before it", 60.0)


async def test_what_was_scraped_is_kept_until_the_store_takes_it(tmp_path: Path) -> None:
    release = threading.Event()
    async with at_work(tmp_path, ManualClock(), options=BUSY) as works:
        await works.add(a_task(), blocks_its_loop(release))
        attempt = works.start()
        await begun(works)
        with locked(tmp_path):
            release.set()
            trouble = await works.until_seen(StoreNotWritable)
            assert trouble.error.startswith("StoreBusy: ")
            assert not attempt.done()
            assert works.executor.active == 1
        assert await attempt == 0
        assert (await the_result(works.lpm)).data == b'{"owner":"Ann"}'
        assert [event.outcome for event in works.seen(AttemptEnded)] == ["done"]
        assert works.saved == 1


async def test_a_worker_that_leaves_does_not_wait_for_the_store(tmp_path: Path) -> None:
    """I9: the task comes back when the store is opened again."""
    release = threading.Event()
    async with at_work(tmp_path, ManualClock(), options=BUSY) as works:
        await works.add(a_task(), blocks_its_loop(release))
        async with works.looping():
            await begun(works)
            with locked(tmp_path):
                release.set()
                await works.until_seen(StoreNotWritable)
                assert await works.executor.drain(0) == 0
                assert works.executor.active == 0
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        assert [claim.task.task_id for claim in await lpm.claim()] == ["t1"]


# Draining


async def test_a_drain_waits_for_what_runs(tmp_path: Path) -> None:
    release = threading.Event()
    async with at_work(tmp_path, SystemClock()) as works:
        await works.lpm.add_tasks(a_task(f"t{n}") for n in range(9))
        works.factory.register("vgsi", blocks_its_loop(release))
        async with works.looping():
            await begun(works, 4)
            draining = asyncio.create_task(works.executor.drain(20))
            await asyncio.sleep(0)
            release.set()
            assert await draining == 0
            assert works.executor.active == 0
        depth = await works.lpm.queue_depth()
        assert (depth.completed, depth.pending, depth.processing) == (4, 5, 0)


async def test_what_still_runs_when_the_time_is_over_goes_back_at_no_cost(tmp_path: Path) -> None:
    async with at_work(tmp_path, SystemClock()) as works:
        await works.add(a_task("quick"), answering(DONE))
        await works.step()
        await works.lpm.add_tasks(a_task(f"t{n}") for n in range(4))
        works.factory.register("vgsi", hang)
        async with works.looping():
            await begun(works, 4)
            assert await works.executor.drain(0.01) == 4
        tasks = await list_tasks(works.lpm, Selection(statuses=(TaskStatus.PENDING,)))
        assert [(task.retries, task.recoveries) for task in tasks] == [(0, 0)] * 4
        assert [event.task_id for event in works.seen(AttemptEnded)] == ["quick"]
        assert await works.step() == 1.0


async def test_a_drain_that_is_cancelled_can_be_asked_for_again_and_then_is_quick(tmp_path: Path) -> None:
    async with at_work(tmp_path, SystemClock()) as works:
        await works.add(a_task(), hang)
        async with works.looping():
            await begun(works)
            patient = asyncio.create_task(works.executor.drain(1_000))
            await asyncio.sleep(0)
            patient.cancel()
            assert await works.executor.drain(0) == 1
        assert await works.executor.drain(0) == 1


async def test_a_drain_does_not_wait_for_platform_code_that_is_stuck(tmp_path: Path) -> None:
    release = threading.Event()
    async with at_work(tmp_path, SystemClock()) as works:
        try:
            await works.add(a_task(), blocks_its_loop(release))
            async with works.looping():
                await begun(works)
                assert await works.executor.drain(0) == 1
            assert await works.status() is TaskStatus.PENDING
            await works.executor.close()
        finally:
            release.set()


# Cancellation


async def test_a_turn_that_is_cancelled_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    moments = (*range(25), 40, 60, 100, 200)
    async with at_work(tmp_path, ManualClock()) as works:
        for turns in moments:
            task_id = f"after {turns}"
            await works.add(a_task(task_id), lambda _: Done(data={"owner": "Ann"}))
            turn = works.start()
            for _ in range(turns):
                await asyncio.sleep(0)
            turn.cancel()
            await asyncio.wait([turn])
            assert works.executor.active == 0, task_id
            assert await works.status(task_id) in (TaskStatus.PENDING, TaskStatus.COMPLETED), task_id
            await works.step()
            assert await works.status(task_id) is TaskStatus.COMPLETED, task_id
    saved = look(tmp_path / "store.db", "SELECT task_id, success FROM results ORDER BY seq")
    assert saved == [(f"after {turns}", 1) for turns in moments]


async def test_a_turn_that_fails_gives_its_task_back_for_later(tmp_path: Path) -> None:
    def broken() -> list[EntryPoint]:
        raise RuntimeError("the installed packages cannot be listed")

    clock = ManualClock()
    async with at_work(tmp_path, clock, installed=broken) as works:
        await works.add(a_task())
        with pytest.raises(RuntimeError, match="cannot be listed"):
            await works.step()
        assert works.executor.active == 0
        assert await works.status() is TaskStatus.PENDING
        assert await works.lpm.claim() == []
        clock.advance(30)
        assert len(await works.lpm.claim()) == 1
