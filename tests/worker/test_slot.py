"""A slot with both its loops: the next task does not wait for the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from parcelpost.model import Done, Outcome, Task
from tests.storage.factories import a_task
from tests.worker.executing import at_work


async def test_both_loops_together_have_one_task_on_the_stage(tmp_path: Path) -> None:
    running, most = 0, 0

    async def scrape(_: Task) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Done(data={})

    async with at_work(tmp_path) as works:
        works.factory.register("vgsi", scrape)
        await works.lpm.add_tasks(a_task(f"t{number}", parcel_id=str(number)) for number in range(20))
        (slot, *_) = works.executor.slots
        assert len(slot.loops) == 2
        for _ in range(10):
            await asyncio.gather(*(step() for step in slot.loops.values()))
        assert most == 1
        assert (await works.lpm.queue_depth()).completed == 20
