"""What the executor expects of a platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from parcelpost.model import Outcome, Page, Target, Task
from parcelpost.scrapers.county_platform import CountyPlatform

Scrape = Callable[[Task], Outcome | Awaitable[Outcome]]
"""One attempt at a task, `async def` or a plain function; how it ended is the value it answers."""

Parse = Callable[[Page, Target], Outcome | Awaitable[Outcome]]
"""Reads a page that was kept, with no other help: the same page gives the same."""


class Platform(Protocol):
    """Vendor software that many counties use, and how to get a record out of it.

    One object serves every slot of a worker, so `scrape` is called from several threads at the same time, in each of
    them on that slot's own event loop; a plain function runs outside of any loop. It may block or raise: that costs
    its own task only. When its time is up an `async def` is cancelled.
    """

    name: str

    def scrape(self, task: Task) -> Outcome | Awaitable[Outcome]: ...


class FetchAndParse(Protocol):
    """The same in two parts, so that pages can be read again. `fetch` gets the session of this attempt as `fetcher`.

    Both may be plain or `async def`; what they may ask for besides is told in docs/new-platform.md.
    """

    def fetch(self, target: Target, fetcher: object) -> object: ...

    def parse(self, page: Page, target: Target) -> object: ...


Scraper = Platform | type[Platform] | FetchAndParse | type[FetchAndParse] | CountyPlatform | Scrape
"""What may be offered under a name: a platform, its class (made without arguments), or just the function."""


class NotReadable(Struct, frozen=True):
    """Why a platform's pages cannot be read again."""

    reason: str


class Usable(Struct, frozen=True):
    """A platform, ready to be called."""

    scrape: Scrape
    parse: Parse | NotReadable
