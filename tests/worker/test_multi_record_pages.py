"""A page of many records on its way through the worker: all of them upstream, its page once."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.model import DeliveryState, Done, Outcome, Page, Result, Task, TaskStatus
from parcelpost.storage.operator_actions import Selection
from parcelpost.storage.results import page_records
from tests import traps
from tests.storage.factories import a_task, list_results
from tests.worker.executing import at_work
from tests.worker.rig import Rig

RECORDS = [{"parcel_id": f"p-{number}"} for number in range(120)]


async def save_list(rig: Rig, task_id: str = "list", records: list[dict[str, str]] = RECORDS) -> None:
    claim = await rig.claim(task_id)
    first, *more = page_records(records)
    page = Page(body=b"<html>a list</html>")
    result = Result(
        data=first.data,
        parcel_id=first.parcel_id,
        additional_records=tuple(more),
        page=page,
        scraped_at=rig.clock.now(),
    )
    assert await rig.lpm.save_result(claim, result) is not None


async def test_all_records_are_upstream_once_and_the_task_is_done_there(rig: Rig) -> None:
    await save_list(rig)
    await rig.settle()
    sent = [entries[-1] for entries in rig.gateway.submissions.values()]
    assert sorted(one["parcel_id"] for one in sent) == sorted(record["parcel_id"] for record in RECORDS)
    assert "list" in rig.gateway.submissions
    assert all(len(entries) == 1 for entries in rig.gateway.submissions.values())


async def test_their_page_is_sent_once_before_them_and_all_name_it(rig: Rig) -> None:
    await save_list(rig)
    await rig.settle()
    assert rig.gateway.count("raw-files") == 1
    (name,) = {entries[0]["raw_file"] for entries in rig.gateway.submissions.values()}
    assert name in rig.gateway.raw_files


async def test_while_the_page_is_not_taken_none_of_them_is_sent(rig: Rig) -> None:
    await save_list(rig)
    rig.gateway.play("raw-files", traps.status(503), times=2)
    rig.clock.advance(await rig.sync.step())
    assert rig.gateway.submissions == {}
    await rig.settle()
    assert len(rig.gateway.submissions) == len(RECORDS)
    assert await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED)) == []


async def test_a_page_that_is_refused_sets_them_all_aside_and_holds_up_nobody(rig: Rig) -> None:
    await save_list(rig)
    await rig.save("other", page=b"<p>")
    rig.gateway.play("raw-files", traps.status(413), times=1)
    await rig.settle()
    assert "other" in rig.gateway.submissions


async def test_what_a_platform_lists_is_stored_with_the_end_of_its_task(tmp_path: Path) -> None:
    def scrape(task: Task) -> Outcome:
        return Done(data=RECORDS[0], additional_records=tuple(RECORDS[1:]), page=Page(body=b"<html></html>"))

    async with at_work(tmp_path) as works:
        await works.add(a_task("list", parcel_id="all of them"), scrape)
        await works.step()
        assert await works.status("list") is TaskStatus.COMPLETED
        found = await list_results(works.lpm, limit=1_000)
        assert [entry.parcel_id for entry in found] == [record["parcel_id"] for record in RECORDS]


@pytest.mark.parametrize(("parcel_id", "lists"), [("", False), ("page 1", True)])
async def test_a_list_of_one_line_is_stored_under_its_own_number(tmp_path: Path, parcel_id: str, lists: bool) -> None:
    found = Done(data={"parcel_id": None, "case_number": "7"}, is_list=lists)
    async with at_work(tmp_path) as works:
        await works.add(a_task("list", parcel_id=parcel_id), lambda _: found)
        await works.step()
        (only,) = await list_results(works.lpm)
        assert only.parcel_id == "7"


async def test_a_record_of_the_parcel_asked_for_keeps_that_parcels_number(tmp_path: Path) -> None:
    async with at_work(tmp_path) as works:
        await works.add(a_task("t1", parcel_id="1-2"), lambda _: Done(data={"parcel_id": "0001-0002"}))
        await works.step()
        (only,) = await list_results(works.lpm)
        assert only.parcel_id == "1-2"


async def test_further_records_that_are_none_end_the_task_with_a_reason(tmp_path: Path) -> None:
    async with at_work(tmp_path) as works:
        await works.add(a_task("t1"), lambda _: Done(data={}, additional_records=("no record",)))  # type: ignore[arg-type]
        await works.step()
        assert await works.status() is TaskStatus.FAILED
