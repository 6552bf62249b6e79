"""What the tests of fetching share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from parcelpost.clock import Clock, ManualClock
from parcelpost.events import Event, PageFetched
from parcelpost.scrapers.fetch.cache import CacheStore
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.fetch.exchange import FetchOptions

HERE = FetchOptions(allow_private=("127.0.0.1",), pace_seconds=0.0, obey_robots=False)
"""Asks this machine, as often as it likes."""


class Fetching:
    def __init__(self, fetcher: PageFetcher, events: Sequence[Event]) -> None:
        self.fetcher = fetcher
        self.events = events

    @property
    def session(self) -> Any:
        """A new one."""
        return self.fetcher.session()

    @property
    def told(self) -> list[PageFetched]:
        return [event for event in self.events if isinstance(event, PageFetched)]


@asynccontextmanager
async def fetching(
    clock: Clock | None = None, *, cache: CacheStore | None = None, resolve: Any = None, **options: Any
) -> AsyncIterator[Fetching]:
    events: list[Event] = []
    more = {"resolve": resolve} if resolve else {}
    async with PageFetcher.open(
        replace(HERE, **options), cache=cache, clock=clock or ManualClock(), emit=events.append, **more
    ) as fetcher:
        yield Fetching(fetcher, events)
