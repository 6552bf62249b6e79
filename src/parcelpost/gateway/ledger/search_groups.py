"""The groups of the search index: rows that have the same values in all facets. No I/O.

There are a few thousand of them, however many rows there are, so that counting and choosing by facets is done here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parcelpost.gateway.ledger.search_schema import GROUP_COLUMNS, MAP_COLUMNS, NUMBER_BITS
from parcelpost.gateway.models import FacetCounts, SearchFilter

FACETS = ("state", "county", "platform", "delinquent", "has_liens", "use", "tax_year", "status", "freshness")
"""In the order of GROUP_COLUMNS."""
MAP_FACETS = frozenset(FACETS[: len(MAP_COLUMNS)])
_FLAGS = ("delinquent", "has_liens")
_DELINQUENT = FACETS.index("delinquent")
MAX_FACET_VALUES = 50

Values = tuple[Any, ...]
Counts = Mapping[int, int]
"""Rows by group."""


class Group(NamedTuple):
    no: int
    map_no: int
    values: Values
    """Of GROUP_COLUMNS."""
    rows: int


class Selection:
    """Which groups each of the selected facets allows."""

    def __init__(self, allowed: Mapping[str, set[int]]) -> None:
        self._allowed = allowed

    @property
    def facets(self) -> Collection[str]:
        return self._allowed.keys()

    def all_but(self, facet: str = "") -> set[int] | None:
        """Returns the groups that all facets but this one allow; None: every group."""
        sets = sorted((groups for name, groups in self._allowed.items() if name != facet), key=len)
        return set.intersection(*sets) if sets else None


class Window(NamedTuple):
    """Rows of a group that are on a page."""

    group_no: int
    offset: int
    most: int


class Groups:
    """Of one table, as they are known up to some change of the index. Never changed: threads count in it."""

    def __init__(self) -> None:
        self.changed = -1
        self._groups: dict[int, Group] = {}
        self._by_values: dict[Values, int] = {}
        self._map_numbers: dict[Values, int] = {}
        self._by_facet: dict[str, dict[Any, tuple[int, ...]]] = {name: {} for name in FACETS}

    def updated(self, groups: Sequence[Group], changed: int) -> Groups:
        """Returns these groups and others that are new or have changed."""
        new = Groups()
        new.changed = changed
        new._groups = self._groups | {group.no: group for group in groups}
        new._by_values, new._map_numbers, new._by_facet = self._by_values, self._map_numbers, self._by_facet
        added = [group for group in groups if group.no not in self._groups]
        if added:
            new._by_values = self._by_values | {group.values: group.no for group in added}
            new._map_numbers = {self.map_values(group.values): group.map_no for group in added} | self._map_numbers
            new._by_facet = {name: _added(self._by_facet[name], name, added) for name in FACETS}
        return new

    def __getitem__(self, group_no: int) -> Group:
        return self._groups[group_no]

    def __contains__(self, group_no: int) -> bool:
        return group_no in self._groups

    @property
    def last(self) -> int:
        return max(self._groups, default=0)

    @property
    def counts(self) -> Counts:
        return {no: group.rows for no, group in self._groups.items() if group.rows}

    def of_row(self, no: int) -> Group:
        return self._groups[no >> NUMBER_BITS]

    @staticmethod
    def map_values(values: Values) -> Values:
        return values[: len(MAP_COLUMNS)]

    def find(self, values: Values) -> int | None:
        return self._by_values.get(values)

    def map_number(self, values: Values) -> int | None:
        return self._map_numbers.get(self.map_values(values))

    def delinquent_maps(self) -> set[int]:
        return {group.map_no for group in self._groups.values() if group.values[_DELINQUENT] == 1}

    def map_numbers(self, groups: Iterable[int]) -> list[int]:
        return sorted({self._groups[no].map_no for no in groups})

    def select(self, wanted: SearchFilter) -> Selection:
        selected: tuple[tuple[str, Collection[Any]], ...] = (
            ("state", wanted.states),
            ("county", wanted.counties),
            ("platform", wanted.platforms),
            ("delinquent", () if wanted.delinquent is None else (wanted.delinquent,)),
            ("has_liens", () if wanted.has_liens is None else (wanted.has_liens,)),
            ("use", wanted.uses),
            ("tax_year", wanted.tax_years),
            ("status", wanted.statuses),
            ("freshness", wanted.freshness),
        )
        return Selection(
            {
                name: {no for value in values for no in self._by_facet[name].get(value, ())}
                for name, values in selected
                if values
            }
        )

    def facets(
        self, selection: Selection, counts: Counts, facet: str = "", find: str = "", *, is_exact: bool = True
    ) -> FacetCounts:
        """Of one facet or of all, the values that contain a text, the most frequent. If not all that match were
        counted, values that no counted row has are among them, with a count of 0.
        """
        text = _spaced(find)
        everywhere = selection.all_but()
        unselected = _within(counts, everywhere)
        facets = {}
        for name, by_value in self._by_facet.items():
            if facet not in ("", name):
                continue
            here = _within(counts, selection.all_but(name)) if name in selection.facets else unselected
            get = here.get
            values = by_value.items() if not text else [item for item in by_value.items() if text in _spaced(item[0])]
            counted = [(value, sum(get(no, 0) for no in groups)) for value, groups in values]
            found = sorted((item for item in counted if item[1]), key=lambda item: (-item[1], str(item[0])))
            if not is_exact:
                known = {value for value, _ in found}
                others = _within(self.counts, selection.all_but(name))
                found += sorted(
                    (
                        (value, 0)
                        for value, groups in values
                        if value not in known and not others.keys().isdisjoint(groups)
                    ),
                    key=lambda item: str(item[0]),
                )
            facets[name] = found[:MAX_FACET_VALUES]
        return FacetCounts(facets, sum(unselected.values()), is_exact)

    def pages(self, counts: Counts, column: str, *, is_descending: bool, offset: int, most: int) -> Iterator[Window]:
        """Which rows of which groups are on a page of rows ordered by a facet, missing values last."""
        place = GROUP_COLUMNS.index(column)
        known = [no for no, count in counts.items() if count and self._groups[no].values[place] is not None]
        missing = [no for no, count in counts.items() if count and self._groups[no].values[place] is None]
        known.sort(key=lambda no: (self._groups[no].values[place], no), reverse=is_descending)
        missing.sort(reverse=is_descending)
        for no in (*known, *missing):
            rows = counts[no]
            if offset >= rows:
                offset -= rows
                continue
            taken = min(rows - offset, most)
            yield Window(no, offset, taken)
            most -= taken
            offset = 0
            if not most:
                return


def _added(by_value: Mapping[Any, tuple[int, ...]], name: str, added: Sequence[Group]) -> dict[Any, tuple[int, ...]]:
    place = FACETS.index(name)
    new: defaultdict[Any, list[int]] = defaultdict(list)
    for group in added:
        for value in facet_values(name, group.values[place]):
            new[value].append(group.no)
    return {**by_value, **{value: (*by_value.get(value, ()), *numbers) for value, numbers in new.items()}}


def facet_values(name: str, value: Any) -> Sequence[Any]:
    """What a row counts as: once for each of its platforms, and not at all without a value."""
    if value is None:
        return ()
    if name == "platform":
        return list(value.split("\n")) if value else ()
    return (bool(value),) if name in _FLAGS else (value,)


def _spaced(value: Any) -> str:
    """`San Telmo` is the county `san-telmo`."""
    return str(value).casefold().replace("-", " ").replace("_", " ")


def _within(counts: Counts, groups: set[int] | None) -> Counts:
    return counts if groups is None else {no: count for no, count in counts.items() if no in groups}


def row_number(group_no: int, number: int) -> int:
    return group_no << NUMBER_BITS | number


def first_and_last(group_no: int) -> tuple[int, int]:
    """Of the numbers that rows of the group may have."""
    return group_no << NUMBER_BITS, (group_no + 1 << NUMBER_BITS) - 1
