"""Which way to a field did well lately on which site, and which field a site no longer shows where it did.

A site is a platform in one county. What is noted fades: a way that failed a few times in a row gives way to one that
works, and a single bad page overturns nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from parcelpost.model import Broken
from parcelpost.scrapers.looking import Try
from parcelpost.scrapers.ways import Label, Way, from_name, name_of

_QUICK, _SLOW = 0.12, 0.01
"""How much a try weighs against all before it: for the ways' order, and for what a field is used to."""
_MARGIN = 0.2
"""By so much another way must be better to go before one that was written before it."""
_EXPLORE_EVERY = 50
_FALLEN = 0.5
_SEEN_ENOUGH = 20
_MISSED = 3
_MOST_LEARNED = 8
_PROVEN = 0.8
"""From this success rate on, a label that the fleet has learned is tried here too."""
_ALL_PAGES, _ONE_IN = 100, 5
"""So many of a site's pages are told in full, then one in so many, whatever it shows: rates stay right."""

Site = tuple[str, str, str]
"""Platform, state, county."""

Fleet = Mapping[tuple[str, str], float]
"""Kind and selector of a field's ways -> how often each led to the field in the whole fleet."""
_NOTHING_KNOWN: Fleet = {}


class _Standing:
    __slots__ = ("missed", "score", "since", "tries", "used_to", "way")

    def __init__(self, way: Way, score: float) -> None:
        self.way = way
        self.score = self.used_to = score
        self.tries = 0
        self.missed = 0
        """Pages in a row on which another way led to the field, and this one did not."""
        self.since: datetime | None = None
        """Of the first of them."""

    @property
    def is_fallen(self) -> bool:
        return self.tries >= _SEEN_ENOUGH and self.used_to >= _FALLEN and self.missed >= _MISSED

    def note(self, success: bool) -> None:
        self.tries += 1
        self.score += _QUICK * (success - self.score)
        self.used_to += max(_SLOW, 1 / self.tries) * (success - self.used_to)
        if success:
            self.missed, self.since = 0, None

    def note_found(self, times: int) -> None:
        """As that many successes."""
        self.score = _risen(self.score, times)
        self.used_to = _risen_slowly(self.used_to, self.tries, times)
        self.tries += times
        self.missed, self.since = 0, None

    def miss(self, at: datetime | None) -> None:
        self.missed += 1
        self.since = self.since or at


class _FieldState:
    """What is remembered of one field on one site.

    Nearly every page finds a field by the first way, as the page before did: such pages are only counted, and what
    they say is worked out when somebody asks.
    """

    __slots__ = ("_run", "_steady", "example", "lately", "learned", "ordered", "pages", "since", "standings", "used_to")

    def __init__(self) -> None:
        self.standings: dict[tuple[str, str], _Standing] = {}
        self.learned: list[Way] = []
        self.lately = self.used_to = 1.0
        self.pages = 0
        self.example = ""
        self.since: datetime | None = None
        """Of the first page without it, if it has not been well since."""
        self.ordered: tuple[Sequence[Way], Fleet, Sequence[Way]] | None = None
        """The ways known, what the fleet says, and the order that came of it."""
        self._steady: _Standing | None = None
        self._run = 0

    @property
    def is_fallen(self) -> bool:
        return self.pages >= _SEEN_ENOUGH and self.lately < _FALLEN * self.used_to

    @property
    def fallen(self) -> list[_Standing]:
        return [one for one in self.standings.values() if one.is_fallen]

    @property
    def explores(self) -> bool:
        return (self.pages + self._run) % _EXPLORE_EVERY == _EXPLORE_EVERY - 1

    def standing(self, way: Way) -> _Standing:
        name = name_of(way)
        if name not in self.standings:
            self.standings[name] = _Standing(way, 0.5)
        return self.standings[name]

    def order(self, known: Sequence[Way], fleet: Fleet) -> Sequence[Way]:
        """Success of the way that is tried first cannot change it: so it holds as long as nothing else is noted."""
        self.settle()
        ways = [*known, *(way for way in self.learned if way not in known)]
        ranks = [self._rank(way, fleet) for way in ways]
        if max(ranks) - ranks[0] < _MARGIN:
            return ways
        return [way for _, way in sorted(zip(ranks, ways, strict=True), key=lambda pair: -pair[0])]

    def _rank(self, way: Way, fleet: Fleet) -> float:
        name = name_of(way)
        found = self.standings.get(name)
        return found.score if found and found.tries else fleet.get(name, found.score if found else 0.5)

    def goes_on(self, only: Try) -> bool:
        """Whether the page said what the one before did, which is all that there is to note."""
        if (
            self._steady is None
            or not only.success
            or (self._steady.way is not only.way and self._steady.way != only.way)
        ):
            return False
        self._run += 1
        return True

    def settle(self) -> None:
        """Works out what was only counted."""
        times, self._run = self._run, 0
        if times and self._steady is not None:
            self._steady.note_found(times)
            self._note_found(times)

    def note(self, tries: Sequence[Try], task_id: str, at: datetime | None) -> None:
        self.settle()
        self.ordered = None
        for one in tries:
            self.standing(one.way).note(one.success)
            if one.guess and one.way not in self.learned and len(self.learned) < _MOST_LEARNED:
                self.learned.append(one.way)
        led = {name_of(one.way) for one in tries if one.success}
        for name in {name_of(one.way) for one in tries} - led if led else ():
            self.standings[name].miss(at)
        if any(one.success and not one.guess for one in tries):
            self._note_found(1)
        else:
            self._note_missing(task_id, at)
        self._steady = self.standing(tries[0].way) if len(tries) == 1 and led and not tries[0].guess else None

    def _note_found(self, times: int) -> None:
        self.lately = _risen(self.lately, times) if self.pages else 1.0
        self.used_to = _risen_slowly(self.used_to, self.pages, times) if self.pages else 1.0
        self.pages += times
        if not self.is_fallen:
            self.since = None

    def _note_missing(self, task_id: str, at: datetime | None) -> None:
        self.pages += 1
        self.lately -= (_QUICK if self.pages > 1 else 1) * self.lately
        self.used_to -= max(_SLOW, 1 / self.pages) * self.used_to
        self.example = task_id
        self.since = self.since or at


def _risen(rate: float, times: int) -> float:
    """After that many successes, each of which weighs _QUICK."""
    return 1 - (1 - rate) * (1 - _QUICK) ** times


def _risen_slowly(rate: float, before: int, times: int) -> float:
    """After that many successes, the n-th of all weighing 1/n, and never less than _SLOW."""
    early = min(times, max(0, round(1 / _SLOW) - before))
    left = (1 - rate) * (before / (before + early) if early else 1)
    return 1 - left * (1 - _SLOW) ** (times - early)


class Ranking:
    """One for a worker; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[Site, dict[str, _FieldState]] = {}
        self._fleet: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
        self._pages: dict[Site, int] = {}

    def order(self, site: Site) -> SiteOrder:
        """For one page."""
        with self._lock:
            return SiteOrder(self._sites.setdefault(site, {}), self._fleet.get(site[0], {}), self._lock)

    def tells(self, site: Site) -> bool:
        """Whether the tries of this page are kept: of a site that is well known, some pages are enough."""
        with self._lock:
            number = self._pages[site] = self._pages.get(site, 0) + 1
        return number <= _ALL_PAGES or number % _ONE_IN == 0

    def take_fleet(self, platform: str, ranked: Iterable[tuple[str, str, str, float]]) -> None:
        """How ways do in the whole fleet: field, kind, selector, success rate. It counts where a site's own is unknown.

        Labels that other workers have learned are tried here too; other selectors from outside are not run.
        """
        fields: dict[str, dict[tuple[str, str], float]] = {}
        for field, kind, selector, rate in ranked:
            fields.setdefault(field, {})[kind, selector] = rate
        with self._lock:
            self._fleet[platform] = fields

    def note(self, site: Site, tries: Iterable[Try], task_id: str = "", at: datetime | None = None) -> None:
        """What one page showed."""
        with self._lock:
            fields = self._sites.setdefault(site, {})
            for name, of_field in _by_field(tries).items():
                state = fields.get(name)
                if state is None:
                    state = fields[name] = _FieldState()
                if isinstance(of_field, list):
                    state.note(of_field, task_id, at)
                elif not state.goes_on(of_field):
                    state.note([of_field], task_id, at)

    def start_from(self, site: Site, field: str, kind: str, selector: str, success_rate: float) -> None:
        """What is known from before, or from the fleet, where nothing is known here yet."""
        way = from_name(kind, selector)
        if way is None:
            return
        with self._lock:
            state = self._sites.setdefault(site, {}).setdefault(field, _FieldState())
            state.settle()
            state.ordered = None
            standing = state.standing(way)
            if not standing.tries:
                standing.score = success_rate

    def broken(self) -> Iterator[Broken]:
        """Fields that are no longer found, and those that are found by another way than they were."""
        with self._lock:
            fields = [(site, name, one) for site, found in self._sites.items() for name, one in found.items()]
            for _, _, one in fields:
                one.settle()
            found = [_broken(site, name, one) for site, name, one in fields if one.is_fallen or one.fallen]
        yield from found


class SiteOrder:
    """The order of one site's ways, as far as is known now."""

    def __init__(self, fields: dict[str, _FieldState], fleet: Mapping[str, Fleet], lock: threading.Lock) -> None:
        self._fields = fields
        self._fleet = fleet
        self._lock = lock

    def ways(self, field: str, known: Sequence[Way]) -> Sequence[Way]:
        state, fleet = self._fields.get(field), self._fleet.get(field, _NOTHING_KNOWN)
        if state is None:
            return self._ordered(_FieldState(), known, fleet) if fleet else known
        before = state.ordered
        if before is not None and before[0] is known and before[1] is fleet:
            return before[2]
        with self._lock:
            found = self._ordered(state, known, fleet)
            state.ordered = known, fleet, found
        return found

    def explores(self, field: str) -> bool:
        state = self._fields.get(field)
        return state is not None and state.explores

    def _ordered(self, state: _FieldState, known: Sequence[Way], fleet: Fleet) -> Sequence[Way]:
        learned = [Label(selector) for (kind, selector), rate in fleet.items() if kind == "label" and rate >= _PROVEN]
        all_known = [*known, *(way for way in learned if way not in known)][: len(known) + _MOST_LEARNED]
        return state.order(all_known, fleet)


def _by_field(tries: Iterable[Try]) -> dict[str, Try | list[Try]]:
    """The tries of each field, or the only one."""
    found: dict[str, Try | list[Try]] = {}
    for one in tries:
        before = found.get(one.field)
        if before is None:
            found[one.field] = one
        elif isinstance(before, list):
            before.append(one)
        else:
            found[one.field] = [before, one]
    return found


def _broken(site: Site, name: str, one: _FieldState) -> Broken:
    failing = [way for way in one.standings.values() if way.tries and way.score < _FALLEN]
    if not one.is_fallen:
        failing = one.fallen
    platform, state, county = site
    return Broken(
        platform=platform,
        state=state,
        county=county,
        field=name,
        success_rate=one.lately,
        used_to=one.used_to,
        failing=tuple(f"{way.way.type} {way.way.selector}" for way in failing),
        example=one.example,
        since=one.since if one.is_fallen else min((way.since for way in failing if way.since), default=None),
        found_otherwise=not one.is_fallen,
    )
