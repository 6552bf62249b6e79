"""Delivery: whatever the gateway does, in the end every result is there once, and none is lost or wrongly rejected."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost.clock import iso
from parcelpost.events import EntryRefused, UpstreamOffline, UpstreamOnline
from parcelpost.model import DeliveryState, Page, Result, TaskStatus
from parcelpost.storage.operator_actions import Selection
from tests import traps
from tests.hostile import Entry, HostileGateway, Trap
from tests.lengths import short_and_long
from tests.storage.factories import list_results, list_tasks
from tests.worker.rig import Rig, rigged

MANY = [f"t{number:03}" for number in range(60)]
BAD = {"t003", "t017", "t031"}


async def go_on_until_decided(rig: Rig, passes: int = 20) -> None:
    """A worker that goes on: in every pass there is something that the gateway takes."""
    for number in range(passes):
        await rig.save(f"later-{number}")
        pause = await rig.sync.step()
        while pause == 0:
            pause = await rig.sync.step()
        if not await rig.lpm.get_unsynced_results(1):
            return
        rig.clock.advance(300)
    raise AssertionError(f"still waiting: {[entry.task_id for entry in await rig.lpm.get_unsynced_results(20)]}")


async def rejected(rig: Rig) -> set[str]:
    return {entry.task_id for entry in await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED))}


PASSING_TRAPS: dict[str, tuple[Trap, int]] = {
    "all failed with 200": (traps.failing(), 30),
    "a server error": (traps.status(503), 3),
    "its own time-out": (traps.status(408), 1),
    "a token refused for a while": (traps.status(401), 2),
    "a token forbidden for a while": (traps.status(403), 1),
    "a wrong address for a while": (traps.status(404), 1),
    "too many requests, for seconds": (traps.slow_down(seconds=120), 1),
    "too many requests, until a date": (traps.slow_down(date_in=timedelta(seconds=90)), 1),
    "a rate limit that resets": (traps.slow_down(reset=100), 1),
    "a body cut off": (traps.cut(), 2),
    "a page for people": (traps.html(), 2),
    "a redirect to elsewhere": (traps.redirect("http://example.org/internal/results"), 1),
    "an answer without an end": (traps.endless(), 1),
    "an answer that drips": (traps.drip(), 1),
    "a reset in mid-answer": (traps.reset(), 2),
    "no answer at all": (traps.silence(), 1),
    "stored, but the answer was lost": (traps.done_first(traps.reset()), 2),
    "stored, but the response is not JSON": (traps.done_first(traps.html()), 2),
    "counts that cannot be": (traps.answer({"inserted": -1, "updated": "x", "failed": None}), 2),
    "nothing but braces": (traps.answer({}), 2),
}


@short_and_long("number, batch_size", (12, 10), (60, 50))
async def test_when_it_is_over_every_result_is_upstream_once(
    subtests: pytest.Subtests, rig: Rig, number: int, batch_size: int
) -> None:
    saved: list[str] = []
    for name, (trap, times) in PASSING_TRAPS.items():
        with subtests.test(name):
            rig.gateway.behave()
            rig.sync = rig.new_sync(batch_size=batch_size)
            some = [f"{name} {place:03}" for place in range(number)]
            saved += some
            await rig.save(*some)
            calls = rig.gateway.count("results")
            rig.gateway.play("results", trap, times=times)
            await rig.settle()
            assert rig.gateway.count("results") - calls > times
            assert sorted(rig.gateway.submissions) == sorted(saved)
            assert {entry["data"]["task"] for entry in rig.gateway.results.values()} == set(saved)
            assert await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED)) == []
            assert rig.seen(EntryRefused) == []


async def test_a_saved_result_is_sent_with_all_that_the_contract_asks_for(rig: Rig) -> None:
    claim = await rig.claim("t1")
    await rig.lpm.save_result(claim, Result(data={"a": 1}, scraped_at=rig.clock.now(), execution_time_ms=12))
    await rig.settle()
    (sent,) = rig.gateway.submissions["t1"]
    assert sent["data"] == {"a": 1}
    assert sent["parse_duration_ms"] == 12
    assert sent["scraped_at"] == iso(rig.clock.now()) or sent["scraped_at"].startswith("2026-01-01T")
    assert sent["idempotency_key"].startswith("t1:")
    assert not sent.get("late")


async def test_a_result_after_its_lease_is_sent_and_marked_late(rig: Rig) -> None:
    await rig.save("t1")
    claim = await rig.claim("t2")
    soon = rig.clock.now() + timedelta(seconds=60)
    await rig.lpm.add_tasks([replace(claim.task, lease_expires_at=soon, lease_id="l2")], leased=True)
    rig.clock.advance(120)
    await rig.lpm.save_result(claim, Result(data={"task": "t2"}, scraped_at=rig.clock.now()))
    await rig.settle()
    assert rig.gateway.submissions["t2"][0]["late"] is True
    assert not rig.gateway.submissions["t1"][0].get("late")


@pytest.mark.parametrize("receipts", [False, True])
async def test_entries_that_fail_beside_good_ones_hold_up_nobody_and_are_set_aside_in_the_end(
    tmp_path: Path, receipts: bool
) -> None:
    async with HostileGateway(receipts=receipts) as gateway, rigged(tmp_path, gateway) as rig:
        await rig.save(*MANY)
        gateway.play("results", traps.failing(lambda entry: entry["task_id"] in BAD), times=None)
        rig.clock.advance(await rig.sync.step())
        rig.clock.advance(await rig.sync.step())
        assert set(gateway.submissions) == set(MANY) - BAD
        await go_on_until_decided(rig)
        aside = await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED))
        assert {entry.task_id for entry in aside} == BAD
        assert all("could not be stored" in (entry.last_error or "") for entry in aside)
        assert {entry.sync_attempts for entry in aside} == {5}
        gateway.behave()
        assert (await rig.lpm.operator.retry_results(Selection())).total() == len(BAD)
        await rig.settle()
        assert set(MANY) <= set(gateway.submissions)


async def test_more_bad_ones_than_the_gateway_looks_at_hide_no_good_one(rig: Rig) -> None:
    await rig.save(*MANY)
    bad = set(MANY[:25])
    rig.gateway.play("results", traps.failing(lambda entry: entry["task_id"] in bad), times=None)
    rig.clock.advance(await rig.sync.step())
    rig.clock.advance(await rig.sync.step())
    assert set(rig.gateway.submissions) == set(MANY) - bad
    await go_on_until_decided(rig)
    assert await rejected(rig) == bad


@pytest.mark.parametrize("code", [400, 422])
async def test_a_batch_refused_for_one_bad_entry_is_taken_apart(rig: Rig, code: int) -> None:
    await rig.save(*MANY)
    rig.gateway.play("results", traps.refusing(lambda entry: entry["task_id"] in BAD, code), times=None)
    rig.clock.advance(await rig.sync.step())
    rig.clock.advance(await rig.sync.step())
    assert set(rig.gateway.submissions) == set(MANY) - BAD
    await go_on_until_decided(rig)
    assert await rejected(rig) == BAD
    refusals = [event for event in rig.seen(EntryRefused) if isinstance(event, EntryRefused)]
    assert sum(event.rejected for event in refusals) == len(BAD)
    assert len(refusals) == 5 * len(BAD)


async def test_a_batch_that_is_too_large_is_halved_until_it_fits(rig: Rig) -> None:
    await rig.save(*MANY[:20], fill=1_000)
    await rig.save("giant", fill=30_000)
    rig.gateway.play("results", traps.too_large(8_000), times=None)
    await rig.sync.step()
    assert sorted(rig.gateway.submissions) == MANY[:20]
    await go_on_until_decided(rig)
    assert await rejected(rig) == {"giant"}


async def test_nothing_is_at_fault_while_nothing_at_all_is_stored(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.failing(), times=None)
    for _ in range(20):
        rig.clock.advance(await rig.sync.step())
    (entry,) = await rig.lpm.get_unsynced_results(10)
    assert entry.sync_attempts == 0
    rig.gateway.behave()
    await rig.settle()
    assert sorted(rig.gateway.submissions) == ["t1"]


async def test_of_one_parcel_the_newest_record_stays_upstream(rig: Rig) -> None:
    await rig.save("old", parcel_id="p")
    await rig.save("other")
    rig.clock.advance(60)
    await rig.save("new", parcel_id="p")
    rig.gateway.play("results", traps.failing(lambda entry: entry["task_id"] == "old"), times=3)
    await rig.settle()
    assert set(rig.gateway.submissions) == {"old", "other", "new"}
    assert rig.gateway.results["p", "echo", "CT", "hartford"]["task_id"] == "new"
    order = [
        entry["task_id"] for request in rig.gateway.requests if request.name == "results" for entry in request.json()
    ]
    assert order.index("new") > max(index for index, name in enumerate(order) if name == "old")


async def test_pages_are_upstream_before_the_results_that_name_them(rig: Rig) -> None:
    await rig.save(*MANY[:10], page=b"<html>a page</html>")
    rig.gateway.play("raw-files", traps.status(500), times=3)
    rig.gateway.play("raw-files", traps.answer({"status": "error", "message": "disk"}), times=2)
    rig.gateway.play("raw-files", traps.cut(), times=1)
    await rig.settle()
    assert sorted(rig.gateway.submissions) == MANY[:10]
    assert rig.gateway.named_too_early == []
    assert len(rig.gateway.raw_files) == 10
    for entry in rig.gateway.results.values():
        assert rig.gateway.raw_files[entry["raw_file"]].sha256 == entry["raw_html_hash"]


async def test_one_page_that_the_gateway_chokes_on_holds_up_no_other(rig: Rig) -> None:
    await rig.save("choke", page=b"<html>choke</html>")
    await rig.save(*MANY[:5], page=b"<html>fine</html>")
    choking = traps.status(500)
    rig.gateway.play(
        "raw-files", lambda gateway, request: choking(gateway, request) if b"parcel-choke" in request.body else None,
        times=None,
    )  # fmt: skip
    for _ in range(10):
        rig.clock.advance(await rig.sync.step())
    assert sorted(rig.gateway.submissions) == MANY[:5]
    (entry,) = await rig.lpm.get_unsynced_results(10)
    assert (entry.task_id, entry.sync_attempts) == ("choke", 0)


async def test_a_page_that_is_gone_sets_its_result_aside_with_the_reason(rig: Rig) -> None:
    await rig.save("t1", page=b"<html>gone</html>")
    await rig.save("t2", page=b"<html>here</html>")
    await rig.lpm.maintenance.give_back()  # the journal lets them go
    (entry, _) = await rig.lpm.get_unsynced_results(10)
    assert entry.html_path is not None
    rig.lpm.raw_path(entry.html_path).unlink()
    await rig.settle()
    (rejected,) = await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED))
    assert rejected.task_id == "t1"
    assert "is missing on disk" in (rejected.last_error or "")
    assert sorted(rig.gateway.submissions) == ["t2"]


async def test_a_damaged_page_is_never_sent_and_its_result_is_rejected_with_the_reason(rig: Rig) -> None:
    await rig.save("cut", "other", "junk", "empty", "good", page=b"<html>as fetched</html>" * 99)
    await rig.lpm.maintenance.give_back()  # the journal lets them go
    damages: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda packed: packed[:-9],
        "other": lambda _: gzip.compress(b"<html>another page</html>"),
        "junk": lambda _: b"junk",
        "empty": lambda _: b"",
    }
    entries = {entry.task_id: entry for entry in await rig.lpm.get_unsynced_results(10)}
    for task_id, damaged in damages.items():
        path = rig.lpm.raw_path(entries[task_id].html_path or "")
        path.write_bytes(damaged(path.read_bytes()))
    await rig.sync.step()  # at once: to try again changes nothing
    aside = await list_results(rig.lpm, Selection(delivery=DeliveryState.REJECTED))
    assert {entry.task_id for entry in aside} == damages.keys()
    assert all("is damaged" in (entry.last_error or "") for entry in aside)
    assert "good" in rig.gateway.submissions
    assert len(rig.gateway.raw_files) == 1


async def test_a_damaged_page_that_the_journal_still_holds_is_made_anew_and_sent(rig: Rig) -> None:
    await rig.save("damaged", "gone", page=b"<html>as fetched</html>")
    first, second = await rig.lpm.get_unsynced_results(10)
    rig.lpm.raw_path(first.html_path or "").write_bytes(b"junk")
    rig.lpm.raw_path(second.html_path or "").unlink()
    await rig.settle()
    assert sorted(rig.gateway.submissions) == ["damaged", "gone"]
    assert {file.sha256 for file in rig.gateway.raw_files.values()} == {first.raw_sha256}
    assert rig.seen(EntryRefused) == []


async def test_a_task_handed_out_again_after_its_result_was_delivered_is_answered(rig: Rig) -> None:
    await rig.save("delivered", "waiting")
    first, second = [info.task for info in await list_tasks(rig.lpm)]
    await rig.lpm.add_tasks([first, second], leased=True)
    await rig.settle()
    assert rig.gateway.completed == [], "their results answer for them"
    rig.gateway.play("complete", traps.status(503))
    await rig.lpm.add_tasks([first], leased=True)
    rig.clock.advance(await rig.sync.step())
    rig.sync = rig.new_sync()
    for _ in range(5):
        rig.clock.advance(await rig.sync.step())
    assert rig.gateway.completed == ["delivered"]
    assert {len(sent) for sent in rig.gateway.submissions.values()} == {1}, "a newer one may be there by now"


async def test_a_task_handed_out_again_after_its_result_was_rejected_is_answered_with_the_reason(rig: Rig) -> None:
    await rig.save("rejected")
    (entry,) = await rig.lpm.get_unsynced_results()
    await rig.lpm.mark_rejected([entry.result_id], "of another parcel")
    (info,) = await list_tasks(rig.lpm)
    rig.gateway.play("fail", traps.status(503))
    await rig.lpm.add_tasks([info.task], leased=True)
    rig.clock.advance(await rig.sync.step())
    rig.sync = rig.new_sync()
    for _ in range(5):
        rig.clock.advance(await rig.sync.step())
    ((task_id, body),) = rig.gateway.failed
    assert isinstance(body, dict)
    assert (task_id, body["error"]) == ("rejected", "the result was rejected: of another parcel")
    assert (rig.gateway.completed, rig.gateway.submissions) == ([], {})


async def test_a_failed_task_handed_out_again_without_a_lease_is_done_again(rig: Rig) -> None:
    claim = await rig.claim("t1")
    await rig.lpm.give_up(claim, "no luck")
    assert (await rig.lpm.add_tasks([claim.task], leased=True)).new == 0, "its report is on its way"
    await rig.settle()
    assert (await rig.lpm.add_tasks([claim.task], leased=True)).new == 1


async def test_a_folder_of_pages_that_is_away_for_a_while_costs_nobody_anything(rig: Rig) -> None:
    await rig.save(*MANY[:5], page=b"<html>here</html>")
    (entry, *_) = await rig.lpm.get_unsynced_results(10)
    top = rig.lpm.raw_path(Path(entry.html_path or "").parts[0])
    aside = top.rename(top.with_name("away"))
    for _ in range(8):
        rig.clock.advance(await rig.sync.step())
    aside.rename(top)
    await rig.settle()
    assert sorted(rig.gateway.submissions) == MANY[:5]
    assert rig.seen(EntryRefused) == []


REFUSALS_OF_ALL: dict[str, tuple[str, Trap, bool]] = {
    "400": ("results", traps.status(400), False),
    "422": ("results", traps.status(422), False),
    "413": ("results", traps.status(413), False),
    "none stored": ("results", traps.failing(), False),
    "none stored, with a receipt for each": ("results", traps.failing(), True),
    "no page": ("raw-files", traps.status(400), False),
    "no page, no result, no report": ("*", traps.status(422), False),
}


@short_and_long("number, steps", (20, 10), (20, 20))
async def test_a_gateway_that_refuses_everything_is_at_fault_itself(tmp_path: Path, number: int, steps: int) -> None:
    """Whether or not it has ever stored anything before, and nothing of that is sent again."""
    for name, (path, trap, receipts) in REFUSALS_OF_ALL.items():
        async with HostileGateway(receipts=receipts) as gateway, rigged(tmp_path / name, gateway) as rig:
            rig.sync = rig.new_sync(batch_size=5)
            await rig.save("before")
            await rig.settle()
            await rig.save(*MANY[:number], page=b"<html></html>")
            await rig.lpm.give_up(await rig.claim("failed"), "no such street")
            gateway.play(path, trap, times=None)
            calls = len(gateway.requests)
            for _ in range(steps):
                rig.clock.advance(await rig.sync.step())
            assert rig.offline is not None, name
            assert rig.offline.takes_nothing, name
            assert "as the test wants" in rig.offline.reason or "could not be stored" in rig.offline.reason, name
            assert len(gateway.requests) - calls < steps * 12, name
            assert rig.seen(EntryRefused) == [], name
            assert await rejected(rig) == set(), name
            gateway.behave()
            await rig.settle()
            assert sorted(gateway.submissions) == ["before", *MANY[:number]], name
            assert len(gateway.submissions["before"]) == 1, name
            assert [task_id for task_id, _ in gateway.failed] == ["failed"], name


async def test_nothing_that_was_delivered_is_sent_again_over_a_newer_record_of_another_worker(rig: Rig) -> None:
    await rig.save("before")
    await rig.settle()
    key = ("parcel-before", "echo", "CT", "hartford")
    rig.gateway.results[key] = {**rig.gateway.results[key], "task_id": "newer, of another worker"}
    await rig.save("bad")
    for trap in (traps.failing, traps.refusing):
        rig.gateway.behave()
        rig.gateway.play("results", trap(lambda entry: entry["task_id"] == "bad"), times=None)
        for _ in range(4):
            rig.clock.advance(await rig.sync.step())
    assert rig.gateway.results[key]["task_id"] == "newer, of another worker"


async def test_a_bad_entry_alone_is_tried_ever_more_rarely_until_another_is_stored(rig: Rig) -> None:
    await rig.save("bad")
    rig.gateway.play("results", traps.refusing(lambda entry: entry["task_id"] == "bad"), times=None)
    started = rig.clock.monotonic()
    while rig.clock.monotonic() - started < 3_600:
        rig.clock.advance(await rig.sync.step())
    assert 10 < rig.gateway.count("results") < 45
    (entry,) = await rig.lpm.get_unsynced_results(10)
    assert (entry.sync_attempts, "invalid request body" in (entry.last_error or "")) == (0, True)
    await go_on_until_decided(rig, passes=6)
    assert await rejected(rig) == {"bad"}


async def test_results_with_a_receipt_that_rejects_them_are_set_aside_with_nothing_else_to_send(tmp_path: Path) -> None:
    async with HostileGateway(receipts=True) as gateway, rigged(tmp_path, gateway) as rig:
        await rig.save("bad", "bad-2")
        await rig.save("old", parcel_id="p")
        rig.clock.advance(1)
        await rig.save("new", parcel_id="p")
        gateway.play("results", traps.failing(lambda entry: entry["task_id"] != "new"), times=None)
        started = rig.clock.monotonic()
        while await rig.lpm.get_unsynced_results(1):
            rig.clock.advance(max(await rig.sync.step(), 0.05))
            assert rig.offline is None
        assert await rejected(rig) == {"bad", "bad-2", "old"}
        assert set(gateway.submissions) == {"new"}
        assert gateway.count("results") == 6
        assert rig.clock.monotonic() - started > 30 + 60 + 120 + 240


@pytest.mark.parametrize(("trap", "receipts"), [(traps.refusing, False), (traps.failing, True)])
async def test_many_bad_entries_hide_no_good_one_and_are_decided_by_it(
    tmp_path: Path, trap: Callable[[Callable[[Entry], bool]], Trap], receipts: bool
) -> None:
    bad = [f"bad-{number:02}" for number in range(70)]
    async with HostileGateway(receipts=receipts) as gateway, rigged(tmp_path, gateway) as rig:
        await rig.save(*bad[:40], "hidden", *bad[40:], "last")
        gateway.play("results", trap(lambda entry: entry["task_id"] in bad), times=None)
        rig.sync = rig.new_sync(batch_size=5, max_rejections=2)
        for _ in range(10):
            rig.clock.advance(await rig.sync.step())
        assert set(gateway.submissions) == {"hidden", "last"}
        await go_on_until_decided(rig, passes=40)
        assert await rejected(rig) == set(bad)


async def test_an_outage_between_two_batches_is_no_fault_of_any_entry(rig: Rig) -> None:
    """The Go one answers 200 while its database is down, and may have stored a part of the batch before."""
    await rig.save(*MANY)
    answered = iter(range(1_000))
    trap = traps.failing(lambda _: next(answered) >= 20)
    rig.gateway.play("results", trap, times=None)
    for _ in range(10):
        rig.clock.advance(await rig.sync.step())
    assert rig.offline is not None
    rig.gateway.behave()
    await rig.settle()
    assert sorted(rig.gateway.submissions) == MANY
    assert rig.seen(EntryRefused) == []


async def test_at_a_slow_gateway_batches_shrink_until_they_are_answered_in_time(tmp_path: Path) -> None:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, timeout_seconds=0.5) as rig:
        rig.sync = rig.new_sync(batch_size=12)
        await rig.save(*MANY[:24])
        gateway.play("results", traps.slow(0.08), times=None)
        await rig.settle()
        sizes = [len(request.json()) for request in gateway.requests if request.name == "results"]
        assert sizes[:2] == [12, 6]
        assert sorted(gateway.submissions) == MANY[:24]
        slow = rig.sync.batch_size.slow
        assert slow is not None
        assert 0 < slow.batch_size <= 6
        gateway.behave()
        await rig.publish()
        rig.sync = rig.new_sync(batch_size=12)
        await rig.save(*MANY[24:36])
        await rig.sync.step()
        first = next(len(request.json()) for request in gateway.requests[len(sizes) :])
        assert first == slow.batch_size, "a restart does not begin with the batches that were too large"
        for number in range(30):
            await rig.save(f"later-{number}")
            await rig.settle()
        assert rig.sync.batch_size.slow is None


async def test_a_batch_that_timed_out_is_halved_at_once_and_the_gateway_is_not_away(rig: Rig) -> None:
    rig.sync = rig.new_sync(batch_size=16)
    await rig.save(*MANY[:30])
    late = traps.status(504)
    rig.gateway.play("results", lambda g, request: late(g, request) if len(request.json()) > 4 else None, times=None)
    while await rig.lpm.get_unsynced_results(1):
        assert await rig.sync.step() == 0, "nothing is waited for"
    sizes = [len(request.json()) for request in rig.gateway.requests if request.name == "results"]
    assert sizes == [16, 8, 4, 5, 2, 3, 4, 4, 4, 4, 4, 1], "what was too large is not tried again soon"
    assert sorted(rig.gateway.submissions) == MANY[:30]
    assert (rig.offline, rig.seen(UpstreamOffline)) == (None, [])


async def test_a_time_out_is_backed_off_from_where_it_met_one_entry_or_a_wait_is_asked_for(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(504))
    assert await rig.sync.step() >= 30
    await rig.settle()
    rig.sync = rig.new_sync()
    await rig.save(*MANY[:9])
    rig.gateway.play("results", traps.slow_down(seconds=70, code=504))
    assert await rig.sync.step() >= 70


async def test_one_entry_that_the_gateway_never_answers_holds_up_no_other(tmp_path: Path) -> None:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, timeout_seconds=0.4) as rig:
        await rig.save("stuck", *MANY[:5])
        hang = traps.silence()
        gateway.play(
            "results", lambda g, request: hang(g, request) if b'"stuck"' in request.body else None, times=None
        )  # fmt: skip
        for _ in range(12):
            rig.clock.advance(await rig.sync.step())
        assert sorted(gateway.submissions) == MANY[:5]


async def test_a_denial_is_not_waited_out_after_a_restart(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(401))
    assert await rig.sync.step() == 300
    await rig.new_sync().step()
    assert sorted(rig.gateway.submissions) == ["t1"]


async def test_a_round_that_is_cancelled_has_seen_nothing(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.silence())
    round_ = asyncio.create_task(rig.sync.step())
    await rig.gateway.until(lambda: rig.gateway.count("results") == 1)
    round_.cancel()
    await asyncio.wait([round_])
    await rig.sync.step()
    assert sorted(rig.gateway.submissions) == ["t1"]


async def test_the_end_of_a_task_without_a_record_is_reported(rig: Rig) -> None:
    await rig.lpm.give_up(await rig.claim("failed"), "no such street")
    await rig.lpm.finish(await rig.claim("not-found"))
    rig.gateway.play("fail", traps.status(502), times=2)
    await rig.settle()
    assert [task_id for task_id, _ in rig.gateway.failed] == ["failed"]
    assert rig.gateway.completed == ["not-found"]
    info = await rig.lpm.get_task("failed")
    assert info is not None
    assert info.status is TaskStatus.FAILED


async def test_backing_off_is_remembered_over_a_restart(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.slow_down(seconds=200), times=1)
    delay = await rig.sync.step()
    assert delay >= 200
    await rig.publish()
    again = rig.new_sync()
    remaining = await again.step()
    assert delay - 1 <= remaining <= delay
    assert rig.gateway.count("results") == 1
    rig.clock.advance(remaining)
    await again.step()
    assert sorted(rig.gateway.submissions) == ["t1"]
    assert rig.offline is None
    await rig.publish()
    assert await rig.new_sync().step() > 0


async def test_a_pause_that_the_gateway_asked_a_peer_for_is_kept_by_the_next_leader(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.slow_down(seconds=200))
    await rig.sync.step()
    await rig.publish()
    async with rigged(Path(rig.lpm.path).parent, rig.gateway) as peer:
        peer.clock.advance((rig.clock.now() - peer.clock.now()).total_seconds() + 1)
        assert await peer.sync.step() == 5, "the other delivers"
        await peer.publish("worker-1-2")
        rig.lpm.leader_locks.release()
        assert await peer.sync.step() > 100
        assert await rig.sync.step() == 5
        assert rig.offline is None, "what it knew is out of date"


async def test_delays_stay_between_thirty_seconds_and_five_minutes(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(500), times=None)
    delays = []
    for _ in range(12):
        delays.append(await rig.sync.step())
        rig.clock.advance(delays[-1])
    assert min(delays) >= 30
    assert max(delays) <= 300
    assert max(delays[:1]) <= 60


async def test_a_refused_token_waits_for_the_longest_time_and_is_said(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(401), times=1)
    assert await rig.sync.step() == 300
    assert rig.offline is not None
    assert rig.offline.denied
    (event,) = rig.seen(UpstreamOffline)
    assert isinstance(event, UpstreamOffline)
    assert event.denied
    assert "PARCELPOST_GATEWAY_TOKEN" in event.remedy
    await rig.settle()
    assert len(rig.seen(UpstreamOnline)) == 1


async def test_a_sync_that_is_told_to_try_now_does_not_wait(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(500), times=1)
    assert await rig.sync.step() >= 30
    rig.sync.try_now()
    await rig.sync.step()
    assert sorted(rig.gateway.submissions) == ["t1"]


async def test_each_round_is_in_the_log(rig: Rig) -> None:
    await rig.save("t1", "t2", page=b"<html></html>")
    rig.gateway.play("results", traps.status(500), times=1)
    await rig.settle()
    rounds = await rig.lpm.sync_log.recent()
    assert {(one.record_type, one.success) for one in rounds} == {
        ("results", False), ("results", True), ("raw_files", True),
    }  # fmt: skip


async def test_a_round_that_ends_early_is_in_the_log_with_what_was_stored(rig: Rig) -> None:
    await rig.save("t1", "t2", parcel_id="p1")  # the second one is sent when the first one is stored
    rig.gateway.play("results", lambda gateway, request: gateway.answer(request))
    rig.gateway.play("results", traps.status(503))
    await rig.sync.step()
    assert list(rig.gateway.submissions) == ["t1"]
    (logged,) = await rig.lpm.sync_log.recent()
    assert (logged.success, logged.record_count) == (False, 1)


async def test_only_one_of_two_openers_delivers(rig: Rig) -> None:
    await rig.save("t1")
    async with rigged(Path(rig.lpm.path).parent, rig.gateway) as peer:
        assert rig.lpm.leader_locks.take("sync")
        await peer.sync.step()
        assert rig.gateway.count("results") == 0
        rig.lpm.leader_locks.release()
        await peer.sync.step()
        assert rig.gateway.count("results") == 1


async def test_what_has_no_page_is_not_asked_for_one(rig: Rig) -> None:
    claim = await rig.claim("t1")
    await rig.lpm.save_result(claim, Result(data={}, scraped_at=rig.clock.now(), page=Page(body=b"")))
    await rig.save("t2")
    await rig.settle()
    assert sorted(rig.gateway.submissions) == ["t1", "t2"]


async def test_a_denial_of_the_last_process_does_not_hold_up_this_one(rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("results", traps.status(401))
    await rig.sync.step()
    assert rig.offline is not None
    assert rig.offline.denied
    await rig.publish()
    rig.sync = rig.new_sync()
    await rig.settle(1)


async def test_an_entry_whose_page_cannot_be_named_harms_no_other(rig: Rig) -> None:
    bad = {"elsewhere": "../elsewhere.html.gz", "rooted": "/etc/hostname", "empty": "", "here": "."}
    await rig.save(*bad, "good", page=b"<html></html>")
    with contextlib.closing(sqlite3.connect(rig.lpm.path)) as db, db:
        for name, html_path in bad.items():
            db.execute("UPDATE results SET html_path = ? WHERE task_id = ?", (html_path, name))
    await rig.sync.step()
    assert sorted(rig.gateway.submissions) == ["good"]
    left = await rig.lpm.get_unsynced_results(10)
    assert {entry.task_id: entry.sync_attempts for entry in left} == dict.fromkeys(bad, 1)
