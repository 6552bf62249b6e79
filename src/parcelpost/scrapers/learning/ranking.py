"""Ranks the selectors of each field per site by recent success, and detects fields that a site no longer shows."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from parcelpost.model import Broken, Signal
from parcelpost.scrapers.html.extract import SelectorResult
from parcelpost.scrapers.html.selectors import Label, Selector, selector_from_name, selector_name
from parcelpost.scrapers.learning.stats import (
    ENOUGH_PAGES,
    FAILING_RATE,
    SelectorStats,
    updated_rate,
    updated_slow_rate,
)

_MARGIN = 0.2
"""By so much another way must be better to go before one that was written before it, or is known on the site."""
_EXPLORE_EVERY = 100
_BY_CHANCE = 1e-5
"""Of a field that not every page shows, so many pages in a row may lack it: their chance must be smaller than this."""
_MOST_LEARNED = 8
_PROVEN = 0.8
"""From this success rate on, a label that the fleet has learned is tried here too."""
_ALL_PAGES, _ONE_IN = 100, 10
"""So many of a site's pages are told in full, then one in so many, whatever it shows: rates stay right."""

SiteKey = tuple[str, str, str]
"""Platform, state, county."""

Results = SelectorResult | list[SelectorResult]
"""Of one field on one page; the only one stands for itself."""

FleetStats = Mapping[tuple[str, str], float]
"""Kind and selector of a field's ways -> how often each led to the field in the whole fleet."""
_NO_FLEET_STATS: FleetStats = {}


class _FieldState:
    """What is remembered of one field on one site.

    Nearly every page says what the page before said: that a field is found by the first way, or not at all. Such pages
    are only counted, and what they say is worked out when somebody asks.
    """

    __slots__ = (
        *("example", "is_fallen", "last", "lately", "learned", "missing", "ordered", "pages", "run", "since"),
        *("standings", "used_to"),
    )

    def __init__(self) -> None:
        self.standings: dict[tuple[str, str], SelectorStats] = {}
        self.learned: list[Selector] = []
        self.lately = self.used_to = 1.0
        self.pages = 0
        self.missing = 0
        """Pages in a row without it."""
        self.is_fallen = False
        self.example = ""
        self.since: datetime | None = None
        """Of the first page without it, if it has not been well since."""
        self.ordered: tuple[Sequence[Selector], FleetStats, Sequence[Selector]] | None = None
        """The ways known, what the fleet says, and the order that came of it."""
        self.last: Results | None = None
        """What the page before said, if the next one may say the same."""
        self.run = 0
        """How often it was said again."""

    @property
    def fallen(self) -> list[SelectorStats]:
        return [one for one in self.standings.values() if one.is_fallen]

    def standing(self, way: Selector, fleet: FleetStats = _NO_FLEET_STATS) -> SelectorStats:
        """A new one begins with what the fleet knows of it."""
        name = selector_name(way)
        if name not in self.standings:
            self.standings[name] = SelectorStats(way, fleet.get(name, 0.5))
        return self.standings[name]

    def order(self, known: Sequence[Selector], fleet: FleetStats) -> Sequence[Selector]:
        """Labels that were learned come last, however well they do: what was written down is surer.

        It holds until something is noted that is not only counted.
        """
        self.settle()
        others = [Label(selector) for (kind, selector), rate in fleet.items() if kind == "label" and rate >= _PROVEN]
        names = {selector_name(way) for way in known}
        learned = dict.fromkeys(way for way in (*self.learned, *others) if selector_name(way) not in names)
        ranked = sorted(learned, key=lambda way: -self._rank(way, fleet))
        return [*self._written(known, fleet), *ranked[:_MOST_LEARNED]]

    def _written(self, known: Sequence[Selector], fleet: FleetStats) -> Sequence[Selector]:
        """Of those that do about as well as the best, one that this site knows goes first, then as they are written."""
        left = [(self._rank(way, fleet), way) for way in known]
        if max(rank for rank, _ in left) - left[0][0] < _MARGIN:
            return known
        found = []
        while left:
            enough = max(rank for rank, _ in left) - _MARGIN
            good = [pair for pair in left if pair[0] > enough]
            first = next((pair for pair in good if selector_name(pair[1]) in self.standings), good[0])
            left.remove(first)
            found.append(first[1])
        return found

    def _rank(self, way: Selector, fleet: FleetStats) -> float:
        name = selector_name(way)
        found = self.standings.get(name)
        return found.score if found else fleet.get(name, 0.5)

    def goes_on(self, tries: Results, task_id: str) -> bool:
        """Whether the page said what the one before did, and that is noted."""
        if self.last is None or tries != self.last:
            return False
        self.run += 1
        if isinstance(tries, list) or not tries.success:
            self.example = task_id
        return True

    def settle(self) -> None:
        """Works out what was only counted."""
        if not self.run or self.last is None:
            return
        tries = self.last if isinstance(self.last, list) else [self.last]
        for one in tries:
            self.standing(one.way).note_again(one.success, self.run)
        while self.run:  # a few at a time: whether it has fallen shows on the way
            step = min(self.run, ENOUGH_PAGES)
            self._note_pages(tries[0].success, step)
            self.run -= step

    def note(self, tries: Results, fleet: FleetStats, task_id: str, at: datetime | None) -> None:
        self.settle()
        self.ordered = None
        listed = tries if isinstance(tries, list) else [tries]
        for one in listed:
            self.standing(one.way, fleet).note(one.success)
        led = {selector_name(one.way) for one in listed if one.success}
        for name in {selector_name(one.way) for one in listed} - led if led else ():
            self.standings[name].miss(task_id, at)
        success = any(one.success and (not one.guess or one.way in self.learned) for one in listed)
        self._learn(listed)
        if not success:
            self.example = task_id
            self.since = self.since or at
        self._note_pages(success, 1)
        self.last = tries if not led or (success and len(listed) == 1) else None

    def _learn(self, tries: Sequence[SelectorResult]) -> None:
        for one in tries:
            if one.guess and one.success and one.way not in self.learned and len(self.learned) < _MOST_LEARNED:
                self.learned.append(one.way)

    def _note_pages(self, success: bool, times: int) -> None:
        self.lately = updated_rate(self.lately, success, times) if self.pages else float(success)
        self.used_to = updated_slow_rate(self.used_to, success, self.pages, times)
        self.pages += times
        self.missing = 0 if success else self.missing + times
        if self.lately >= FAILING_RATE * self.used_to:
            self.is_fallen = False
        elif self.pages >= ENOUGH_PAGES and (1 - self.used_to) ** self.missing <= _BY_CHANCE:
            self.is_fallen = True
        if success and not self.is_fallen:
            self.since = None

    def recall(self, one: Broken) -> None:
        """As it was when that was told."""
        self.settle()
        self.ordered = self.last = None
        if not one.found_otherwise and not self.is_fallen:
            self.is_fallen = True
            self.pages = max(self.pages, ENOUGH_PAGES)
            self.lately, self.used_to = one.success_rate, one.used_to
            self.since, self.example = one.since, one.example
        for name in one.failing:
            kind, _, selector = name.partition(" ")
            way = selector_from_name(kind, selector)
            if way is not None and not (standing := self.standing(way)).is_fallen:
                standing.fall(one)


class Ranking:
    """One for a worker; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[SiteKey, dict[str, _FieldState]] = {}
        self._fleet: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
        self._noted: dict[SiteKey, int] = {}
        self._pages: dict[SiteKey, int] = {}

    def order(self, site: SiteKey) -> SiteOrder:
        """For one page."""
        with self._lock:
            fields, fleet = self._sites.setdefault(site, {}), self._fleet.get(site[0], {})
            explores = self._noted.get(site, 0) % _EXPLORE_EVERY == _EXPLORE_EVERY - 1
            return SiteOrder(fields, fleet, explores, self._lock)

    def tells(self, site: SiteKey) -> bool:
        """Whether the tries of this page are kept: of a site that is well known, some pages are enough."""
        with self._lock:
            number = self._pages[site] = self._pages.get(site, 0) + 1
        return number <= _ALL_PAGES or number % _ONE_IN == 0

    def take_fleet(self, platform: str, ranked: Iterable[tuple[str, str, str, float]]) -> None:
        """How ways do in the whole fleet: field, kind, selector, success rate. It counts where a site's own is unknown.

        Labels that other workers have learned are tried here too, behind all that are written; other selectors from
        outside are not run.
        """
        fields: dict[str, dict[tuple[str, str], float]] = {}
        for field, kind, selector, rate in ranked:
            fields.setdefault(field, {})[kind, selector] = rate
        with self._lock:
            self._fleet[platform] = fields

    def note(
        self, site: SiteKey, tries: Iterable[SelectorResult], task_id: str = "", at: datetime | None = None
    ) -> None:
        """What one page showed."""
        with self._lock:
            fields, fleet = self._sites.setdefault(site, {}), self._fleet.get(site[0], {})
            self._noted[site] = self._noted.get(site, 0) + 1
            for name, of_field in _by_field(tries).items():
                state = fields.get(name)
                if state is None:
                    state = fields[name] = _FieldState()
                elif of_field is state.last and isinstance(of_field, SelectorResult) and of_field.success:
                    state.run += 1  # as nearly all do
                    continue
                if not state.goes_on(of_field, task_id):
                    state.note(of_field, fleet.get(name, _NO_FLEET_STATS), task_id, at)

    def recall(self, told: Iterable[Broken]) -> None:
        """What was broken when the last worker ended: signals tell of some pages only, and may not say it."""
        with self._lock:
            for one in told:
                site = (one.platform, one.state, one.county)
                self._sites.setdefault(site, {}).setdefault(one.field, _FieldState()).recall(one)

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

    def __init__(
        self, fields: dict[str, _FieldState], fleet: Mapping[str, FleetStats], explores: bool, lock: threading.Lock
    ) -> None:
        self.explores = explores
        self._fields = fields
        self._fleet = fleet
        self._lock = lock

    def ways(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        state, fleet = self._fields.get(field), self._fleet.get(field, _NO_FLEET_STATS)
        if state is None:
            return _FieldState().order(known, fleet) if fleet else known
        before = state.ordered
        if before is not None and before[0] is known and before[1] is fleet:
            return before[2]
        with self._lock:
            found = state.order(known, fleet)
            state.ordered = known, fleet, found
        return found


def _by_field(tries: Iterable[SelectorResult]) -> dict[str, Results]:
    """The tries of each field, or the only one."""
    found: dict[str, Results] = {}
    for one in tries:
        before = found.get(one.field)
        if before is None:
            found[one.field] = one
        elif isinstance(before, list):
            before.append(one)
        else:
            found[one.field] = [before, one]
    return found


def _broken(site: SiteKey, name: str, one: _FieldState) -> Broken:
    failing = [way for way in one.standings.values() if way.tries and way.score < FAILING_RATE]
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
        example=one.example if one.is_fallen else failing[0].example,
        since=one.since if one.is_fallen else min((way.since for way in failing if way.since), default=None),
        found_otherwise=not one.is_fallen,
    )


_GUESS = " guess"
_LONGEST_SELECTOR = 500


def learning_signals(site: SiteKey, tries: Iterable[SelectorResult], task_id: str) -> tuple[Signal, ...]:
    platform, state, county = site
    context = f"{state}/{county}"
    named = ((one, *selector_name(one.way)) for one in tries)
    return tuple(
        Signal(
            platform=platform,
            field=one.field,
            selector=selector,
            selector_type=kind,
            success=one.success,
            task_id=task_id,
            context=context + _GUESS if one.guess else context,
        )
        for one, kind, selector in named
        if len(selector) <= _LONGEST_SELECTOR
    )


def replay_signals(ranking: Ranking, signals: Sequence[tuple[Signal, datetime]]) -> None:
    """What was learned before, page by page, as the signals tell it. The oldest comes first."""
    for (site, task_id), page in groupby(signals, key=lambda pair: (_site_of_signal(pair[0]), pair[0].task_id or "")):
        told = list(page)
        ranking.note(
            site, [one for signal, _ in told if (one := _result_of_signal(signal)) is not None], task_id, told[0][1]
        )


def _site_of_signal(signal: Signal) -> SiteKey:
    state, _, county = (signal.context or "").removesuffix(_GUESS).partition("/")
    return signal.platform, state, county


def _result_of_signal(signal: Signal) -> SelectorResult | None:
    way = selector_from_name(signal.selector_type, signal.selector)
    if way is None:
        return None
    return SelectorResult(signal.field, way, signal.success, guess=(signal.context or "").endswith(_GUESS))
