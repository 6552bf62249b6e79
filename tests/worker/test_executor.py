"""How an attempt ended becomes one change in the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import json

from parcelpost.clock import ManualClock
from parcelpost.events import AttemptEnded, PlatformPaused
from parcelpost.model import (
    Blocked,
    Claim,
    Done,
    GiveUp,
    NotFound,
    Outcome,
    Page,
    Priority,
    Retry,
    Site,
    Target,
    Task,
    TaskStatus,
)
from parcelpost.storage.claims import Pause
from parcelpost.storage.health import Level
from parcelpost.storage.options import StoreOptions
from tests.storage.factories import NOW, a_task, look, the_result, the_task
from tests.worker.executing import Works, at_work
from tests.worker.sandboxes import blocks_its_loop

DONE = Done(data={"owner": "Ann"}, page=Page(body=b"<p>Ann</p>"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def works(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Works]:
    options = StoreOptions(max_page_bytes=1_000, retry_min_seconds=10, retry_max_seconds=60)
    async with at_work(tmp_path, clock, options=options, retry_min_seconds=10.0, retry_max_seconds=60.0) as works:
        yield works


def ended(works: Works) -> tuple[str, str, str, str]:
    (event,) = works.seen(AttemptEnded)
    return event.task_id, event.platform, event.outcome, event.reason


# Outcomes


async def test_a_record_is_saved_with_its_page_and_the_time_it_took(works: Works, clock: ManualClock) -> None:
    def scrape(_: Task) -> Outcome:
        clock.advance(1.5)
        return DONE

    await works.add(a_task(), scrape)
    assert await works.step() == 0
    result = await the_result(works.lpm)
    assert (result.status, result.data, result.execution_time_ms) == (TaskStatus.COMPLETED, b'{"owner":"Ann"}', 1_500)
    assert result.html_path is not None
    assert result.scraped_at == NOW + timedelta(seconds=1.5)
    assert ended(works) == ("t1", "vgsi", "done", "")
    assert works.seen(AttemptEnded)[0].seconds == 1.5
    assert works.saved == 1


async def test_the_platforms_own_time_of_a_record_is_kept(works: Works) -> None:
    moment = datetime(2025, 12, 24, 18, tzinfo=UTC)
    await works.add(a_task(), lambda _: Done(data={}, scraped_at=moment))
    await works.step()
    assert (await the_result(works.lpm)).scraped_at == moment


async def test_a_parcel_that_is_not_there_ends_its_task_without_a_record(works: Works) -> None:
    await works.add(a_task(), lambda _: NotFound("no such parcel"))
    assert await works.step() == 0
    result = await the_result(works.lpm)
    assert (result.status, result.success, result.data) == (TaskStatus.NOT_FOUND, True, None)
    assert ended(works) == ("t1", "vgsi", "not_found", "no such parcel")
    assert works.saved == 1


async def test_a_task_that_will_never_work_is_given_up(works: Works) -> None:
    await works.add(a_task(), lambda _: GiveUp("no such county"))
    assert await works.step() == 0
    result = await the_result(works.lpm)
    assert (result.status, result.error) == (TaskStatus.FAILED, "no such county")
    assert ended(works) == ("t1", "vgsi", "give_up", "no such county")
    assert works.saved == 1


async def test_a_failure_that_stores_no_artifacts_has_none_of_the_attempt_before_it(
    works: Works, clock: ManualClock
) -> None:
    await works.add(a_task(max_retries=1), lambda _: Retry("slow"))
    await works.step()
    await works.lpm.artifacts.put("t1", None, "what the first attempt logged")
    clock.advance(100)
    await works.step()
    result = await the_result(works.lpm)
    assert (result.status, result.log_path) == (TaskStatus.FAILED, None)
    assert await works.lpm.artifacts.get("t1") is None


async def test_after_the_last_retry_what_could_be_read_is_delivered(works: Works, clock: ManualClock) -> None:
    partial = Done(data={"parcel_id": "1", "completeness": "missing: sales"})
    await works.add(a_task(max_retries=1), lambda _: Retry("incomplete", partial=partial))
    await works.step()
    assert await works.status() is TaskStatus.PENDING
    assert works.saved == 0
    clock.advance(100)
    await works.step()
    assert await works.status() is TaskStatus.COMPLETED
    result = await the_result(works.lpm)
    assert b"missing: sales" in (result.data or b"")


async def test_of_several_incomplete_pages_the_most_complete_one_is_delivered(works: Works, clock: ManualClock) -> None:
    partials = [
        Done(data={"parcel_id": "1", "completeness": "missing: sales, land"}),
        Done(data={"parcel_id": "1", "completeness": "missing: sales", "unreadable": []}),
        Done(data={"parcel_id": "1", "completeness": "missing: sales", "unreadable": ["zoning"]}),
        None,
    ]
    left = iter(partials)
    await works.add(a_task(max_retries=3), lambda _: Retry("incomplete", partial=next(left)))
    for _ in partials:
        await works.step()
        clock.advance(1_000)
    assert await works.status() is TaskStatus.COMPLETED
    result = await the_result(works.lpm)
    assert json.decode(result.data or b"") == partials[1].data  # type: ignore[union-attr]


async def test_a_retry_waits_twice_as_long_each_time_and_fails_at_the_last(works: Works, clock: ManualClock) -> None:
    await works.add(a_task(max_retries=4), lambda _: Retry("timeout"))
    for longest in (10, 20, 40, 60):
        assert await works.step() == 0
        task = await the_task(works.lpm)
        assert task.status is TaskStatus.PENDING
        assert task.available_at is not None
        assert longest / 2 - 0.001 <= (task.available_at - clock.now()).total_seconds() <= longest
        assert works.saved == 0
        clock.advance(longest)
    await works.step()
    assert await works.status() is TaskStatus.FAILED
    assert works.saved == 1


async def test_a_retry_may_say_how_long_it_waits(works: Works, clock: ManualClock) -> None:
    await works.add(a_task(), lambda _: Retry("come back at noon", 7_200.0))
    await works.step()
    assert (await the_task(works.lpm)).available_at == clock.now() + timedelta(hours=2)
    assert ended(works) == ("t1", "vgsi", "retry", "come back at noon")


UNSTORABLE = {
    "page has 1,001 bytes; at most 1,000 are allowed": Done(data={}, page=Page(body=b"x" * 1_001)),
    "data contains NaN or infinity, which JSON cannot represent": Done(data={"price": float("nan")}),
    "data is not JSON: Encoding objects of type complex is unsupported": Done(data={"price": 1j}),
}


@pytest.mark.parametrize(("reason", "outcome"), UNSTORABLE.items())
async def test_a_record_that_cannot_be_stored_is_given_up_with_the_reason(
    works: Works, reason: str, outcome: Done
) -> None:
    await works.add(a_task(), lambda _: outcome)
    assert await works.step() == 0
    assert (await the_result(works.lpm)).error == reason
    assert ended(works) == ("t1", "vgsi", "give_up", reason)


async def test_a_task_of_an_unknown_platform_is_given_up_with_the_known_ones(works: Works) -> None:
    await works.add(a_task("known", priority=Priority.BATCH), lambda _: DONE)
    await works.add(a_task(platform="vgis"))
    await works.step()
    assert (await the_result(works.lpm)).error == "no platform named vgis; known: echo, vgsi"


async def test_a_claim_that_was_lost_meanwhile_changes_nothing_and_is_reported(works: Works) -> None:
    """I4."""
    release = threading.Event()
    await works.add(a_task(), blocks_its_loop(release))
    attempt = works.start()
    while not works.executor.active:
        await asyncio.sleep(0)
    await works.lpm.give_up(await _held(works), "by another hand")
    release.set()
    await attempt
    assert (await the_result(works.lpm)).error == "by another hand"
    assert ended(works)[2:] == ("done", "another attempt has ended this task: nothing was changed")
    assert works.saved == 0


async def _held(works: Works) -> Claim:
    """The claim of the one task that runs, as the store's file has it."""
    ((token,),) = look(works.lpm.path, "SELECT claim_token FROM tasks WHERE status = 'processing'")
    info = await the_task(works.lpm)
    return Claim(task=info.task, token=token, seq=info.seq, retries=info.retries, created_at=info.created_at)


# Blocked platforms


async def test_a_blocked_platform_is_paused_at_no_cost_to_its_task_while_others_go_on(works: Works) -> None:
    await works.add(a_task("t1", max_retries=0), lambda _: Blocked("captcha"))
    await works.add(a_task("t2"))
    await works.add(a_task("t3", platform="other", priority=Priority.BATCH), lambda _: DONE)
    assert await works.step() == 0
    assert (await the_task(works.lpm)).retries == 0
    assert ended(works) == ("t1", "vgsi", "blocked", "captcha")
    assert works.seen(PlatformPaused) == [PlatformPaused(platform="vgsi", sites=0, seconds=300.0, reason="captcha")]
    assert await works.lpm.pauses() == {Site("vgsi", "", ""): Pause("2026-01-01T00:05:00.000Z", "captcha")}
    assert await works.step() == 0
    assert await works.status("t3") is TaskStatus.COMPLETED
    assert await works.step() == 1.0
    assert [await works.status("t1"), await works.status("t2")] == [TaskStatus.PENDING] * 2


async def test_a_county_that_blocks_us_pauses_those_on_its_host_and_no_others(works: Works) -> None:
    adams, baker, clark = (Site("vgsi", "CT", county) for county in ("adams", "baker", "clark"))
    for site, host in ((adams, "shared"), (baker, "shared"), (clark, "other")):
        works.executor.availability.learn(site, host)
    works.factory.register("vgsi", lambda task: Blocked("captcha") if task.target.county == "adams" else DONE)
    for site in (adams, baker, clark):
        target = Target(parcel_id="1", state="CT", county=site.county)
        await works.lpm.add_task(Task(task_id=site.county, platform="vgsi", target=target))
    while await works.step() == 0:
        pass
    assert [await works.status(site.county) for site in (adams, baker, clark)] == [
        TaskStatus.PENDING,
        TaskStatus.PENDING,
        TaskStatus.COMPLETED,
    ]
    assert works.seen(PlatformPaused) == [PlatformPaused(platform="vgsi", sites=2, seconds=300.0, reason="captcha")]
    assert set(await works.lpm.pauses()) == {adams, baker}
    assert await works.lpm.resume_platform("vgsi")
    assert await works.step() == 0


async def test_the_cool_down_doubles_while_it_stays_blocked_and_starts_anew_when_it_worked(
    works: Works, clock: ManualClock
) -> None:
    blocked: Outcome = Blocked("captcha")
    outcomes = iter([*[blocked] * 6, DONE, blocked])
    await works.lpm.add_tasks(a_task(f"t{n}") for n in range(2))
    works.factory.register("vgsi", lambda _: next(outcomes))
    for seconds in (300, 600, 1_200, 2_400, 3_600, 3_600, 0, 300):
        assert await works.step() == 0
        clock.advance(seconds + 1)
    assert [event.seconds for event in works.seen(PlatformPaused)] == [300, 600, 1_200, 2_400, 3_600, 3_600, 300]


async def test_attempts_that_were_under_way_when_a_platform_blocked_us_are_no_second_block(
    works: Works,
) -> None:
    release = threading.Event()

    def scrape(_: Task) -> Outcome:
        release.wait(60)
        return Blocked("captcha")

    await works.lpm.add_tasks(a_task(f"t{n}") for n in range(4))
    works.factory.register("vgsi", scrape)
    attempts = [works.start(slot) for slot in range(4)]
    while works.executor.active < 4:
        await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*attempts)
    assert [event.seconds for event in works.seen(PlatformPaused)] == [300]
    assert len(works.seen(AttemptEnded)) == 4
    assert (await works.lpm.queue_depth()).pending == 4


async def test_a_site_may_say_how_long_it_wants_to_be_left_alone(works: Works) -> None:
    await works.add(a_task(), lambda _: Blocked("slow down", 45.0))
    await works.step()
    assert works.seen(PlatformPaused)[0].seconds == 45.0


# What is taken


async def test_an_empty_queue_is_idle_and_says_so(works: Works) -> None:
    assert await works.step() == 1.0
    assert works.ran_dry == 1


async def test_nothing_is_started_while_it_may_not(works: Works) -> None:
    await works.add(a_task(), lambda _: DONE)
    works.control.paused = True
    assert await works.step() == 1.0
    works.control.paused = False
    await works.set_level(Level.EXECUTOR_STOPS)
    assert await works.step() == 1.0
    await works.set_level(Level.COLLECTOR_STOPS)
    works.control.platforms = frozenset({"other"})
    assert await works.step() == 1.0
    assert await works.status() is TaskStatus.PENDING
    works.control.platforms = frozenset({"other", "vgsi"})
    assert await works.step() == 0
    works.control.leave("asked to")
    assert await works.step() == 1.0
    assert works.ran_dry == 1


async def test_a_task_that_was_claimed_while_the_worker_was_told_to_leave_is_not_begun(works: Works) -> None:
    await works.add(a_task(), lambda _: DONE)
    turn = works.start()
    await asyncio.sleep(0)
    works.control.leave("asked to")
    assert await turn == 1.0
    assert await works.status() is TaskStatus.PENDING
    assert works.events == []
