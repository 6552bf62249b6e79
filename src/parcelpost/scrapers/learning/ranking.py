"""Ranks the selectors of each field per site by recent success, and detects fields that a site no longer shows."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from parcelpost.model import Broken, Json, Signal
from parcelpost.scrapers.html.extract import SelectorResult
from parcelpost.scrapers.html.selectors import Label, Selector, selector_from_name, selector_name
from parcelpost.scrapers.learning.sections import ENOUGH_PAGES, Sections, SiteKey

_QUICK, _SLOW = 0.12, 0.01
"""The weight of one attempt in the recent rate, which orders selectors, and at least in the usual rate."""
FAILING_RATE = 0.5
_MIN_MISSES = 3


class SelectorStats:
    """The recent and the usual success rate of one selector on one site."""

    __slots__ = ("attempts", "example", "misses", "score", "selector", "since", "usual_rate")

    def __init__(self, selector: Selector, score: float) -> None:
        self.selector = selector
        self.score = self.usual_rate = score
        self.attempts = 0
        self.misses = 0
        """Consecutive pages on which another selector found the field and this one did not."""
        self.since: datetime | None = None
        """The time of the first miss."""
        self.example = ""
        """The task of the last miss."""

    @property
    def is_broken(self) -> bool:
        return self.attempts >= ENOUGH_PAGES and self.usual_rate >= FAILING_RATE and self.misses >= _MIN_MISSES

    def note(self, success: bool) -> None:
        self.note_times(success, 1)
        if success:
            self.misses, self.since = 0, None

    def note_times(self, success: bool, times: int) -> None:
        """Counts several attempts with the same result."""
        self.score = updated_rate(self.score, success, times)
        self.usual_rate = updated_slow_rate(self.usual_rate, success, self.attempts, times)
        self.attempts += times

    def mark_broken(self, report: Broken) -> None:
        """Restores the state that was reported."""
        self.attempts, self.misses = max(self.attempts, ENOUGH_PAGES), max(self.misses, _MIN_MISSES)
        self.score, self.usual_rate = 0.0, max(self.usual_rate, report.used_to, FAILING_RATE)
        self.since, self.example = report.since, report.example

    def miss(self, task_id: str, at: datetime | None) -> None:
        self.misses += 1
        self.since = self.since or at
        self.example = task_id


def updated_rate(rate: float, success: bool, times: int) -> float:
    """The rate after several attempts with the same result, each weighing _QUICK."""
    return success + (rate - success) * (1 - _QUICK) ** times


def updated_slow_rate(rate: float, success: bool, before: int, times: int) -> float:
    """The rate after several attempts with the same result, the n-th weighing 1/n but at least _SLOW."""
    early = min(times, max(0, round(1 / _SLOW) - before))
    left = before / (before + early) if early else 1.0
    return success + (rate - success) * left * (1 - _SLOW) ** (times - early)


_MARGIN = 0.2
"""Lead in success rate that a selector needs to precede one that is declared earlier or known on the site."""
_EXPLORE_EVERY = 100
_BREAK_PROBABILITY = 1e-5
"""A field is broken if so many consecutive pages without it are less likely than this."""
_MAX_LEARNED = 8
_MIN_FLEET_RATE = 0.8
"""A label that the fleet has learned is tried here from this success rate on."""
_REPORT_ALL, _REPORT_EVERY = 100, 20
"""Signals are kept of the first pages of a site, then of every twentieth, regardless of the result."""

_DISTINCT = ("owner_names", "situs_address", "legal_description", "mailing_lines", "last_sale_book_page")
"""Fields that are seldom the same on two parcels."""

Results = SelectorResult | list[SelectorResult]
"""The results of one field on one page; a single result is not wrapped in a list."""

FleetStats = Mapping[tuple[str, str], float]
"""Type and expression of a selector -> its success rate in the whole fleet."""
_NO_FLEET_STATS: FleetStats = {}


class _FieldState:
    """The state of one field on one site.

    Nearly every page repeats the result of the previous one: the first selector finds the field, or none does. Such
    pages are only counted; `settle` adds them to the stats when they are needed.
    """

    __slots__ = (
        *("example", "is_broken", "last", "recent_rate", "learned", "missing", "ordered", "pages", "run", "since"),
        *("stats", "usual_rate"),
    )

    def __init__(self) -> None:
        self.stats: dict[tuple[str, str], SelectorStats] = {}
        self.learned: list[Selector] = []
        self.recent_rate = self.usual_rate = 1.0
        self.pages = 0
        self.missing = 0
        """Consecutive pages without the field."""
        self.is_broken = False
        self.example = ""
        self.since: datetime | None = None
        """The time of the first page without it, until it is found again."""
        self.ordered: tuple[Sequence[Selector], FleetStats, Sequence[Selector]] | None = None
        """The last ranking: declared selectors, fleet stats, result."""
        self.last: Results | None = None
        """The results of the previous page, if the next one may repeat them."""
        self.run = 0
        """Number of repetitions since the stats were last updated."""

    @property
    def misses(self) -> bool:
        """Whether the repeated results are failures. Of successes, only those of one selector are kept."""
        return bool(self.run) and (isinstance(self.last, list) or (self.last is not None and not self.last.success))

    @property
    def broken_selectors(self) -> list[SelectorStats]:
        return [stats for stats in self.stats.values() if stats.is_broken]

    def selector_stats(self, selector: Selector, fleet: FleetStats = _NO_FLEET_STATS) -> SelectorStats:
        """New stats start from the success rate in the fleet."""
        name = selector_name(selector)
        if name not in self.stats:
            self.stats[name] = SelectorStats(selector, fleet.get(name, 0.5))
        return self.stats[name]

    def order(self, known: Sequence[Selector], fleet: FleetStats) -> Sequence[Selector]:
        """Learned labels come last, however well they do, because declared selectors are more reliable.

        The result stays valid until `note` is called.
        """
        self.settle()
        others = [Label(text) for (kind, text), rate in fleet.items() if kind == "label" and rate >= _MIN_FLEET_RATE]
        names = {selector_name(selector) for selector in known}
        learned = dict.fromkeys(
            selector for selector in (*self.learned, *others) if selector_name(selector) not in names
        )
        ranked = sorted(learned, key=lambda selector: -self._rank(selector, fleet))
        return [*self._rank_declared(known, fleet), *ranked[:_MAX_LEARNED]]

    def _rank_declared(self, known: Sequence[Selector], fleet: FleetStats) -> Sequence[Selector]:
        """Among selectors about as good as the best, those with stats on this site go first, then declared order."""
        left = [(self._rank(selector, fleet), selector) for selector in known]
        if max(rank for rank, _ in left) - left[0][0] < _MARGIN:
            return known
        ranked = []
        while left:
            enough = max(rank for rank, _ in left) - _MARGIN
            good = [pair for pair in left if pair[0] > enough]
            first = next((pair for pair in good if selector_name(pair[1]) in self.stats), good[0])
            left.remove(first)
            ranked.append(first[1])
        return ranked

    def _rank(self, selector: Selector, fleet: FleetStats) -> float:
        name = selector_name(selector)
        stats = self.stats.get(name)
        return stats.score if stats else fleet.get(name, 0.5)

    def repeats(self, results: Results, task_id: str) -> bool:
        """If the results repeat those of the previous page, counts them and returns True."""
        if self.last is None or results != self.last:
            return False
        self.run += 1
        if isinstance(results, list) or not results.success:
            self.example = task_id
        return True

    def settle(self) -> None:
        """Adds the repeated results to the stats."""
        if not self.run or self.last is None:
            return
        results = self.last if isinstance(self.last, list) else [self.last]
        for result in results:
            self.selector_stats(result.selector).note_times(result.success, self.run)
        while self.run:  # a few at a time, to notice when the field breaks
            step = min(self.run, ENOUGH_PAGES)
            self._note_pages(results[0].success, step)
            self.run -= step

    def note(self, results: Results, fleet: FleetStats, task_id: str, at: datetime | None) -> None:
        self.settle()
        self.ordered = None
        every = results if isinstance(results, list) else [results]
        for result in every:
            self.selector_stats(result.selector, fleet).note(result.success)
        successful = {selector_name(result.selector) for result in every if result.success}
        for name in {selector_name(result.selector) for result in every} - successful if successful else ():
            self.stats[name].miss(task_id, at)
        success = any(result.success and (not result.guess or result.selector in self.learned) for result in every)
        self._learn(every)
        if not success:
            self.example = task_id
            self.since = self.since or at
        self._note_pages(success, 1)
        self.last = results if not successful or (success and len(every) == 1) else None

    def _learn(self, results: Sequence[SelectorResult]) -> None:
        for result in results:
            if result.guess and result.success and result.selector not in self.learned:
                self.learned += [result.selector] if len(self.learned) < _MAX_LEARNED else []

    def _note_pages(self, success: bool, times: int) -> None:
        self.recent_rate = updated_rate(self.recent_rate, success, times) if self.pages else float(success)
        self.usual_rate = updated_slow_rate(self.usual_rate, success, self.pages, times)
        self.pages += times
        self.missing = 0 if success else self.missing + times
        if self.recent_rate >= FAILING_RATE * self.usual_rate:
            self.is_broken = False
        elif self.pages >= ENOUGH_PAGES and (1 - self.usual_rate) ** self.missing <= _BREAK_PROBABILITY:
            self.is_broken = True
        if success and not self.is_broken:
            self.since = None

    def restore(self, report: Broken) -> None:
        """Restores the state that was reported."""
        self.settle()
        self.ordered = self.last = None
        if not report.found_otherwise and not self.is_broken:
            self.is_broken = True
            self.pages = max(self.pages, ENOUGH_PAGES)
            self.recent_rate, self.usual_rate = report.success_rate, report.used_to
            self.since, self.example = report.since, report.example
        for name in report.failing:
            kind, _, expression = name.partition(" ")
            selector = selector_from_name(kind, expression)
            if selector is not None and not (stats := self.selector_stats(selector)).is_broken:
                stats.mark_broken(report)


class _Repetition:
    """How many different parcels in a row have the same value."""

    __slots__ = ("example", "parcels", "value")

    def __init__(self) -> None:
        self.value: Json = None
        self.parcels = set[str]()
        """At most as many as make the value suspect."""
        self.example = ""

    def note(self, value: Json, parcel: str, task_id: str) -> None:
        if not value or value != self.value:
            self.value, self.parcels = value, set()
        if value and not self.is_suspect:
            self.parcels.add(parcel)
        self.example = task_id

    @property
    def is_suspect(self) -> bool:
        return len(self.parcels) >= ENOUGH_PAGES


class Ranking:
    """The selector stats of a worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[SiteKey, dict[str, _FieldState]] = {}
        self._fleet: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
        self._noted: dict[SiteKey, int] = {}
        self._pages: dict[SiteKey, int] = {}
        self._repetitions: dict[SiteKey, dict[str, _Repetition]] = {}
        self._missed: dict[SiteKey, set[str]] = {}
        """Fields that may be broken: a page lacked them, and none has shown since that they are not."""
        self.sections = Sections()

    def order(self, site: SiteKey) -> SiteOrder:
        """Returns the order for one page."""
        with self._lock:
            fields, fleet = self._sites.setdefault(site, {}), self._fleet.get(site[0], {})
            explores = self._noted.get(site, 0) % _EXPLORE_EVERY == _EXPLORE_EVERY - 1
            return SiteOrder(fields, fleet, explores, self._lock)

    def should_report(self, site: SiteKey) -> bool:
        """Whether to store signals of this page; of a well-known site a sample is enough."""
        with self._lock:
            number = self._pages[site] = self._pages.get(site, 0) + 1
        return number <= _REPORT_ALL or number % _REPORT_EVERY == 0

    def set_fleet_stats(self, platform: str, ranked: Iterable[tuple[str, str, str, float]]) -> None:
        """Sets the success rates of the fleet: field, type, expression, rate. They count where a site has no own stats.

        Labels that other workers have learned are tried here too, after all declared selectors. Other selectors from
        outside are never run.
        """
        fields: dict[str, dict[tuple[str, str], float]] = {}
        for field, kind, expression, rate in ranked:
            fields.setdefault(field, {})[kind, expression] = rate
        with self._lock:
            self._fleet[platform] = fields

    def note(
        self, site: SiteKey, results: Iterable[SelectorResult], task_id: str = "", at: datetime | None = None
    ) -> None:
        """Records the results of one page."""
        with self._lock:
            fields, fleet = self._sites.setdefault(site, {}), self._fleet.get(site[0], {})
            self._noted[site] = self._noted.get(site, 0) + 1
            missed = self._missed.setdefault(site, set())
            for name, field_results in _by_field(results).items():
                state = fields.get(name)
                if state is None:
                    state = fields[name] = _FieldState()
                elif (
                    field_results is state.last and isinstance(field_results, SelectorResult) and field_results.success
                ):
                    state.run += 1  # the usual case
                    continue
                if not state.repeats(field_results, task_id):
                    state.note(field_results, fleet.get(name, _NO_FLEET_STATS), task_id, at)
                missed.add(name)

    def note_values(self, site: SiteKey, record: Mapping[str, Json], task_id: str = "") -> None:
        """Counts values that parcels share, of fields that are seldom the same on two parcels."""
        parcel = str(record.get("parcel_id") or "")
        with self._lock:
            fields = self._repetitions.setdefault(site, {})
            for name in _DISTINCT:
                fields.setdefault(name, _Repetition()).note(record.get(name), parcel, task_id)

    def broken_fields(self, site: SiteKey) -> list[str]:
        """Fields that the site no longer shows where it used to."""
        with self._lock:
            states, missed = self._sites.get(site, {}), self._missed.get(site, set())
            for name in list(missed):
                state = states[name]
                if state.misses:
                    state.settle()
                elif not state.is_broken:
                    missed.discard(name)
            return [name for name in states if name in missed and states[name].is_broken] if missed else []

    def restore(self, reports: Iterable[Broken]) -> None:
        """Restores what was broken when the last worker stopped: signals are a sample and may not show it."""
        with self._lock:
            for report in (known for known in reports if not known.same_value):
                site = (report.platform, report.state, report.county)
                self._sites.setdefault(site, {}).setdefault(report.field, _FieldState()).restore(report)
                self._missed.setdefault(site, set()).add(report.field)

    def broken(self) -> Iterator[Broken]:
        """Fields that are no longer found, or only by another selector than before."""
        with self._lock:
            fields = [(site, name, state) for site, states in self._sites.items() for name, state in states.items()]
            for _, _, state in fields:
                state.settle()
            reports = [
                _broken(site, name, state) for site, name, state in fields if state.is_broken or state.broken_selectors
            ]
            reports += [
                _suspect(site, name, repetition)
                for site, repetitions in self._repetitions.items()
                for name, repetition in repetitions.items()
                if repetition.is_suspect
            ]
        yield from reports


class SiteOrder:
    """The current order of a site's selectors."""

    def __init__(
        self, fields: dict[str, _FieldState], fleet: Mapping[str, FleetStats], explores: bool, lock: threading.Lock
    ) -> None:
        self.explores = explores
        self._fields = fields
        self._fleet = fleet
        self._lock = lock

    def ranked(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        state, fleet = self._fields.get(field), self._fleet.get(field, _NO_FLEET_STATS)
        if state is None:
            return _FieldState().order(known, fleet) if fleet else known
        cached = state.ordered
        if cached is not None and cached[0] is known and cached[1] is fleet:
            return cached[2]
        with self._lock:
            selectors = state.order(known, fleet)
            state.ordered = known, fleet, selectors
        return selectors


def _by_field(results: Iterable[SelectorResult]) -> dict[str, Results]:
    by_field: dict[str, Results] = {}
    for result in results:
        earlier = by_field.get(result.field)
        if earlier is None:
            by_field[result.field] = result
        elif isinstance(earlier, list):
            earlier.append(result)
        else:
            by_field[result.field] = [earlier, result]
    return by_field


def _suspect(site: SiteKey, name: str, repetition: _Repetition) -> Broken:
    platform, state, county = site
    value = "; ".join(map(str, repetition.value)) if isinstance(repetition.value, list) else str(repetition.value)
    return Broken(
        platform=platform,
        state=state,
        county=county,
        field=name,
        success_rate=1.0,
        used_to=1.0,
        failing=(f"same value on {ENOUGH_PAGES} parcels",),
        example=repetition.example,
        found_otherwise=True,
        same_value=value[:_MAX_SAME_CHARS],
    )


def _broken(site: SiteKey, name: str, state: _FieldState) -> Broken:
    failing = [stats for stats in state.stats.values() if stats.attempts and stats.score < FAILING_RATE]
    if not state.is_broken:
        failing = state.broken_selectors
    platform, state_code, county = site
    return Broken(
        platform=platform,
        state=state_code,
        county=county,
        field=name,
        success_rate=state.recent_rate,
        used_to=state.usual_rate,
        failing=tuple(f"{stats.selector.type} {stats.selector.expression}" for stats in failing),
        example=state.example if state.is_broken else failing[0].example,
        since=state.since if state.is_broken else min((stats.since for stats in failing if stats.since), default=None),
        found_otherwise=not state.is_broken,
    )


_MAX_SAME_CHARS = 80
_GUESS = " guess"
_MAX_SELECTOR_CHARS = 500


def learning_signals(site: SiteKey, results: Iterable[SelectorResult], task_id: str) -> tuple[Signal, ...]:
    platform, state, county = site
    context = f"{state}/{county}"
    named = ((result, *selector_name(result.selector)) for result in results)
    return tuple(
        Signal(
            platform=platform,
            field=result.field,
            selector=expression,
            selector_type=kind,
            success=result.success,
            task_id=task_id,
            context=context + _GUESS if result.guess else context,
        )
        for result, kind, expression in named
        if len(expression) <= _MAX_SELECTOR_CHARS
    )


def replay_signals(ranking: Ranking, signals: Sequence[tuple[Signal, datetime]]) -> None:
    """Restores the ranking from stored signals, page by page, oldest first."""
    for (site, task_id), page in groupby(signals, key=lambda pair: (_site_of_signal(pair[0]), pair[0].task_id or "")):
        pairs = list(page)
        results = [result for signal, _ in pairs if (result := _result_of_signal(signal)) is not None]
        ranking.note(site, results, task_id, pairs[0][1])


def _site_of_signal(signal: Signal) -> SiteKey:
    state, _, county = (signal.context or "").removesuffix(_GUESS).partition("/")
    return signal.platform, state, county


def _result_of_signal(signal: Signal) -> SelectorResult | None:
    selector = selector_from_name(signal.selector_type, signal.selector)
    if selector is None:
        return None
    return SelectorResult(signal.field, selector, signal.success, guess=(signal.context or "").endswith(_GUESS))
