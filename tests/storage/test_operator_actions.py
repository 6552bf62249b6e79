"""A person's operation on tasks and results: what goes, what stays, what an upstream is told."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import DeliveryState, PageRecord, Result, Source, TaskStatus
from parcelpost.storage import LocalPersistenceManager, artifacts, operator_actions
from parcelpost.storage.operator_actions import Flags, PlannedAction, Selection
from tests.storage.factories import (
    NOW,
    a_result,
    a_task,
    claim_one,
    deliver,
    everything,
    list_results,
    list_tasks,
    look,
    requeue,
    save_one,
    the_result,
    the_task,
)

ALL = Selection()
LOSE = Flags(force=True)
LOCAL = Source.CLI


def one(task_id: str) -> Selection:
    return Selection(task_ids=(task_id,))


def files(lpm: LocalPersistenceManager) -> set[str]:
    root = lpm.path.parent / "data"
    return {path.name for path in root.rglob("*") if path.suffix}


async def _list_of_three(lpm: LocalPersistenceManager, source: Source = Source.GATEWAY) -> list[str]:
    """A task whose page brought three records; the ids of all."""
    claim = await claim_one(lpm, a_task("list", source=source))
    more = tuple(PageRecord(key=f"k{n}", parcel_id=f"p{n}", county="hartford", data={"n": n}) for n in (1, 2))
    result = a_result(body=b"<p>three</p>")
    assert await lpm.save_result(
        claim, Result(data={"n": 0}, page=result.page, scraped_at=NOW, execution_time_ms=1, additional_records=more)
    )
    return [entry.task_id for entry in await list_results(lpm)]


async def test_a_delivered_task_goes_with_its_result_page_and_usage(lpm: LocalPersistenceManager, store: Path) -> None:
    entry = await save_one(lpm, result=a_result(body=b"<p>1</p>"))
    await deliver(lpm, entry.result_id)
    assert files(lpm)
    assert await lpm.operator.delete_tasks(ALL) == {PlannedAction.APPLY: 1}
    assert everything(store) == []
    assert files(lpm) == set()
    assert look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'") == [(0,)]


async def test_a_failed_task_goes_with_its_evidence_once_it_was_reported(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", b"\x89PNG\r\n\x1a\n", "no table")
    await lpm.give_up(claim, "no table")
    assert await lpm.operator.delete_tasks(ALL) == {}
    await deliver(lpm, (await the_result(lpm)).result_id)
    assert await lpm.operator.delete_tasks(ALL) == {PlannedAction.APPLY: 1}
    assert files(lpm) == set()
    assert await lpm._db.read(artifacts.get, "t1") is None


@pytest.mark.parametrize("operation", ["tasks", "results"])
async def test_i2_an_undelivered_record_stays_without_consent(
    lpm: LocalPersistenceManager, store: Path, operation: str
) -> None:
    await save_one(lpm, result=a_result(body=b"<p>1</p>"))
    before = everything(store), files(lpm)
    delete = lpm.operator.delete_tasks if operation == "tasks" else lpm.operator.delete_results
    assert await delete(ALL) == {}
    assert (everything(store), files(lpm)) == before


@pytest.mark.parametrize("operation", ["tasks", "results"])
async def test_i1_in_place_of_a_deleted_record_its_upstream_hears_of_a_failure(
    lpm: LocalPersistenceManager, operation: str
) -> None:
    old = await save_one(lpm, result=a_result(body=b"<p>1</p>"))
    delete = lpm.operator.delete_tasks if operation == "tasks" else lpm.operator.delete_results
    assert await delete(ALL, LOSE) == {PlannedAction.FAIL_AND_REPORT: 1}
    assert files(lpm) == set()
    (report,) = await lpm.get_unsynced_results()
    assert (report.task_id, report.status, report.data, report.success) == ("t1", TaskStatus.FAILED, None, False)
    assert report.result_id != old.result_id, "a receipt for the record is none for the report"
    assert "deleted" in (report.error or "")
    await deliver(lpm, report.result_id)
    assert await lpm.operator.delete_tasks(ALL) == {PlannedAction.APPLY: 1}
    assert await list_tasks(lpm) == []


@pytest.mark.parametrize("operation", ["tasks", "results"])
async def test_i1_a_report_stays_until_it_is_delivered(
    lpm: LocalPersistenceManager, store: Path, operation: str
) -> None:
    await lpm.give_up(await claim_one(lpm), "no such parcel")
    before = everything(store)
    delete = lpm.operator.delete_tasks if operation == "tasks" else lpm.operator.delete_results
    assert await delete(ALL, LOSE) == {}
    assert everything(store) == before


async def test_i1_a_pending_order_ends_as_failed_and_is_reported(lpm: LocalPersistenceManager) -> None:
    await lpm.add_task(a_task())
    assert await lpm.operator.delete_tasks(ALL) == {PlannedAction.FAIL_AND_REPORT: 1}
    (report,) = await lpm.get_unsynced_results()
    assert (report.status, report.error_text) == (TaskStatus.FAILED, "by the operator: deleted here")
    assert await lpm.claim() == []


async def test_a_local_order_goes_whatever_it_is(lpm: LocalPersistenceManager, store: Path) -> None:
    await save_one(lpm, a_task("saved", source=LOCAL), a_result(body=b"<p>1</p>"))
    await lpm.give_up(await claim_one(lpm, a_task("failed", source=LOCAL)), "no")
    await lpm.add_task(a_task("pending", source=LOCAL))
    assert await lpm.operator.delete_tasks(ALL, LOSE) == {PlannedAction.APPLY: 3}
    assert everything(store) == []
    assert files(lpm) == set()


async def test_the_delivered_record_of_an_order_that_is_done_again_stays(lpm: LocalPersistenceManager) -> None:
    entry = await save_one(lpm)
    await deliver(lpm, entry.result_id)
    await requeue(lpm, ["t1"], completed=True)
    assert await lpm.operator.delete_tasks(ALL) == {PlannedAction.FAIL_AND_KEEP: 1}
    assert (await the_result(lpm)).result_id == entry.result_id
    assert (await the_task(lpm)).status is TaskStatus.FAILED


async def test_what_is_worked_on_is_left_alone(lpm: LocalPersistenceManager, store: Path) -> None:
    await claim_one(lpm)
    before = everything(store)
    assert await lpm.operator.delete_tasks(ALL, LOSE) == {}
    assert await lpm.operator.reject_tasks(ALL, "no") == {}
    assert await lpm.operator.retry_tasks(ALL, Flags(include_completed=True, include_delayed=True)) == {}
    assert everything(store) == before


async def test_a_task_goes_with_all_that_its_page_brought(lpm: LocalPersistenceManager, store: Path) -> None:
    await _list_of_three(lpm, Source.LOCAL_FILE)
    assert await lpm.operator.delete_tasks(ALL) == {}
    assert await lpm.operator.delete_tasks(ALL, LOSE) == {PlannedAction.APPLY: 1}
    assert everything(store) == []
    assert files(lpm) == set()


async def test_i6_a_page_stays_as_long_as_a_result_names_it(lpm: LocalPersistenceManager) -> None:
    parent, first, second = await _list_of_three(lpm)
    await deliver(lpm, *(entry.result_id for entry in await list_results(lpm)))
    assert await lpm.operator.delete_results(one(parent)) == {}
    assert await lpm.operator.delete_results(one(first)) == {PlannedAction.APPLY: 1}
    assert len(files(lpm)) == 2
    assert await lpm.operator.delete_results(Selection(task_ids=(parent, second))) == {PlannedAction.APPLY: 2}
    assert files(lpm) == set()
    assert len(await list_tasks(lpm)) == 3, "tasks stay"


async def test_of_a_list_only_the_order_itself_is_reported(lpm: LocalPersistenceManager) -> None:
    parent, *_ = await _list_of_three(lpm)
    assert await lpm.operator.delete_results(ALL, LOSE) == {PlannedAction.APPLY: 2, PlannedAction.FAIL_AND_REPORT: 1}
    (report,) = await list_results(lpm)
    assert (report.task_id, report.data) == (parent, None)


async def test_what_others_have_changed_since_it_was_found_is_no_longer_meant(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    await lpm.give_up(await claim_one(lpm, a_task(source=LOCAL)), "no")
    with contextlib.closing(sqlite3.connect(store)) as db:
        for status, number in ((TaskStatus.PENDING, 0), (TaskStatus.FAILED, 1)):
            which = Selection(statuses=(status,))
            assert len(operator_actions.planned_now(db, operator_actions.DELETE_TASKS, which, "[1]", LOSE)) == number


async def test_results_are_rejected_by_operator_and_sent_again(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await save_one(lpm, "a")
    await deliver(lpm, (await save_one(lpm, "b")).result_id)
    assert await lpm.operator.reject_results(ALL, "wrong") == {PlannedAction.APPLY: 1}
    assert await lpm.get_unsynced_results() == []
    aside = await the_result(lpm, "a")
    assert (aside.last_error, aside.rejected_by, aside.rejected_at) == ("wrong", "operator", clock.now())
    rejected = Selection(delivery=DeliveryState.REJECTED)
    assert await lpm.operator.retry_results(rejected) == {}, "a person's operation is not undone by the way"
    assert await lpm.operator.retry_results(rejected, Flags(include_rejected_by_operator=True)) == {
        PlannedAction.APPLY: 1
    }
    assert [entry.task_id for entry in await lpm.get_unsynced_results()] == ["a"]


async def test_many_are_done_some_at_a_time_and_told(lpm: LocalPersistenceManager) -> None:
    number = 2 * operator_actions._BATCH + 7
    await lpm.add_tasks(a_task(f"t{n}", source=LOCAL) for n in range(number))
    told: list[int] = []
    assert await lpm.operator.delete_tasks(ALL, progress=told.append) == {PlannedAction.APPLY: number}
    assert told == [operator_actions._BATCH, 2 * operator_actions._BATCH, number]
    assert await list_tasks(lpm) == []


async def test_signals_of_a_deleted_task_stay_as_they_tell_of_selectors(lpm: LocalPersistenceManager) -> None:
    from parcelpost.model import Signal

    await lpm.add_task(a_task(source=LOCAL))
    signal = Signal(platform="vgsi", field="f", selector="#x", selector_type="css", success=True, task_id="t1")
    await lpm.signals.append([signal])
    await lpm.operator.delete_tasks(ALL)
    assert [stored.signal for stored in await lpm.signals.unsynced()] == [signal]
