"""What waits is read in one step, and must be what a look at each row says."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import NOW, a_result, a_task, claim_one, deliver, save_one, the_result


async def _fill(lpm: LocalPersistenceManager) -> list[str]:
    """Records with and without a page, and a report between them."""
    await save_one(lpm, a_task("plain", lease_expires_at=NOW + timedelta(hours=1)))
    await save_one(lpm, a_task("signs", county='Doña "Ana" \\ \u2028'), a_result({"owner": 'Zoë "\U0001f3e0"\n'}))
    await lpm.give_up(await claim_one(lpm, "report"), "no such\nparcel")
    await save_one(lpm, "page", a_result(body=b"<html>"))
    return ["plain", "signs", "report", "page"]


async def test_an_entry_is_the_same_however_it_is_read(lpm: LocalPersistenceManager) -> None:
    task_ids = await _fill(lpm)
    assert await lpm.get_unsynced_results() == [await the_result(lpm, task_id) for task_id in task_ids]


async def test_what_left_the_outbox_is_stepped_over(lpm: LocalPersistenceManager) -> None:
    await _fill(lpm)
    await deliver(lpm, (await the_result(lpm, "signs")).result_id)
    await lpm.mark_rejected([(await the_result(lpm, "page")).result_id], "no")
    assert [entry.task_id for entry in await lpm.get_unsynced_results()] == ["plain", "report"]
