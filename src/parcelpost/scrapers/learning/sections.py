"""Learns which sections each site's pages have: a page that lacks one is incomplete."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, structs

from parcelpost.scrapers.html.extract import SelectorResult

SiteKey = tuple[str, str, str]
"""Platform, state, county."""

ENOUGH_PAGES = 20
"""What fewer pages show of a site is not relied on."""
LISTS = frozenset({"sales", "valuations", "buildings", "tax_bills", "land"})
"""Lists of a page. A page that says that one is empty has no selector result for it."""
_MAX_GAPS = 0.02
_MAX_PARCEL_CHARS = 100


class SectionHistory(Struct):
    """Of one section, or list, on one site."""

    is_declared: bool = False
    """A section of the platform, which is expected from the first page on."""
    shown: int = 0
    """Pages that had it."""
    gaps: int = 0
    """Parcels without it, before later pages had it again."""
    absent: list[str] = []
    """Parcels without it since a page last had it."""

    @property
    def is_gone(self) -> bool:
        return len(self.absent) >= ENOUGH_PAGES

    @property
    def is_usual(self) -> bool:
        """Whether nearly every page so far had it."""
        return self.shown > 0 and self.gaps <= _MAX_GAPS * self.shown and not self.is_gone

    @property
    def is_expected(self) -> bool:
        return not self.is_gone if self.is_declared else self.is_usual and self.shown >= ENOUGH_PAGES

    def note_shown(self) -> None:
        self.shown += 1
        self.gaps += len(self.absent)
        self.absent = []

    def note_absent(self, parcel: str) -> None:
        if parcel not in self.absent and not self.is_gone:
            self.absent = [*self.absent, parcel]


class SiteHistory(Struct, frozen=True):
    """As it is stored."""

    site: SiteKey
    sections: dict[str, SectionHistory]
    """A list has brackets behind its name."""


class PageSections(Struct, frozen=True, dict=True):
    """What one page with a record shows of the platform's sections and lists, and what it lacks."""

    shown: Sequence[str]
    absent: Sequence[str]
    results: Sequence[SelectorResult]
    is_cut: bool = False
    """Whether other parts are missing, too: then a missing section says nothing about the site."""

    @cached_property
    def lists(self) -> Mapping[str, bool]:
        """List -> whether the page has it."""
        is_shown: dict[str, bool] = {}
        for result in self.results:
            if result.field in LISTS:
                is_shown[result.field] = result.success or is_shown.get(result.field, False)
        return is_shown


class Sections:
    """The sections of all sites. Thread-safe. The worker stores what changed, and loads it when it starts.

    A page is incomplete if it lacks a section that its platform declares, or a list that nearly all pages of its site
    have had (20 pages or more). A site counts as one without it only after 20 different parcels in a row lack it on
    pages that are otherwise complete: pages that have everything else that is usual on the site. A page that lacks two
    such things is cut off, and teaches nothing. One page that has it again ends that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[SiteKey, dict[str, SectionHistory]] = {}
        self._changed: set[SiteKey] = set()

    def gone(self, site: SiteKey) -> set[str]:
        """The platform's sections that the site does not have."""
        with self._lock:
            return {name for name, history in self._sites.get(site, {}).items() if history.is_gone}

    def lost(self, site: SiteKey, page: PageSections) -> list[str]:
        """Lists that the site's pages have had and this page lacks."""
        with self._lock:
            known = self._sites.get(site, {})
            lacking = [name for name, is_shown in page.lists.items() if not is_shown]
            return [name for name in lacking if (history := known.get(f"{name}[]")) is not None and history.is_expected]

    def note(self, site: SiteKey, page: PageSections, parcel: str) -> None:
        lists = page.lists
        shown = [*page.shown, *(f"{name}[]" for name, is_shown in lists.items() if is_shown)]
        absent = [*page.absent, *(f"{name}[]" for name, is_shown in lists.items() if not is_shown)]
        with self._lock:
            known = self._sites.setdefault(site, {})
            for name in (*shown, *absent):
                known.setdefault(name, SectionHistory(is_declared=not name.endswith("[]")))
            for name in shown:
                known[name].note_shown()
            usual = [name for name in absent if known[name].is_usual]
            for name in absent if not page.is_cut else ():
                if usual in ([], [name]):
                    known[name].note_absent(parcel[:_MAX_PARCEL_CHARS])
            self._changed.add(site)

    def take_changed(self) -> list[SiteHistory]:
        """Histories that were not stored yet."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return [
                SiteHistory(site, {name: structs.replace(history) for name, history in self._sites[site].items()})
                for site in changed
            ]

    def restore(self, histories: Iterable[SiteHistory]) -> None:
        """Adds what earlier workers learned of sites to what this one has learned so far."""
        with self._lock:
            for history in histories:
                known = self._sites.setdefault(history.site, {})
                for name, before in history.sections.items():
                    own = known.setdefault(name, SectionHistory(is_declared=before.is_declared))
                    absent = [] if own.shown else [*dict.fromkeys((*before.absent, *own.absent))][:ENOUGH_PAGES]
                    known[name] = structs.replace(
                        before,
                        shown=before.shown + own.shown,
                        gaps=before.gaps + own.gaps,
                        absent=absent or own.absent,
                    )
