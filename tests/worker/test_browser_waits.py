"""Tasks that wait for a browser: given back at no cost, with the reason where people look for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Busy, Done, Outcome, Task, TaskStatus
from parcelpost.scrapers.fetch_errors import BrowserDied, NoBrowser, NoTurn, outcome_of
from parcelpost.worker.browser_waits import STATE, BrowserWait
from tests.storage.making import a_task, the_task
from tests.worker.executing import Works, at_work

WHY = "no Chromium was found (install it)"


async def told(works: Works) -> list[BrowserWait]:
    return await works.lpm.state.named(STATE, BrowserWait)


async def test_the_task_and_the_store_know_why(tmp_path: Path) -> None:
    clock = ManualClock()
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: outcome_of(NoBrowser(WHY, 60.0)))
        await works.step()
        info = await the_task(works.lpm)
        assert (info.status, info.retries, info.error) == (TaskStatus.PENDING, 0, WHY)
        assert info.available_at is not None
        assert (info.available_at - clock.now()).total_seconds() == 60.0
        (wait,) = works.executor.browser_waits
        assert wait.text == f"tasks of vgsi wait for a browser: {WHY}"
        assert await told(works) == [wait]


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
        clock.advance(300)
        assert works.executor.browser_waits == []


async def test_it_is_written_down_now_and_then_and_when_the_reason_changes(tmp_path: Path) -> None:
    clock = ManualClock()
    reasons = iter(["one", "one", "two", "two"])
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: Busy(next(reasons), 1.0, lacks_browser=True))
        seen = []
        for seconds in (1, 1, 40, 1):
            await works.step()
            (wait,) = await told(works)
            seen.append((wait.reason, (clock.now() - wait.at).total_seconds()))
            clock.advance(seconds)
        assert seen == [("one", 0.0), ("one", 1.0), ("two", 0.0), ("two", 0.0)]
        (wait,) = await told(works)
        assert (clock.now() - wait.since).total_seconds() == 43.0


@pytest.mark.parametrize("failure", [NoTurn("others are before it", 1.0), BrowserDied("it died", 1.0)])
async def test_who_only_waits_for_others_is_no_matter_for_people(tmp_path: Path, failure: NoTurn | BrowserDied) -> None:
    async with at_work(tmp_path, ManualClock()) as works:
        await works.add(a_task(), lambda _: outcome_of(failure))
        await works.step()
        assert (await the_task(works.lpm)).error is None
        assert works.executor.browser_waits == []
        assert await told(works) == []
