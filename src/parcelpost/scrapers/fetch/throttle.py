"""Per-host rate limits, and which sites have a request slot free for a task."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from parcelpost.clock import Clock
from parcelpost.model import Site, Task
from parcelpost.scrapers.fetch.errors import HostBusy, SiteBlocked

LONGEST_WAIT_SECONDS = 60.0
"""Who would have to wait longer is sent away: a slot has better things to do."""
PATIENCE_SECONDS = 0.5
"""How long a task may stand in a host's line before its first request: it is in place when its turn comes."""
_LONGEST_REST_SECONDS = 86_400.0
_SOONEST_LOOK_SECONDS = 0.02
_JITTER = 0.2
_NEWS = 0.2
_MOST_HOSTS = 1_000


class _Host:
    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.line = asyncio.Lock()
        """Those who wait for their moment, in order of arrival."""
        self.next_at = 0.0
        self.rests_until = 0.0
        self.shut_until = 0.0
        """Who is here goes on, nobody comes."""
        self.visitors = 0
        self.waiting = 0
        """Of the visitors, those whose moment has not come."""
        self.pace = 0.0
        """As the last visitor kept it."""
        self.takes = 0.0
        """How long a request takes, lately."""


class HostThrottle:
    """Belongs to one event loop. `pace`: seconds between two requests to a host; `places`: how many go on at once."""

    def __init__(self, pace: float, places: int, clock: Clock) -> None:
        self._pace = pace
        self._places = places
        self._clock = clock
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def turn(self, host: str, pace: float = 0.0, *, has_begun: bool = False) -> AsyncIterator[None]:
        """A request's time with a host, which is given in order of arrival. `pace`: what this host asks for, if longer.

        Raises TurnedAway while the host rests for long, or where its pace is long and the attempt has not begun: one
        that has would only ask again from the start.
        """
        found = self._host(host)
        found.visitors += 1
        found.waiting += 1
        is_waiting = True
        found.pace = max(pace, self._pace)
        try:
            self._send_away(host, found, has_begun=has_begun)
            async with found.places:
                await self._wait(host, found, has_begun=has_begun)
                found.waiting -= 1
                is_waiting = False
                began = self._clock.monotonic()
                yield
                took = self._clock.monotonic() - began
                found.takes += _NEWS * (took - found.takes) if found.takes else took
        finally:
            found.visitors -= 1
            found.waiting -= is_waiting

    def rest(self, host: str, seconds: float) -> None:
        """Nobody asks the host for so long."""
        found = self._host(host)
        until = self._clock.monotonic() + min(max(seconds, 0.0), _LONGEST_REST_SECONDS)
        found.rests_until = max(found.rests_until, until)

    def was_asked(self, host: str, times: int) -> None:
        """Beyond what turns were given for: its next turn comes so much later."""
        found = self._host(host)
        found.next_at += max(0, times) * found.pace

    def shut(self, host: str) -> None:
        """No task comes to the host for a moment: something there is not known yet."""
        self._host(host).shut_until = self._clock.monotonic() + PATIENCE_SECONDS

    def opens_in(self, host: str, before: int = 0) -> float:
        """0: one more task may come, behind `before` that are on their way, and has its turn soon.

        Otherwise the seconds until it is worth another look.
        """
        found = self._hosts.get(host)
        if found is None:
            return 0.0
        now = self._clock.monotonic()
        until_next = max(0.0, found.next_at - now, found.rests_until - now)
        by_pace = until_next + (found.waiting + before) * found.pace - PATIENCE_SECONDS
        at_the_door = 1 if found.takes <= PATIENCE_SECONDS else 0  # a place that is free soon is worth standing there
        is_full = found.visitors + before >= self._places + at_the_door
        by_place = max(found.takes / self._places, _SOONEST_LOOK_SECONDS) if is_full else 0.0
        return max(0.0, found.shut_until - now, by_pace, by_place)

    def admit(self, host: str) -> None:
        """For the first request of a task. Raises NoTurn where it would wait long, TurnedAway while the host rests."""
        rests = self._host(host).rests_until - self._clock.monotonic()
        if rests > LONGEST_WAIT_SECONDS:
            raise _site_blocked(host, rests)
        if seconds := self.opens_in(host):
            raise HostBusy(f"{host} has no turn free for {seconds:.1f} s", seconds)

    async def _wait(self, name: str, host: _Host, *, has_begun: bool) -> None:
        pace = host.pace
        async with host.line:
            while (seconds := max(host.next_at, host.rests_until) - self._clock.monotonic()) > 0:
                self._send_away(name, host, has_begun=has_begun)
                await self._clock.sleep(seconds)
            jitter = random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - a clockwork is no visitor
            host.next_at = self._clock.monotonic() + pace * jitter

    def _send_away(self, name: str, host: _Host, *, has_begun: bool) -> None:
        until = host.rests_until if has_begun else max(host.next_at, host.rests_until)
        seconds = until - self._clock.monotonic()
        if seconds > LONGEST_WAIT_SECONDS:
            raise _site_blocked(name, seconds)

    def _host(self, name: str) -> _Host:
        if name not in self._hosts and len(self._hosts) >= _MOST_HOSTS:
            self._forget_some()
        return self._hosts.setdefault(name, _Host(self._places))

    def _forget_some(self) -> None:
        now = self._clock.monotonic()
        done = [name for name, host in self._hosts.items() if not host.visitors and host.next_at <= now]
        for name in done:
            if self._hosts[name].rests_until <= now:
                del self._hosts[name]


def _site_blocked(name: str, seconds: float) -> SiteBlocked:
    return SiteBlocked(f"{name} is to be left alone for {seconds:.0f} s more", seconds)


OpensIn = Callable[[str, int], float]
"""A host, and how many tasks are on their way there -> the seconds until it takes one more; 0: now."""

PageOpensIn = Callable[[int], float]
"""How many tasks that need a browser are on their way -> the seconds until a page is free for one more; 0: now."""

_MOST_SITES = 10_000


class ClosedSites(NamedTuple):
    sites: frozenset[Site]
    """Those with no turn free soon."""
    opens_in: list[float]
    """The seconds until each of their hosts opens, soonest first."""


class SiteAvailability:
    """Belongs to the worker's loop. Learns from requests which host a site is on: it takes a site to be on one.

    Sites that nobody has fetched from here are open.
    """

    def __init__(
        self,
        opens_in: OpensIn = lambda _host, _before: 0.0,
        page_opens_in: PageOpensIn = lambda _before: 0.0,
    ) -> None:
        self._opens_in = opens_in
        self._page_opens_in = page_opens_in
        self._need_browser: set[Site] = set()
        self._on_their_way_to_a_page: set[str] = set()
        """Tasks, until they have a page."""
        self._host_of: dict[Site, str] = {}
        self._sites_at: dict[str, set[Site]] = {}
        self._on_their_way: dict[str, str] = {}
        """Task -> its host, until it has come there."""

    @property
    def are_known(self) -> bool:
        return bool(self._host_of)

    def learn(self, site: Site, host: str) -> None:
        known = self._host_of.get(site)
        if known == host:
            return
        if len(self._host_of) >= _MOST_SITES:  # learned again, at the price of some tasks that are put off
            self._host_of.clear()
            self._sites_at.clear()
        elif known is not None:
            self._sites_at[known].discard(site)
        self._host_of[site] = host
        self._sites_at.setdefault(host, set()).add(site)

    def need_browser(self, site: Site) -> None:
        """The site's pages were asked for in a browser: others of its tasks will want one, too."""
        if len(self._need_browser) >= _MOST_SITES:
            self._need_browser.clear()
        self._need_browser.add(site)

    def need_no_browser(self, site: Site) -> None:
        self._need_browser.discard(site)

    def sets_out(self, task: Task) -> None:
        """It was claimed, and will soon come to its site."""
        if task.site in self._need_browser:
            self._on_their_way_to_a_page.add(task.task_id)
        if host := self._host_of.get(task.site):
            self._on_their_way[task.task_id] = host

    def is_at_host(self, task: Task) -> None:
        """It is in its host's line."""
        self._on_their_way.pop(task.task_id, None)

    def has_browser(self, task: Task) -> None:
        """It has its page."""
        self._on_their_way_to_a_page.discard(task.task_id)

    def came(self, task: Task) -> None:
        """It has been where it was going, or will not come there."""
        self.is_at_host(task)
        self.has_browser(task)

    def closed(self) -> ClosedSites:
        coming = Counter(self._on_their_way.values())
        found: set[Site] = set()
        opens_in = []
        for host, sites in self._sites_at.items():
            if seconds := self._opens_in(host, coming[host]):
                found |= sites
                opens_in.append(seconds)
        if self._need_browser and (seconds := self._page_opens_in(len(self._on_their_way_to_a_page))):
            found |= self._need_browser
            opens_in.append(seconds)
        return ClosedSites(frozenset(found), sorted(opens_in))
