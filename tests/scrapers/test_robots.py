"""What a site asks of programs is asked for once a day, and kept to."""

from __future__ import annotations

import pytest

from parcelpost.clock import ManualClock
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater, SiteBlocked
from tests.scrapers.fetching import fetching
from tests.website import Website

RULES = b"""
User-agent: *
Disallow: /

User-agent: parcelpost
Disallow: /private
Disallow: /*?secret=
Allow: /private/open
Crawl-delay: 7
"""


async def test_the_rules_for_us_are_kept_to(site: Website) -> None:
    site.page("/robots.txt", RULES)
    for path in ("/a", "/private/open"):
        site.page(path, b"ok")
    async with fetching(obey_robots=True, user_agent="parcelpost/9 (+me@example.org)") as one:
        assert (await one.session.get(f"{site.url}/a")).body == b"ok"
        assert (await one.session.get(f"{site.url}/private/open")).body == b"ok"
        for path in ("/private", "/private/b", "/a?secret=1"):
            with pytest.raises(CannotFetch, match=r"robots\.txt"):
                await one.session.get(f"{site.url}{path}")
    assert site.paths == ["/robots.txt", "/a", "/private/open"]
    assert site.asked[0].headers["user-agent"] == "parcelpost/9 (+me@example.org)"


async def test_other_names_are_other_rules(site: Website) -> None:
    site.page("/robots.txt", RULES)
    async with fetching(obey_robots=True, user_agent="someone/1") as one:
        with pytest.raises(CannotFetch):
            await one.session.get(f"{site.url}/a")


async def test_its_delay_is_kept(site: Website) -> None:
    clock = ManualClock()
    site.page("/robots.txt", RULES)
    site.page("/a", b"ok")
    async with fetching(clock, obey_robots=True) as one:
        for _ in range(3):
            await one.session.get(f"{site.url}/a", cached=False)
    assert 14.0 <= clock.monotonic() <= 17.0


async def test_an_attempt_that_has_started_waits_for_a_long_delay_and_others_do_not_begin(site: Website) -> None:
    clock = ManualClock()
    site.page("/robots.txt", b"User-agent: *\nCrawl-delay: 120")
    site.page("/a", b"", 302, Location="/b")
    site.page("/b", b"ok")
    async with fetching(clock, obey_robots=True) as one:
        session = one.session
        await session.get(f"{site.url}/a")
        assert (await session.get(f"{site.url}/b")).body == b"ok"
        assert 240.0 <= clock.monotonic() <= 290.0
        with pytest.raises(SiteBlocked):
            await one.session.get(f"{site.url}/b")
        site.page("/busy", b"", 429, Retry_After="600")
        with pytest.raises(RetryLater):
            await session.get(f"{site.url}/busy")
        with pytest.raises(SiteBlocked):
            await session.get(f"{site.url}/b")


async def test_it_is_asked_for_once_a_day(site: Website) -> None:
    clock = ManualClock()
    site.page("/robots.txt", b"")
    site.page("/a", b"ok")
    async with fetching(clock, obey_robots=True) as one:
        await one.session.get(f"{site.url}/a")
        await one.session.get(f"{site.url}/a")
        clock.advance(86_401)
        await one.session.get(f"{site.url}/a")
    assert site.paths == ["/robots.txt", "/a", "/a", "/robots.txt", "/a"]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_site_without_rules_allows_everything(site: Website, status: int) -> None:
    site.page("/robots.txt", b"User-agent: *\nDisallow: /", status)
    site.page("/a", b"ok")
    async with fetching(obey_robots=True) as one:
        assert (await one.session.get(f"{site.url}/a")).body == b"ok"


@pytest.mark.parametrize("leads_to", ["/Error.aspx", "/login", "/Disclaimer.aspx", "/robots.txt"])
async def test_rules_that_lead_elsewhere_are_none(site: Website, leads_to: str) -> None:
    site.page("/robots.txt", b"", 302, Location=leads_to)
    site.page("/a", b"ok")
    async with fetching(obey_robots=True) as one:
        for _ in range(2):
            assert (await one.session.get(f"{site.url}/a")).body == b"ok"
    assert leads_to == "/robots.txt" or site.paths == ["/robots.txt", "/a", "/a"]


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_rules_that_cannot_be_had_are_waited_for(site: Website, status: int) -> None:
    clock = ManualClock()
    site.page("/robots.txt", b"", status)
    site.page("/a", b"ok")
    async with fetching(clock, obey_robots=True) as one:
        with pytest.raises(RetryLater, match=r"robots\.txt"):
            await one.session.get(f"{site.url}/a")
        assert site.paths == ["/robots.txt"]
        clock.advance(60)
        site.page("/robots.txt", b"")
        assert (await one.session.get(f"{site.url}/a")).body == b"ok"


async def test_a_redirect_is_asked_about_too(site: Website) -> None:
    site.page("/robots.txt", b"User-agent: *\nDisallow: /private")
    site.page("/a", b"", 302, Location="/private")
    async with fetching(obey_robots=True) as one:
        with pytest.raises(CannotFetch):
            await one.session.get(f"{site.url}/a")
    assert site.paths == ["/robots.txt", "/a"]
