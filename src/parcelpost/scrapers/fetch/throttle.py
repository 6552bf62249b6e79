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

MAX_WAIT_SECONDS = 60.0
"""A request that would wait longer fails instead, so that the slot can work on other tasks."""
MAX_FIRST_WAIT_SECONDS = 0.5
"""How long the first request of a task may wait for its host."""
_MAX_PAUSE_SECONDS = 86_400.0
_MIN_RECHECK_SECONDS = 0.02
_JITTER = 0.2
_AVERAGE_WEIGHT = 0.2
_MAX_HOSTS = 1_000


class _Host:
    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.queue = asyncio.Lock()
        """Requests wait here for the rate limit, in order of arrival."""
        self.next_at = 0.0
        self.paused_until = 0.0
        self.closed_until = 0.0
        """No task starts before; running ones continue."""
        self.requests = 0
        self.waiting = 0
        """Requests that have not been sent yet."""
        self.pace = 0.0
        """Seconds between requests, as the last request had it."""
        self.average_seconds = 0.0
        """Recent duration of a request."""


class HostThrottle:
    """Rate limits per host. Belongs to one event loop.

    `pace`: seconds between two requests to a host; `slots`: concurrent requests to a host. If several `processes` send
    requests to the same hosts, each takes that many times the pace.
    """

    def __init__(self, pace: float, slots: int, clock: Clock, *, processes: int = 1) -> None:
        self._pace = pace
        self._processes = processes
        self._slots = slots
        self._clock = clock
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def request_slot(self, host: str, pace: float = 0.0, *, has_started: bool = False) -> AsyncIterator[None]:
        """Waits until a request to the host may be sent, in order of arrival, and holds its slot.

        `pace`: the host's own minimum, used if it is longer. Raises SiteBlocked if the host is paused for long, or if
        the wait is long and the attempt has not sent a request yet; one that has would have to start again.
        """
        state = self._host(host)
        state.requests += 1
        state.waiting += 1
        is_waiting = True
        state.pace = max(pace, self._pace) * self._processes
        try:
            self._check_wait(host, state, has_started=has_started)
            async with state.slots:
                await self._wait(host, state, has_started=has_started)
                state.waiting -= 1
                is_waiting = False
                began = self._clock.monotonic()
                yield
                took = self._clock.monotonic() - began
                state.average_seconds += (
                    _AVERAGE_WEIGHT * (took - state.average_seconds) if state.average_seconds else took
                )
        finally:
            state.requests -= 1
            state.waiting -= is_waiting

    def pause(self, host: str, seconds: float) -> None:
        """No request is sent to the host for that long."""
        state = self._host(host)
        until = self._clock.monotonic() + min(max(seconds, 0.0), _MAX_PAUSE_SECONDS)
        state.paused_until = max(state.paused_until, until)

    def add_requests(self, host: str, count: int) -> None:
        """Counts requests that did not pass through `request_slot`; the next one waits that much longer."""
        state = self._host(host)
        state.next_at += max(0, count) * state.pace

    def close_briefly(self, host: str) -> None:
        """Keeps new tasks away from the host for a moment, while its robots.txt is being read."""
        self._host(host).closed_until = self._clock.monotonic() + MAX_FIRST_WAIT_SECONDS

    def opens_in(self, host: str, ahead: int = 0) -> float:
        """Returns 0 if one more task, behind `ahead` others, could send its request soon, else when to check again."""
        state = self._hosts.get(host)
        if state is None:
            return 0.0
        now = self._clock.monotonic()
        until_next = max(0.0, state.next_at - now, state.paused_until - now)
        by_pace = until_next + (state.waiting + ahead) * state.pace - MAX_FIRST_WAIT_SECONDS
        is_quick = state.average_seconds <= MAX_FIRST_WAIT_SECONDS
        # A slot will be free soon. Nobody should wait for the first responses of a host.
        may_queue = 0 if not is_quick else self._slots if state.average_seconds else 1
        is_full = state.requests + ahead >= self._slots + may_queue
        by_slots = max(state.average_seconds / self._slots, _MIN_RECHECK_SECONDS) if is_full else 0.0
        return max(0.0, state.closed_until - now, by_pace, by_slots)

    def admit(self, host: str) -> None:
        """For the first request of a task. Raises HostBusy if it would wait long, SiteBlocked if the host is paused."""
        paused = self._host(host).paused_until - self._clock.monotonic()
        if paused > MAX_WAIT_SECONDS:
            raise _site_blocked(host, paused)
        if seconds := self.opens_in(host):
            raise HostBusy(f"{host} is busy for another {seconds:.1f} s", seconds)

    async def _wait(self, name: str, host: _Host, *, has_started: bool) -> None:
        pace = host.pace
        async with host.queue:
            while (seconds := max(host.next_at, host.paused_until) - self._clock.monotonic()) > 0:
                self._check_wait(name, host, has_started=has_started)
                await self._clock.sleep(seconds)
            jitter = random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - not for cryptography
            host.next_at = self._clock.monotonic() + pace * jitter

    def _check_wait(self, name: str, host: _Host, *, has_started: bool) -> None:
        until = host.paused_until if has_started else max(host.next_at, host.paused_until)
        seconds = until - self._clock.monotonic()
        if seconds > MAX_WAIT_SECONDS:
            raise _site_blocked(name, seconds)

    def _host(self, name: str) -> _Host:
        if name not in self._hosts and len(self._hosts) >= _MAX_HOSTS:
            self._drop_idle()
        return self._hosts.setdefault(name, _Host(self._slots))

    def _drop_idle(self) -> None:
        now = self._clock.monotonic()
        done = [name for name, host in self._hosts.items() if not host.requests and host.next_at <= now]
        for name in done:
            if self._hosts[name].paused_until <= now:
                del self._hosts[name]


def _site_blocked(name: str, seconds: float) -> SiteBlocked:
    return SiteBlocked(f"{name} must not be requested for another {seconds:.0f} s", seconds)


OpensIn = Callable[[str, int], float]
"""Host, number of tasks ahead -> seconds until it can take one more; 0: now."""

PageOpensIn = Callable[[int], float]
"""Number of tasks ahead -> seconds until a browser page is free for one more; 0: now."""

_MAX_SITES = 10_000


class ClosedSites(NamedTuple):
    sites: frozenset[Site]
    """Sites that cannot take another task now."""
    opens_in: list[float]
    """Seconds until each of their hosts can take one, soonest first."""


class SiteAvailability:
    """Which sites can take another task now. Belongs to the worker's loop.

    Requests teach it which host a site is on; it assumes one host per site. Unknown sites are available.
    """

    def __init__(
        self,
        opens_in: OpensIn = lambda _host, _ahead: 0.0,
        page_opens_in: PageOpensIn = lambda _ahead: 0.0,
    ) -> None:
        self._opens_in = opens_in
        self._page_opens_in = page_opens_in
        self._blocked_until: dict[tuple[str, str], float] = {}
        """Monotonic time, by host."""
        self._need_browser: set[Site] = set()
        self._waiting_for_page: set[str] = set()
        """Tasks that have no browser page yet."""
        self._host_of: dict[Site, str] = {}
        self._sites_at: dict[str, set[Site]] = {}
        self._in_transit: dict[str, str] = {}
        """Task -> its host, until its first request."""

    def learn(self, site: Site, host: str) -> None:
        known = self._host_of.get(site)
        if known == host:
            return
        if len(self._host_of) >= _MAX_SITES:  # they are learned again; a few tasks are deferred meanwhile
            self._host_of.clear()
            self._sites_at.clear()
        elif known is not None:
            self._sites_at[known].discard(site)
        self._host_of[site] = host
        self._sites_at.setdefault(host, set()).add(site)

    def host_of(self, site: Site) -> str:
        """Returns '' if it is not known."""
        return self._host_of.get(site, "")

    def host_blocks(self, site: Site, until: float) -> frozenset[Site]:
        """Returns the platform's known sites on its host, which must not be scraped until then; none without a host.

        `until`: monotonic. Tasks of sites that turn out to be there too are kept from it by `check_host`.
        """
        host = self.host_of(site)
        if not host:
            return frozenset()
        self._blocked_until[host, site.platform] = until
        return frozenset(other for other in self._sites_at[host] if other.platform == site.platform)

    def check_host(self, host: str, platform: str, now: float) -> None:
        """Raises SiteBlocked while the platform's pages at the host are refused to us."""
        seconds = self._blocked_until.get((host, platform), now) - now
        if seconds > 0:
            raise _site_blocked(host, seconds)

    def needs_browser(self, site: Site) -> None:
        """A page of the site needed a browser, so its other tasks will need one too."""
        if len(self._need_browser) >= _MAX_SITES:
            self._need_browser.clear()
        self._need_browser.add(site)

    def needs_no_browser(self, site: Site) -> None:
        self._need_browser.discard(site)

    def task_claimed(self, task: Task) -> None:
        """It will soon send its first request. The claim shows that its site is not paused any more."""
        self._blocked_until.pop((self.host_of(task.site), task.platform), None)
        if task.site in self._need_browser:
            self._waiting_for_page.add(task.task_id)
        if host := self._host_of.get(task.site):
            self._in_transit[task.task_id] = host

    def reached_host(self, task: Task) -> None:
        """Its first request is waiting for the host or was sent."""
        self._in_transit.pop(task.task_id, None)

    def got_page(self, task: Task) -> None:
        """It has its browser page."""
        self._waiting_for_page.discard(task.task_id)

    def task_ended(self, task: Task) -> None:
        self.reached_host(task)
        self.got_page(task)

    def closed(self, ahead: int = 0) -> ClosedSites:
        """`ahead`: how many further tasks may be on their way to any of the sites."""
        in_transit = Counter(self._in_transit.values())
        closed: set[Site] = set()
        opens_in = []
        for host, sites in self._sites_at.items():
            if seconds := self._opens_in(host, in_transit[host] + ahead):
                closed |= sites
                opens_in.append(seconds)
        if self._need_browser and (seconds := self._page_opens_in(len(self._waiting_for_page) + ahead)):
            closed |= self._need_browser
            opens_in.append(seconds)
        return ClosedSites(frozenset(closed), sorted(opens_in))
