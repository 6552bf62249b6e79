"""Results that somebody asked for: which, in which order, and in short looks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.model import OutboxEntry
from parcelpost.storage import LocalPersistenceManager, export_queries
from parcelpost.storage.export_queries import ExportCursor, ExportFilter, Selected, select
from tests.storage.factories import NOW, a_result, a_task, claim_one, deliver, requeue, save_one


async def found(lpm: LocalPersistenceManager, **wanted: Any) -> list[str]:
    async with select(lpm._db, ExportFilter(**wanted), ManualClock(NOW + timedelta(days=1))) as selection:
        entries = await read(selection)
        assert selection.count == len(entries)
    return [entry.task_id for entry in entries]


async def read(selection: Selected) -> list[OutboxEntry]:
    return [entry async for page in selection.pages() for entry in page]


async def save(lpm: LocalPersistenceManager, task_id: str, parcel_id: str = "1-2", **task: Any) -> OutboxEntry:
    scraped_at = task.pop("scraped_at", NOW)
    return await save_one(
        lpm, a_task(task_id, parcel_id=parcel_id, **task), a_result({"of": task_id}, scraped_at=scraped_at)
    )


async def test_an_empty_store_has_nothing(lpm: LocalPersistenceManager) -> None:
    async with select(lpm._db, ExportFilter(), ManualClock()) as selection:
        assert (selection.count, selection.cursor, await read(selection)) == (0, ExportCursor(0, NOW), [])


async def test_the_order_is_place_and_parcel(lpm: LocalPersistenceManager) -> None:
    await save(lpm, "d", "2", county="tolland")
    await save(lpm, "c", "1", county="tolland")
    await save(lpm, "b", "9", county="hartford")
    await save(lpm, "e", "0", platform="zz")
    await save(lpm, "a", "9", county="hartford", state="CO")
    assert await found(lpm) == ["a", "b", "c", "d", "e"]


async def test_of_a_parcel_the_one_that_was_stored_last_unless_all_are_wanted(lpm: LocalPersistenceManager) -> None:
    await save(lpm, "first", scraped_at=NOW + timedelta(days=9))
    await save(lpm, "second")
    await save(lpm, "elsewhere", county="tolland")
    assert await found(lpm) == ["second", "elsewhere"]
    assert await found(lpm, every_version=True) == ["first", "second", "elsewhere"]
    assert await found(lpm, scraped_since=NOW + timedelta(days=1)) == ["first"]


async def test_filters(lpm: LocalPersistenceManager) -> None:
    await save(lpm, "a", "1", platform="vgsi", state="CT", county="hartford")
    await save(lpm, "b", "2", platform="qpublic", state="GA", county="fulton", scraped_at=NOW + timedelta(hours=1))
    await lpm.finish(await claim_one(lpm, a_task("gone", parcel_id="3")))
    await lpm.give_up(await claim_one(lpm, a_task("failed", parcel_id="4")), "no table")
    assert await found(lpm, platforms=("VGSI",)) == ["a"]
    assert await found(lpm, states=("ga", "ny")) == ["b"]
    assert await found(lpm, counties=("Hartford", "fulton")) == ["b", "a"]
    assert await found(lpm, parcels=("2",)) == ["b"]
    assert await found(lpm, parcels=("2'; --",)) == []
    assert await found(lpm, scraped_before=NOW + timedelta(hours=1)) == ["a"]
    assert await found(lpm, scraped_since=NOW + timedelta(hours=1)) == ["b"]
    assert await found(lpm, records=False, not_found=True) == ["gone"]
    assert await found(lpm, records=False, failed=True) == ["failed"]
    assert await found(lpm, not_found=True, failed=True) == ["b", "a", "gone", "failed"]


async def test_what_is_new_since_a_mark(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await save(lpm, "old")
    async with select(lpm._db, ExportFilter(), clock) as selection:
        mark = selection.cursor
    assert mark == ExportCursor(1, NOW)
    assert await found(lpm, after=mark) == []
    await save(lpm, "same moment", "2")
    clock.advance(-3600)
    await save(lpm, "clock set back", "3")
    assert await found(lpm, after=mark) == ["same moment", "clock set back"]


async def test_a_result_that_takes_the_place_of_another_is_new(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """The row that was the last one is deleted, and the new one counts from there: it has the same seq."""
    entry = await save(lpm, "again")
    async with select(lpm._db, ExportFilter(), clock) as selection:
        mark = selection.cursor
    await deliver(lpm, entry.result_id)
    await requeue(lpm, ["again"], completed=True)
    clock.advance(60)
    (claim,) = await lpm.claim()
    await lpm.save_result(claim, a_result({"of": "another"}))
    assert await found(lpm, after=mark) == ["again"]
    assert await found(lpm, changed_since=NOW + timedelta(seconds=60)) == ["again"]
    assert await found(lpm, changed_since=NOW + timedelta(seconds=61)) == []


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["time goes by", "time stands still"])
async def test_each_is_new_once_while_others_are_stored(tmp_path: Path, clock: SystemClock | ManualClock) -> None:
    ids = [f"t{number}" for number in range(200)]
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:

        async def store_all() -> None:
            for start in range(0, len(ids), 4):
                some = (lpm.add_result(a_task(one, parcel_id=one), a_result()) for one in ids[start : start + 4])
                await asyncio.gather(*some)

        storing = asyncio.create_task(store_all())
        seen: list[str] = []
        mark: ExportCursor | None = None
        is_last = False
        while not is_last:
            is_last = storing.done()
            async with select(lpm._db, ExportFilter(after=mark), clock) as selection:
                seen += [entry.task_id for entry in await read(selection)]
                mark = selection.cursor
            await asyncio.wait([storing], timeout=0.01)  # on a slow disk it would read thousands of times
        await storing
    assert sorted(seen) == sorted(ids)


async def test_a_clock_in_the_future_does_not_hide_what_comes_after(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    clock.advance(86_400 * 365)
    await save(lpm, "future")
    async with select(lpm._db, ExportFilter(), ManualClock()) as selection:
        assert selection.cursor == ExportCursor(1, NOW)


async def test_what_changes_meanwhile_is_read_as_it_is_then(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    kept = await save(lpm, "kept", "1")
    await save(lpm, "replaced", "2")
    async with select(lpm._db, ExportFilter(), clock) as selection:
        await lpm._db.write(_move, "replaced")
        await lpm._db.write(_remove, kept.task_id)
        entries = await read(selection)
    assert [(entry.task_id, entry.seq) for entry in entries] == [("replaced", 99)]


def _move(db: Any, task_id: str) -> None:
    db.execute("UPDATE results SET seq = 99, result_id = 'another' WHERE task_id = ?", (task_id,))


def _remove(db: Any, task_id: str) -> None:
    db.execute("DELETE FROM results WHERE task_id = ?", (task_id,))


async def test_every_look_is_short_and_every_page_small(
    lpm: LocalPersistenceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_queries, "_SCAN_ROWS", 2)
    monkeypatch.setattr(export_queries, "_PAGE", 3)
    monkeypatch.setattr(export_queries, "_PAGE_BYTES", 1_000)
    for number in range(7):
        data = {"text": "x" * 2_000 if number == 1 else ""}
        await save_one(lpm, a_task(f"t{number}", parcel_id=f"{number}"), a_result(data))
    async with select(lpm._db, ExportFilter(), ManualClock()) as selection:
        pages = [[entry.parcel_id for entry in page] async for page in selection.pages()]
    assert pages == [["0", "1"], ["2", "3", "4"], ["5", "6"]]
