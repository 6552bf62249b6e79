"""Pages of the pool's own browsers, and what becomes of a task whose browser is killed under it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from parcelpost.clock import SystemClock
from parcelpost.model import Target, Task
from parcelpost.scrapers.browser.renderer import RenderContext
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.fetch.errors import BrowserCrashed, RetryLater
from parcelpost.settings.schema import BrowserSettings
from tests.browser.leasing import Artifacts
from tests.browser.pools import TIMEOUT, a_pool, needs_chromium
from tests.scrapers.fetching import HERE
from tests.website import Asked, website

pytestmark = needs_chromium


async def test_a_killed_browser_is_noticed_and_the_next_page_comes_from_another(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter, __: Asked) -> None:
        await reader.read()

    task = Task(task_id="t1", platform="vgsi", target=Target(parcel_id="1", state="FL", county="adams"))
    async with website() as site, a_pool(tmp_path / "store.db", most=1) as rig:
        site.page("/", b"<html><body><script>document.write('<b>DOE</b>')</script></body></html>")
        site.streams["/hang"] = hang
        browsing = RenderContext(pool=rig.pool, lease_seconds=TIMEOUT)
        async with PageFetcher.open(HERE, clock=SystemClock(), browsing=browsing) as fetcher, asyncio.timeout(TIMEOUT):
            first = fetcher.session(0.0, task)
            hanging = asyncio.create_task(first.rendered(f"{site.url}/hang"))
            while "/hang" not in site.paths:
                await asyncio.sleep(0.01)
            (row,) = await rig.rows()
            assert (row.status, row.current_task_id) == ("busy", "t1")
            assert row.pid is not None
            os.kill(row.pid, signal.SIGKILL)
            died = (await asyncio.gather(hanging, return_exceptions=True))[0]
            assert isinstance(died, BrowserCrashed)
            await first.end(failed=False)
            second = fetcher.session(0.0, task)
            assert b"<b>DOE</b>" in (await second.rendered(f"{site.url}/", until="b")).body
            assert fetcher.availability.closed().sites == {task.site}, "its only page is out"
            await second.end(failed=False)
            while fetcher.availability.closed().sites:
                await asyncio.sleep(0.01)


FLOOD = b"<body><script>setInterval(() => { for (let i = 0; i < 200; i++) console.log(i) }, 1)</script></body>"


async def test_a_page_that_sends_too_many_messages_is_stopped_and_others_load_beside_it(tmp_path: Path) -> None:
    """Its other limits are far away."""
    async with website() as site, a_pool(tmp_path / "store.db", most=2) as rig:
        site.page("/", b"<html><body><b>DOE</b></body></html>")
        site.page("/flood", FLOOD)
        artifacts = Artifacts()
        browsing = RenderContext(
            pool=rig.pool,
            lease_seconds=TIMEOUT,
            settings=BrowserSettings(page_seconds=10 * TIMEOUT),
            quiet_seconds=10 * TIMEOUT,
            artifacts=artifacts,
        )
        async with (
            PageFetcher.open(HERE, clock=SystemClock(), browsing=browsing) as fetcher,
            asyncio.timeout(2 * TIMEOUT),
        ):

            async def page(county: str, path: str) -> bytes:
                target = Target(parcel_id="1", state="FL", county=county)
                session = fetcher.session(0.0, Task(task_id=county, platform="vgsi", target=target))
                try:
                    return (await session.rendered(f"{site.url}{path}", until="b")).body
                finally:
                    await session.end(failed=path == "/flood")

            flooding = asyncio.create_task(page("adams", "/flood"))
            while "/flood" not in site.paths:
                await asyncio.sleep(0.01)
            assert b"<b>DOE</b>" in await page("baker", "/")
            with pytest.raises(RetryLater, match=r"127\.0\.0\.1: the page sends too many messages"):
                await flooding
            assert [(one.task_id, one.screenshot) for one in artifacts] == [("adams", None)]
            assert "stopped: the page sends too many messages" in artifacts[0].log


async def test_scripts_that_do_not_end_go_with_their_browser(tmp_path: Path) -> None:
    """A page that is only closed would go on computing for as long as its browser lives."""
    task = Task(task_id="t1", platform="vgsi", target=Target(parcel_id="1", state="FL", county="adams"))
    async with website() as site, a_pool(tmp_path / "store.db", most=1) as rig:
        site.page("/", b"<html><body><script>while (true) { }</script></body></html>")
        browsing = RenderContext(pool=rig.pool, lease_seconds=TIMEOUT, settings=BrowserSettings(page_seconds=1.0))
        async with PageFetcher.open(HERE, clock=SystemClock(), browsing=browsing) as fetcher, asyncio.timeout(TIMEOUT):
            session = fetcher.session(0.0, task)
            with pytest.raises(RetryLater, match="scripts do not finish"):
                await session.rendered(f"{site.url}/")
            await session.end(failed=True)
            await rig.until(lambda row: row.launches >= 2 and row.status == "idle")
