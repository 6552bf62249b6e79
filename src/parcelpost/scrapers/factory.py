"""ScraperFactory: a platform's name -> how to scrape with it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Task
from parcelpost.scrapers.platform import Platform, Scrape, Scraper, scrape_of
from parcelpost.scrapers.platforms.echo import Echo

GROUP = "parcelpost.platforms"
"""The entry points under which somebody else's package offers platforms."""


class ScraperFactory:
    """Knows the platforms of this package, those of installed packages, and those registered by hand.

    Where two have the same name, the registered one goes before the installed one, and that before ours. Belongs to
    one thread; what `scraper` answers may be called on any.
    """

    def __init__(
        self,
        clock: Clock = SystemClock(),
        *,
        counties: Mapping[str, Platform] = {},
        installed: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP),
    ) -> None:
        """`counties`: those of this package that fetch, as `county_scrapers` makes them; without them only `echo`."""
        echo = Echo(clock)
        self._built_in: dict[str, Scrape] = {
            echo.name: echo.scrape,
            **{name: one.scrape for name, one in counties.items()},
        }
        self._look_up = installed
        self._installed: dict[str, _Installed] | None = None
        """None: nobody has looked yet."""
        self._registered: dict[str, Scrape] = {}

    def register(self, name: str, scraper: Scraper) -> None:
        """For programs that embed this one. Raises TypeError for what is no platform."""
        self._registered[name] = scrape_of(scraper)

    def scraper(self, name: str) -> Scrape | None:
        """None: there is none of that name.

        An installed one is imported by its first call, so that an import that fails, blocks or exits costs the task
        it was for and nothing else; the next call tries again.
        """
        return self._registered.get(name) or self._others().get(name) or self._built_in.get(name)

    def names(self) -> list[str]:
        """Of all platforms that can be used, as far as is known yet."""
        names = {*self._built_in, *self._others(), *self._registered}
        return sorted(names - self.unavailable().keys())

    def unavailable(self) -> dict[str, str]:
        """Name -> why, for installed platforms whose last import failed."""
        others = {name: one.problem for name, one in self._others().items() if one.problem}
        return {name: problem for name, problem in others.items() if name not in self._registered}

    def _others(self) -> dict[str, _Installed]:
        if self._installed is None:
            by_name: dict[str, list[EntryPoint]] = {}
            for entry in self._look_up():
                by_name.setdefault(entry.name, []).append(entry)
            self._installed = {name: _Installed(entries) for name, entries in by_name.items()}
        return self._installed


class _Installed:
    """A platform of somebody else's package."""

    def __init__(self, entries: list[EntryPoint]) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._scrape: Scrape | None = None
        self.problem = ""

    def __call__(self, task: Task) -> Outcome | Awaitable[Outcome]:
        scrape = self._scrape or self._load()
        return scrape(task)

    def _load(self) -> Scrape:
        with self._lock:
            try:
                self._scrape = self._scrape or scrape_of(self._only().load())
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
                raise
            self.problem = ""
            return self._scrape

    def _only(self) -> EntryPoint:
        places = sorted({entry.value for entry in self._entries})
        if len(places) > 1:
            raise ImportError(f"several packages offer a platform of this name: {', '.join(places)}")
        return self._entries[0]
