"""A page that lists many parcels: each is a result of its own, stored with the end of the task or not at all."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Json, OutboxEntry, Page, PageRecord, Result, TaskStatus, is_child_id
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.results import MAX_RECORDS, child_id, page_records
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import (
    NOW,
    a_task,
    claim_one,
    deliver,
    everything,
    list_results,
    list_tasks,
    look,
    requeue,
    task_counts,
    the_result,
    the_task,
)

PAGE = b"<html>a list</html>"


def lien(parcel_id: str | None, certificate: str, **more: Json) -> dict[str, Json]:
    own = {"certificate_number": certificate, **more}
    return {"record_kind": "lien", "parcel_id": parcel_id, **own, "liens": [own]}


def several(records: list[PageRecord], body: bytes | None = PAGE) -> Result:
    return Result(
        data=records[0].data,
        parcel_id=records[0].parcel_id,
        additional_records=tuple(records[1:]),
        page=None if body is None else Page(body=body),
        scraped_at=NOW,
    )


def parcels(count: int, note: str = "") -> list[PageRecord]:
    return page_records([{"parcel_id": f"p-{number}", "note": note} for number in range(count)])


async def save_list(
    lpm: LocalPersistenceManager, records: list[PageRecord], task_id: str = "list", body: bytes | None = PAGE
) -> list[OutboxEntry]:
    claim = await claim_one(lpm, a_task(task_id, parcel_id=""))
    assert await lpm.save_result(claim, several(records, body)) is not None
    return await list_results(lpm, limit=100_000)


async def claim_again(lpm: LocalPersistenceManager, task_id: str = "list") -> Claim:
    assert await requeue(lpm, [task_id], completed=True) == 1
    (claim,) = await lpm.claim()
    return claim


def test_lines_of_one_parcel_become_one_record_with_all_its_liens() -> None:
    found = page_records([lien("p-1", "c1"), lien("p-2", "c2"), lien("p-1", "c3")])
    assert [(one.parcel_id, one.key) for one in found] == [("p-1", "/p-1"), ("p-2", "/p-2")]
    assert isinstance(found[0].data, dict)
    assert [one["certificate_number"] for one in found[0].data["liens"]] == ["c1", "c3"]
    assert found[0].data["certificate_number"] == "c1"


def test_two_records_of_one_parcel_that_are_no_liens_are_both_kept() -> None:
    found = page_records([{"parcel_id": "p", "unit": 1}, {"parcel_id": "p", "unit": 2}, {"parcel_id": "p", "unit": 3}])
    assert [one.data for one in found] == [{"parcel_id": "p", "unit": unit} for unit in (1, 2, 3)]
    assert len({one.key for one in found}) == 3


def test_a_line_without_a_parcel_is_kept_under_its_case_or_certificate() -> None:
    found = page_records([lien(None, "c-7"), {"parcel_id": None, "case_number": "2026-9"}, {"parcel_id": None}])
    assert [one.parcel_id for one in found] == ["c-7", "2026-9", "line 3"]


def test_a_child_has_the_same_id_at_every_reading_and_it_is_never_too_long() -> None:
    assert child_id("t1", "/p") == child_id("t1", "/p") != child_id("t2", "/p")
    assert len(child_id("t" * 512, "/p")) < 512
    assert is_child_id(child_id("t1", "/p")) and not is_child_id("t1") and not is_child_id("a~b")
    assert child_id("t" * 511 + "a", "/p") != child_id("t" * 511 + "b", "/p")


def test_more_records_than_are_kept_of_one_task_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        page_records([{"parcel_id": str(number)} for number in range(MAX_RECORDS + 1)])


async def test_each_record_is_a_result_and_the_first_is_the_tasks_own(lpm: LocalPersistenceManager) -> None:
    found = await save_list(lpm, parcels(3))
    assert [entry.parcel_id for entry in found] == ["p-0", "p-1", "p-2"]
    assert [entry.task_id for entry in found] == ["list", child_id("list", "/p-1"), child_id("list", "/p-2")]
    assert len({entry.idempotency_key for entry in found}) == 3
    assert {entry.status for entry in found} == {TaskStatus.COMPLETED}
    assert [entry.seq for entry in await lpm.get_unsynced_results()] == [entry.seq for entry in found]
    child = await the_task(lpm, found[1].task_id)
    assert (child.parent_id, child.task.target.parcel_id, child.task.source) == ("list", "p-1", "gateway")


async def test_the_page_is_stored_once_and_named_by_all(lpm: LocalPersistenceManager, store: Path) -> None:
    found = await save_list(lpm, parcels(3))
    (path,) = {entry.html_path for entry in found}
    assert path is not None
    assert all(entry.page_shared for entry in found)
    assert gzip.decompress(lpm.raw_path(path).read_bytes()) == PAGE
    assert len(list((store.parent / "data").rglob("*.gz"))) == 1
    (usage,) = look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'")
    assert usage == (8192,)


async def test_thousands_of_records_are_one_transaction(lpm: LocalPersistenceManager, store: Path) -> None:
    assert len(await save_list(lpm, parcels(5_000))) == 5_000
    assert_whole(store)
    assert (await lpm.queue_depth()).completed == 1
    assert (await lpm.queue_depth()).unsynced == 5_000
    assert (await task_counts(lpm)) == {"vgsi": {"completed": 1}}


async def test_a_stale_claim_stores_none_of_them(lpm: LocalPersistenceManager, store: Path) -> None:
    claim = await claim_one(lpm, a_task("list", parcel_id=""))
    await lpm.release(claim)
    before = everything(store)
    assert await lpm.save_result(claim, several(parcels(3))) is None
    assert everything(store) == before
    assert list((store.parent / "data").rglob("*.gz")) == []


async def test_the_same_page_again_gives_the_same_results_under_the_same_keys(lpm: LocalPersistenceManager) -> None:
    first = await save_list(lpm, parcels(3))
    await deliver(lpm, *(entry.result_id for entry in first))
    claim = await claim_again(lpm)
    assert await lpm.save_result(claim, several(parcels(3))) is not None
    again = await list_results(lpm)
    assert [(one.task_id, one.idempotency_key) for one in again] == [
        (one.task_id, one.idempotency_key) for one in first
    ]
    assert len(await list_tasks(lpm)) == 3


async def test_a_task_starts_anew_only_when_all_its_records_are_delivered(lpm: LocalPersistenceManager) -> None:
    first, second, third = await save_list(lpm, parcels(3))
    await deliver(lpm, first.result_id, third.result_id)
    assert await requeue(lpm, ["list"], completed=True) == 0
    await deliver(lpm, second.result_id)
    assert await requeue(lpm, [second.task_id], completed=True) == 0
    assert await requeue(lpm, status=TaskStatus.COMPLETED, completed=True) == 1


async def test_a_second_scrape_that_finds_one_record_leaves_nothing_of_the_first(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    await deliver(lpm, *(entry.result_id for entry in await save_list(lpm, parcels(3))))
    claim = await claim_again(lpm)
    assert await lpm.save_result(claim, Result(data={"a": 1}, page=Page(body=b"new"), scraped_at=NOW)) is not None
    (only,) = await list_results(lpm)
    assert only.task_id == "list"
    assert only.html_path is not None
    assert gzip.decompress(lpm.raw_path(only.html_path).read_bytes()) == b"new"
    assert len(list((store.parent / "data").rglob("*.gz"))) == 1


async def test_the_page_goes_with_the_last_result_that_names_it(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    first, *others = await save_list(lpm, parcels(1_200))
    await deliver(lpm, first.result_id, *(entry.result_id for entry in others[:-1]))
    clock.advance(8 * 86_400)
    await lpm.maintenance.clean()
    assert {entry.task_id for entry in await list_results(lpm, limit=2_000)} == {"list", others[-1].task_id}
    assert first.html_path is not None
    assert lpm.raw_path(first.html_path).is_file()
    await deliver(lpm, others[-1].result_id)
    await lpm.maintenance.relieve()
    assert await list_results(lpm) == []
    assert await list_tasks(lpm) == []
    assert list((store.parent / "data").rglob("*.html.gz")) == []
    assert look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'") == [(0,)]


async def test_a_name_that_is_taken_is_changed(lpm: LocalPersistenceManager) -> None:
    first = await save_list(lpm, parcels(2), "one")
    assert first[0].html_path is not None
    lpm.raw_path(first[0].html_path).unlink()
    await save_list(lpm, parcels(2), "two")
    other = await the_result(lpm, "two")
    assert other.html_path != first[0].html_path


async def test_lists_and_single_records_are_saved_side_by_side(lpm: LocalPersistenceManager, store: Path) -> None:
    await lpm.add_tasks(a_task(f"t{number}", parcel_id="") for number in range(40))
    claims = await lpm.claim(40)
    await asyncio.gather(*(lpm.save_result(claim, several(parcels(1 + claim.seq % 3))) for claim in claims))
    assert_whole(store)
    assert (await lpm.queue_depth()).completed == 40


def test_rows_of_one_parcel_keep_what_each_could_not_read() -> None:
    rows = [
        {"record_kind": "lien", "parcel_id": "1-1", "liens": [{"certificate_number": "7"}], "unreadable": []},
        {"record_kind": "lien", "parcel_id": "1-1", "liens": [{}], "unreadable": ["liens.holder_name"]},
    ]
    (merged,) = page_records(rows)
    assert isinstance(merged.data, dict)
    assert merged.data["unreadable"] == ["liens.holder_name"]
