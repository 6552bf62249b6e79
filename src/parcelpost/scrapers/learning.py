"""Which way to a field did well lately on which site, and which field a site no longer shows where it did.

A site is a platform in one county. What is noted fades: a way that failed a few times in a row gives way to one that
works, and a single bad page overturns nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from msgspec import Struct

from parcelpost.scrapers.looking import Try
from parcelpost.scrapers.ways import Way, from_name

_QUICK, _SLOW = 0.12, 0.01
"""How much a try weighs against all before it: for the ways' order, and for what a field is used to."""
_MARGIN = 0.2
"""By so much another way must be better to go before one that was written before it."""
_EXPLORE_EVERY = 50
_FALLEN = 0.5
_SEEN_ENOUGH = 20
_MISSED_ENOUGH = 3
_MOST_LEARNED = 8

Site = tuple[str, str, str]
"""Platform, state, county."""


class Broken(Struct, frozen=True, kw_only=True):
    """A field that a site used to show and that is no longer found there."""

    platform: str
    state: str
    county: str
    field: str
    success_rate: float
    """Lately."""
    used_to: float
    failing: tuple[str, ...]
    """Its ways that fail now."""
    example: str
    """The task of the last page it was not found on."""


class Failing(Struct, frozen=True, kw_only=True):
    """A way that led to a field on a site, and no longer does, though others still find it there."""

    platform: str
    state: str
    county: str
    field: str
    way: str
    example: str
    """The task of the last page it failed on."""


class _Standing:
    __slots__ = ("example", "missed", "score", "successes", "tries", "way")

    def __init__(self, way: Way, score: float) -> None:
        self.way = way
        self.score = score
        self.tries = self.successes = 0
        self.missed = 0
        """Pages in a row on which another way found what this one did not."""
        self.example = ""


class _FieldState:
    """What is remembered of one field on one site."""

    def __init__(self) -> None:
        self.standings: dict[tuple[str, str], _Standing] = {}
        self.learned: list[Way] = []
        self.lately = self.used_to = 1.0
        self.pages = 0
        self.example = ""

    def standing(self, way: Way) -> _Standing:
        return self.standings.setdefault((way.type, way.selector), _Standing(way, 0.5))

    def order(self, known: Sequence[Way]) -> Sequence[Way]:
        ways = [*known, *(way for way in self.learned if way not in known)]
        ranked = sorted(ways, key=lambda way: -self._rank(way))
        first, best = ways[0], ranked[0]
        if self._rank(best) - self._rank(first) < _MARGIN:
            return ways
        return ranked

    def _rank(self, way: Way) -> float:
        found = self.standings.get((way.type, way.selector))
        return found.score if found else 0.5


class Ranking:
    """One for a worker; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[Site, dict[str, _FieldState]] = {}

    def order(self, site: Site) -> SiteOrder:
        """For one page."""
        with self._lock:
            return SiteOrder(self._sites.setdefault(site, {}))

    def note(self, site: Site, tries: Sequence[Try], task_id: str = "") -> None:
        """What one page showed."""
        with self._lock:
            fields = self._sites.setdefault(site, {})
            found: dict[str, bool] = {}
            for one in tries:
                state = fields.setdefault(one.field, _FieldState())
                _note_try(state, one)
                found[one.field] = found.get(one.field, False) or (one.success and not one.guess)
            for one in tries:
                if not one.success and found[one.field]:
                    _note_missed(fields[one.field].standing(one.way), task_id)
            for name, success in found.items():
                _note_page(fields[name], success, task_id)

    def start_from(self, site: Site, field: str, kind: str, selector: str, success_rate: float) -> None:
        """What is known from before, or from the fleet, where nothing is known here yet."""
        way = from_name(kind, selector)
        if way is None:
            return
        with self._lock:
            state = self._sites.setdefault(site, {}).setdefault(field, _FieldState())
            standing = state.standing(way)
            if not standing.tries:
                standing.score = success_rate

    def broken(self) -> Iterator[Broken]:
        with self._lock:
            sites = [(site, dict(fields)) for site, fields in self._sites.items()]
        for (platform, state, county), fields in sites:
            for name, one in fields.items():
                if one.pages >= _SEEN_ENOUGH and one.lately < _FALLEN * one.used_to:
                    failing = (f"{s.way.type} {s.way.selector}" for s in one.standings.values() if s.score < _FALLEN)
                    yield Broken(
                        platform=platform,
                        state=state,
                        county=county,
                        field=name,
                        success_rate=one.lately,
                        used_to=one.used_to,
                        failing=tuple(failing),
                        example=one.example,
                    )

    def failing(self) -> Iterator[Failing]:
        """Even where nothing is lost by it: a site that was redesigned."""
        with self._lock:
            sites = [(site, dict(fields)) for site, fields in self._sites.items()]
        for (platform, state, county), fields in sites:
            for name, one in fields.items():
                for standing in list(one.standings.values()):
                    if standing.missed >= _MISSED_ENOUGH and standing.successes:
                        yield Failing(
                            platform=platform,
                            state=state,
                            county=county,
                            field=name,
                            way=f"{standing.way.type} {standing.way.selector}",
                            example=standing.example,
                        )


class SiteOrder:
    """The order of one site's ways, as far as is known now."""

    def __init__(self, fields: dict[str, _FieldState]) -> None:
        self._fields = fields

    def ways(self, field: str, known: Sequence[Way]) -> Sequence[Way]:
        state = self._fields.get(field)
        return state.order(known) if state else known

    def explores(self, field: str) -> bool:
        state = self._fields.get(field)
        return state is not None and state.pages % _EXPLORE_EVERY == _EXPLORE_EVERY - 1


def _note_try(state: _FieldState, one: Try) -> None:
    standing = state.standing(one.way)
    standing.tries += 1
    standing.score += _QUICK * (one.success - standing.score)
    if one.success:
        standing.successes += 1
        standing.missed = 0
    if one.guess and one.way not in state.learned and len(state.learned) < _MOST_LEARNED:
        state.learned.append(one.way)


def _note_missed(standing: _Standing, task_id: str) -> None:
    standing.missed += 1
    standing.example = task_id


def _note_page(state: _FieldState, success: bool, task_id: str) -> None:
    if not state.pages:
        state.lately = state.used_to = float(success)
    state.pages += 1
    state.lately += _QUICK * (success - state.lately)
    state.used_to += max(_SLOW, 1 / state.pages) * (success - state.used_to)
    if not success:
        state.example = task_id
