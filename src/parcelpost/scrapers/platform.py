"""What the executor expects of a platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from parcelpost.model import Outcome, Task
from parcelpost.scrapers.adapted import Adapted, how

Scrape = Callable[[Task], Outcome | Awaitable[Outcome]]
"""One attempt at a task, `async def` or a plain function; how it ended is the value it answers."""


class Platform(Protocol):
    """Vendor software that many counties use, and how to get a record out of it.

    One object serves every slot of a worker, so `scrape` is called from several threads at the same time, in each of
    them on that slot's own event loop; a plain function runs outside of any loop. It may block or raise: that costs
    its own task only. When its time is up an `async def` is cancelled.
    """

    name: str

    def scrape(self, task: Task) -> Outcome | Awaitable[Outcome]: ...


Scraper = Platform | type[Platform] | Scrape
"""What may be offered under a name: a platform, its class (made without arguments), or just the function."""


def scrape_of(offered: object) -> Scrape:
    """The function to call for what somebody offers as a platform. Raises TypeError."""
    if (said := how(offered)) is not None:
        return Adapted(offered, said).scrape
    made = offered() if isinstance(offered, type) else offered
    scrape: Scrape | None = getattr(made, "scrape", made if callable(made) else None)
    if not callable(scrape):
        raise TypeError(f"a {type(made).__name__} is no platform: it has no scrape(task) and is no function")
    return scrape
