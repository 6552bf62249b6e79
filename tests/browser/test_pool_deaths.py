"""Browsers, renderers and the driver are killed: who has a page hears of it, and the next one gets a page."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.browser import ChromiumPage
from parcelpost.scrapers.browser.pool import CrashCounts
from parcelpost.scrapers.fetch.errors import BrowserCrashed, RetryLater
from tests.browser.pools import PATIENCE, Stage, a_pool, gone, group, kill, needs_chromium, renderers

pytestmark = needs_chromium

FOR_EVER = "new Promise(() => {})"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def strike(stage: Stage, victim: str) -> None:
    row = await stage.row()
    if victim == "renderer":
        for one in renderers(row):
            kill(one.pid)
    else:
        kill(row.pid if victim == "browser" else row.driver_pid)


async def use(stage: Stage, task_id: str = "next") -> None:
    async with stage.pool.lend(task_id, patience=PATIENCE) as lent:
        assert await lent.alive(lent.page.evaluate("6 * 7")) == 42


async def die(stage: Stage, victim: str, task_id: str = "t1") -> None:
    async with stage.pool.lend(task_id, patience=PATIENCE) as lent, asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(never_ending(lent))
        await asyncio.sleep(0)
        await strike(stage, victim)
        await waiting


async def never_ending(lent: ChromiumPage) -> None:
    await lent.alive(lent.page.evaluate(FOR_EVER))


REASONS = {"browser": "the browser died", "renderer": "the page crashed", "driver": "Playwright's driver died"}


async def test_who_has_a_page_hears_of_a_death_and_the_next_one_gets_a_page(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        for victim, reason in REASONS.items():
            await use(stage)
            before = await stage.row()
            with pytest.raises(BrowserCrashed, match=reason):
                await die(stage, victim)
            await stage.agrees()
            await use(stage)
            after = await stage.row()
            assert (after.browser_id, after.status) == (1, "idle")
            assert (after.pid == before.pid) == (victim == "renderer")
            if victim != "renderer":
                assert (after.launches, group(before)) == (before.launches + 1, [])
                assert not Path(before.profile).exists()


def is_idle_after(launches: int, row: BrowserState) -> bool:
    return row.launches == launches and row.status == "idle"


async def test_a_death_while_nobody_has_a_page_is_noticed(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        for launches, victim in ((2, "browser"), (3, "driver")):
            await use(stage)
            before = await stage.row()
            await strike(stage, victim)
            await stage.until(partial(is_idle_after, launches))
            assert group(before) == []
            await stage.agrees()


async def test_calls_on_a_page_that_is_lost_fail_at_once(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        with pytest.raises(BrowserCrashed):
            async with stage.pool.lend("t1", patience=PATIENCE) as lent:
                await strike(stage, "driver")
                await stage.until(lambda row: row.status != "busy")
                with pytest.raises(BrowserCrashed):
                    await lent.alive(lent.page.evaluate("1"))
                await lent.alive(lent.page.evaluate("1"))


async def test_what_the_work_itself_raises_is_passed_on(store: Path) -> None:
    from playwright.async_api import Error

    async with a_pool(store, most=1) as stage, stage.pool.lend("t1", patience=PATIENCE) as lent:
        with pytest.raises(Error, match="oh no"):
            await lent.alive(lent.page.evaluate("Promise.reject(new Error('oh no'))"))
        waiting = asyncio.create_task(never_ending(lent))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await lent.alive(lent.page.evaluate("1")) == 1


async def test_a_page_that_kills_its_browser_every_time_costs_its_task_a_retry(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        for _ in range(5):
            with pytest.raises(BrowserCrashed):
                await die(stage, "renderer", "deadly")
        with pytest.raises(RetryLater, match="with this task"):
            await die(stage, "renderer", "deadly")
        with pytest.raises(BrowserCrashed):
            await die(stage, "renderer", "another")


async def test_the_largest_browser_is_stopped_when_memory_is_out(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        assert await stage.pool.stop_largest() is False
        with pytest.raises(BrowserCrashed, match="out of memory"):
            async with stage.pool.lend("t1", patience=PATIENCE) as lent, asyncio.timeout(PATIENCE):
                row = await stage.row()
                assert await stage.pool.stop_largest() is True
                await never_ending(lent)
        await gone(lambda: group(row))
        async with asyncio.timeout(PATIENCE):
            while await stage.rows():
                await asyncio.sleep(0.01)
        await use(stage)


async def test_a_page_that_takes_more_memory_than_a_browser_may_costs_its_task_a_retry(store: Path) -> None:
    async with a_pool(store, most=1, max_browser_bytes=1) as stage:
        with pytest.raises(RetryLater, match="out of memory"):
            async with stage.pool.lend("t1", patience=PATIENCE) as lent, asyncio.timeout(PATIENCE):
                while not stage.pool.figures.pss_bytes:
                    await asyncio.sleep(0.05)
                await stage.pool.stop_largest()
                await never_ending(lent)


async def test_whose_fault_a_death_is_decides_what_it_costs(store: Path) -> None:
    async with a_pool(store, most=1) as stage:
        deaths = CrashCounts()

        def die_again() -> None:
            with deaths.counted("t1", chromium):
                raise BrowserCrashed("it is gone")

        for is_ours in (True, False):
            with suppress(BrowserCrashed, RetryLater):
                async with stage.pool.lend("t1", patience=PATIENCE) as lent:
                    chromium = lent._chromium
                    if is_ours:
                        await stage.pool.stop_largest()
                    else:
                        lent.stop("the page floods us")
                    await never_ending(lent)
            for _ in range(7):
                with pytest.raises(BrowserCrashed if is_ours else RetryLater, match=r"^it is gone$"):
                    die_again()


async def test_a_browser_that_does_not_answer_is_replaced(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    from parcelpost.scrapers.browser import browser, slots

    monkeypatch.setattr(browser, "_ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(slots, "_CHECK_EVERY_SECONDS", 0.0)
    async with a_pool(store, most=1) as stage:
        await use(stage)
        before = await stage.row()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGSTOP)
        await stage.until(lambda row: row.launches >= 2 and row.status == "idle")
        assert not processes.is_running(before.pid, before.started)
