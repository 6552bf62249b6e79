"""Which sites take one more task."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Site, Target, Task
from parcelpost.scrapers.fetch.errors import HostBusy, SiteBlocked
from parcelpost.scrapers.fetch.throttle import MAX_FIRST_WAIT_SECONDS, HostThrottle, SiteAvailability

ADAMS, BAKER = Site("vgsi", "CT", "adams"), Site("vgsi", "CT", "baker")


def _task(number: int, county: str = "adams") -> Task:
    return Task(task_id=f"t{number}", platform="vgsi", target=Target(parcel_id="1", state="CT", county=county))


async def _ask(manners: HostThrottle, host: str) -> None:
    async with manners.request_slot(host):
        pass


async def test_a_host_opens_shortly_before_its_next_turn() -> None:
    clock = ManualClock()
    manners = HostThrottle(10.0, 2, clock)
    manners.admit("a")
    await _ask(manners, "a")
    with pytest.raises(HostBusy) as busy:
        manners.admit("a")
    assert 10.0 - MAX_FIRST_WAIT_SECONDS <= busy.value.after_seconds <= 12.0 - MAX_FIRST_WAIT_SECONDS
    clock.advance(busy.value.after_seconds)
    manners.admit("a")
    assert manners.opens_in("a", ahead=1) == 10.0, "the turn after it is another's"


async def test_a_host_that_rests_for_long_sends_tasks_away() -> None:
    manners = HostThrottle(0.0, 2, ManualClock())
    manners.pause("a", 600.0)
    with pytest.raises(SiteBlocked):
        manners.admit("a")


async def test_a_slow_host_is_open_while_it_has_places() -> None:
    clock = ManualClock()
    manners = HostThrottle(0.0, 2, clock)
    async with manners.request_slot("a"):
        clock.advance(8.0)
    async with AsyncExitStack() as visits:
        await visits.enter_async_context(manners.request_slot("a"))
        assert manners.opens_in("a") == 0.0
        assert manners.opens_in("a", ahead=1) > 0.0
        await visits.enter_async_context(manners.request_slot("a"))
        assert manners.opens_in("a") > 0.0
    assert manners.opens_in("a") == 0.0


async def test_one_may_stand_at_the_door_of_a_quick_host() -> None:
    manners = HostThrottle(0.0, 1, ManualClock())
    await _ask(manners, "a")
    async with manners.request_slot("a"):
        assert manners.opens_in("a") == 0.0
        waiting = asyncio.create_task(_ask(manners, "a"))
        await asyncio.sleep(0)
        assert manners.opens_in("a") > 0.0
    await waiting
    assert manners.opens_in("a") == 0.0


def test_sites_of_one_host_close_together_and_others_stay_open() -> None:
    availability = SiteAvailability(lambda host, _: 3.0 if host == "shared" else 0.0)
    assert availability.closed() == (frozenset(), [])
    availability.learn(ADAMS, "shared")
    availability.learn(BAKER, "shared")
    assert availability.closed() == (frozenset({ADAMS, BAKER}), [3.0])
    availability.learn(BAKER, "own")
    assert availability.closed() == (frozenset({ADAMS}), [3.0])


def test_a_host_that_blocks_us_is_left_alone_until_one_of_its_known_sites_is_claimed_again() -> None:
    availability = SiteAvailability()
    assert availability.host_blocks(ADAMS, 100.0) == frozenset(), "its host is not known yet"
    availability.learn(ADAMS, "shared")
    availability.learn(BAKER, "shared")
    availability.learn(Site("another", ADAMS.state, ADAMS.county), "shared")
    assert availability.host_blocks(ADAMS, 100.0) == {ADAMS, BAKER}
    for now in (0.0, 99.0):
        with pytest.raises(SiteBlocked) as blocked:
            availability.check_host("shared", ADAMS.platform, now)
        assert blocked.value.cool_down_seconds == 100 - now
    availability.check_host("other", ADAMS.platform, 0.0)
    availability.check_host("shared", "another", 0.0)
    availability.check_host("shared", ADAMS.platform, 100.0)
    availability.task_claimed(_task(1))  # an operator has resumed it
    availability.check_host("shared", ADAMS.platform, 0.0)


def test_tasks_on_their_way_count_until_they_have_come() -> None:
    availability = SiteAvailability(lambda _, before: float(before))
    availability.task_claimed(_task(0))
    assert not availability.closed().sites, "nobody knows yet where it goes"
    availability.learn(ADAMS, "a")
    availability.task_claimed(_task(1))
    availability.task_claimed(_task(2))
    assert availability.closed() == (frozenset({ADAMS}), [2.0])
    availability.task_ended(_task(1))
    availability.task_ended(_task(1))
    assert availability.closed() == (frozenset({ADAMS}), [1.0])
    availability.task_ended(_task(2))
    assert not availability.closed().sites


async def test_sites_that_need_a_browser_are_closed_while_none_is_free() -> None:
    pages = 2
    availability = SiteAvailability(page_opens_in=lambda before: 0.0 if before < pages else 0.5)
    availability.needs_browser(ADAMS)
    assert availability.closed() == (frozenset(), [])
    for number in (1, 2):
        availability.task_claimed(_task(number))
        availability.reached_host(_task(number))  # a request without a browser comes first
    availability.task_claimed(_task(3, "baker"))
    assert availability.closed() == (frozenset({ADAMS}), [0.5]), "both pages have somebody on the way to them"
    availability.task_ended(_task(1))
    assert availability.closed().sites == frozenset()
    availability.task_claimed(_task(4))
    availability.needs_no_browser(ADAMS)
    assert availability.closed().sites == frozenset()


async def test_what_a_page_leads_to_is_counted_at_its_host() -> None:
    clock = ManualClock()
    manners = HostThrottle(10.0, 2, clock)
    await _ask(manners, "a")
    before = manners.opens_in("a")
    manners.add_requests("a", 2)
    assert manners.opens_in("a") == before + 20.0
    manners.add_requests("a", -1)
    assert manners.opens_in("a") == before + 20.0
