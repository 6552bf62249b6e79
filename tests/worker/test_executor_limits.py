"""Under pressure fewer slots take tasks, or none; what runs goes on, and what waits waits."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from parcelpost.events import AttemptEnded
from parcelpost.model import Done, Outcome, Task, TaskStatus
from parcelpost.worker.control import Pressure
from tests.storage.factories import a_task, the_task
from tests.worker.executing import at_work

DONE = Done(data={})


@pytest.mark.parametrize("pressure", [Pressure.NO_NEW_TASKS, Pressure.STOP_BROWSERS])
async def test_nothing_is_claimed_and_nothing_is_lost(tmp_path: Path, pressure: Pressure) -> None:
    async with at_work(tmp_path, idle_seconds=2.0) as works:
        await works.add(a_task(), lambda _: DONE)
        works.control.pressure = pressure
        assert [await works.step(slot) for slot in range(4)] == [2, 2, 2, 2]
        task = await the_task(works.lpm)
        assert (task.status, task.retries) == (TaskStatus.PENDING, 0)
        assert works.ran_dry == 0
        works.control.pressure = Pressure.FINE
        assert await works.step() == 0
        assert await works.status() is TaskStatus.COMPLETED


@pytest.mark.parametrize(("slots", "working"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
async def test_when_slow_half_of_the_slots_take_tasks(tmp_path: Path, slots: int, working: int) -> None:
    async with at_work(tmp_path, slots=slots) as works:
        for number in range(slots):
            await works.add(a_task(f"t{number}"), (lambda _: DONE) if number == 0 else None)
        works.control.pressure = Pressure.SLOW
        waits = [await works.step(slot) for slot in range(slots)]
        assert sum(wait == 0 for wait in waits) == working
        assert len(works.seen(AttemptEnded)) == working


async def test_a_task_that_runs_goes_on(tmp_path: Path) -> None:
    may_end = threading.Event()

    def scrape(_: Task) -> Outcome:
        may_end.wait(60)
        return DONE

    async with at_work(tmp_path) as works:
        await works.add(a_task(), scrape)
        running = works.start(3)
        while not works.executor.active:
            await asyncio.sleep(0)
        works.control.pressure = Pressure.STOP_BROWSERS
        may_end.set()
        assert await asyncio.wait_for(running, 60) == 0
        assert await works.status() is TaskStatus.COMPLETED


async def test_memory_that_ran_out_while_a_task_was_claimed_gives_it_back(tmp_path: Path) -> None:
    async with at_work(tmp_path) as works:
        await works.add(a_task(), lambda _: DONE)
        step = works.start()
        await asyncio.sleep(0)
        works.control.pressure = Pressure.NO_NEW_TASKS
        assert await step > 0
        task = await the_task(works.lpm)
        assert (task.status, task.retries) == (TaskStatus.PENDING, 0)
