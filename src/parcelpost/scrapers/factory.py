"""ScraperFactory: a platform's name -> how to scrape with it and how to parse its pages.

Platforms come from this package, from entry points of installed packages, from the settings, or are registered."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Page, Target, Task
from parcelpost.scrapers import platforms
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.platform import CountyPlatform, LoadedPlatform, NotReadable, Parse, Scrape, Scraper
from parcelpost.scrapers.platforms.echo import Echo
from parcelpost.scrapers.plugins import PluginAdapter, PluginSpec, plugin_spec

_NO_PARSE = NotReadable("it has no parse function")


def load_platform(name: str, offered: object, sites: CountySites = CountySites()) -> LoadedPlatform:  # noqa: B008 - frozen
    """Raises TypeError for what is no platform, and whatever making an object of a class raises."""
    if isinstance(offered, CountyPlatform):
        return _load_county_platform(structs.replace(offered, name=name), sites)
    if (said := plugin_spec(offered)) is not None:
        return load_adapter(name, PluginAdapter(offered, said, sites.session))
    made = offered() if isinstance(offered, type) else offered
    if isinstance(made, CountyPlatform):
        return _load_county_platform(structs.replace(made, name=name), sites)
    scrape: Scrape | None = getattr(made, "scrape", None)
    parse: Parse | None = getattr(made, "parse", None)
    if scrape is None and callable(getattr(made, "fetch", None)) and callable(parse):
        return load_adapter(name, PluginAdapter(made, PluginSpec(scrape="fetch", parse="parse"), sites.session))
    scrape = made if scrape is None and callable(made) else scrape
    if not callable(scrape):
        raise TypeError(f"a {type(made).__name__} is no platform: it has no scrape(task) and is no function")
    return LoadedPlatform(scrape, parse if callable(parse) else _NO_PARSE)


def load_adapter(name: str, adapted: PluginAdapter) -> LoadedPlatform:
    return LoadedPlatform(adapted.scrape, partial(adapted.parse, name) if adapted.can_read else _NO_PARSE)


def _load_county_platform(platform: CountyPlatform, sites: CountySites) -> LoadedPlatform:
    return LoadedPlatform(sites.scrape(platform), partial(_parse_outcome, platform))


def _parse_outcome(platform: CountyPlatform, page: Page, target: Target) -> Outcome:
    return platform.parse(page, target).outcome


class ConfiguredPlatform(Struct, frozen=True, kw_only=True):
    """Where it is, as `package.module:name`. With `class_`, `scrape` and `parse` are names of its methods."""

    scrape: str = ""
    parse: str = ""
    class_: str = ""

    def load(self, name: str, sites: CountySites) -> LoadedPlatform:
        """Raises whatever importing it raises, and TypeError for what is no platform."""
        if self.class_:
            said = PluginSpec(scrape=self.scrape, parse=self.parse)
            return load_adapter(name, PluginAdapter(_import_object(self.class_), said, sites.session))
        offered = _import_object(self.scrape)
        if isinstance(offered, CountyPlatform):
            return load_platform(name, offered, sites)
        said = PluginSpec(parse=_import_object(self.parse)) if self.parse else plugin_spec(offered) or PluginSpec()
        return load_adapter(name, PluginAdapter(offered, said, sites.session))


def _import_object(place: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:  # last: what is installed is never hidden by a file that lies here
        sys.path.append(folder)
    return EntryPoint(name="", value=place, group="").load()


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
        sites: CountySites | None = None,
        installed: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP),
    ) -> None:
        """`sites`: what the platforms that fetch work with; without it only `echo` is of this package."""
        self._sites = sites or CountySites(clock=clock)
        self._built_in: dict[str, Scrape] = {platforms.ECHO: Echo(clock).scrape}
        if sites is not None:
            self._built_in |= {name: one.scrape for name, one in sites.scrapers().items()}
        self._look_up = installed
        self._installed: dict[str, _Imported] | None = None
        """None: nobody has looked yet."""
        self._registered: dict[str, LoadedPlatform] = {}

    def register(self, name: str, scraper: Scraper) -> None:
        """For programs that embed this one. Raises TypeError for what is no platform."""
        self._registered[name] = load_platform(name, scraper, self._sites)

    def configure(self, name: str, place: ConfiguredPlatform) -> None:
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
            return load_platform(name, own).parse
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

    def __init__(self, load: Callable[[], LoadedPlatform], origin: str) -> None:
        self._load_it = load
        self._lock = threading.Lock()
        self._usable: LoadedPlatform | None = None
        self.origin = origin
        self.problem = ""

    def __call__(self, task: Task) -> Outcome | Awaitable[Outcome]:
        return self.usable().scrape(task)

    def usable(self) -> LoadedPlatform:
        return self._usable or self._load()

    def _load(self) -> LoadedPlatform:
        with self._lock:
            try:
                self._usable = self._usable or self._load_it()
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
                raise
            self.problem = ""
            return self._usable


def _loaded(name: str, entries: list[EntryPoint], sites: CountySites) -> LoadedPlatform:
    places = sorted({entry.value for entry in entries})
    if len(places) > 1:
        raise ImportError(f"several packages offer a platform of this name: {', '.join(places)}")
    return load_platform(name, entries[0].load(), sites)


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
