"""ScraperFactory: a platform's name -> how to scrape with it, and how to read its pages."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Task
from parcelpost.scrapers import platforms
from parcelpost.scrapers.configured import Configured
from parcelpost.scrapers.offered import usable
from parcelpost.scrapers.platform import NotReadable, Parse, Scrape, Scraper, Usable
from parcelpost.scrapers.platforms.echo import Echo
from parcelpost.scrapers.sites import Sites

GROUP = platforms.GROUP
OURS, SETTINGS, REGISTERED = "parcelpost", "settings", "registered"


class ScraperFactory:
    """Knows the platforms of this package, those of installed packages, those of the settings, and those registered.

    Where several have the same name, the registered one goes first, then the settings' one, then the installed one,
    then ours. Belongs to one thread; what `scraper` and `parser` answer may be called on any.
    """

    def __init__(
        self,
        clock: Clock = SystemClock(),
        *,
        sites: Sites | None = None,
        installed: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP),
    ) -> None:
        """`sites`: what the platforms that fetch work with; without it only `echo` is of this package."""
        self._sites = sites or Sites(clock=clock)
        self._built_in: dict[str, Scrape] = {platforms.ECHO: Echo(clock).scrape}
        if sites is not None:
            self._built_in |= {name: one.scrape for name, one in sites.scrapers().items()}
        self._look_up = installed
        self._installed: dict[str, _Imported] | None = None
        """None: nobody has looked yet."""
        self._registered: dict[str, Usable] = {}

    def register(self, name: str, scraper: Scraper) -> None:
        """For programs that embed this one. Raises TypeError for what is no platform."""
        self._registered[name] = usable(name, scraper, self._sites)

    def configure(self, name: str, place: Configured) -> None:
        """As the settings name it. Nothing is imported yet."""
        self._others()[name] = _Imported(partial(place.load, name, self._sites), SETTINGS)

    def scraper(self, name: str) -> Scrape | None:
        """None: there is none of that name.

        An installed or configured one is imported by its first call, so that an import that fails, blocks or exits
        costs the task it was for and nothing else; the next call tries again.
        """
        if name in self._registered:
            return self._registered[name].scrape
        return self._others().get(name) or self._built_in.get(name)

    def parser(self, name: str) -> Parse | NotReadable:
        """Imports an installed or configured platform, and raises whatever that raises."""
        if name in self._registered:
            return self._registered[name].parse
        if name in self._others():
            return self._others()[name].usable().parse
        own = self._sites.platform(name)
        if own is not None:
            return usable(name, own).parse
        return NotReadable("it has no parse function" if name in self._built_in else "no platform here has that name")

    def names(self) -> list[str]:
        """Of all platforms that can be used, as far as is known yet."""
        return sorted(self.origins().keys() - self.unavailable().keys())

    def origins(self) -> dict[str, str]:
        """Name -> whose it is: `parcelpost`, `settings`, `registered`, or the package that was installed."""
        others = {name: one.origin for name, one in self._others().items()}
        return {**dict.fromkeys(self._built_in, OURS), **others, **dict.fromkeys(self._registered, REGISTERED)}

    def unavailable(self) -> dict[str, str]:
        """Name -> why, for installed and configured platforms whose last import failed."""
        others = {name: one.problem for name, one in self._others().items() if one.problem}
        return {name: problem for name, problem in others.items() if name not in self._registered}

    def _others(self) -> dict[str, _Imported]:
        if self._installed is None:
            by_name: dict[str, list[EntryPoint]] = {}
            for entry in self._look_up():
                by_name.setdefault(entry.name, []).append(entry)
            self._installed = {
                name: _Imported(partial(_loaded, name, entries, self._sites), _package(entries[0]))
                for name, entries in by_name.items()
            }
        return self._installed


class _Imported:
    """A platform of somebody else's package."""

    def __init__(self, load: Callable[[], Usable], origin: str) -> None:
        self._load_it = load
        self._lock = threading.Lock()
        self._usable: Usable | None = None
        self.origin = origin
        self.problem = ""

    def __call__(self, task: Task) -> Outcome | Awaitable[Outcome]:
        return self.usable().scrape(task)

    def usable(self) -> Usable:
        return self._usable or self._load()

    def _load(self) -> Usable:
        with self._lock:
            try:
                self._usable = self._usable or self._load_it()
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
                raise
            self.problem = ""
            return self._usable


def _loaded(name: str, entries: list[EntryPoint], sites: Sites) -> Usable:
    places = sorted({entry.value for entry in entries})
    if len(places) > 1:
        raise ImportError(f"several packages offer a platform of this name: {', '.join(places)}")
    return usable(name, entries[0].load(), sites)


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
