"""The outbox: in order, until the gateway has it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import DeliveryState, OutboxEntry, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    deliver,
    everything,
    list_results,
    look,
    save_one,
    the_result,
)


async def _three(lpm: LocalPersistenceManager) -> list[OutboxEntry]:
    return [await save_one(lpm, f"t{n}", a_result({"n": n})) for n in range(3)]


def ids(entries: list[OutboxEntry]) -> list[str]:
    return [entry.task_id for entry in entries]


async def test_what_waits_comes_in_the_order_stored_even_when_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    for n in range(6):
        if n % 2:
            await save_one(lpm, f"t{n}")
        else:
            await lpm.give_up(await claim_one(lpm, f"t{n}"), "no")
        clock.advance(-60)
    assert ids(await lpm.get_unsynced_results()) == [f"t{n}" for n in range(6)]


async def test_at_most_limit_are_given(lpm: LocalPersistenceManager) -> None:
    await _three(lpm)
    assert ids(await lpm.get_unsynced_results(limit=2)) == ["t0", "t1"]
    assert await lpm.get_unsynced_results(limit=0) == []


async def test_what_was_seen_is_passed_over(lpm: LocalPersistenceManager) -> None:
    first, second, third = await _three(lpm)
    assert ids(await lpm.get_unsynced_results(after=first.seq)) == ["t1", "t2"]
    assert ids(await lpm.get_unsynced_results(limit=1, after=first.seq)) == ["t1"]
    assert await lpm.get_unsynced_results(after=third.seq) == []
    await lpm.mark_synced([second.result_id])
    assert ids(await lpm.get_unsynced_results(after=first.seq)) == ["t2"]
    assert ids(await lpm.get_unsynced_results()) == ["t0", "t2"]


async def test_the_bytes_are_counted_from_the_first_one_after(lpm: LocalPersistenceManager) -> None:
    entries = [await save_one(lpm, f"t{n}", a_result({"pad": "x" * 990})) for n in range(4)]
    assert ids(await lpm.get_unsynced_results(max_bytes=2_000, after=entries[0].seq)) == ["t1", "t2"]
    assert ids(await lpm.get_unsynced_results(max_bytes=1, after=entries[2].seq)) == ["t3"]


async def test_as_many_are_given_as_fit_but_at_least_one(lpm: LocalPersistenceManager) -> None:
    for n in range(4):
        await save_one(lpm, f"t{n}", a_result({"pad": "x" * 990}))  # 1,000 bytes as JSON
    for max_bytes, count in ((0, 1), (1, 1), (1_000, 1), (1_999, 1), (2_000, 2), (3_500, 3), (9_000, 4)):
        assert len(await lpm.get_unsynced_results(max_bytes=max_bytes)) == count
    assert len(await lpm.get_unsynced_results(limit=2, max_bytes=9_000)) == 2


async def test_a_receipt_takes_many_out_of_the_outbox_at_once(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    first, second, third = await _three(lpm)
    clock.advance(9)
    assert await lpm.mark_synced([first.result_id, third.result_id, "unknown"]) == 2
    assert ids(await lpm.get_unsynced_results()) == ["t1"]
    assert (await the_result(lpm, "t0")).synced_at == NOW + timedelta(seconds=9)
    assert (await the_result(lpm, "t1")).synced_at is None
    assert await lpm.mark_synced([second.result_id]) == 1


async def test_a_second_receipt_changes_nothing(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    """I5"""
    entry = await save_one(lpm)
    await lpm.mark_synced([entry.result_id])
    before = everything(store)
    clock.advance(60)
    assert await lpm.mark_synced([entry.result_id, entry.result_id]) == 0
    assert await lpm.mark_rejected([entry.result_id], "late") == 0
    assert await lpm.count_attempt([entry.result_id], "late") == 0
    assert everything(store) == before


async def test_no_result_is_marked_synced_before_its_raw_file(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """I6"""
    page = await save_one(lpm, "page", a_result(body=b"<p>"))
    plain = await save_one(lpm, "plain")
    assert await lpm.mark_synced([page.result_id, plain.result_id]) == 1
    assert ids(await lpm.get_unsynced_results()) == ["page"]
    clock.advance(1)
    assert await lpm.mark_raw_synced([page.result_id, plain.result_id, "unknown"]) == 1
    assert (await the_result(lpm, "page")).raw_synced_at == NOW + timedelta(seconds=1)
    assert await lpm.mark_synced([page.result_id]) == 1
    assert await lpm.get_unsynced_results() == []


async def test_a_rejected_result_is_kept_and_not_sent_again_by_itself(lpm: LocalPersistenceManager) -> None:
    """I2: it leaves the outbox only by an operator's word."""
    first, second, _ = await _three(lpm)
    assert await lpm.mark_rejected([first.result_id, second.result_id], "unknown county") == 2
    assert ids(await lpm.get_unsynced_results()) == ["t2"]
    rejected = await the_result(lpm, "t0")
    assert (rejected.rejected_at, rejected.last_error, rejected.data) == (NOW, "unknown county", b'{"n":0}')
    assert (await lpm.queue_depth()).rejected == 2


async def test_rejected_results_are_reset_by_hand(lpm: LocalPersistenceManager) -> None:
    entries = await _three(lpm)
    await lpm.count_attempt([entry.result_id for entry in entries], "503")
    await lpm.mark_rejected([entry.result_id for entry in entries], "unknown county")
    assert (await lpm.operator.retry_results(Selection(task_ids=("t1", "unknown")))).total() == 1
    assert ids(await lpm.get_unsynced_results()) == ["t1"]
    assert (await the_result(lpm, "t1")).sync_attempts == 0
    assert (await lpm.operator.retry_results(Selection(task_ids=()))).total() == 0
    assert (await lpm.operator.retry_results(Selection())).total() == 2
    assert ids(await lpm.get_unsynced_results()) == ["t0", "t1", "t2"]
    assert (await lpm.operator.retry_results(Selection())).total() == 0


async def test_a_late_receipt_counts_for_a_rejected_result_too(lpm: LocalPersistenceManager) -> None:
    entry = await save_one(lpm)
    await lpm.mark_rejected([entry.result_id], "busy")
    assert await lpm.mark_synced([entry.result_id]) == 1
    synced = await the_result(lpm)
    assert (synced.rejected_at, synced.last_error) == (None, None)
    assert synced.synced_at is not None


async def test_attempts_are_counted_with_their_last_error(lpm: LocalPersistenceManager) -> None:
    first, second, third = await _three(lpm)
    assert await lpm.count_attempt([first.result_id, second.result_id], "503") == 2
    assert await lpm.count_attempt([first.result_id], "timeout") == 1
    found = [await the_result(lpm, f"t{n}") for n in range(3)]
    assert [(entry.sync_attempts, entry.last_error) for entry in found] == [(2, "timeout"), (1, "503"), (0, None)]
    assert third.sync_attempts == 0


async def test_marks_of_nothing_are_no_marks(lpm: LocalPersistenceManager) -> None:
    assert await lpm.mark_synced([]) == 0
    assert await lpm.mark_raw_synced([]) == 0
    assert await lpm.mark_rejected([], "why") == 0
    assert await lpm.count_attempt([], "why") == 0


async def test_a_thousand_are_marked_in_one_call(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}", max_retries=0) for n in range(1_000))
    await asyncio.gather(*(lpm.give_up(claim, "no") for claim in await lpm.claim(1_000)))
    waiting = await lpm.get_unsynced_results(limit=2_000)
    assert await lpm.mark_synced([entry.result_id for entry in waiting]) == 1_000


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["waits", "synced", "rejected", "failed"]),
    ({"delivery": DeliveryState.UNSYNCED}, ["waits", "failed"]),
    ({"delivery": DeliveryState.SYNCED}, ["synced"]),
    ({"delivery": DeliveryState.REJECTED}, ["rejected"]),
    ({"platform": "b"}, ["synced"]),
    ({"parcel_id": "77"}, ["rejected"]),
    ({"statuses": (TaskStatus.COMPLETED,)}, ["waits", "synced", "rejected"]),
    ({"statuses": (TaskStatus.FAILED,)}, ["failed"]),
    ({"statuses": (TaskStatus.FAILED,), "delivery": DeliveryState.SYNCED}, []),
    ({"limit": 2}, ["waits", "synced"]),
    ({"after": 2}, ["rejected", "failed"]),
    ({"after": 1, "limit": 1, "delivery": DeliveryState.UNSYNCED}, ["failed"]),
]


async def test_results_are_listed_by_each_filter(lpm: LocalPersistenceManager) -> None:
    await save_one(lpm, "waits")
    await deliver(lpm, (await save_one(lpm, a_task("synced", platform="b"))).result_id)
    await lpm.mark_rejected([(await save_one(lpm, a_task("rejected", parcel_id="77"))).result_id], "no")
    await lpm.give_up(await claim_one(lpm, "failed"), "no such parcel")
    for given, expected in FILTERS:
        page = {name: given[name] for name in ("limit", "after") if name in given}
        filters = {name: value for name, value in given.items() if name not in page}
        assert ids(await list_results(lpm, Selection(**filters), **page)) == expected, given


async def test_a_result_nobody_stored_is_not_there(lpm: LocalPersistenceManager) -> None:
    await lpm.add_task(a_task())
    assert await lpm.get_result("t1") is None
    assert await lpm.get_result("unknown") is None


async def test_the_file_itself_refuses_what_would_break_a_promise(lpm: LocalPersistenceManager, store: Path) -> None:
    """I2, I4, I6, I9 are constraints: not even another program can store the contrary."""
    await claim_one(lpm, "held")
    await save_one(lpm, "done", a_result(body=b"<p>"))
    wrong = {
        "I2": "UPDATE results SET synced = 1, raw_synced_at = 'x'",
        "I4": "UPDATE tasks SET claim_token = NULL WHERE task_id = 'held'",
        "I6 order": "UPDATE results SET synced = 1, synced_at = 'x'",
        "I6 hash": "UPDATE results SET raw_sha256 = NULL",
        "I9": "UPDATE tasks SET claimed_by = NULL WHERE task_id = 'held'",
        "ended by an operator, and not failed": "UPDATE tasks SET ended_by = 'operator'",
        "ended by nobody known": "UPDATE tasks SET ended_by = 'x'",
        "rejected by an operator, and not rejected": "UPDATE results SET rejected_by = 'operator'",
        "a result without its task": "DELETE FROM tasks WHERE task_id = 'done'",
        "a second result": "INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, "
        "idempotency_key, scraped_at, created_at) VALUES ('new', 'done', 1, '', '', '', '', '', '', '')",
    }
    before = look(store, "SELECT * FROM results")
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        for change in wrong.values():
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(change)
    assert look(store, "SELECT * FROM results") == before
