"""How often a host is asked, measured on a clock that nobody waits for."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from parcelpost.clock import ManualClock
from parcelpost.scrapers.fetch.errors import RetryLater, SiteBlocked
from parcelpost.scrapers.fetch.throttle import HostThrottle
from tests.scrapers.fetching import fetching
from tests.website import Asked, Reply, Website


async def test_requests_to_one_host_keep_their_distance_and_order(site: Website) -> None:
    clock = ManualClock()
    moments: list[tuple[float, str]] = []

    def page(asked: Asked) -> Reply:
        moments.append((clock.monotonic(), asked.query["n"]))
        return Reply(b"ok")

    site.pages["/"] = page
    async with fetching(clock, pace_seconds=2.0, concurrency_per_host=1) as one:
        await asyncio.gather(*(one.session.get(f"{site.url}/?n={n}") for n in range(5)))
    assert [name for _, name in moments] == ["0", "1", "2", "3", "4"]
    gaps = [after - before for (before, _), (after, _) in pairwise(moments)]
    assert all(2.0 <= gap <= 2.4 for gap in gaps)


async def test_two_hosts_do_not_wait_for_each_other() -> None:
    clock = ManualClock()
    manners = HostThrottle(10.0, 1, clock)
    for host in ("a", "b", "c"):
        async with manners.request_slot(host):
            pass
    assert clock.monotonic() == 0.0


async def test_a_county_may_want_more_time() -> None:
    clock = ManualClock()
    manners = HostThrottle(1.0, 1, clock)
    for _ in range(2):
        async with manners.request_slot("a", 20.0):
            pass
    assert 20.0 <= clock.monotonic() <= 24.0


async def test_no_more_than_its_places_are_taken_at_a_host(site: Website) -> None:
    inside = most = 0
    go_on = asyncio.Event()

    async def page(_: Asked) -> Reply:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 2:
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        await go_on.wait()
        inside -= 1
        return Reply(b"ok")

    site.pages["/"] = page
    async with fetching(concurrency_per_host=2) as one:
        await asyncio.gather(*(one.session.get(f"{site.url}/?n={n}") for n in range(6)))
    assert most == 2


async def test_a_host_that_asks_for_rest_gets_it(site: Website) -> None:
    clock = ManualClock()
    site.page("/busy", b"", 429, Retry_After="600")
    site.page("/", b"ok")
    async with fetching(clock) as one:
        with pytest.raises(RetryLater) as busy:
            await one.session.get(f"{site.url}/busy")
        assert busy.value.after_seconds == 600
        with pytest.raises(SiteBlocked) as away:
            await one.session.get(f"{site.url}/")
        assert away.value.cool_down_seconds == 600
        assert site.paths == ["/busy"]
        clock.advance(601)
        assert (await one.session.get(f"{site.url}/")).body == b"ok"


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [(503, {"Retry_After": "20"}, 20.0), (429, {"Retry_After": "2"}, 2.0), (429, {}, 30.0), (503, {}, 0.0)],
)
async def test_a_short_rest_is_waited_for(site: Website, status: int, headers: dict[str, str], seconds: float) -> None:
    clock = ManualClock()
    site.page("/busy", b"", status, **headers)
    site.page("/", b"ok")
    async with fetching(clock) as one:
        with pytest.raises(RetryLater):
            await one.session.get(f"{site.url}/busy")
        await one.session.get(f"{site.url}/")
    assert clock.monotonic() == seconds


async def test_a_date_to_come_back_is_understood(site: Website) -> None:
    site.page("/", b"", 503, Retry_After="Thu, 01 Jan 2026 00:02:00 GMT", Date="Thu, 01 Jan 2026 00:00:00 GMT")
    async with fetching() as one:
        with pytest.raises(RetryLater) as failure:
            await one.session.get(f"{site.url}/")
    assert failure.value.after_seconds == 120


async def test_a_cancelled_fetch_gives_its_place_back(site: Website) -> None:
    arrived = asyncio.Event()

    async def never(_: Asked) -> Reply:
        arrived.set()
        await asyncio.Event().wait()
        return Reply()

    site.pages["/never"] = never
    site.page("/", b"ok")
    async with fetching(concurrency_per_host=1) as one:
        hanging = asyncio.create_task(one.session.get(f"{site.url}/never"))
        await arrived.wait()
        waiting = asyncio.create_task(one.session.get(f"{site.url}/"))
        in_line = asyncio.create_task(one.session.get(f"{site.url}/"))
        await asyncio.sleep(0)
        in_line.cancel()
        hanging.cancel()
        assert (await waiting).body == b"ok"
        assert (await one.session.get(f"{site.url}/")).body == b"ok"
        results = await asyncio.gather(hanging, in_line, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in results)
