"""Records that are there before anybody asked: task and result in one."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import a_result, a_task, claim_one, everything, save_one, the_result, the_task


async def test_i3_the_task_is_completed_and_its_record_is_in_the_outbox(lpm: LocalPersistenceManager) -> None:
    result_id = await lpm.add_result(a_task(), a_result(body=b"<html>"))
    task = await the_task(lpm)
    assert (task.status, task.started_at, task.completed_at) == (TaskStatus.COMPLETED, task.created_at, task.created_at)
    [entry] = await lpm.get_unsynced_results()
    assert entry == await the_result(lpm)
    assert (entry.result_id, entry.success, entry.data) == (result_id, True, b'{"owner":"Ann"}')
    assert gzip.decompress(lpm.raw_path(entry.html_path or "").read_bytes()) == b"<html>"
    assert await lpm.claim() == []


@pytest.mark.parametrize("body", [None, b"<html>"])
async def test_a_task_that_is_known_changes_nothing(lpm: LocalPersistenceManager, body: bytes | None) -> None:
    await lpm.add_task(a_task("waits"))
    await save_one(lpm, a_task("saved", platform="qpublic"))
    before = everything(lpm.path)
    for task_id in ("waits", "saved"):
        assert await lpm.add_result(a_task(task_id), a_result(body=body)) is None
    assert everything(lpm.path) == before
    assert list(lpm.path.parent.rglob("*.html.gz")) == []


async def test_of_many_at_once_each_is_added_once(lpm: LocalPersistenceManager) -> None:
    adding = [lpm.add_result(a_task(f"t{number % 50}"), a_result(body=b"<html>")) for number in range(200)]
    answers = await asyncio.gather(*adding)
    assert len({one for one in answers if one}) == 50
    entries = await lpm.get_unsynced_results(limit=500)
    assert len({entry.html_path for entry in entries}) == len(entries) == 50
    kept = set((lpm.path.parent / "data").rglob("*.html.gz"))
    assert kept == {lpm.raw_path(entry.html_path or "") for entry in entries}


async def test_it_leaves_those_that_wait_to_be_claimed_alone(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm, "t1")
    assert await lpm.add_result(a_task("t2"), a_result())
    assert await lpm.save_result(claim, a_result())


@pytest.mark.parametrize("body", [None, b"x" * 2_000])
async def test_what_cannot_be_stored_is_refused_whole(tmp_path: Path, body: bytes | None) -> None:
    options = StoreOptions(max_result_bytes=1_024, max_page_bytes=1_024)
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=options) as lpm:
        data = {"owner": "Ann"} if body else {"owner": "A" * 2_000}
        with pytest.raises(InvalidInput):
            await lpm.add_result(a_task(), a_result(data, body=body))
        assert everything(lpm.path) == []
