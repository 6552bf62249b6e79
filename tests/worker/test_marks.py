"""What was delivered and cannot be marked is not sent again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parcelpost.errors import StoreBusy
from parcelpost.events import EntryRefused, MarksHeld, ResultsSynced
from parcelpost.storage.locks import live_folder
from parcelpost.worker.sync import Held, HeldNote, read_held
from tests import traps
from tests.hostile import HostileGateway
from tests.worker.rig import SOON_BUSY, Rig, nobody_writes, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, SOON_BUSY) as rig:
        yield rig


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


async def test_what_is_held_is_told_beside_the_store_for_as_long_as_it_lasts(rig: Rig) -> None:
    await rig.save("t1", "t2")
    with nobody_writes(rig):
        await fail(rig)
        began = rig.clock.now()
        rig.clock.advance(60)
        await fail(rig)
        held = read_held(rig.lpm.path)
        assert held is not None
        assert (held.since, held.results, held.remedy) == (began, 2, StoreBusy.hint)
        assert held.error.startswith("StoreBusy: ")
    await rig.sync.step()
    assert read_held(rig.lpm.path) is None


async def test_what_a_dead_process_held_is_not_told_of_the_next_one(rig: Rig) -> None:
    held = Held(since=rig.clock.now(), results=7, error="StoreFull: no room", remedy="free disk space")
    HeldNote(rig.lpm.path).write(held)
    assert read_held(rig.lpm.path) == held
    await rig.sync.step()
    assert read_held(rig.lpm.path) is None


async def test_its_room_is_taken_before_the_disk_is_full(rig: Rig) -> None:
    await rig.sync.step()
    (note,) = live_folder(rig.lpm.path).glob("*.held")
    room = note.stat().st_size
    HeldNote(rig.lpm.path).write(
        Held(since=rig.clock.now(), results=7, error="\u2205" * 9_999, remedy="free disk space")
    )
    assert note.stat().st_size == room
    assert read_held(rig.lpm.path) is not None


@pytest.mark.parametrize("content", [b"", b"null", b'{"since": ', b"\xff" * 100])
async def test_a_note_that_says_nothing_is_none(rig: Rig, content: bytes) -> None:
    HeldNote(rig.lpm.path).write(None)
    (note,) = live_folder(rig.lpm.path).glob("*.held")
    note.write_bytes(content)
    assert read_held(rig.lpm.path) is None


async def test_a_refusal_that_could_not_be_written_costs_one_attempt(rig: Rig) -> None:
    await rig.save("bad", "good")
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
