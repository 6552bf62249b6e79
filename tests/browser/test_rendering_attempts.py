"""A page in a browser belongs to one attempt: it goes back however that ends, and tells of one that failed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from parcelpost.clock import SystemClock
from parcelpost.model import Blocked, Busy, Done, GiveUp, NotFound, Page, Retry, Target, Task
from parcelpost.scrapers.browser.renderer import RenderContext
from parcelpost.scrapers.counties import Counties
from parcelpost.scrapers.county_scraper import CountyScraper
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.fetch.errors import BrowserUnavailable, CannotFetch, SiteBlocked, outcome_of
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, Fill, PageReader, ReadResult
from parcelpost.scrapers.plugin_adapter import PluginAdapter
from parcelpost.scrapers.records.record import Record
from parcelpost.worker.sandbox import Sandbox
from tests.browser.leasing import PAGES, RenderingPool, Renders, rendering
from tests.browser.pools import a_pool
from tests.scrapers.fetching import HERE, fetching
from tests.test_new_platform_page import BROWSER
from tests.website import Asked, Reply, Website, website

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("rendering")]

PATIENCE = 60.0
PNG = b"\x89PNG"
SAYING = b"""<html><head><title>x</title></head><body><h1>County</h1><input id="word"><script>
document.cookie = 'visitor=s3cretvalue'; console.log('cookie is s3cretvalue', 'token=abc123&page=2');
console.warn('typed hunter2hunter2');
fetch('/data?api_key=k3y&parcel=7').finally(() => { document.body.id = 'loaded' }); nowhere();
</script></body></html>"""


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Website]:
    async with website() as one:
        one.page("/", SAYING)
        yield one


def scraper(one: Renders, fetch: Any, found: Any) -> Any:
    def read(_: PageReader) -> ReadResult:
        answer: ReadResult = found
        return answer

    platform = CountyPlatform(name="vgsi", version=1, read=read, fetch=fetch, sparse=True)
    made = CountyScraper("vgsi", Counties(), one.fetcher.session, Ranking(), SystemClock(), lambda _: platform)
    return made.scrape


def task(task_id: str = "t1", county: str = "adams") -> Task:
    return Task(task_id=task_id, platform="vgsi", target=Target(parcel_id="1", state="FL", county=county))


async def all_back(one: Renders) -> None:
    await one.pool.all_back()


async def test_only_a_failed_attempt_leaves_what_its_page_looked_like(guarded: RenderingPool, site: Website) -> None:
    async def fetch(_: Target, __: object, fetcher: Fetcher) -> Page:
        return await fetcher.rendered(f"{site.url}/", until="#loaded", steps=[Fill("#word", "hunter2hunter2")])

    async with rendering(guarded) as one:
        assert isinstance(await scraper(one, fetch, Record(parcel_id="1"))(task("done")), Done)
        for found in (Retry("half a page"), NotFound("nobody"), GiveUp("never"), Blocked("no")):
            assert isinstance(await scraper(one, fetch, found)(task(found.reason)), type(found))
            assert one.artifacts[-1].task_id == found.reason, "it is there before the outcome is known"
        await all_back(one)
    assert len(one.artifacts) == 4
    for kept in one.artifacts:
        assert (kept.screenshot or b"").startswith(PNG)
        for told in ("script error: ", "console log: ", "response: 200", "parcel=7"):
            assert told in kept.log
        for secret in ("s3cretvalue", "abc123", "k3y", "hunter2"):
            assert secret not in kept.log


async def test_what_did_not_appear_is_part_of_the_reason(guarded: RenderingPool, site: Website) -> None:
    async def fetch(_: Target, __: object, fetcher: Fetcher) -> Page:
        return await fetcher.rendered(f"{site.url}/", until="#owner")

    async with rendering(guarded, quiet_seconds=0.6) as one:
        outcome = await scraper(one, fetch, Retry("no owner"))(task())
    assert outcome == Retry("no owner ('#owner' did not appear)")
    assert "incomplete: '#owner' did not appear" in one.artifacts[0].log


async def test_an_attempt_that_is_cancelled_leaves_its_page_too(guarded: RenderingPool, site: Website) -> None:
    site.page(
        "/hang", b"<html><body><h1>on and on</h1><script>setInterval(() => fetch('/'), 50)</script></body></html>"
    )

    async def fetch(_: Target, __: object, fetcher: Fetcher) -> Page:
        return await fetcher.rendered(f"{site.url}/hang", until="#never")

    async with rendering(guarded) as one:
        sandbox = Sandbox()
        running = asyncio.create_task(sandbox.run(scraper(one, fetch, Retry("x")), task(), PATIENCE))
        async with asyncio.timeout(PATIENCE):
            while "/" not in site.paths:  # its script runs
                await asyncio.sleep(0.01)
        sandbox.interrupt()
        assert await running is None
        await all_back(one)
        assert [kept.task_id for kept in one.artifacts] == ["t1"]
        await sandbox.close()


async def test_a_browser_that_dies_costs_the_attempt_nothing(guarded: RenderingPool, site: Website) -> None:
    async def die(reader: asyncio.StreamReader, _: asyncio.StreamWriter, __: Asked) -> None:
        os.kill(await guarded.busy_pid(), signal.SIGKILL)
        await reader.read()

    async def fetch(_: Target, __: object, fetcher: Fetcher) -> Page:
        return await fetcher.rendered(f"{site.url}/die")

    site.streams["/die"] = die
    async with rendering(guarded) as one:
        outcome = await scraper(one, fetch, Retry("x"))(task())
        assert isinstance(outcome, Busy)
        assert (outcome.after_seconds, outcome.lacks_browser) == (0.0, False)
        await all_back(one)
        assert one.artifacts == []


async def test_a_task_waits_at_no_cost_while_all_browsers_are_busy(guarded: RenderingPool, site: Website) -> None:
    async def fetch(_: Target, __: object, fetcher: Fetcher) -> Page:
        return await fetcher.rendered(f"{site.url}/")

    async with rendering(guarded, lease_seconds=0.0) as one, AsyncExitStack() as stack:
        for number in range(PAGES):
            await stack.enter_async_context(guarded.lease(f"other{number}", timeout=PATIENCE))
        assert await scraper(one, fetch, Retry("x"))(task()) == Busy("2 of 2 browsers are busy", 0.5)
        assert site.asked == []


async def test_a_task_waits_at_no_cost_where_no_browser_can_be_had(site: Website, tmp_path: Path) -> None:
    async with a_pool(tmp_path / "store.db", executable="/no/such/chromium") as rig:
        browsing = RenderContext(pool=rig.pool)
        async with PageFetcher.open(HERE, clock=SystemClock(), browsing=browsing) as fetcher:
            with pytest.raises(BrowserUnavailable, match="no such program") as caught:
                await fetcher.session(0.0, task()).rendered(f"{site.url}/")
    outcome = outcome_of(caught.value)
    assert isinstance(outcome, Busy)
    assert outcome.lacks_browser
    assert site.asked == []


async def test_without_browsers_everything_else_works(site: Website) -> None:
    async with fetching() as one:
        with pytest.raises(BrowserUnavailable, match="needs a browser"):
            await one.session.rendered(f"{site.url}/")
        assert (await one.session.get(f"{site.url}/")).body == SAYING


# Cookies


def _visitors(site: Website) -> None:
    def page(asked: Asked) -> Reply:
        text = f"<html><body><b>{asked.headers.get('cookie', 'nobody')}</b></body></html>".encode()
        return Reply(text, headers={"Set-Cookie": "visitor=known; Path=/"})

    site.pages["/visit"] = page


async def _visit(one: Renders, site: Website, county: str = "adams", profile: str = "", **how: Any) -> bytes:
    session = one.session(county=county, profile=profile)
    page = await session.rendered(f"{site.url}/visit", **how)
    await session.end(failed=False)
    return page.body.partition(b"<b>")[2].partition(b"</b>")[0]


async def test_cookies_are_kept_for_the_next_task_of_the_site_where_that_is_asked_for(
    guarded: RenderingPool, site: Website
) -> None:
    _visitors(site)
    async with rendering(guarded) as one:
        assert await _visit(one, site) == b"nobody"
        assert await _visit(one, site, keep_cookies=True) == b"nobody", "each has a context of its own"
        assert await _visit(one, site) == b"visitor=known"
        assert await _visit(one, site, county="baker") == b"nobody"


async def test_cookies_with_which_a_site_blocked_us_are_forgotten(guarded: RenderingPool, site: Website) -> None:
    _visitors(site)
    site.page("/forbidden", b"no", status=403)
    async with rendering(guarded) as one:
        assert await _visit(one, site, keep_cookies=True) == b"nobody"
        assert await _visit(one, site) == b"visitor=known"
        session = one.session()
        with pytest.raises(SiteBlocked):
            await session.rendered(f"{site.url}/forbidden")
        await session.end(failed=True)
        assert await _visit(one, site) == b"nobody"


async def test_a_saved_profile_is_used(guarded: RenderingPool, site: Website, tmp_path: Path) -> None:
    _visitors(site)
    cookie = {"name": "person", "value": "yes", "domain": "127.0.0.1", "path": "/", "expires": -1}
    more = {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    (tmp_path / "county.json").write_text(json.dumps({"cookies": [{**cookie, **more}], "origins": []}))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "odd.json").write_text(json.dumps({"cookies": [{**cookie, "name": "a;b"}]}))
    async with rendering(guarded, profiles=tmp_path) as one:
        assert await _visit(one, site, profile="county") == b"person=yes"
        for name in ("missing", "broken", "odd", "../county"):
            with pytest.raises(BrowserUnavailable, match=f"profile '{name}'"):
                await _visit(one, site, profile=name)
    async with rendering(guarded) as one:
        with pytest.raises(BrowserUnavailable, match="there is no such profile"):
            await _visit(one, site, profile="county")


# Parsers that are there already


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_parser_that_is_there_already_may_ask_for_a_browser(
    guarded: RenderingPool, site: Website, is_async: bool
) -> None:
    site.page("/built", b"<html><body><script>document.write('<b>DOE</b>')</script></body></html>")

    async def later(fetch: Any) -> Page:
        found: Page = await fetch.rendered(f"{site.url}/built", until="b")
        return found

    def plain(fetch: Any) -> Page:
        found: Page = fetch.rendered(f"{site.url}/built", until="b")
        return found

    def parse(page: Page) -> dict[str, str]:
        return {"owner": page.body.partition(b"<b>")[2].partition(b"</b>")[0].decode()}

    async with rendering(guarded) as one:
        adapted = PluginAdapter(
            later if is_async else plain, parse=parse, sessions=lambda given: one.fetcher.session(0.0, given)
        )
        sandbox = Sandbox()
        outcome = await sandbox.run(adapted.scrape, task(), PATIENCE)
        await sandbox.close()
        await all_back(one)
    assert isinstance(outcome, Done), outcome
    assert dict(outcome.data)["owner"] == "DOE"  # type: ignore[arg-type]


async def test_the_document_s_example_works(guarded: RenderingPool, site: Website) -> None:
    names: dict[str, Any] = {}
    exec(BROWSER, names)
    site.page("/search", b"<html><body><form action='/found'><input id=parcel name=n><button id=search></form></html>")
    site.pages["/found"] = lambda asked: Reply(f"<html><body><b id=owner>{asked.query['n']}</b></html>".encode())
    async with rendering(guarded) as one:
        session = one.session()
        target = Target(parcel_id="7-1", state="FL", county="adams", url=f"{site.url}/search")
        assert b'<b id="owner">7-1' in (await names["fetch"](target, None, session)).body
        await session.end(failed=False)


async def test_a_parser_that_raises_gives_its_page_back(guarded: RenderingPool, site: Website) -> None:
    def broken(fetch: Any) -> Page:
        fetch.rendered(f"{site.url}/")
        raise ValueError("a bug")

    async with rendering(guarded) as one:
        adapted = PluginAdapter(broken, sessions=lambda given: one.fetcher.session(0.0, given))
        sandbox = Sandbox()
        assert await sandbox.run(adapted.scrape, task(), PATIENCE) == Retry("ValueError: a bug")
        await sandbox.close()
        await all_back(one)
        assert len(one.artifacts) == 1


async def test_an_address_that_may_not_be_asked_costs_no_page(guarded: RenderingPool) -> None:
    async with rendering(guarded) as one:
        with pytest.raises(CannotFetch):
            await one.session().rendered("http://10.0.0.1/")
        assert one.leases == 0
