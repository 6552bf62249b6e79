"""Stored pages read again: what changed goes upstream once more, in order, and nothing else is touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.json import decode

from parcelpost.clock import ManualClock
from parcelpost.model import Done, OutboxEntry, Outcome, Page, Result, Retry, Target, TaskStatus
from parcelpost.scrapers.platform import NotReadable, Parse
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from parcelpost.storage.reparse import Filters, NewRecord
from parcelpost.storage.results import page_records
from parcelpost.worker import reparse
from parcelpost.worker.reparse import Counts, Reparse
from tests.lengths import short_and_long
from tests.storage.crash.acknowledged import rows_without_file
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_task, deliver, everything, list_tasks, look, requeue, the_result
from tests.worker.reparsing import reading
from tests.worker.rig import Rig

ALL = Filters()
ROOT = Path(__file__).parents[2]


async def save(
    lpm: LocalPersistenceManager, task_id: str, body: bytes, parcel_id: str = "", county: str = "hartford"
) -> None:
    """As the first version of the parser read it."""
    task = a_task(task_id, platform="echo", parcel_id=parcel_id or f"parcel-{task_id}", county=county)
    await lpm.add_task(task)
    (claim,) = await lpm.claim()
    page = Page(body=body, content_type="text/html; charset=utf-8")
    outcome = reading(1)(page, task.target)
    assert isinstance(outcome, Done)
    first, *more = page_records([outcome.data, *outcome.additional_records])  # type: ignore[list-item]
    number = first.parcel_id if more else ""
    result = Result(
        data=first.data, additional_records=tuple(more), parcel_id=number, page=page, scraped_at=ManualClock().now()
    )
    assert await lpm.save_result(claim, result) is not None


async def again(rig: Rig, version: int = 2, *, dry: bool = False, filters: Filters = ALL) -> Counts:
    rig.clock.advance(60)
    return await Reparse(rig.lpm, lambda _: reading(version), filters, rig.clock, dry=dry).run(f"{filters}{version}")


async def deliver_all(lpm: LocalPersistenceManager) -> list[OutboxEntry]:
    found = await lpm.get_unsynced_results(limit=10_000)
    await deliver(lpm, *(entry.result_id for entry in found))
    return found


def owner(entry: OutboxEntry) -> str:
    assert entry.data is not None
    return str(decode(entry.data)["owner"])


async def test_what_changed_is_replaced_and_waits_to_be_sent_again(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    (before,) = await deliver_all(rig.lpm)
    counts = await again(rig)
    assert (counts.pages, counts.changed, counts.unchanged) == (1, 1, 0)
    (after,) = await rig.lpm.get_unsynced_results()
    assert owner(after) == "ANN"
    assert after.idempotency_key != before.idempotency_key
    assert (after.scraped_at, after.html_path, after.task_id) == (before.scraped_at, before.html_path, "t1")
    assert after.raw_synced_at is not None
    assert after.json_path is not None
    assert rig.lpm.raw_path(after.json_path).read_bytes() == after.data
    await rig.settle()
    assert rig.gateway.submissions["t1"][-1]["data"]["owner"] == "ANN"
    assert rig.gateway.count("raw-files") == 0


async def test_a_record_that_the_operator_rejected_is_sent_once_it_reads_differently(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    await rig.lpm.operator.reject_results(Selection(), "its owner is wrong")
    assert (await again(rig)).changed == 1
    (entry,) = await rig.lpm.get_unsynced_results()
    assert (owner(entry), entry.rejected_by, entry.last_error) == ("ANN", None, None)


async def test_what_is_the_same_stays_untouched_whatever_the_parsers_version(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"same")
    await deliver_all(rig.lpm)
    before = everything(rig.lpm.path)
    assert (await again(rig)).unchanged == 1
    assert everything(rig.lpm.path) == before


async def test_a_second_run_changes_nothing_more(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann;bo;cy")
    await again(rig)
    before = everything(rig.lpm.path)
    counts = await again(rig)
    assert (counts.changed, counts.unchanged) == (0, 3)
    assert everything(rig.lpm.path) == before


async def test_a_dry_run_only_counts(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    before = everything(rig.lpm.path)
    assert (await again(rig, dry=True)).changed == 1
    assert everything(rig.lpm.path) == before


async def test_a_page_that_gives_nothing_any_more_keeps_its_record_and_is_listed(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"unreadable")
    await save(rig.lpm, "t2", b"gone")
    entry = await the_result(rig.lpm, "t2")
    assert entry.html_path is not None
    rig.lpm.raw_path(entry.html_path).unlink()
    before = everything(rig.lpm.path)
    counts = await again(rig)
    assert counts.unreadable == 2
    assert [reason for _, reason in counts.problems] == ["what is this?", "its page is not on disk"]
    assert everything(rig.lpm.path) == before


async def test_a_receipt_that_was_under_way_does_not_count_for_the_new_record(rig: Rig) -> None:
    """I2"""
    await save(rig.lpm, "t1", b"ann")
    (on_its_way,) = await rig.lpm.get_unsynced_results()
    await again(rig)
    await rig.lpm.mark_raw_synced([on_its_way.result_id])
    assert await rig.lpm.mark_synced([on_its_way.result_id]) == 0
    assert [owner(entry) for entry in await rig.lpm.get_unsynced_results()] == ["ANN"]


async def test_later_scrapes_of_the_parcel_are_sent_after_it(rig: Rig) -> None:
    await save(rig.lpm, "old", b"ann", parcel_id="p")
    await save(rig.lpm, "other", b"same", parcel_id="q")
    await save(rig.lpm, "new", b"same", parcel_id="p")
    await deliver_all(rig.lpm)
    await again(rig)
    waiting = await rig.lpm.get_unsynced_results()
    assert [(entry.task_id, owner(entry)) for entry in waiting] == [("old", "ANN"), ("new", "same")]


async def test_of_several_scrapes_that_all_changed_the_order_stays(rig: Rig) -> None:
    for number in range(5):
        await save(rig.lpm, f"t{number}", f"ann{number}".encode(), parcel_id="p")
    await deliver_all(rig.lpm)
    assert (await again(rig)).changed == 5
    waiting = await rig.lpm.get_unsynced_results()
    assert [owner(entry) for entry in waiting] == [f"ANN{number}" for number in range(5)]


async def test_every_record_of_a_list_is_replaced_by_itself(rig: Rig) -> None:
    await save(rig.lpm, "list", b"ann;same;cy")
    await deliver_all(rig.lpm)
    counts = await again(rig)
    assert (counts.changed, counts.unchanged, counts.added) == (2, 1, 0)
    waiting = await rig.lpm.get_unsynced_results()
    assert [(entry.parcel_id[-1], owner(entry)) for entry in waiting] == [("0", "ANN"), ("2", "CY")]
    await rig.settle()
    assert rig.gateway.submissions["list"][-1]["data"]["owner"] == "ANN"


async def test_records_that_an_old_parser_did_not_see_are_added(rig: Rig) -> None:
    await save(rig.lpm, "list", b"same")
    await deliver_all(rig.lpm)

    def splits(page: Page, target: Target) -> Done:
        first = {"parcel_id": target.parcel_id, "owner": "same", "parser_version": 3}
        return Done(data=first, additional_records=({"parcel_id": "found", "owner": "too"},), page=page)

    rig.clock.advance(60)
    counts = await Reparse(rig.lpm, lambda _: splits, Filters(), rig.clock).run("x")
    assert (counts.changed, counts.added) == (0, 1)
    await rig.settle()
    names = {entries[-1]["raw_file"] for entries in rig.gateway.submissions.values()}
    assert {entries[-1]["parcel_id"] for entries in rig.gateway.submissions.values()} == {"parcel-list", "found"}
    assert len(names) == 1
    assert_whole(rig.lpm.path)


def numbered(*numbers: str) -> Parse:
    """Reads one record for each, whatever the page says."""

    def parse(page: Page, target: Target) -> Done:
        first, *more = ({"parcel_id": number, "owner": f"of {number}", "county": "new"} for number in numbers)
        return Done(data=first, additional_records=tuple(more), page=page, is_list=True)

    return parse


@pytest.mark.parametrize(
    ("numbers", "counted", "kept"),
    [
        (["p-0", "p-1", "p-2"], (3, 0, 0), "p-0"),
        (["P 0", "P 1", "P 2"], (3, 0, 0), "P 0"),
        (["x", "y", "z"], (3, 0, 0), "x"),
        (["p-2", "p-1", "p-0"], (3, 0, 0), "p-0"),
        (["p-0", "y", "p-2"], (3, 0, 0), "p-0"),
        (["new", "p-0", "p-1", "p-2"], (3, 1, 0), "p-0"),
        (["p-1", "p-2"], (2, 0, 1), "p-0"),
    ],
)
async def test_a_record_whose_number_is_read_differently_takes_the_place_of_its_own(
    rig: Rig, numbers: list[str], counted: tuple[int, int, int], kept: str
) -> None:
    await save(rig.lpm, "list", b"ann;bo;cy", parcel_id="p")
    await deliver_all(rig.lpm)
    rig.clock.advance(60)
    for run in range(2):
        counts = await Reparse(rig.lpm, lambda _: numbered(*numbers), ALL, rig.clock).run(f"{run}")
        said = (counts.changed, counts.added, counts.not_found)
        assert said == (counted if run == 0 else (0, 0, counted[2]))
        rig.clock.advance(60)
    records = dict(look(rig.lpm.path, "SELECT task_id, data ->> 'parcel_id' FROM results"))
    assert sorted(records.values()) == sorted({*numbers} | ({"p-0"} if counted[2] else set()))
    assert records["list"] == kept


async def test_a_record_of_another_parcel_does_not_take_the_place_of_the_only_one(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann", parcel_id="p")
    rig.clock.advance(60)
    counts = await Reparse(rig.lpm, lambda _: numbered("other", "p"), ALL, rig.clock).run("x")
    assert (counts.changed, counts.added) == (1, 1)
    assert look(rig.lpm.path, "SELECT data ->> 'parcel_id' FROM results WHERE task_id = 't1'") == [("p",)]


async def test_a_result_has_the_number_and_county_of_its_record(rig: Rig) -> None:
    await save(rig.lpm, "list", b"ann;bo", parcel_id="p", county="")
    rig.clock.advance(60)
    await Reparse(rig.lpm, lambda _: numbered("x", "y"), ALL, rig.clock).run("x")
    found = look(rig.lpm.path, "SELECT county, parcel_id, data ->> 'parcel_id' FROM results ORDER BY seq")
    assert found == [("new", "x", "x"), ("new", "y", "y")]


async def test_a_record_is_sent_before_later_ones_of_the_parcel_that_it_turns_out_to_be_of(rig: Rig) -> None:
    await save(rig.lpm, "old", b"ann;bo", parcel_id="p")
    await save(rig.lpm, "new", b"same", parcel_id="q-0")
    await deliver_all(rig.lpm)
    rig.clock.advance(60)

    def parse(page: Page, target: Target) -> Outcome | Awaitable[Outcome]:
        return numbered("q-0", "q-1")(page, target) if target.parcel_id == "p" else reading(1)(page, target)

    await Reparse(rig.lpm, lambda _: parse, ALL, rig.clock).run("x")
    waiting = await rig.lpm.get_unsynced_results()
    assert [entry.parcel_id for entry in waiting] == ["q-0", "q-1", "q-0"]
    assert waiting[-1].task_id == "new"


async def test_one_record_of_the_parcel_asked_for_keeps_the_number_it_was_asked_by(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann", parcel_id="p")
    rig.clock.advance(60)

    def parse(page: Page, target: Target) -> Outcome:
        return Done(data={"parcel_id": "P-0", "owner": "ANN"}, page=page)

    assert (await Reparse(rig.lpm, lambda _: parse, ALL, rig.clock).run("x")).changed == 1
    assert look(rig.lpm.path, "SELECT parcel_id, data ->> 'parcel_id' FROM results") == [("p", "P-0")]


async def test_a_change_that_comes_too_late_leaves_the_records_file_alone(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    rig.clock.advance(60)
    (stored,) = await rig.lpm.reparse.pages(ALL, rig.clock.now(), 0, 10)
    (own,) = stored.records
    late = NewRecord(replaces=own, key="", county=own.county, parcel_id=own.parcel_id, data=b'{"owner":"late"}')
    await again(rig)
    assert await rig.lpm.reparse.replace([(stored, [late])]) == [False]
    path = rig.lpm.raw_path(stored.json_path)
    assert decode(path.read_bytes())["owner"] == "ANN"
    assert [file.name for file in path.parent.iterdir() if file.name.endswith((".new", ".partial"))] == []


async def test_only_what_was_asked_for_is_read(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    await save(rig.lpm, "t2", b"bo", county="tolland")
    assert (await again(rig, filters=Filters(county="tolland"))).changed == 1
    assert (await again(rig, filters=Filters(platform="vgsi"))).pages == 0
    assert (await again(rig, filters=Filters(since=rig.clock.now()))).pages == 0


async def test_a_task_that_is_to_be_scraped_again_is_left_alone(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    await deliver_all(rig.lpm)
    assert await requeue(rig.lpm, ["t1"], completed=True) == 1
    assert (await again(rig)).pages == 0
    assert (await list_tasks(rig.lpm))[0].status is TaskStatus.PENDING


async def test_a_platform_that_cannot_read_pages_is_passed_over(rig: Rig) -> None:
    await save(rig.lpm, "t1", b"ann")
    rig.clock.advance(60)
    counts = await Reparse(rig.lpm, lambda _: NotReadable("it cannot"), Filters(), rig.clock).run("x")
    assert (counts.skipped, counts.pages) == (1, 0)
    assert [(one.platform, one.pages, one.reason) for one in counts.not_readable] == [("echo", 1, "it cannot")]


@short_and_long("a_look", (20,), (200,))
async def test_an_interrupted_run_goes_on_where_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch, a_look: int) -> None:
    monkeypatch.setattr(reparse, "_BATCH", a_look)
    for number in range(2 * a_look + 5):
        await save(rig.lpm, f"t{number}", b"ann")
    rig.clock.advance(60)
    work = Reparse(rig.lpm, lambda _: reading(2), Filters(), rig.clock)

    def stop(_: Counts) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await work.run("same", stop)
    rest = await Reparse(rig.lpm, lambda _: reading(2), Filters(), rig.clock).run("same")
    assert (rest.resumed, rest.pages, rest.changed) == (True, a_look + 5, a_look + 5)
    assert not (await Reparse(rig.lpm, lambda _: reading(2), Filters(), rig.clock).run("same")).resumed


@short_and_long("a_look", (40,), (200,))
async def test_after_a_kill_every_record_is_the_old_or_the_new_one_and_the_next_run_finishes(
    tmp_path: Path, a_look: int
) -> None:
    """I2, I3, I5, I6"""
    store, pages = tmp_path / "store.db", 5 * a_look // 2
    command = [sys.executable, "-m", "tests.worker.reparsing", str(store), str(a_look)]
    async with LocalPersistenceManager.open(store) as lpm:
        for number in range(pages):
            body = b"ann;bo" if number % 5 == 0 else b"ann"
            await save(lpm, f"t{number}", body, parcel_id=f"p{number % (pages // 10)}")
        await deliver_all(lpm)
    for said in (1, 2):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(said):
                process.stdout.readline()
            process.kill()
        assert_whole(store)
        assert rows_without_file(store) == []
        assert look(store, "SELECT count(*) FROM results") == [(pages * 6 // 5,)]
        assert look(store, "SELECT task_id FROM results WHERE synced = 1 AND data ->> 'owner' IN ('ANN', 'BO')") == []
        for task_id, key, data in look(store, "SELECT task_id, idempotency_key, data FROM results"):
            assert key == f"{task_id}:{sha256(data.encode()).hexdigest()}"
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert look(store, "SELECT DISTINCT data ->> 'owner' FROM results ORDER BY 1") == [("ANN",), ("BO",)]
    assert look(store, "SELECT count(*) FROM results WHERE synced = 0") == [(pages * 6 // 5,)]
    for path, data in look(store, "SELECT json_path, data FROM results WHERE json_path IS NOT NULL"):
        assert (tmp_path / "data" / path).read_text() == data


@pytest.mark.parametrize(("before", "after"), [("complete", "complete"), ("missing: sales", "missing: land")])
async def test_an_incomplete_page_replaces_only_an_incomplete_record(rig: Rig, before: str, after: str) -> None:
    claim = await rig.claim("t1")
    page = Page(body=b"<html>")
    result = Result(data={"parcel_id": "p", "completeness": before}, page=page, scraped_at=rig.clock.now())
    assert await rig.lpm.save_result(claim, result) is not None
    rig.clock.advance(60)

    def parse(page: Page, target: Target) -> Outcome:
        return Retry("incomplete", partial=Done(data={"parcel_id": "p", "completeness": "missing: land"}))

    counts = await Reparse(rig.lpm, lambda _: parse, ALL, rig.clock).run("x")
    assert look(rig.lpm.path, "SELECT data ->> 'completeness' FROM results") == [(after,)]
    assert (counts.changed, counts.unreadable) == ((0, 1) if before == after else (1, 0))
