"""ScraperFactory: finds a platform by name and loads it.

Platforms are built in, installed (entry points), named in the settings, or registered by a program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from msgspec import structs

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Task
from parcelpost.scrapers import platforms
from parcelpost.scrapers.county_scraper import CountyScraper, CountySites, parse_again
from parcelpost.scrapers.platform import CountyPlatform, LoadedPlatform, NotReadable, Parse, Scrape
from parcelpost.scrapers.platforms.echo import Echo
from parcelpost.scrapers.plugin_adapter import PluginAdapter

_NO_PARSE = NotReadable("it has no parse function")


def load_platform(
    name: str,
    plugin: object,
    sites: CountySites = CountySites(),  # noqa: B008 - frozen
    *,
    scrape: str = "",
    parse: Callable[..., Any] | str = "",
) -> LoadedPlatform:
    """Raises TypeError if it is not a platform, and whatever instantiating a class raises."""
    if isinstance(plugin, CountyPlatform):
        platform = structs.replace(plugin, name=name)
        sections = sites.ranking.sections
        return LoadedPlatform(
            sites.scrape(platform), lambda page, target: parse_again(platform, page, target, sections)
        )
    adapter = PluginAdapter(plugin, scrape=scrape, parse=parse, sessions=sites.session)
    return LoadedPlatform(adapter.scrape, partial(adapter.parse, name) if adapter.can_parse else _NO_PARSE)


def _load_configured(name: str, sites: CountySites, scrape: str, parse: str, class_: str) -> LoadedPlatform:
    """Raises whatever importing it raises."""
    if class_:
        return load_platform(name, _import_object(class_), sites, scrape=scrape, parse=parse)
    return load_platform(name, _import_object(scrape), sites, parse=_import_object(parse) if parse else "")


def _import_object(path: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:  # last, so that a file in the current folder never shadows an installed package
        sys.path.append(folder)
    return EntryPoint(name="", value=path, group="").load()


GROUP = platforms.GROUP
OURS, SETTINGS, REGISTERED = "parcelpost", "settings", "registered"


class ScraperFactory:
    """Where several platforms share a name, the order is: registered, settings, installed, built in.

    Belongs to one thread; the functions that `scraper` and `parser` return may be called on any.
    """

    def __init__(
        self,
        clock: Clock = SystemClock(),
        *,
        sites: CountySites | None = None,
        installed: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP),
    ) -> None:
        """`sites`: what platforms need to fetch pages; without it, `echo` is the only built-in platform."""
        self._sites = sites or CountySites(clock=clock)
        self._county_scrapers = sites.scrapers() if sites is not None else {}
        self._built_in: dict[str, Scrape] = {platforms.ECHO: Echo(clock).scrape}
        self._built_in |= {name: scraper.scrape for name, scraper in self._county_scrapers.items()}
        self._find_entry_points = installed
        self._installed: dict[str, _Imported] | None = None
        """None: entry points have not been read yet."""
        self._registered: dict[str, LoadedPlatform] = {}

    def register(self, name: str, plugin: object) -> None:
        """For programs that embed this one. Raises TypeError if it is not a platform."""
        self._registered[name] = load_platform(name, plugin, self._sites)

    def configure(self, name: str, *, scrape: str = "", parse: str = "", class_: str = "") -> None:
        """Adds a platform of the settings, without importing it yet.

        Functions and classes are given as `package.module:name`. With `class_`, `scrape` and `parse` name its methods.
        """
        load = partial(_load_configured, name, self._sites, scrape, parse, class_)
        self._others()[name] = _Imported(load, SETTINGS)

    def scraper(self, name: str) -> Scrape | None:
        """Returns None if there is no platform of that name.

        An installed or configured platform is imported by its first call, so an import that fails, blocks or exits
        affects that task only; the next call tries again.
        """
        if name in self._registered:
            return self._registered[name].scrape
        return self._others().get(name) or self._built_in.get(name)

    def county_scraper(self, name: str) -> CountyScraper | None:
        """Returns the built-in scraper of that name, whose fetching never blocks; None if another platform has it."""
        is_replaced = name in self._registered or name in self._others()
        return None if is_replaced else self._county_scrapers.get(name)

    def parser(self, name: str) -> Parse | NotReadable:
        """Imports an installed or configured platform. Raises whatever that raises."""
        if name in self._registered:
            return self._registered[name].parse
        if name in self._others():
            return self._others()[name].loaded().parse
        own = self._sites.platform(name)
        if own is not None:
            return load_platform(name, own, self._sites).parse
        return NotReadable(
            "it has no parse function" if name in self._built_in else "there is no platform of that name"
        )

    def names(self) -> list[str]:
        """The platforms that can be used, except those whose import failed."""
        return sorted(self.origins().keys() - self.unavailable().keys())

    def origins(self) -> dict[str, str]:
        """Name -> `parcelpost`, `settings`, `registered`, or the name of the installed package."""
        others = {name: platform.origin for name, platform in self._others().items()}
        return {**dict.fromkeys(self._built_in, OURS), **others, **dict.fromkeys(self._registered, REGISTERED)}

    def unavailable(self) -> dict[str, str]:
        """Name -> reason, for installed and configured platforms whose last import failed."""
        others = {name: platform.problem for name, platform in self._others().items() if platform.problem}
        return {name: problem for name, problem in others.items() if name not in self._registered}

    def _others(self) -> dict[str, _Imported]:
        if self._installed is None:
            by_name: dict[str, list[EntryPoint]] = {}
            for entry in self._find_entry_points():
                by_name.setdefault(entry.name, []).append(entry)
            self._installed = {
                name: _Imported(partial(_load_installed, name, entries, self._sites), _package(entries[0]))
                for name, entries in by_name.items()
            }
        return self._installed


class _Imported:
    """A platform that is imported by its first call."""

    def __init__(self, load: Callable[[], LoadedPlatform], origin: str) -> None:
        self._load_platform = load
        self._lock = threading.Lock()
        self._loaded: LoadedPlatform | None = None
        self.origin = origin
        self.problem = ""

    def __call__(self, task: Task) -> Outcome | Awaitable[Outcome]:
        return self.loaded().scrape(task)

    def loaded(self) -> LoadedPlatform:
        return self._loaded or self._load()

    def _load(self) -> LoadedPlatform:
        with self._lock:
            try:
                self._loaded = self._loaded or self._load_platform()
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
                raise
            self.problem = ""
            return self._loaded


def _load_installed(name: str, entries: list[EntryPoint], sites: CountySites) -> LoadedPlatform:
    paths = sorted({entry.value for entry in entries})
    if len(paths) > 1:
        raise ImportError(f"several packages define a platform of this name: {', '.join(paths)}")
    return load_platform(name, entries[0].load(), sites)


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
