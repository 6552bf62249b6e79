"""Pages by the dozen, with browsers, renderers and the driver killed at random: all are had, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from parcelpost.scrapers.fetch.errors import BrowserCrashed, BrowserUnavailable, HostBusy, RetryLater
from tests.browser.pools import PAST_THE_GUARD, Stage, a_pool, kill_if_there, needs_chromium, renderers
from tests.website import Asked, Reply, website

pytestmark = needs_chromium

ITEMS = 36
KILL_EVERY = 6
"""Pages had between two kills."""


class Work:
    """Items, each tried until its page was had."""

    def __init__(self, stage: Stage, url: str) -> None:
        self._stage = stage
        self._url = url
        self._todo = list(range(ITEMS))
        self.had: dict[int, str] = {}
        self.deaths = 0

    async def work(self) -> None:
        while self._todo:
            number = self._todo.pop()
            while number not in self.had:
                await self._try(number)

    async def _try(self, number: int) -> None:
        try:
            lending = self._stage.pool.lend(f"t{number}", patience=30.0, proxy=PAST_THE_GUARD)
            async with lending as lent, asyncio.timeout(30):
                page = lent.page
                await lent.alive(page.goto(f"{self._url}/?item={number}", wait_until="domcontentloaded"))
                self.had[number] = await lent.alive(page.inner_text("p"))
        except (BrowserCrashed, RetryLater):
            self.deaths += 1
        except (BrowserUnavailable, HostBusy) as error:
            await asyncio.sleep(min(error.after_seconds, 1.0))


async def strike(stage: Stage, chance: random.Random) -> None:
    victim = chance.choice(["browser", "browser", "renderer", "renderer", "driver"])
    running = [row for row in await stage.rows() if row.status in ("idle", "busy")]
    if running:
        row = chance.choice(running)
        pages = renderers(row)
        pid = row.driver_pid if victim == "driver" else row.pid
        kill_if_there(chance.choice(pages).pid if victim == "renderer" and pages else pid)


def page(asked: Asked) -> Reply:
    return Reply(f"<p>parcel {asked.query.get('item')}</p>".encode())


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_page_is_had_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(6)
    async with website() as site, a_pool(tmp_path / "store.db", most=2) as stage:
        site.pages["/"] = page
        work = Work(stage, site.url)
        workers = [asyncio.create_task(work.work()) for _ in range(3)]
        strikes = 0
        while not all(worker.done() for worker in workers):
            await asyncio.sleep(0.01)
            if len(work.had) >= KILL_EVERY * (strikes + 1):
                strikes += 1
                await strike(stage, chance)
                await stage.agrees()
        await asyncio.gather(*workers)
        assert work.had == {number: f"parcel {number}" for number in range(ITEMS)}
        assert work.deaths >= strikes // 4
        await stage.agrees()
