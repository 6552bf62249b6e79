"""Manners: how often a host is asked, by how many at once, and when it is left alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parcelpost.clock import Clock
from parcelpost.scrapers.fetch_errors import TurnedAway

LONGEST_WAIT_SECONDS = 60.0
"""Who would have to wait longer is sent away: a slot has better things to do."""
_LONGEST_REST_SECONDS = 86_400.0
_JITTER = 0.2
_MOST_HOSTS = 1_000


class _Host:
    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.line = asyncio.Lock()
        """Those who wait for their moment, in order of arrival."""
        self.next_at = 0.0
        self.rests_until = 0.0
        self.visitors = 0


class Politeness:
    """Belongs to one event loop. `pace`: seconds between two requests to a host; `places`: how many go on at once."""

    def __init__(self, pace: float, places: int, clock: Clock) -> None:
        self._pace = pace
        self._places = places
        self._clock = clock
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def turn(self, host: str, pace: float = 0.0) -> AsyncIterator[None]:
        """A request's time with a host, which is given in order of arrival. `pace`: what this host asks for, if longer.

        Raises TurnedAway while the host rests for long.
        """
        found = self._host(host)
        found.visitors += 1
        try:
            self._send_away(host, found)
            async with found.places:
                await self._wait(host, found, max(pace, self._pace))
                yield
        finally:
            found.visitors -= 1

    def rest(self, host: str, seconds: float) -> None:
        """Nobody asks the host for so long."""
        found = self._host(host)
        until = self._clock.monotonic() + min(max(seconds, 0.0), _LONGEST_REST_SECONDS)
        found.rests_until = max(found.rests_until, until)

    async def _wait(self, name: str, host: _Host, pace: float) -> None:
        async with host.line:
            while (seconds := max(host.next_at, host.rests_until) - self._clock.monotonic()) > 0:
                self._send_away(name, host)
                await self._clock.sleep(seconds)
            jitter = random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - a clockwork is no visitor
            host.next_at = self._clock.monotonic() + pace * jitter

    def _send_away(self, name: str, host: _Host) -> None:
        seconds = max(host.next_at, host.rests_until) - self._clock.monotonic()
        if seconds > LONGEST_WAIT_SECONDS:
            raise TurnedAway(f"{name} is to be left alone for {seconds:.0f} s more", seconds)

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
