"""What was delivered and cannot be marked is not sent again and again."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from parcelpost.errors import StoreBusy
from parcelpost.events import EntryRefused, MarksHeld, ResultsSynced
from parcelpost.storage.options import StoreOptions
from tests import traps
from tests.hostile import HostileGateway
from tests.worker.rig import Rig, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    options = StoreOptions(busy_timeout_seconds=0.01)
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, options) as rig:
        yield rig


@contextlib.contextmanager
def nobody_writes(rig: Rig) -> Iterator[None]:
    """Another program holds the store's file."""
    with contextlib.closing(sqlite3.connect(rig.lpm.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def fail(rig: Rig) -> None:
    with pytest.raises(StoreBusy):
        await rig.sync.step()


async def test_receipts_are_kept_and_marked_before_more_is_sent(rig: Rig) -> None:
    await rig.save("t1", "t2", page=b"<html></html>")
    with nobody_writes(rig):
        for _ in range(3):
            await fail(rig)
    assert (rig.gateway.count("raw-files"), rig.gateway.count("results")) == (2, 1)
    assert [event.results for event in rig.seen(MarksHeld) if isinstance(event, MarksHeld)] == [2]
    assert rig.sync.problem
    await rig.sync.step()
    assert await rig.lpm.get_unsynced_results(10) == []
    assert (rig.gateway.count("raw-files"), rig.gateway.count("results")) == (2, 1)
    assert len(rig.seen(ResultsSynced)) == 1
    assert rig.sync.problem == ""


async def test_a_refusal_that_could_not_be_written_costs_one_attempt(rig: Rig) -> None:
    await rig.save("good", "bad")
    rig.gateway.play("results", traps.failing(lambda entry: entry["task_id"] == "bad"), times=None)
    with nobody_writes(rig):
        await fail(rig)
        await fail(rig)
    assert rig.seen(EntryRefused) == []
    rig.gateway.behave()
    await rig.gateway.stop()
    await rig.sync.step()
    (left,) = await rig.lpm.get_unsynced_results(10)
    assert (left.task_id, left.sync_attempts) == ("bad", 1)
    assert len(rig.seen(EntryRefused)) == 1
