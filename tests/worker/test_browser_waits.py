"""Tasks that wait for a browser: given back at no cost, with the reason where people look for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Busy, Done, Outcome, Task, TaskStatus
from parcelpost.scrapers.fetch.errors import BrowserCrashed, BrowserUnavailable, HostBusy, outcome_of
from tests.storage.factories import a_task, the_task
from tests.worker.executing import at_work

WHY = "no Chromium was found (install it)"


async def test_the_task_and_the_store_know_why(tmp_path: Path) -> None:
    clock = ManualClock()
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: outcome_of(BrowserUnavailable(WHY, 60.0)))
        await works.step()
        info = await the_task(works.lpm)
        assert (info.status, info.retries, info.error) == (TaskStatus.PENDING, 0, WHY)
        assert info.available_at is not None
        assert (info.available_at - clock.now()).total_seconds() == 60.0
        (wait,) = works.executor.browser_waits
        assert wait.text == f"tasks of vgsi are waiting for a browser: {WHY}"


async def test_once_there_is_one_it_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    outcomes: Iterator[Outcome] = iter([Busy(WHY, 60.0, lacks_browser=True), Done(data={})])

    def scrape(_: Task) -> Outcome:
        return next(outcomes)

    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), scrape)
        await works.step()
        clock.advance(60)
        await works.step()
        info = await the_task(works.lpm)
        assert (info.status, info.error) == (TaskStatus.COMPLETED, None)
        assert works.executor.browser_waits == []


async def test_a_task_that_needed_none_says_nothing_about_those_that_do(tmp_path: Path) -> None:
    clock = ManualClock()
    outcomes: Iterator[Outcome] = iter([Busy(WHY, 60.0, lacks_browser=True), Done(data={})])
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task("waits"), lambda _: next(outcomes))
        await works.step()
        await works.lpm.add_task(a_task("plain"))
        await works.step()
        assert (await works.lpm.queue_depth()).completed == 1
        assert [one.reason for one in works.executor.browser_waits] == [WHY]


async def test_if_nobody_was_put_off_for_long_it_is_over(tmp_path: Path) -> None:
    clock = ManualClock()
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: Busy(WHY, 3_600.0, lacks_browser=True))
        await works.step()
        clock.advance(299)
        assert len(works.executor.browser_waits) == 1
        clock.advance(1)
        assert works.executor.browser_waits == []


async def test_what_can_be_done_belongs_to_the_reason(tmp_path: Path) -> None:
    async with at_work(tmp_path, ManualClock()) as works:
        await works.add(a_task(), lambda _: outcome_of(BrowserUnavailable("browser.most is 0", 60.0, "set it")))
        await works.step()
        assert (await the_task(works.lpm)).error == "browser.most is 0; set it"
        (wait,) = works.executor.browser_waits
        assert (wait.reason, wait.remedy) == ("browser.most is 0", "set it")


async def test_the_newest_reason_counts_and_the_beginning_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    reasons = iter(["one", "one", "two", "two"])
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: Busy(next(reasons), 1.0, lacks_browser=True))
        seen = []
        for seconds in (1, 1, 40, 1):
            await works.step()
            (wait,) = works.executor.browser_waits
            seen.append((wait.reason, (clock.now() - wait.at).total_seconds()))
            clock.advance(seconds)
        assert seen == [("one", 0.0), ("one", 0.0), ("two", 0.0), ("two", 0.0)]
        (wait,) = works.executor.browser_waits
        assert (clock.now() - wait.since).total_seconds() == 43.0


@pytest.mark.parametrize("failure", [HostBusy("others are before it", 1.0), BrowserCrashed("it died", 1.0)])
async def test_who_only_waits_for_others_is_no_matter_for_people(
    tmp_path: Path, failure: HostBusy | BrowserCrashed
) -> None:
    async with at_work(tmp_path, ManualClock()) as works:
        await works.add(a_task(), lambda _: outcome_of(failure))
        await works.step()
        assert (await the_task(works.lpm)).error is None
        assert works.executor.browser_waits == []
