"""ScraperFactory: a platform's name -> how to scrape with it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Task
from parcelpost.scrapers.configured import Configured
from parcelpost.scrapers.platform import Platform, Scrape, Scraper, scrape_of
from parcelpost.scrapers.platforms.echo import Echo

GROUP = "parcelpost.platforms"
"""The entry points under which somebody else's package offers platforms."""


class ScraperFactory:
    """Knows the platforms of this package, those of installed packages, those of the settings, and those registered.

    Where several have the same name, the registered one goes first, then the settings' one, then the installed one,
    then ours. Belongs to one thread; what `scraper` answers may be called on any.
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
        self._installed: dict[str, _Imported] | None = None
        """None: nobody has looked yet."""
        self._registered: dict[str, Scrape] = {}

    def register(self, name: str, scraper: Scraper) -> None:
        """For programs that embed this one. Raises TypeError for what is no platform."""
        self._registered[name] = scrape_of(scraper)

    def configure(self, name: str, place: Configured) -> None:
        """As the settings name it. Nothing is imported yet."""
        self._others()[name] = _Imported(place.load)

    def scraper(self, name: str) -> Scrape | None:
        """None: there is none of that name.

        An installed or configured one is imported by its first call, so that an import that fails, blocks or exits
        costs the task it was for and nothing else; the next call tries again.
        """
        return self._registered.get(name) or self._others().get(name) or self._built_in.get(name)

    def names(self) -> list[str]:
        """Of all platforms that can be used, as far as is known yet."""
        names = {*self._built_in, *self._others(), *self._registered}
        return sorted(names - self.unavailable().keys())

    def unavailable(self) -> dict[str, str]:
        """Name -> why, for installed and configured platforms whose last import failed."""
        others = {name: one.problem for name, one in self._others().items() if one.problem}
        return {name: problem for name, problem in others.items() if name not in self._registered}

    def _others(self) -> dict[str, _Imported]:
        if self._installed is None:
            by_name: dict[str, list[EntryPoint]] = {}
            for entry in self._look_up():
                by_name.setdefault(entry.name, []).append(entry)
            self._installed = {name: _Imported(partial(_loaded, entries)) for name, entries in by_name.items()}
        return self._installed


class _Imported:
    """A platform of somebody else's package."""

    def __init__(self, load: Callable[[], Scrape]) -> None:
        self._load_it = load
        self._lock = threading.Lock()
        self._scrape: Scrape | None = None
        self.problem = ""

    def __call__(self, task: Task) -> Outcome | Awaitable[Outcome]:
        scrape = self._scrape or self._load()
        return scrape(task)

    def _load(self) -> Scrape:
        with self._lock:
            try:
                self._scrape = self._scrape or self._load_it()
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
                raise
            self.problem = ""
            return self._scrape


def _loaded(entries: list[EntryPoint]) -> Scrape:
    places = sorted({entry.value for entry in entries})
    if len(places) > 1:
        raise ImportError(f"several packages offer a platform of this name: {', '.join(places)}")
    return scrape_of(entries[0].load())
