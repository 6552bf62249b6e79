"""robots.txt: what a site asks of programs. Missing: everything is allowed. Not available: we wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct
from protego import Protego

from parcelpost.clock import Clock
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater

_MOST_BYTES = 500 * 1024  # what the standard asks for at least
_DAY_SECONDS = 86_400.0
_MOST_SITES = 1_000
_MOST_DELAY_SECONDS = 3_600.0

ReadRobots = Callable[[str], Awaitable[bytes]]
"""The file of an origin; b"" where it has none. Raises TryLater where that cannot be known."""


class _Rules(Struct, frozen=True):
    rules: Protego
    until: float


class Robots:
    """Belongs to one event loop. `agent` is the name by which a site's rules know us."""

    def __init__(self, read: ReadRobots, agent: str, clock: Clock) -> None:
        self._read = read
        self._agent = agent
        self._clock = clock
        self._known: dict[str, _Rules] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def delay(self, origin: str, url: str) -> float:
        """The seconds that the site wants between two requests. Raises CannotFetch where it does not want this one."""
        rules = await self._rules(origin)
        if not rules.can_fetch(url, self._agent):
            raise CannotFetch(f"robots.txt of {origin} does not allow {url}"[:500])
        delay = rules.crawl_delay(self._agent) or 0.0
        return min(delay, _MOST_DELAY_SECONDS) if delay > 0 else 0.0

    def may_allow(self, origin: str, url: str) -> bool:
        """False: the site's file is known, and does not want this one."""
        known = self._known.get(origin)
        return known is None or bool(known.rules.can_fetch(url, self._agent))

    def is_asking(self, origin: str) -> bool:
        """Whether somebody waits for the site's file just now."""
        return origin in self._asking and self._asking[origin].locked()

    async def _rules(self, origin: str) -> Protego:
        lock = self._asking.setdefault(origin, asyncio.Lock())
        async with lock:
            known = self._known.get(origin)
            if known is None or known.until <= self._clock.monotonic():
                known = self._known[origin] = await self._fresh(origin)
        if len(self._known) > _MOST_SITES:
            self._forget_oldest()
        return known.rules

    async def _fresh(self, origin: str) -> _Rules:
        text = (await self._read(origin))[:_MOST_BYTES].decode("utf-8", "replace")
        try:
            rules = Protego.parse(text)
        except (ValueError, RecursionError) as error:
            raise RetryLater(f"robots.txt of {origin} cannot be understood: {error}"[:300]) from None
        return _Rules(rules, self._clock.monotonic() + _DAY_SECONDS)

    def _forget_oldest(self) -> None:
        oldest = min(self._known, key=lambda origin: self._known[origin].until)
        del self._known[oldest]
        if not self._asking[oldest].locked():
            del self._asking[oldest]
