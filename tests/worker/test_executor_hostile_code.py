"""Whatever platform code does on one slot, the tasks beside it do not notice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.events import AttemptAbandoned, AttemptEnded, PlatformPaused
from parcelpost.model import Done, Json, Priority, TaskStatus
from parcelpost.scrapers.platform import Scrape
from tests.storage.factories import a_task, the_task
from tests.worker.executing import Works, at_work
from tests.worker.sandboxes import (
    DONE,
    LONG,
    answering,
    blocks_in_a_helper_thread,
    blocks_in_a_plain_function,
    blocks_its_loop,
    leaves_a_helper_thread_blocked,
)

MIB = 1024**2
BESIDE = 20


@pytest.fixture
async def works(tmp_path: Path) -> AsyncIterator[Works]:
    async with at_work(tmp_path, SystemClock(), slots=2, task_timeout_seconds=LONG) as works:
        yield works


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Works]:
    async with at_work(tmp_path, SystemClock(), slots=2, task_timeout_seconds=0.4) as works:
        yield works


async def begin(works: Works) -> asyncio.Task[float]:
    """The first slot takes a task."""
    harmful = works.start(0)
    async with asyncio.timeout(LONG):
        while not works.executor.active:
            await asyncio.sleep(0)
    return harmful


async def work_beside(works: Works, slot: int = 1) -> None:
    """Many tasks on the other slot, one after the other; all of them are done."""
    works.factory.register("beside", answering(DONE))
    before = len(works.seen(AttemptEnded))
    for number in range(BESIDE):
        await works.add(a_task(f"{slot}-{number}", platform="beside", priority=Priority.URGENT))
        assert await works.step(slot) == 0
        assert await works.status(f"{slot}-{number}") is TaskStatus.COMPLETED
    assert len(works.seen(AttemptEnded)) >= before + BESIDE


def ended(works: Works, task_id: str) -> tuple[str, str]:
    (event,) = (event for event in works.seen(AttemptEnded) if event.task_id == task_id)
    return event.outcome, event.reason


QUICK: dict[str, tuple[dict[str, Json], str, str]] = {
    "an exception": ({"fail": "raise"}, "retry", "ValueError: requested by the task"),
    "a sys.exit": ({"fail": "exit"}, "retry", "SystemExit: 3"),
    "200 MB": ({"size_bytes": 200 * MIB}, "give_up", "page has 209,715,200 bytes; at most 67,108,864 are allowed"),
}


@pytest.mark.parametrize(("extra", "outcome", "reason"), QUICK.values(), ids=QUICK)
async def test_it_costs_its_own_task_only(works: Works, extra: dict[str, Json], outcome: str, reason: str) -> None:
    await works.add(a_task("harmful", platform="echo", extra=extra))
    harmful = await begin(works)
    await work_beside(works)
    assert await harmful == 0
    assert ended(works, "harmful") == (outcome, reason)
    await work_beside(works, slot=0)


async def test_a_hang_costs_its_own_task_only(hasty: Works) -> None:
    await hasty.add(a_task("harmful", platform="echo", extra={"fail": "hang"}))
    harmful = await begin(hasty)
    await work_beside(hasty)
    assert await harmful == 0
    assert ended(hasty, "harmful")[1].startswith("took longer than 0.4 s")
    await work_beside(hasty, slot=0)


BLOCKING = [blocks_its_loop, blocks_in_a_plain_function, blocks_in_a_helper_thread]


@pytest.mark.parametrize("blocking", BLOCKING)
async def test_what_runs_beside_a_thread_that_is_held_does_not_wait_for_it(
    works: Works, blocking: Callable[[threading.Event], Scrape]
) -> None:
    release = threading.Event()
    await works.add(a_task("held"), blocking(release))
    held = await begin(works)
    await work_beside(works)
    assert not held.done()
    release.set()
    assert await held == 0
    assert ended(works, "held") == ("done", "")


@pytest.mark.parametrize("blocking", BLOCKING)
async def test_a_slot_whose_thread_is_held_for_too_long_goes_on_with_another(
    hasty: Works, blocking: Callable[[threading.Event], Scrape]
) -> None:
    release = threading.Event()
    try:
        await hasty.add(a_task("held"), blocking(release))
        assert await hasty.step() == 0
        assert ended(hasty, "held") == ("retry", "took longer than 0.4 s and did not stop")
        assert hasty.seen(AttemptAbandoned) == [AttemptAbandoned(task_id="held", platform="vgsi", left_behind=1)]
        assert hasty.executor.abandoned.count == 1
        await work_beside(hasty, slot=0)
    finally:
        release.set()
    async with asyncio.timeout(LONG):
        while hasty.executor.abandoned.count:
            await asyncio.sleep(0)


async def test_a_helper_thread_left_behind_by_one_task_does_not_stand_in_the_way_of_the_next(works: Works) -> None:
    release = threading.Event()
    try:
        await works.add(a_task("careless"), leaves_a_helper_thread_blocked(release))
        assert await works.step() == 0
        assert ended(works, "careless") == ("done", "")
        assert [event.left_behind for event in works.seen(AttemptAbandoned)] == [1]
        await work_beside(works, slot=0)
    finally:
        release.set()


async def test_a_platform_that_keeps_too_many_threads_is_paused_and_others_go_on(tmp_path: Path) -> None:
    release = threading.Event()
    clock = ManualClock()
    async with at_work(tmp_path, clock, max_abandoned=3, grace=0.01, task_timeout_seconds=0.3) as works:
        try:
            await works.lpm.add_tasks(a_task(f"t{n}") for n in range(5))
            works.factory.register("vgsi", blocks_its_loop(release))
            for _ in range(4):
                assert await works.step() == 0
            assert [event.left_behind for event in works.seen(AttemptAbandoned)] == [1, 2, 3]
            reason = "3 threads of platform code have not returned"
            assert works.seen(PlatformPaused) == [
                PlatformPaused(platform="vgsi", sites=0, seconds=300.0, reason=reason)
            ]
            assert (await the_task(works.lpm, "t3")).retries == 0
            await work_beside(works)
        finally:
            release.set()
        async with asyncio.timeout(LONG):
            while works.executor.abandoned.count:
                await asyncio.sleep(0)
        clock.advance(3_600)
        for _ in range(5):
            assert await works.step() == 0
        assert (await works.lpm.queue_depth()).completed == 5 + BESIDE


@dataclass
class Telling:
    """A part of a record that tells which threads have read it."""

    __slots__ = ("price", "threads")
    price: float
    threads: set[str]

    def __getattribute__(self, name: str) -> Any:
        if name == "price":
            self.threads.add(threading.current_thread().name)
        return object.__getattribute__(self, name)


async def test_a_record_is_encoded_and_checked_on_the_sandboxs_thread(works: Works) -> None:
    threads: set[str] = set()
    record: Any = {"sale": Telling(1.5, threads), "note": None}
    await works.add(a_task(), answering(Done(data=record)))
    assert await works.step() == 0
    assert await works.status() is TaskStatus.COMPLETED
    assert threads == {"sandbox"}
