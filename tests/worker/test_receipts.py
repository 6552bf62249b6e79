"""Receipts: what was delivered and cannot be recorded yet is kept, and not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parcelpost.events import EntryRefused, ResultsSynced
from tests import traps
from tests.hostile import HostileGateway
from tests.worker.rig import SOON_BUSY, Rig, nobody_writes, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, SOON_BUSY, waits=True) as rig:
        yield rig


async def step_that_waits(rig: Rig) -> asyncio.Task[float]:
    """A step of the sync that has delivered and waits for the store."""
    step = asyncio.create_task(rig.sync.step())
    while not rig.lpm.backpressure.waiting:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert not step.done()
    return step


async def test_receipts_wait_for_the_store_and_nothing_is_sent_again(rig: Rig) -> None:
    await rig.save("t1", "t2", page=b"<html></html>")
    with nobody_writes(rig):
        step = await step_that_waits(rig)
        assert rig.lpm.backpressure.problem.startswith("StoreBusy: ")
    await step
    assert await rig.lpm.get_unsynced_results(10) == []
    assert (rig.gateway.count("raw-files"), rig.gateway.count("results")) == (2, 1)
    assert len(rig.seen(ResultsSynced)) == 1
    assert rig.lpm.backpressure.problem == ""


async def test_a_refusal_that_waits_for_the_store_costs_one_attempt(rig: Rig) -> None:
    await rig.save("bad", "good")
    rig.gateway.play("results", traps.failing(lambda entry: entry["task_id"] == "bad"), times=None)
    with nobody_writes(rig):
        step = await step_that_waits(rig)
        assert rig.seen(EntryRefused) == []
    await step
    (left,) = await rig.lpm.get_unsynced_results(10)
    assert (left.task_id, left.sync_attempts) == ("bad", 1)
    assert len(rig.seen(EntryRefused)) == 1


async def test_a_sync_that_is_cancelled_while_it_waits_for_the_store_sends_nothing_again(rig: Rig) -> None:
    """As a drain does it before the last sync."""
    await rig.save("t1", "t2", page=b"<html></html>")
    with nobody_writes(rig):
        step = await step_that_waits(rig)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
    await rig.sync.step()
    assert await rig.lpm.get_unsynced_results(10) == []
    assert (rig.gateway.count("raw-files"), rig.gateway.count("results")) == (2, 1)
