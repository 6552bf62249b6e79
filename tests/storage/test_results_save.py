"""A result goes in with the end of its task, or not at all (I3)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import sqlite3
from datetime import timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Page, Result, Source, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    everything,
    list_results,
    look,
    requeue,
    save_one,
    the_result,
    the_task,
)


async def test_a_result_and_the_end_of_its_task_are_stored_together(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    """I3"""
    claim = await claim_one(lpm, a_task(source=Source.FIRESTORE, lease_expires_at=NOW + timedelta(days=1)))
    clock.advance(3)
    result = Result(
        data={"owner": "Ann", "acres": 1.5, "sales": [{"price": 120_000}]},
        scraped_at=NOW + timedelta(seconds=1),
        page=Page(body=b"<html>", url="https://x", content_type="text/html"),
        execution_time_ms=812,
        screenshot_path="shots/1.png",
        log_path="logs/1.txt",
    )
    result_id = await lpm.save_result(claim, result)
    entry = await the_result(lpm)
    assert entry.result_id == result_id
    assert (entry.status, entry.success, entry.error) == (TaskStatus.COMPLETED, True, None)
    assert (entry.platform, entry.state, entry.county, entry.parcel_id) == ("vgsi", "CT", "hartford", "1-2")
    assert (entry.source, entry.lease_expires_at) == (Source.FIRESTORE, NOW + timedelta(days=1))
    assert entry.data is not None
    assert msgspec.json.decode(entry.data) == result.data
    assert (entry.execution_time_ms, entry.scraped_at) == (812, result.scraped_at)
    assert entry.created_at == NOW + timedelta(seconds=3)
    assert (entry.sync_attempts, entry.synced_at, entry.raw_synced_at, entry.rejected_at) == (0, None, None, None)
    task = await the_task(lpm)
    assert (task.status, task.completed_at, task.error) == (TaskStatus.COMPLETED, entry.created_at, None)
    assert (task.claimed_by, task.assigned_browser) == (None, None)


async def test_the_paths_a_worker_names_are_kept(lpm: LocalPersistenceManager, store: Path) -> None:
    claim = await claim_one(lpm)
    await lpm.save_result(claim, Result(data={}, scraped_at=NOW, screenshot_path="a.png", log_path="b.txt"))
    assert look(store, "SELECT screenshot_path, log_path FROM results") == [("a.png", "b.txt")]


async def test_the_idempotency_key_is_the_task_and_the_hash_of_the_data(lpm: LocalPersistenceManager) -> None:
    """I5"""
    entry = await save_one(lpm, "county/7", a_result({"owner": "Åsa", "n": 1}))
    assert entry.data == '{"owner":"Åsa","n":1}'.encode()
    assert entry.idempotency_key == f"county/7:{hashlib.sha256(entry.data).hexdigest()}"


async def test_the_same_content_of_two_tasks_has_two_keys_and_of_one_task_one(lpm: LocalPersistenceManager) -> None:
    """I5"""
    first = await save_one(lpm, "t1")
    second = await save_one(lpm, "t2")
    assert first.idempotency_key != second.idempotency_key
    await lpm.mark_synced([first.result_id])
    await requeue(lpm, ["t1"], completed=True)
    (claim,) = await lpm.claim()
    await lpm.save_result(claim, a_result())
    again = await the_result(lpm, "t1")
    assert again.idempotency_key == first.idempotency_key
    assert again.result_id != first.result_id


async def test_a_page_is_on_disk_with_the_hash_that_the_result_names(lpm: LocalPersistenceManager) -> None:
    """I6"""
    body = b"<html>\x00\xff not even text</html>"
    entry = await save_one(lpm, "t1", a_result(body=body))
    assert entry.html_path is not None
    assert entry.json_path is not None
    assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == body
    assert entry.raw_sha256 == hashlib.sha256(body).hexdigest()
    assert lpm.raw_path(entry.json_path).read_bytes() == entry.data


async def test_a_result_without_a_page_names_no_file(lpm: LocalPersistenceManager, store: Path) -> None:
    entry = await save_one(lpm)
    assert (entry.html_path, entry.json_path, entry.raw_sha256) == (None, None, None)
    assert not [path for path in (store.parent / "data").iterdir() if path.is_dir()]


async def test_an_empty_page_is_a_page(lpm: LocalPersistenceManager) -> None:
    entry = await save_one(lpm, "t1", a_result(body=b""))
    assert entry.html_path is not None
    assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == b""


async def test_a_second_save_changes_nothing(lpm: LocalPersistenceManager, store: Path) -> None:
    """I4"""
    claim = await claim_one(lpm)
    first, second = await asyncio.gather(
        lpm.save_result(claim, a_result({"n": 1}, body=b"1")), lpm.save_result(claim, a_result({"n": 2}, body=b"2"))
    )
    assert (first is None) != (second is None)
    (entry,) = await list_results(lpm)
    assert entry.result_id in (first, second)
    assert entry.html_path is not None
    before = everything(store)
    assert await lpm.save_result(claim, a_result({"n": 3}, body=b"3")) is None
    assert everything(store) == before
    files = [file.name for file in (store.parent / "data").rglob("*") if file.suffix]
    assert sorted(files) == sorted([Path(entry.html_path).name, Path(entry.html_path).stem[:-5] + ".json"])


async def test_a_result_that_cannot_be_stored_leaves_its_task_claimed(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """I3: all or nothing. Another program's trigger stands for whatever may go wrong in the middle."""
    claim = await claim_one(lpm)
    before = everything(store)
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("CREATE TRIGGER no BEFORE INSERT ON results BEGIN INSERT INTO not_there VALUES (1); END")
        db.commit()
    with pytest.raises(sqlite3.OperationalError, match="not_there"):
        await lpm.save_result(claim, a_result())
    with pytest.raises(sqlite3.OperationalError, match="not_there"):
        await lpm.give_up(claim, "no")
    assert everything(store) == before
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("DROP TRIGGER no")
        db.commit()
    assert await lpm.save_result(claim, a_result()) is not None


async def test_a_zone_is_understood_and_stored_as_utc(lpm: LocalPersistenceManager, store: Path) -> None:
    scraped_at = NOW.astimezone(timezone(timedelta(hours=-5)))
    entry = await save_one(lpm, "t1", a_result(scraped_at=scraped_at))
    assert entry.scraped_at == NOW
    assert look(store, "SELECT scraped_at FROM results") == [("2026-01-01T00:00:00.000Z",)]


async def test_two_hundred_and_fifty_six_callers_at_once_lose_nothing(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """I3, I6: every result has its task closed, its own data, and its own page."""
    await lpm.add_tasks(a_task(f"t{n}", parcel_id=str(n % 100)) for n in range(256))
    claims = await lpm.claim(256)
    results = [a_result({"n": claim.seq}, body=b"page %d" % claim.seq) for claim in claims]
    saved = await asyncio.gather(*map(lpm.save_result, claims, results))
    assert len(set(saved)) == 256
    entries = await lpm.get_unsynced_results(limit=1_000)
    assert {entry.result_id for entry in entries} == set(saved)
    by_task = {claim.task.task_id: claim.seq for claim in claims}
    for entry in entries:
        seq = by_task[entry.task_id]
        assert entry.html_path is not None
        assert entry.data == b'{"n":%d}' % seq
        assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == b"page %d" % seq
    depth = await lpm.queue_depth()
    assert (depth.completed, depth.processing, depth.unsynced) == (256, 0, 256)
