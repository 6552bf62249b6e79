"""Which sites take one more task."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Site, Target, Task
from parcelpost.scrapers.fetch.errors import HostBusy, SiteBlocked
from parcelpost.scrapers.fetch.throttle import PATIENCE_SECONDS, HostThrottle, SiteAvailability

ADAMS, BAKER = Site("vgsi", "CT", "adams"), Site("vgsi", "CT", "baker")


def _task(number: int, county: str = "adams") -> Task:
    return Task(task_id=f"t{number}", platform="vgsi", target=Target(parcel_id="1", state="CT", county=county))


async def _ask(manners: HostThrottle, host: str) -> None:
    async with manners.turn(host):
        pass


async def test_a_host_opens_shortly_before_its_next_turn() -> None:
    clock = ManualClock()
    manners = HostThrottle(10.0, 2, clock)
    manners.admit("a")
    await _ask(manners, "a")
    with pytest.raises(HostBusy) as busy:
        manners.admit("a")
    assert 10.0 - PATIENCE_SECONDS <= busy.value.after_seconds <= 12.0 - PATIENCE_SECONDS
    clock.advance(busy.value.after_seconds)
    manners.admit("a")
    assert manners.opens_in("a", before=1) == 10.0, "the turn after it is another's"


async def test_a_host_that_rests_for_long_sends_tasks_away() -> None:
    manners = HostThrottle(0.0, 2, ManualClock())
    manners.rest("a", 600.0)
    with pytest.raises(SiteBlocked):
        manners.admit("a")


async def test_a_slow_host_is_open_while_it_has_places() -> None:
    clock = ManualClock()
    manners = HostThrottle(0.0, 2, clock)
    async with manners.turn("a"):
        clock.advance(8.0)
    async with AsyncExitStack() as visits:
        await visits.enter_async_context(manners.turn("a"))
        assert manners.opens_in("a") == 0.0
        assert manners.opens_in("a", before=1) > 0.0
        await visits.enter_async_context(manners.turn("a"))
        assert manners.opens_in("a") > 0.0
    assert manners.opens_in("a") == 0.0


async def test_one_may_stand_at_the_door_of_a_quick_host() -> None:
    manners = HostThrottle(0.0, 1, ManualClock())
    await _ask(manners, "a")
    async with manners.turn("a"):
        assert manners.opens_in("a") == 0.0
        waiting = asyncio.create_task(_ask(manners, "a"))
        await asyncio.sleep(0)
        assert manners.opens_in("a") > 0.0
    await waiting
    assert manners.opens_in("a") == 0.0


def test_sites_of_one_host_close_together_and_others_stay_open() -> None:
    turns = SiteAvailability(lambda host, _: 3.0 if host == "shared" else 0.0)
    assert turns.closed() == (frozenset(), [])
    turns.learn(ADAMS, "shared")
    turns.learn(BAKER, "shared")
    assert turns.closed() == (frozenset({ADAMS, BAKER}), [3.0])
    turns.learn(BAKER, "own")
    assert turns.closed() == (frozenset({ADAMS}), [3.0])


def test_tasks_on_their_way_count_until_they_have_come() -> None:
    turns = SiteAvailability(lambda _, before: float(before))
    turns.sets_out(_task(0))
    assert not turns.closed().sites, "nobody knows yet where it goes"
    turns.learn(ADAMS, "a")
    turns.sets_out(_task(1))
    turns.sets_out(_task(2))
    assert turns.closed() == (frozenset({ADAMS}), [2.0])
    turns.came(_task(1))
    turns.came(_task(1))
    assert turns.closed() == (frozenset({ADAMS}), [1.0])
    turns.came(_task(2))
    assert not turns.closed().sites


async def test_sites_that_need_a_browser_are_closed_while_none_is_free() -> None:
    pages = 2
    turns = SiteAvailability(page_opens_in=lambda before: 0.0 if before < pages else 0.5)
    turns.need_browser(ADAMS)
    assert turns.closed() == (frozenset(), [])
    for number in (1, 2):
        turns.sets_out(_task(number))
        turns.is_at_host(_task(number))  # a request without a browser comes first
    turns.sets_out(_task(3, "baker"))
    assert turns.closed() == (frozenset({ADAMS}), [0.5]), "both pages have somebody on the way to them"
    turns.came(_task(1))
    assert turns.closed().sites == frozenset()
    turns.sets_out(_task(4))
    turns.need_no_browser(ADAMS)
    assert turns.closed().sites == frozenset()


async def test_what_a_page_leads_to_is_counted_at_its_host() -> None:
    clock = ManualClock()
    manners = HostThrottle(10.0, 2, clock)
    await _ask(manners, "a")
    before = manners.opens_in("a")
    manners.was_asked("a", 2)
    assert manners.opens_in("a") == before + 20.0
    manners.was_asked("a", -1)
    assert manners.opens_in("a") == before + 20.0
