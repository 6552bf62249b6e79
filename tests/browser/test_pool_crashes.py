"""Browsers, renderers and the driver are killed: who has a page hears of it, and the next one gets a page."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
from pathlib import Path

import pytest

from parcelpost.scrapers.browser import browser, pool
from parcelpost.scrapers.browser.browser import LeasedPage
from parcelpost.scrapers.fetch.errors import BrowserCrashed, BrowserUnavailable, HostBusy, RetryLater
from tests.browser.pools import PAST_THE_GUARD, TIMEOUT, PoolRig, a_pool, gone, kill, members, needs_chromium, renderers
from tests.website import Asked, Reply, website

pytestmark = needs_chromium


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def strike(rig: PoolRig, victim: str) -> None:
    row = await rig.row()
    if victim == "largest":
        assert await rig.pool.stop_largest()
        return
    victims = {"renderer": renderers(row), "browser": [row.pid or 0], "driver": rig.drivers()}
    for pid in victims[victim]:
        kill(pid)


async def crash(rig: PoolRig, victim: str, task_id: str = "t1") -> None:
    async with rig.pool.lease(task_id, timeout=TIMEOUT) as leased, asyncio.timeout(TIMEOUT):
        waiting = asyncio.create_task(never_ending(leased))
        await asyncio.sleep(0)
        await strike(rig, victim)
        await waiting


async def never_ending(leased: LeasedPage) -> None:
    await leased.call(leased.page.evaluate("new Promise(() => {})"))


async def test_who_has_a_page_hears_of_a_crash_and_the_next_one_gets_a_page(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = {"renderer": "the page crashed", "browser": "the browser", "driver": "driver|lost"}
    async with a_pool(store, most=1) as rig:
        await rig.use()
        for victim, reason in reasons.items():
            before = await rig.row()
            with pytest.raises(BrowserCrashed, match=reason):
                await crash(rig, victim)
            await rig.use()
            await rig.agrees()
            after = await rig.row()
            assert (after.browser_id, after.status) == (1, "idle")
            assert (after.pid == before.pid) == (victim == "renderer")
            if victim != "renderer":
                assert (after.launches, members(before)) == (before.launches + 1, [])
                assert not Path(before.profile).exists()
    gc.collect()
    assert "never retrieved" not in caplog.text, "tracebacks among the operator's log lines"


async def test_crashes_and_hangs_are_noticed_while_nobody_has_a_page(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "_ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(pool, "_CHECK_SECONDS", 0.0)
    async with a_pool(store, most=1) as rig:
        for victim in ("browser", "driver", "hang"):
            await rig.use()
            before = await rig.row()
            if victim == "hang":
                os.kill(before.pid or 0, signal.SIGSTOP)
            else:
                await strike(rig, victim)
            await rig.until(lambda row, done=before.launches: row.launches > done and row.status == "idle")  # type: ignore[misc]
            assert members(before) == []
        await rig.agrees()


async def test_calls_fail_at_once_on_a_lost_page_and_raise_what_the_work_raises_before(store: Path) -> None:
    from playwright.async_api import Error

    async with a_pool(store, most=1) as rig, rig.pool.lease("t1", timeout=TIMEOUT) as leased:
        with pytest.raises(Error, match="oh no"):
            await leased.call(leased.page.evaluate("Promise.reject(new Error('oh no'))"))
        waiting = asyncio.create_task(never_ending(leased))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await leased.call(leased.page.evaluate("1")) == 1
        await strike(rig, "driver")
        for _ in range(2):
            with pytest.raises(BrowserCrashed):
                await leased.call(leased.page.evaluate("1"))


async def test_a_page_that_crashes_its_browser_every_time_costs_its_task_a_retry(store: Path) -> None:
    async with a_pool(store, most=1) as rig:
        for victim in ("renderer", "browser", "largest", "renderer", "largest"):
            with pytest.raises(BrowserCrashed):
                await crash(rig, victim, "deadly")
        with pytest.raises(RetryLater, match="5 times in a row with this task"):
            await rig.use("deadly")
        await rig.use("deadly")


async def test_the_largest_browser_is_stopped_when_memory_is_out(store: Path) -> None:
    async with a_pool(store, most=1) as rig:
        assert await rig.pool.stop_largest() is False
        with pytest.raises(BrowserCrashed, match="out of memory"):
            async with rig.pool.lease("t1", timeout=TIMEOUT) as leased, asyncio.timeout(TIMEOUT):
                row = await rig.row()
                assert await rig.pool.stop_largest() is True
                await never_ending(leased)
        await gone(lambda: members(row))
        await rig.none_left()
        await rig.use()


ITEMS = 24
KILL_EVERY = 4
"""Pages had between two kills."""


class Work:
    """Items, each tried until its page was had."""

    def __init__(self, rig: PoolRig, url: str) -> None:
        self._stage = rig
        self._url = url
        self._todo = list(range(ITEMS))
        self.had: dict[int, str] = {}
        self.crashes = 0

    async def work(self) -> None:
        while self._todo:
            number = self._todo.pop()
            while number not in self.had:
                await self._try(number)

    async def _try(self, number: int) -> None:
        try:
            leasing = self._stage.pool.lease(f"t{number}", timeout=TIMEOUT, proxy=PAST_THE_GUARD)
            async with leasing as leased, asyncio.timeout(TIMEOUT):
                page = leased.page
                await leased.call(page.goto(f"{self._url}/?item={number}", wait_until="domcontentloaded"))
                self.had[number] = await leased.call(page.inner_text("p"))
        except (BrowserCrashed, RetryLater):
            self.crashes += 1
        except (BrowserUnavailable, HostBusy) as error:
            await asyncio.sleep(min(error.after_seconds, 1.0))


async def strike_anything(rig: PoolRig, chance: random.Random) -> None:
    victim = chance.choice(["browser", "browser", "renderer", "renderer", "driver"])
    running = [row for row in await rig.rows() if row.status in ("idle", "busy")]
    if running:
        row = chance.choice(running)
        pages = renderers(row)
        pid = next(iter(rig.drivers()), row.pid) if victim == "driver" else row.pid
        kill(chance.choice(pages) if victim == "renderer" and pages else pid)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_page_is_had_whatever_is_killed(store: Path) -> None:
    def page(asked: Asked) -> Reply:
        return Reply(f"<p>parcel {asked.query.get('item')}</p>".encode())

    chance = random.Random(6)
    async with website() as site, a_pool(store, most=2) as rig:
        site.pages["/"] = page
        work = Work(rig, site.url)
        workers = [asyncio.create_task(work.work()) for _ in range(3)]
        strikes = 0
        while not all(worker.done() for worker in workers):
            await asyncio.sleep(0.01)
            if len(work.had) >= KILL_EVERY * (strikes + 1):
                strikes += 1
                await strike_anything(rig, chance)
                await rig.agrees()
        await asyncio.gather(*workers)
        assert work.had == {number: f"parcel {number}" for number in range(ITEMS)}
        assert work.crashes >= strikes // 4
        await rig.agrees()
