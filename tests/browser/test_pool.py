"""Lending pages in real browsers."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from parcelpost import events
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.fetch.errors import BrowserUnavailable, HostBusy
from tests.browser.pools import PAST_THE_GUARD, PATIENCE, a_pool, needs_chromium
from tests.storage.factories import claim_one, the_task
from tests.website import website

pytestmark = needs_chromium


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_page_is_lent_in_a_fresh_context_and_the_table_says_so(store: Path) -> None:
    async with a_pool(store) as stage, website() as site:
        site.page("/", b"<p>hello</p>", Set_Cookie="seen=yes")
        await claim_one(stage.lpm, "t1")
        assert (stage.pool.figures.browsers, stage.pool.opens_in()) == (0, 0.0)
        for number, task_id in enumerate(("t1", "t2", "t3")):
            async with stage.pool.lend(task_id, patience=PATIENCE, locale="de-DE", proxy=PAST_THE_GUARD) as lent:
                await lent.alive(lent.page.goto(f"{site.url}/"))
                assert await lent.alive(lent.page.evaluate("navigator.language")) == "de-DE"
                row = await stage.row()
                assert (row.status, row.current_task_id, row.tasks_completed) == ("busy", task_id, number)
                assert row.browser_id == lent.browser_id == 1
                assert (await the_task(stage.lpm)).assigned_browser == (1 if task_id == "t1" else None)
                await stage.agrees()
                assert_nothing_is_enabled_again(row)
            assert (await stage.row()).status == "idle"
        assert [asked.headers.get("cookie") for asked in site.asked if asked.path == "/"] == [None] * 3
        assert (await stage.row()).tasks_completed == 3
        assert len(stage.told(events.BrowserStarted)) == 1


def assert_nothing_is_enabled_again(row: BrowserState) -> None:
    """Of what Playwright disables: Chromium takes only the last of several lists."""
    lists = re.findall(r"--disable-features=(\S+)", processes.command_line(row.pid or 0))
    assert set(lists[0].split(",")) <= set(lists[-1].split(","))


async def test_the_pool_grows_with_demand_and_shrinks_when_nobody_needs_it(store: Path) -> None:
    async with a_pool(store, most=2, idle_seconds=0.5) as stage:
        async with AsyncExitStack() as stack:
            for number in (1, 2):
                await stack.enter_async_context(stage.pool.lend(f"t{number}", patience=PATIENCE))
            assert [row.browser_id for row in await stage.rows()] == [1, 2]
            assert stage.pool.opens_in() > 0
            with pytest.raises(HostBusy, match="2 of 2 browsers are busy"):
                await stack.enter_async_context(stage.pool.lend("t3", patience=0.0))
            await stage.agrees()
        await stage.none_left()
        assert stage.pool.figures.browsers == 0
        assert {event.reason for event in stage.told(events.BrowserRetired)} == {"nobody needed it"}


async def test_who_waits_longest_is_served_first(store: Path) -> None:
    served: list[int] = []

    async def want(number: int) -> None:
        async with stage.pool.lend(f"t{number}", patience=PATIENCE):
            served.append(number)

    async with a_pool(store, most=1) as stage:
        async with stage.pool.lend("first", patience=PATIENCE):
            waiting = [asyncio.create_task(want(number)) for number in range(3)]
            while stage.pool.figures.waiting < 3:
                await asyncio.sleep(0)
            waiting[1].cancel()
        await asyncio.wait(waiting)
        assert served == [0, 2]


async def test_a_browser_is_retired_after_its_tasks_and_its_place_stays(store: Path) -> None:
    async with a_pool(store, most=1, tasks_per_browser=2) as stage:
        for number in range(4):
            async with stage.pool.lend(f"t{number}", patience=PATIENCE):
                pass
        row = await stage.until(lambda row: row.launches == 3 and row.status == "idle")
        assert (row.browser_id, row.tasks_completed) == (1, 4)
        assert row.restarted_at is not None
        assert [event.reason for event in stage.told(events.BrowserRetired)] == ["it has done 2 tasks"] * 2
        assert stage.pool.figures.restarts == 2


async def test_a_browser_that_grew_too_large_is_retired_but_not_under_a_task(store: Path) -> None:
    async with a_pool(store, most=1, max_browser_bytes=1024, idle_seconds=1.0) as stage:
        async with stage.pool.lend("t1", patience=PATIENCE) as lent:
            row = await stage.until(lambda row: bool(row.memory_mb))
            assert row.status == "busy"
            assert stage.pool.figures.pss_per_browser == stage.pool.figures.pss_bytes > 50 * 1024**2
            assert await lent.alive(lent.page.evaluate("1 + 1")) == 2
        await stage.until(lambda row: row.launches > 1)
        assert "MiB of memory" in stage.told(events.BrowserRetired)[0].reason


async def test_no_more_browsers_run_than_are_safe(store: Path) -> None:
    async with a_pool(store, most=2) as stage:
        async with AsyncExitStack() as stack:
            for number in (1, 2):
                await stack.enter_async_context(stage.pool.lend(f"t{number}", patience=PATIENCE))
            stage.pool.allow(1)
            assert len(await stage.rows()) == 2
        await stage.until(lambda row: row.status == "idle")
        stage.pool.allow(0)
        await stage.none_left()
        with pytest.raises(BrowserUnavailable, match="no memory for a browser"):
            async with stage.pool.lend("t3"):
                pass
        assert stage.pool.opens_in() > 0


async def test_a_chromium_that_cannot_start_is_told_with_its_reason_and_tried_again_later(store: Path) -> None:
    async with a_pool(store, executable="false") as stage:
        for _ in range(2):
            with pytest.raises(BrowserUnavailable, match="starting Chromium failed") as caught:
                async with stage.pool.lend("t1", patience=PATIENCE):
                    pass
            assert caught.value.after_seconds > 0
        assert "starting Chromium failed" in stage.pool.figures.problem
        assert len(stage.told(events.BrowsersUnavailable)) == 1
        await stage.none_left()
