"""Manners: how often a host is asked, by how many at once, and when it is left alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parcelpost.clock import Clock
from parcelpost.scrapers.fetch_errors import NoTurn, TurnedAway

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


class Politeness:
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
            raise _turned_away(host, rests)
        if seconds := self.opens_in(host):
            raise NoTurn(f"{host} has no turn free for {seconds:.1f} s", seconds)

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
            raise _turned_away(name, seconds)

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


def _turned_away(name: str, seconds: float) -> TurnedAway:
    return TurnedAway(f"{name} is to be left alone for {seconds:.0f} s more", seconds)
