"""Names of the known platforms, without importing any of them."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from functools import lru_cache
from importlib.metadata import entry_points

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.model import Site, Target, Task
from parcelpost.scrapers.platforms import ECHO, GROUP, LISTS, NAMES, TABLES
from parcelpost.settings import Settings

_ENTRY = "add the county to the file set as fetch.counties_file"


class KnownPlatforms:
    """The known platforms and their county sites. Raises InvalidSettings for an invalid counties file.

    `override` is the option or parameter, named in hints, that accepts a task without these checks.
    """

    def __init__(self, settings: Settings, override: str = "--any-platform") -> None:
        from parcelpost.scrapers.counties import load_counties

        self.names = platform_names(settings)
        self._override = override
        self._pace_seconds = settings.fetch.pace_seconds
        others = {entry.name for entry in entry_points(group=GROUP)} | set(settings.platforms)
        self._of_counties = frozenset(NAMES) - others  # a plugin platform may support any county
        self._counties = load_counties(settings.fetch.counties_file)
        self._allow_private = settings.fetch.allow_private

    def spelled(self, name: str) -> str:
        """The platform's canonical name, matched case-insensitively. Raises InvalidInput if it is unknown."""
        return canonical_platform(name, self.names, self._override)

    def checked(self, task: Task, reported: Collection[str]) -> Task:
        """The task with its platform's canonical name. Platforms that workers have `reported` are accepted too.

        Raises InvalidInput as `spelled` and `check` do.
        """
        if task.platform in reported and task.platform not in self.names:
            return task
        task = structs.replace(task, platform=self.spelled(task.platform))
        self.check(task)
        return task

    def check(self, task: Task) -> None:
        """Raises InvalidInput if the task has neither a URL nor a county with a known site."""
        target = task.target
        if task.platform not in self._of_counties or target.url:
            return
        if self._counties.find(task.platform, target.state, target.county) is None:
            hint = f"{_ENTRY}, provide the URL of the page, or use {self._override} to accept it anyway"
            raise InvalidInput(self._unknown(task.platform, target.state, target.county), hint=hint)

    def check_list(self, platform: str, target: Target) -> None:
        """Raises InvalidInput for a platform that has no lists."""
        if platform not in self._of_counties or platform in LISTS or (platform in TABLES and "where" in target.extra):
            return
        lists = f"platforms with lists: {', '.join(sorted(LISTS))}"
        hint = f"{lists}; for {platform}, use a file with the column 'where'" if platform in TABLES else lists
        raise InvalidInput(f"{platform} has no lists", hint=hint)

    def check_url(self, url: str) -> None:
        """Raises InvalidInput for a URL that workers refuse. Names are not resolved."""
        from parcelpost.scrapers.fetch.errors import CannotFetch
        from parcelpost.scrapers.fetch.exchange import FetchGuard

        try:
            FetchGuard(self._allow_private).url(url)
        except CannotFetch as error:
            raise InvalidInput(f"url: {error}") from None

    def pace_seconds(self, site: Site) -> float:
        """Between two requests to the site: that of the settings, or of the county's entry if it is longer."""
        county = self._counties.find(site.platform, site.state, site.county)
        return max(self._pace_seconds, county.pace_seconds if county else 0.0)

    @lru_cache(maxsize=1_000)  # noqa: B019 - one command's
    def _unknown(self, platform: str, state: str, county: str) -> str:
        if not county:
            return f"{platform} needs a county, or the URL of the parcel's page"
        here = f"{county}, {state}" if state else county
        there = {
            f"{county.county}, {county.state}".lower(): county
            for county in self._counties
            if county.platform == platform
        }
        close = difflib.get_close_matches(here.lower()[:100], there, n=1, cutoff=0.0)
        nearest = f" (did you mean {there[close[0]].county}, {there[close[0]].state}?)" if close else ""
        return f"{platform} has no known site for {here}{nearest}"


def platform_names(settings: Settings) -> frozenset[str]:
    """Built-in platforms, those of installed packages, and those in the settings."""
    installed = (entry.name for entry in entry_points(group=GROUP))
    return frozenset({ECHO, *NAMES, *installed, *settings.platforms})


def canonical_platform(name: str, known: frozenset[str], override: str = "--any-platform") -> str:
    """The platform's canonical name, matched case-insensitively. Raises InvalidInput if it is unknown."""
    spelling = _find_spelling(name, known)
    if not spelling:
        hint = f"known platforms: {', '.join(sorted(known))}; use {override} to accept it anyway"
        raise InvalidInput(_unknown_text(name, known), hint=hint)
    return spelling


def require_platform(name: str, known: frozenset[str]) -> None:
    """Raises InvalidInput if it is unknown."""
    if name not in known:
        raise unknown_platform(name, known)


def unknown_platform(name: str, known: frozenset[str]) -> InvalidInput:
    return InvalidInput(_unknown_text(name, known), hint=f"known platforms: {', '.join(sorted(known))}")


@lru_cache(maxsize=1_000)
def _unknown_text(name: str, known: frozenset[str]) -> str:
    """The error message for an unknown platform."""
    lower = {platform.lower(): platform for platform in known}
    close = difflib.get_close_matches(name.lower()[:100], sorted(lower), n=1)
    return f"unknown platform {name!r:.60}" + (f" (did you mean {lower[close[0]]}?)" if close else "")


@lru_cache(maxsize=1_000)
def _find_spelling(name: str, known: frozenset[str]) -> str:
    return (
        name
        if name in known
        else next((platform for platform in sorted(known) if platform.lower() == name.lower()), "")
    )
