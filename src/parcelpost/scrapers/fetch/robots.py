"""robots.txt. A site without one allows everything; while it cannot be read, requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from msgspec import Struct
from protego import Protego

from parcelpost.clock import Clock
from parcelpost.scrapers.fetch.errors import CannotFetch, PageNotFound, RetryLater, SiteBlocked
from parcelpost.scrapers.fetch.exchange import Response, response_problem

_MAX_BYTES = 500 * 1024  # the minimum of RFC 9309
_DAY_SECONDS = 86_400.0
_MAX_SITES = 1_000
_MAX_DELAY_SECONDS = 3_600.0

ReadRobots = Callable[[str], Awaitable[bytes]]
"""Origin -> its robots.txt, or b"" if it has none. Raises RetryLater if that cannot be determined."""


def robots_text(origin: str, response: Response, now: datetime) -> bytes:
    """Returns the rules, b"" if the site has none or refuses to show them. Raises RetryLater if that is not known."""
    if response.is_good:
        return response.body
    failure = response_problem(response, now)
    if not isinstance(failure, PageNotFound | SiteBlocked | CannotFetch):
        after = getattr(failure, "after_seconds", None)
        raise RetryLater(f"robots.txt of {origin} is not available: {failure}", after)
    return b""


class _Rules(Struct, frozen=True):
    rules: Protego
    until: float


class Robots:
    """Belongs to one event loop. `agent`: our name in the rules of a site."""

    def __init__(self, read: ReadRobots, agent: str, clock: Clock) -> None:
        self._read = read
        self._agent = agent
        self._clock = clock
        self._known: dict[str, _Rules] = {}
        self._loading: dict[str, asyncio.Lock] = {}

    async def delay(self, origin: str, url: str) -> float:
        """Returns the site's crawl delay in seconds. Raises CannotFetch if the URL is disallowed."""
        rules = await self._rules(origin)
        if not rules.can_fetch(url, self._agent):
            raise CannotFetch(f"robots.txt of {origin} does not allow {url}"[:500])
        delay = rules.crawl_delay(self._agent) or 0.0
        return min(delay, _MAX_DELAY_SECONDS) if delay > 0 else 0.0

    def may_allow(self, origin: str, url: str) -> bool:
        """Returns False only if the site's rules are known and disallow the URL."""
        known = self._known.get(origin)
        return known is None or bool(known.rules.can_fetch(url, self._agent))

    def is_loading(self, origin: str) -> bool:
        """Whether the site's robots.txt is being read right now."""
        return origin in self._loading and self._loading[origin].locked()

    async def _rules(self, origin: str) -> Protego:
        lock = self._loading.setdefault(origin, asyncio.Lock())
        async with lock:
            known = self._known.get(origin)
            if known is None or known.until <= self._clock.monotonic():
                known = self._known[origin] = await self._fresh(origin)
        if len(self._known) > _MAX_SITES:
            self._drop_oldest()
        return known.rules

    async def _fresh(self, origin: str) -> _Rules:
        text = (await self._read(origin))[:_MAX_BYTES].decode("utf-8", "replace")
        try:
            rules = Protego.parse(text)
        except (ValueError, RecursionError) as error:
            raise RetryLater(f"robots.txt of {origin} cannot be parsed: {error}"[:300]) from None
        return _Rules(rules, self._clock.monotonic() + _DAY_SECONDS)

    def _drop_oldest(self) -> None:
        oldest = min(self._known, key=lambda origin: self._known[origin].until)
        del self._known[oldest]
        if not self._loading[oldest].locked():
            del self._loading[oldest]
