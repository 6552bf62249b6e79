"""Queries over the search index: pages in any order, totals, facets and the map.

What is counted is counted by group, so that one count serves the total and most facets. It is known from the groups
themselves unless words, ranges or an area are asked for; then rows are counted once, and the counts are kept until the
index changes. What words match is read up to `MAX_COUNTED`, however many match.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from parcelpost.gateway.ledger.queries import Conditions
from parcelpost.gateway.ledger.rows import Row
from parcelpost.gateway.ledger.search_groups import MAP_FACETS, Counts, Groups, Selection, Window, first_and_last
from parcelpost.gateway.ledger.search_index import MAP_ZOOMS, SearchIndex, cell
from parcelpost.gateway.ledger.search_schema import (
    ALWAYS_KNOWN,
    NUMBER_BITS,
    NUMBER_MASK,
    PARCELS,
    SHOWN_COLUMNS,
    SORTED_COLUMNS,
    least_value,
)
from parcelpost.gateway.models import (
    Cluster,
    FacetCounts,
    SearchFilter,
    SearchMap,
    SearchOrder,
    SearchPage,
    SearchRow,
)
from parcelpost.gateway.search_rows import asked, county_word, state_word

SEARCH_SECONDS = 5.0
"""A query that takes longer is cut off."""
MAX_COUNTED = 10_000
"""Matches of words."""
_COLLECTED = 4_000
"""So many rows are rather sorted than looked for along an index."""
_WIDE = 50_000
"""From so many rows on, a range is wide."""
_KEPT_COUNTS = 64
MAX_CLUSTERS = 3_000
_MAX_SINGLES = 20_000
MAX_ZOOM = 20
_MOST_CELLS_ACROSS = 1_024
Box = tuple[int, int, int, int]
_SHOWN = ", ".join(f"t.{column}" for column in SHOWN_COLUMNS)
_GROUP = f"(t.no >> {NUMBER_BITS})"


Fetch = Callable[[str, Sequence[Any]], Awaitable[Sequence[Row]]]


class _Scan(Conditions):
    """Conditions of rows, besides those of their groups."""

    def __init__(self) -> None:
        super().__init__()
        self.words: str | None = None
        """The query of the words."""
        self.has_words = False
        self.is_text_only = False
        self.ranges = 0


class Matches(NamedTuple):
    """Rows that match, besides the facets."""

    scan: _Scan
    """How to find them."""
    counts: Counts
    is_exact: bool


class KeptCounts:
    """The last matches, as of one change of the index."""

    def __init__(self) -> None:
        self._changed = -1
        self._kept: OrderedDict[tuple[Any, ...], Matches] = OrderedDict()

    def get(self, key: tuple[Any, ...], changed: int) -> Matches | None:
        if changed != self._changed:
            self._kept.clear()
            self._changed = changed
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: tuple[Any, ...], changed: int, matches: Matches) -> None:
        if changed == self._changed:
            self._kept[key] = matches
            while len(self._kept) > _KEPT_COUNTS:
                self._kept.popitem(last=False)


class _Counted(NamedTuple):
    """What matches a filter."""

    groups: Groups
    selection: Selection
    scan: _Scan
    counts: Counts
    """Of rows that match them, by group; with words, of selected groups only."""
    is_exact: bool = True
    """Whether no more match than are counted."""

    @property
    def chosen(self) -> dict[int, int]:
        """The counts of the selected groups."""
        groups = self.selection.all_but()
        return {no: count for no, count in self.counts.items() if count and (groups is None or no in groups)}

    async def facets(self, facet: str, find: str) -> FacetCounts:
        return await asyncio.to_thread(
            self.groups.facets, self.selection, self.counts, facet, find, is_exact=self.is_exact
        )


class _Pages(NamedTuple):
    """Rows in the order of a column."""

    source: str
    conditions: Conditions
    key: str
    known: str
    """The condition that a row has a value."""
    is_descending: bool
    is_walk: bool
    fence: str

    async def numbers(self, fetch: Fetch, offset: int, most: int, total: int) -> list[int]:
        found = await self._part(fetch, self.known, offset, most)
        if len(found) == most or offset + len(found) >= total:
            return found
        known = offset + len(found)
        if not found:
            sql = f"SELECT count(*) FROM {self.source} WHERE {self.conditions} AND {self.known}"
            ((known,),) = await fetch(sql, self.conditions.args)
        missing = f"{self.key} IS NULL"
        return [*found, *await self._part(fetch, missing, max(0, offset - int(known)), most - len(found))]

    async def _part(self, fetch: Fetch, condition: str, offset: int, most: int) -> list[int]:
        direction = "DESC" if self.is_descending else "ASC"
        where = f"FROM {self.source} WHERE {self.conditions} AND {condition}"
        if self.is_walk:
            sql = f"SELECT t.no {where} ORDER BY {self.key} {direction}, t.no {direction} LIMIT ? OFFSET ?"
        else:
            sql = f"""SELECT no FROM (SELECT t.no AS no, {self.key} AS sort_key {where} {self.fence}) found
                ORDER BY sort_key {direction}, no {direction} LIMIT ? OFFSET ?"""
        return [row[0] for row in await fetch(sql, [*self.conditions.args, most, offset])]


class SearchQueries(SearchIndex, Protocol):
    _kept_counts: KeptCounts

    async def _search_rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """Returns the rows of a query. Raises InvalidInput if it takes too long."""

    async def search(self, table: str, wanted: SearchFilter, order: SearchOrder, offset: int, most: int) -> SearchPage:
        is_sorted = order.column in SORTED_COLUMNS[table]
        counted = await self._count(table, wanted, exactly=not is_sorted)
        chosen = await asyncio.to_thread(lambda: counted.chosen)
        total = sum(chosen.values()) if counted.is_exact else MAX_COUNTED
        if offset >= total:
            return SearchPage([], total, counted.is_exact)
        if is_sorted:
            found = await self._ordered_rows(table, counted, chosen, total, order, offset, min(most, total - offset))
        else:
            windows = list(
                counted.groups.pages(chosen, order.column, is_descending=order.is_descending, offset=offset, most=most)
            )
            found = await self._rows_of_windows(table, counted.scan, windows, is_descending=order.is_descending)
        return SearchPage([SearchRow(*row) for row in found], total, counted.is_exact)

    async def search_numbers(self, table: str, wanted: SearchFilter, order: SearchOrder) -> Sequence[int]:
        counted = await self._count(table, wanted, exactly=True)
        chosen = await asyncio.to_thread(lambda: counted.chosen)
        total = sum(chosen.values())
        if order.column in SORTED_COLUMNS[table]:
            found = await self._pages_of(table, counted, chosen, total, order).numbers(
                self._search_rows, 0, total, total
            )
            return array("q", (no & NUMBER_MASK for no in found))
        windows = counted.groups.pages(chosen, order.column, is_descending=order.is_descending, offset=0, most=total)
        places = {window.group_no: place for place, window in enumerate(windows)}
        sql = f"SELECT t.no FROM search_{table} t WHERE {counted.scan}"
        rows = await self._search_rows(sql, counted.scan.args)

        def ordered() -> Sequence[int]:
            numbers = sorted((no for (no,) in rows if no >> NUMBER_BITS in places), reverse=order.is_descending)
            numbers.sort(key=lambda no: places[no >> NUMBER_BITS])
            return array("q", (no & NUMBER_MASK for no in numbers))

        return await asyncio.to_thread(ordered)

    async def search_rows(self, table: str, numbers: Sequence[int]) -> Sequence[SearchRow]:
        condition = self._dialect.any_of.format("t.number")
        sql = f"SELECT {_SHOWN} FROM search_{table} t WHERE {condition}"
        found = await self._search_rows(sql, [self._numbers(list(numbers))])
        rows = {row[0]: SearchRow(*row) for row in found}
        return [rows[number] for number in numbers if number in rows]

    async def search_facets(self, table: str, wanted: SearchFilter, facet: str = "", find: str = "") -> FacetCounts:
        counted = await self._count(table, wanted)
        answer = await counted.facets(facet, find)
        facets, is_exact = dict(answer.facets), counted.is_exact
        if counted.scan.has_words:
            for name in counted.selection.facets:
                if name in facets:
                    others = await self._count(table, wanted, but=name)
                    own = await others.facets(name, find)
                    facets[name], is_exact = own.facets[name], is_exact and others.is_exact
        return FacetCounts(facets, answer.total if counted.is_exact else MAX_COUNTED, is_exact)

    # Counting

    async def _count(self, table: str, wanted: SearchFilter, *, but: str = "", exactly: bool = False) -> _Counted:
        """`but`: as if nothing of that facet were selected."""
        groups = await self.search_groups(table)
        selection = groups.select(wanted)
        scan = self._scan(table, wanted, but)
        if not scan.args:
            return _Counted(groups, selection, scan, groups.counts)
        chosen = selection.all_but(but) if scan.has_words else None
        key = (table, exactly, str(scan), *scan.args, None if chosen is None else frozenset(chosen))
        changed = await self._changes()
        kept = self._kept_counts.get(key, changed)
        if kept is None:
            kept = await self._matches(table, wanted, scan, chosen, exactly=exactly)
            self._kept_counts.put(key, changed, kept)
        counts = {no: count for no, count in kept.counts.items() if no in groups}
        return _Counted(groups, selection, kept.scan, counts, kept.is_exact)

    async def _changes(self) -> int:
        ((changes,),) = await self._search_rows("SELECT changes FROM search_state", ())
        return int(changes)

    async def _matches(
        self, table: str, wanted: SearchFilter, scan: _Scan, chosen: set[int] | None, *, exactly: bool
    ) -> Matches:
        if not scan.has_words:
            return Matches(scan, await self._count_rows(table, scan), is_exact=True)
        if scan.words is not None:
            words = f"search_{table}_words"
            where = Conditions()
            where.add(self._dialect.matches.format(words), scan.words)
            if chosen is not None:
                in_groups = self._dialect.any_of.format(f"(rowid >> {NUMBER_BITS})")
                where.add(in_groups, self._numbers(sorted(chosen)))
            numbers = await self._first_numbers(f"SELECT rowid FROM {words} WHERE {where}", where.args)
            if len(numbers) <= MAX_COUNTED:
                scan = self._scan(table, wanted, found=numbers)
                if scan.is_text_only:
                    return Matches(scan, _by_group(numbers), is_exact=True)
                exactly = True
            elif scan.is_text_only and not exactly:
                return Matches(scan, _by_group(numbers), is_exact=False)
        conditions = self._of_groups(scan, chosen)
        if exactly:
            return Matches(scan, await self._count_rows(table, conditions), is_exact=True)
        sql = f"SELECT t.no FROM search_{table} t WHERE {conditions}"
        numbers = await self._first_numbers(sql, conditions.args)
        return Matches(scan, _by_group(numbers), is_exact=len(numbers) <= MAX_COUNTED)

    async def _first_numbers(self, sql: str, args: Sequence[Any]) -> list[int]:
        """One more than are counted, if there are so many."""
        return [no for (no,) in await self._search_rows(f"{sql} LIMIT {MAX_COUNTED + 1}", args)]

    async def _count_rows(self, table: str, scan: Conditions) -> Counts:
        if isinstance(scan, _Scan) and await self._is_wide(table, scan):
            source = self._dialect.walked.format(f"search_{table}", "group")
            sql = f"SELECT t.group_no, count(*) FROM {source} WHERE ({scan}) IS TRUE GROUP BY 1"  # by no other index
        else:
            sql = f"SELECT {_GROUP}, count(*) FROM search_{table} t WHERE {scan} GROUP BY 1"
        return {int(no): int(count) for no, count in await self._search_rows(sql, scan.args)}

    async def _is_wide(self, table: str, scan: _Scan) -> bool:
        """Whether rows are rather all read, in the order of their groups: for several ranges, or a wide one."""
        if not scan.ranges:
            return False
        if scan.ranges > 1:
            return True
        sql = f"SELECT count(*) FROM (SELECT 1 FROM search_{table} t WHERE {scan} LIMIT {_WIDE}) found"
        ((count,),) = await self._search_rows(sql, scan.args)
        return bool(count == _WIDE)

    def _scan(self, table: str, wanted: SearchFilter, but: str = "", found: Sequence[int] | None = None) -> _Scan:
        """`found`: the rows that the words match, if they are known. A database does not know how many rows have words
        that begin so, and might read all rows instead of theirs.
        """
        scan = _Scan()
        if found is not None:
            scan.add(self._dialect.any_of.format("t.no"), self._numbers(found))
            scan.has_words = scan.is_text_only = True
        elif parts := asked(wanted.text):
            places = [
                *([[*map(state_word, wanted.states)]] if wanted.states and but != "state" else ()),
                *([[*map(county_word, wanted.counties)]] if wanted.counties and but != "county" else ()),
            ]
            scan.words = self._dialect.query(parts, places)
            scan.add(f"t.no IN ({_words_query(self._dialect.matches, table)})", scan.words)
            scan.has_words = scan.is_text_only = True
        if wanted.owner:
            owner, given = self._dialect.sort_key("t.owner"), self._dialect.folded.format("?")
            scan.add(f"{owner} = {given}", wanted.owner)
            scan.has_words, scan.is_text_only = True, False
        for column, (least, most) in wanted.ranges.items():
            key = self._dialect.sort_key(f"t.{column}")
            for sign, bound in ((">=", least), ("<=", most)):
                if bound is not None:
                    scan.add(f"{key} {sign} ?", bound)
            scan.ranges += 1
            scan.is_text_only = False
        if wanted.box is not None:
            west, south, east, north = wanted.box
            scan.add(f"(t.longitude >= ? {'AND' if west <= east else 'OR'} t.longitude <= ?)", west, east)
            scan.add("t.latitude BETWEEN ? AND ?", south, north)
            scan.ranges += 1
            scan.is_text_only = False
        return scan

    # Pages

    async def _rows_of_windows(
        self, table: str, scan: Conditions, windows: Sequence[Window], *, is_descending: bool
    ) -> list[Row]:
        """Of a page ordered by a facet: the first group may be left in the middle, the last one, too."""
        direction = "DESC" if is_descending else "ASC"
        found: list[Row] = []
        middle = [window.group_no for window in windows[1:-1]]
        for window in windows[:1]:
            found += await self._rows_of_group(table, scan, window, direction)
        if middle:
            places = {no: place for place, no in enumerate(middle)}
            source = self._dialect.walked.format(f"search_{table}", "group")
            is_middle = self._dialect.any_of.format("t.group_no")
            rows = await self._search_rows(
                f"SELECT t.no, {_SHOWN} FROM {source} WHERE {is_middle} AND {scan}",
                [self._numbers(sorted(middle)), *scan.args],
            )
            rows = sorted(rows, key=lambda row: row[0], reverse=is_descending)
            found += [row[1:] for row in sorted(rows, key=lambda row: places[row[0] >> NUMBER_BITS])]
        for window in windows[1:][-1:]:
            found += await self._rows_of_group(table, scan, window, direction)
        return found

    async def _rows_of_group(self, table: str, scan: Conditions, window: Window, direction: str) -> Sequence[Row]:
        sql = f"""SELECT {_SHOWN} FROM search_{table} t WHERE t.no BETWEEN ? AND ? AND {scan}
            ORDER BY t.no {direction} LIMIT ? OFFSET ?"""
        return await self._search_rows(sql, [*first_and_last(window.group_no), *scan.args, window.most, window.offset])

    async def _ordered_rows(
        self,
        table: str,
        counted: _Counted,
        chosen: Mapping[int, int],
        total: int,
        order: SearchOrder,
        offset: int,
        most: int,
    ) -> list[Row]:
        """Of a page ordered by a column: first those with a value, then those without.

        Their numbers are found first, which an index has, so that rows before the page are not read.
        """
        pages = self._pages_of(table, counted, chosen, total, order)
        numbers = await pages.numbers(self._search_rows, offset, most, total)
        sql = f"SELECT t.no, {_SHOWN} FROM search_{table} t WHERE {self._dialect.any_of.format('t.no')}"
        rows = {row[0]: row[1:] for row in await self._search_rows(sql, [self._numbers(sorted(numbers))])}
        return [rows[number] for number in numbers if number in rows]

    def _pages_of(
        self, table: str, counted: _Counted, chosen: Mapping[int, int], total: int, order: SearchOrder
    ) -> _Pages:
        is_walk = not counted.is_exact or (total > _COLLECTED and not counted.scan.has_words)
        name, key = f"search_{table}", self._dialect.sort_key(f"t.{order.column}")
        source = self._dialect.walked.format(name, order.column) if is_walk else f"{name} t"
        conditions = Conditions()
        selected = counted.selection.all_but()
        if selected is not None:
            groups = _GROUP
            if not is_walk and not counted.scan.args:
                source, groups = self._dialect.walked.format(name, "group"), "t.group_no"
            chosen_groups = self._numbers(sorted(chosen if counted.is_exact else selected))
            conditions.add(self._dialect.any_of.format(groups), chosen_groups)
        conditions.add(str(counted.scan), *counted.scan.args)
        known = "1 = 1" if order.column in ALWAYS_KNOWN else f"{key} >= {least_value(order.column)}"
        return _Pages(source, conditions, key, known, order.is_descending, is_walk, self._dialect.fence)

    def _numbers(self, numbers: Sequence[int]) -> Any:
        """Returns the parameter of `any_of` and `numbers`."""

    # The map

    async def search_map(self, wanted: SearchFilter, zoom: int) -> SearchMap:
        groups = await self.search_groups(PARCELS)
        selection = groups.select(wanted)
        chosen = selection.all_but()
        scan = self._scan(PARCELS, wanted)
        others = self._scan(PARCELS, structs.replace(wanted, box=None))
        across = wanted.box is not None and wanted.box[0] > wanted.box[2]
        is_kept = not others.args and not across and set(selection.facets) <= MAP_FACETS
        found: Sequence[Row] = ()
        for level in range(_first_zoom(zoom, wanted.box), -1, -2):
            kept = is_kept and level <= MAP_ZOOMS[-1]
            found = await (
                self._kept_cells(groups, chosen, wanted.box, level) if kept else self._cells(scan, chosen, level)
            )
            if len(found) <= MAX_CLUSTERS:
                break
        clusters = [_cluster(row, level) for row in sorted(found, key=lambda row: (row[0], row[1]))]
        clusters = await self._with_parcels(clusters, scan, chosen)
        located = sum(cluster.count for cluster in clusters)
        if wanted.box is not None:
            return SearchMap(clusters, located, 0)
        counted = await self._count(PARCELS, wanted, exactly=True)
        total = sum((await asyncio.to_thread(lambda: counted.chosen)).values())
        return SearchMap(clusters, total, total - located)

    async def _kept_cells(self, groups: Groups, chosen: set[int] | None, box: Box | None, zoom: int) -> Sequence[Row]:
        """Of cells whose numbers are kept; those that an area cuts are counted row by row."""
        kept_zoom = next(kept for kept in MAP_ZOOMS if kept >= zoom)
        shift = kept_zoom - zoom
        conditions = Conditions()
        conditions.add("zoom = ? AND parcels > 0", kept_zoom)
        if chosen is not None:
            conditions.add(self._dialect.any_of.format("map_no"), self._numbers(groups.map_numbers(chosen)))
        cut: Sequence[Row] = ()
        if box is not None:
            inner = _inner_cells(box, zoom)
            edge = Conditions()
            edge.add("t.longitude BETWEEN ? AND ? AND t.latitude BETWEEN ? AND ?", box[0], box[2], box[1], box[3])
            if inner is not None:
                left, bottom, right, top = inner
                bounds = _bounds(left, bottom, right, top, zoom)
                edge.add("(t.longitude < ? OR t.latitude < ? OR t.longitude > ? OR t.latitude > ?)", *bounds)
                last = (1 << shift) - 1
                conditions.add("x BETWEEN ? AND ?", left << shift, (right << shift) + last)
                conditions.add("y BETWEEN ? AND ?", bottom << shift, (top << shift) + last)
            cut = await self._cells(edge, chosen, zoom)
            if inner is None:
                return cut
        late = self._numbers(sorted(groups.delinquent_maps()))
        sql = f"""SELECT x >> {shift}, y >> {shift}, sum(parcels),
            sum(CASE WHEN {self._dialect.any_of.format("map_no")} THEN parcels ELSE 0 END), sum(lien_amount),
            sum(longitudes), sum(latitudes)
            FROM search_cells WHERE {conditions} GROUP BY 1, 2 LIMIT {MAX_CLUSTERS + 1}"""
        return [*cut, *await self._search_rows(sql, [late, *conditions.args])]

    async def _cells(self, scan: Conditions, chosen: set[int] | None, zoom: int) -> Sequence[Row]:
        conditions = self._of_groups(scan, chosen)
        conditions.add("t.longitude IS NOT NULL")
        per_turn = 2 ** (zoom + 3)
        sql = f"""SELECT (t.longitude + 180000000) * {per_turn} / 360000000,
            (t.latitude + 90000000) * {per_turn} / 360000000, count(*),
            sum(CASE WHEN t.delinquent = 1 THEN 1 ELSE 0 END), sum(coalesce(t.lien_amount, 0)),
            sum(t.longitude), sum(t.latitude)
            FROM search_parcels t WHERE {conditions} GROUP BY 1, 2 LIMIT {MAX_CLUSTERS + 1}"""
        return await self._search_rows(sql, conditions.args)

    async def _with_parcels(
        self, clusters: Sequence[Cluster], scan: Conditions, chosen: set[int] | None
    ) -> list[Cluster]:
        """The mean of a single parcel is where it is."""
        singles = sorted({cluster.longitude for cluster in clusters if cluster.count == 1})
        parcels: dict[tuple[int, int], SearchRow] = {}
        if singles:
            conditions = self._of_groups(scan, chosen)
            conditions.add(self._dialect.any_of.format("t.longitude"), self._numbers(singles))
            sql = f"SELECT {_SHOWN} FROM search_parcels t WHERE {conditions} LIMIT {_MAX_SINGLES}"
            for row in await self._search_rows(sql, conditions.args):
                parcel = SearchRow(*row)
                parcels[parcel.longitude or 0, parcel.latitude or 0] = parcel
        return [
            structs.replace(cluster, parcel=parcels.get((cluster.longitude, cluster.latitude)))
            if cluster.count == 1
            else cluster
            for cluster in clusters
        ]

    def _of_groups(self, scan: Conditions, chosen: set[int] | None) -> Conditions:
        conditions = Conditions()
        if chosen is not None:
            conditions.add(self._dialect.any_of.format(_GROUP), self._numbers(sorted(chosen)))
        if scan.args:
            conditions.add(str(scan), *scan.args)
        return conditions


def _first_zoom(zoom: int, box: Box | None) -> int:
    """Beyond the zooms whose cells are kept, only as fine as some screens need for the width of the area."""
    width = 360_000_000 if box is None else (box[2] - box[0]) % 360_000_000 or 360_000_000
    zoom = min(zoom, MAX_ZOOM)
    while zoom > MAP_ZOOMS[-1] and width * 2 ** (zoom + 3) // 360_000_000 > _MOST_CELLS_ACROSS:
        zoom -= 1
    return zoom


def _inner_cells(box: Box, zoom: int) -> Box | None:
    """The first and last column and row of the cells that lie in the area as a whole; None if there are none."""
    west, south, east, north = box
    left, bottom = cell(zoom, west - 1, south - 1)
    right, top = cell(zoom, east + 1, north + 1)
    inner = left + 1, bottom + 1, right - 1, top - 1
    return inner if inner[0] <= inner[2] and inner[1] <= inner[3] else None


def _bounds(left: int, bottom: int, right: int, top: int, zoom: int) -> Box:
    """West, south, east and north of these cells, inclusive."""
    per_turn = 2 ** (zoom + 3)
    west, south, east, north = (-(-place * 360_000_000 // per_turn) for place in (left, bottom, right + 1, top + 1))
    return west - 180_000_000, south - 90_000_000, east - 180_000_001, north - 90_000_001


def _by_group(numbers: Sequence[int]) -> Counts:
    return Counter(no >> NUMBER_BITS for no in numbers)


def _words_query(matches: str, table: str) -> str:
    words = f"search_{table}_words"
    return f"SELECT rowid AS no FROM {words} WHERE {matches.format(words)}"


def _cluster(row: Row, zoom: int) -> Cluster:
    x, y, count, delinquent, lien_amount, longitudes, latitudes = map(int, row[:7])
    size = 360_000_000 / 2 ** (zoom + 3)
    west, south = x * size - 180_000_000, y * size - 90_000_000
    return Cluster(
        longitude=round(longitudes / count),
        latitude=round(latitudes / count),
        count=count,
        delinquent=delinquent,
        lien_amount=lien_amount,
        box=(round(west), round(south), round(west + size), round(south + size)),
    )
