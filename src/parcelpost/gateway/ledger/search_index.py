"""Keeps the search index: whatever a batch of results changes is noted in `search_queue` in the same transaction, and
`update_search` takes it from there.

Each step is one transaction that counts itself in `search_state.changes`, and changes nothing if another process has
made one since the step began: the index is as if one process had kept it, whenever gateways are killed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import structs

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import PAGE_CHARS
from parcelpost.gateway.ledger.rows import Row
from parcelpost.gateway.ledger.schedules import ScheduleQueries
from parcelpost.gateway.ledger.search_groups import Group, Groups, Values, row_number
from parcelpost.gateway.ledger.search_schema import COLUMNS, LIENS, PARCELS, Dialect
from parcelpost.gateway.models import ScheduleRow, Scope, SearchRow
from parcelpost.gateway.search_rows import (
    Coverage,
    Merged,
    RecordFacts,
    day,
    freshness,
    index_words,
    merge,
    read_facts,
    shown,
)
from parcelpost.schedule import longest_interval

_REQUEUED_AT_ONCE = 2_000
MAP_ZOOMS = (4, 6, 8, 10, 12)
"""Of which the number of parcels in each cell is kept."""

Place = tuple[str, str]
"""State and county."""
Statement = tuple[str, Sequence[Sequence[Any]]]
"""A writing statement, and its parameters for each time it is run."""

COUNT_CHANGE = "UPDATE search_state SET changes = changes + 1 WHERE changes = ?"
"""Locks the index for the rest of the transaction, unless it has changed."""

_STATE = "SELECT changes, rebuilt_to, rebuild_until, schedules FROM search_state"
_QUEUED = "SELECT queue_no, parcel_no FROM search_queue ORDER BY queue_no LIMIT ?"
_LEFT = """
SELECT (SELECT coalesce(max(queue_no) - min(queue_no) + 1, 0) FROM search_queue),
       coalesce((SELECT rebuild_until - rebuilt_to FROM search_state), 0)
"""
_PARCELS = """
SELECT parcel_no, state, county, parcel_norm, parcel_id, owner, situs, delinquent, tax_due_cents, scraped_at,
       received_at
FROM parcels WHERE parcel_no IN ({})
"""
_SOURCES = """
SELECT s.parcel_no, s.source_no, s.platform, length(r.data), s.is_partial
FROM sources s LEFT JOIN results r ON r.source_no = s.source_no AND r.task_id = s.task_id
WHERE s.parcel_no IN ({}) ORDER BY s.parcel_no, s.is_partial, s.scraped_at DESC, s.task_id DESC, s.source_no
"""
_DATA = """
SELECT s.source_no, r.data FROM sources s JOIN results r ON r.source_no = s.source_no AND r.task_id = s.task_id
WHERE s.source_no IN ({})
"""
_LIENS = """
SELECT parcel_no, lien_no, certificate_number, certificate_year, tax_year, status, holder_name, amount_cents, sale_date
FROM liens WHERE parcel_no IN ({}) ORDER BY lien_no
"""
_LIEN_PLATFORMS = """
SELECT ls.lien_no, s.platform, s.is_partial FROM lien_sources ls JOIN sources s ON s.source_no = ls.source_no
WHERE ls.lien_no IN ({}) ORDER BY s.platform
"""
_FILE_PARCELS = "SELECT parcel_norm FROM schedule_targets WHERE schedule_no = ? AND parcel_norm IN ({})"
_INDEXED = f"SELECT parcel_no, {', '.join(COLUMNS)} FROM search_{{}} WHERE {{}} IN ({{{{}}}})"
_INDEXED_PARCELS, _INDEXED_LIENS = _INDEXED.format(PARCELS, "number"), _INDEXED.format(LIENS, "parcel_no")
_GROUPS = """
SELECT group_no, map_no, number_of_rows, changed, state, county, platforms, delinquent, has_liens, land_use, tax_year,
       status, freshness
FROM search_{}_groups WHERE changed > ?
"""
_ADD_TO_GROUPS = """
INSERT INTO search_{0}_groups (
    group_no, map_no, state, county, platforms, delinquent, has_liens, land_use, tax_year, status, freshness,
    number_of_rows, changed
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (group_no) DO UPDATE
SET number_of_rows = search_{0}_groups.number_of_rows + excluded.number_of_rows, changed = excluded.changed
"""
_ADD_TO_CELLS = """
INSERT INTO search_cells (zoom, x, y, map_no, parcels, lien_amount, longitudes, latitudes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (zoom, x, y, map_no) DO UPDATE
SET parcels = search_cells.parcels + excluded.parcels, lien_amount = search_cells.lien_amount + excluded.lien_amount,
    longitudes = search_cells.longitudes + excluded.longitudes, latitudes = search_cells.latitudes + excluded.latitudes
"""
_NEXT_TO_REBUILD = "SELECT parcel_no FROM parcels WHERE parcel_no > ? AND parcel_no <= ? ORDER BY parcel_no LIMIT ?"
_STALE = "SELECT number FROM search_parcels WHERE stale_at <= ? ORDER BY stale_at LIMIT ?"
_ADD_TO_QUEUE = "INSERT INTO search_queue (parcel_no) VALUES (?)"
_QUEUE_PLACE = "INSERT INTO search_queue (parcel_no) SELECT parcel_no FROM parcels WHERE state = ? AND county = ?"
_SET_REBUILT = "UPDATE search_state SET rebuilt_to = ?"
_SET_SCHEDULES = "UPDATE search_state SET schedules = ?"
_TAKE = "DELETE FROM search_queue WHERE queue_no = ?"

_WORDS_HASH, _STALE_AT = COLUMNS.index("words_hash"), COLUMNS.index("stale_at")
_NUMBER, _FIRST_TIME = COLUMNS.index("number"), COLUMNS.index("scraped_at")


class IndexedRow(NamedTuple):
    row: SearchRow
    words: str
    stale_at: int | None
    """When its freshness ends."""

    @property
    def values(self) -> Values:
        row = self.row
        return (
            *(row.state, row.county, row.platforms, row.delinquent, int(row.liens > 0), row.land_use, row.tax_year),
            *(row.status, row.freshness),
        )


class IndexedParcel(NamedTuple):
    """A parcel and its liens."""

    parcel: IndexedRow
    liens: Sequence[IndexedRow]


class _ReadParcels(NamedTuple):
    """What the ledger has of some parcels, by their numbers. `facts` are by source, `platforms` by lien."""

    parcels: Mapping[int, Row]
    sources: Mapping[int, Sequence[Row]]
    facts: Mapping[int, RecordFacts]
    liens: Mapping[int, Sequence[Row]]
    platforms: Mapping[int, Sequence[Row]]
    coverages: Mapping[Place, Sequence[Coverage]]

    def rows(self, now: datetime) -> Iterator[IndexedParcel]:
        for number, parcel in self.parcels.items():
            sources, liens = self.sources[number], self.liens[number]
            merged = merge([self.facts[row[0]] for row in sources])
            names = sorted({row[1] for row in sources})
            is_partial = any(row[3] for row in sources)
            covering = self.coverages.get((parcel[0], parcel[1]), ())
            yield _indexed(
                _parcel_row(number, parcel, names, merged, liens, covering, now, is_partial=is_partial),
                liens,
                self.platforms,
            )


def _flat(rows: Mapping[int, Sequence[Row]]) -> list[Row]:
    return [row for of in rows.values() for row in of]


class _State(NamedTuple):
    changes: int
    rebuilt_to: int
    rebuild_until: int
    schedules: str


class SearchIndex(ScheduleQueries, Protocol):
    _dialect: Dialect
    _groups: dict[str, Groups]
    """By table."""

    async def _change_index(self, changes: int, statements: Sequence[Statement]) -> bool:
        """Runs COUNT_CHANGE and the statements in one transaction. Does nothing and returns False if there have been
        more changes than these.
        """

    async def left_to_index(self) -> int:
        ((queued, to_rebuild),) = await self._find(_LEFT)
        return int(queued) + int(to_rebuild)

    async def update_search(self, now: datetime, most: int) -> int:
        (row,) = await self._find(_STATE)
        state = _State(*row)
        queued = await self._find(_QUEUED, most)
        if not queued:
            return await self._requeue(state, now)
        numbers = list(dict.fromkeys(number for _, number in queued))
        read = await self._read_parcels(numbers)
        known = await self._find_by_number(_INDEXED_PARCELS, numbers)
        liens = await self._find_by_number(_INDEXED_LIENS, numbers)
        groups = {table: await self.search_groups(table) for table in (PARCELS, LIENS)}

        def make_statements() -> list[Statement]:
            made = list(read.rows(now))
            change = _IndexChange(state.changes + 1, self._dialect)
            change.add(PARCELS, groups[PARCELS], _flat(known), [parcel for parcel, _ in made])
            change.add(LIENS, groups[LIENS], _flat(liens), [lien for _, liens in made for lien in liens])
            return change.statements()

        statements = [*await asyncio.to_thread(make_statements), (_TAKE, [(queue_no,) for queue_no, _ in queued])]
        await self._change_index(state.changes, statements)
        return len(queued)

    async def _requeue(self, state: _State, now: datetime) -> int:
        """Queues what has to be indexed although it has not changed. Returns how much."""
        if state.rebuilt_to < state.rebuild_until:
            numbers = await self._find(_NEXT_TO_REBUILD, state.rebuilt_to, state.rebuild_until, _REQUEUED_AT_ONCE)
            last = numbers[-1][0] if len(numbers) == _REQUEUED_AT_ONCE else state.rebuild_until
            await self._change_index(state.changes, [(_ADD_TO_QUEUE, numbers), (_SET_REBUILT, [(last,)])])
            return max(len(numbers), 1)
        if stale := await self._find(_STALE, milliseconds(now), _REQUEUED_AT_ONCE):
            await self._change_index(state.changes, [(_ADD_TO_QUEUE, stale)])
            return len(stale)
        return await self._requeue_scheduled(state)

    async def _requeue_scheduled(self, state: _State) -> int:
        """Queues the parcels of counties whose schedules have changed."""
        digests = {_place_name(place): _digest(of) for place, of in _by_place(await self.schedules()).items()}
        before = msgspec.json.decode(state.schedules, type=dict[str, str])
        names = [name for name in {**before, **digests} if before.get(name) != digests.get(name)]
        if not names:
            return 0
        places = [name.split("/", 1) for name in names]
        text = msgspec.json.encode(digests).decode()
        await self._change_index(state.changes, [(_QUEUE_PLACE, places), (_SET_SCHEDULES, [(text,)])])
        return len(names)

    async def search_groups(self, table: str) -> Groups:
        """Returns the groups as they are now."""
        known = self._groups[table]
        found = await self._find(_GROUPS.format(table), known.changed)
        if not found:
            return known
        changed = [Group(row[0], row[1], tuple(row[4:]), row[2]) for row in found]
        groups = self._groups[table] = known.updated(changed, max(row[3] for row in found))
        return groups

    async def _read_parcels(self, numbers: Sequence[int]) -> _ReadParcels:
        parcels = await self._find_by_number(_PARCELS, numbers)
        sources = await self._find_by_number(_SOURCES, numbers)
        liens = await self._find_by_number(_LIENS, numbers)
        return _ReadParcels(
            parcels={number: parcel for number, (parcel,) in parcels.items()},
            sources=sources,
            facts=await self._facts(_flat(sources)),
            liens=liens,
            platforms=await self._find_by_number(_LIEN_PLATFORMS, [row[0] for row in _flat(liens)]),
            coverages=await self._coverages([parcel for (parcel,) in parcels.values()]),
        )

    async def _facts(self, sources: Iterable[Row]) -> Mapping[int, RecordFacts]:
        """Of sources: number, platform, length of the record, and more. A few megabytes at a time."""
        facts: defaultdict[int, RecordFacts] = defaultdict(RecordFacts)
        chunk: list[int] = []
        chars = 0
        for source_no, _, length, _ in sources:
            chunk.append(source_no)
            chars += length or 0
            if chars > PAGE_CHARS:
                facts |= await self._facts_of(chunk)
                chunk, chars = [], 0
        facts |= await self._facts_of(chunk)
        return facts

    async def _facts_of(self, source_nos: Sequence[int]) -> dict[int, RecordFacts]:
        data = await self._find_by_number(_DATA, source_nos)
        return await asyncio.to_thread(lambda: {source_no: read_facts(text) for source_no, ((text,),) in data.items()})

    async def _coverages(self, parcels: Sequence[Row]) -> Mapping[Place, Sequence[Coverage]]:
        """Of the places of these parcels: state, county, number."""
        coverages: dict[Place, list[Coverage]] = {}
        norms: defaultdict[Place, list[str]] = defaultdict(list)
        for state, county, norm, *_ in parcels:
            norms[state, county].append(norm)
        for place, schedules in _by_place(await self.schedules()).items():
            if place in norms:
                coverages[place] = [await self._coverage(row, norms[place]) for row in schedules]
        return coverages

    async def _coverage(self, row: ScheduleRow, norms: Sequence[str]) -> Coverage:
        listed: set[str] = set()
        if row.schedule.scope is Scope.FILE:
            sql = _FILE_PARCELS.format(", ".join("?" * len(norms)))
            listed = {norm for (norm,) in await self._find(sql, row.schedule_no, *norms)}
        return Coverage(row.schedule.platform, row.schedule.scope, frozenset(listed), _fresh_for(row))


def _by_place(schedules: Sequence[ScheduleRow]) -> Mapping[Place, Sequence[ScheduleRow]]:
    places: defaultdict[Place, list[ScheduleRow]] = defaultdict(list)
    for row in schedules:
        places[row.schedule.state, row.schedule.county].append(row)
    return places


def _fresh_for(row: ScheduleRow) -> timedelta:
    return longest_interval(row.schedule.timing) + timedelta(seconds=row.schedule.window_seconds)


def _place_name(place: Place) -> str:
    return "/".join(place)


def _digest(schedules: Sequence[ScheduleRow]) -> str:
    """Of what the freshness of parcels depends on. The targets of a schedule never change."""
    facts = sorted(
        (row.schedule_no, row.schedule.platform, row.schedule.scope, _fresh_for(row).total_seconds())
        for row in schedules
    )
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


class _IndexChange:
    """The statements that replace rows of the index, and what that changes in its groups and cells."""

    def __init__(self, changed: int, dialect: Dialect) -> None:
        self._changed = changed
        self._dialect = dialect
        self._statements: list[Statement] = []
        self._cells: defaultdict[tuple[int, int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def add(self, table: str, groups: Groups, old: Sequence[Row], new: Sequence[IndexedRow]) -> None:
        """`old`: the rows of the same parcels."""
        numbers = _GroupNumbers(groups)
        known = {row[_NUMBER]: row for row in old}
        gone, came, touched, unworded, worded = [], [], [], [], []
        for made in new:
            group = numbers.of(made.values)
            no = row_number(group.no, made.row.number)
            values = (no, group.no, *structs.astuple(made.row), _words_hash(made.words), made.stale_at)
            before = known.pop(made.row.number, None)
            if before is not None and tuple(before) == values:
                continue
            if before is not None and _but_times(before) == _but_times(values):
                touched.append((made.row.scraped_at, made.row.changed_at, made.stale_at, no))
                continue
            if before is not None:
                gone.append(before)
            came.append((values, group))
            if before is None or before[0] != no or before[_WORDS_HASH] != values[_WORDS_HASH]:
                unworded += [] if before is None else [(before[0],)]
                worded += [(no, made.words)] if made.words else []
        for before in known.values():
            gone.append(before)
            unworded.append((before[0],))
        for row in gone:
            group = numbers.known(row[0])
            numbers.count(group, -1)
            self._count_cells(table, group, row, -1)
        for row, group in came:
            numbers.count(group, 1)
            self._count_cells(table, group, row, 1)
        name = f"search_{table}"
        self._statements += [
            (f"DELETE FROM {name} WHERE no = ?", [row[:1] for row in gone]),
            (f"DELETE FROM {name}_words WHERE rowid = ?", unworded),
            (
                f"INSERT INTO {name} ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
                [r for r, _ in came],
            ),
            (self._dialect.add_words.format(f"{name}_words"), worded),
            (f"UPDATE {name} SET scraped_at = ?, changed_at = ?, stale_at = ? WHERE no = ?", touched),
            (_ADD_TO_GROUPS.format(table), numbers.changes(self._changed)),
        ]

    def statements(self) -> list[Statement]:
        cells = [(*cell, *sums) for cell, sums in sorted(self._cells.items()) if any(sums)]
        return [(sql, values) for sql, values in (*self._statements, (_ADD_TO_CELLS, cells)) if values]

    def _count_cells(self, table: str, group: Group, row: Row, sign: int) -> None:
        shown = SearchRow(*row[_NUMBER:_WORDS_HASH])
        if table != PARCELS or shown.longitude is None or shown.latitude is None:
            return
        for zoom in MAP_ZOOMS:
            sums = self._cells[zoom, *cell(zoom, shown.longitude, shown.latitude), group.map_no]
            added = (1, shown.lien_amount or 0, shown.longitude, shown.latitude)
            for place, value in enumerate(added):
                sums[place] += sign * value


class _GroupNumbers:
    """Groups with those that a change adds, and by how many rows it changes them."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._last = groups.last
        self._new: dict[Values, Group] = {}
        self._new_maps: dict[Values, int] = {}
        self._counts = Counter[Group]()

    def of(self, values: Values) -> Group:
        no = self._groups.find(values)
        if no is not None:
            return self._groups[no]
        if values not in self._new:
            self._last += 1
            map_no = self._groups.map_number(values)
            if map_no is None:
                map_no = self._new_maps.setdefault(Groups.map_values(values), self._last)
            self._new[values] = Group(self._last, map_no, values, 0)
        return self._new[values]

    def known(self, no: int) -> Group:
        return self._groups.of_row(no)

    def count(self, group: Group, rows: int) -> None:
        self._counts[group] += rows

    def changes(self, changed: int) -> list[tuple[Any, ...]]:
        return [
            (group.no, group.map_no, *group.values, count, changed)
            for group, count in sorted(self._counts.items(), key=lambda item: item[0].no)
            if count or group in self._new.values()
        ]


def _but_times(values: Sequence[Any]) -> tuple[Any, ...]:
    return (*values[:_FIRST_TIME], *values[_FIRST_TIME + 2 : _STALE_AT])


def _words_hash(words: str) -> int:
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest())


def cell(zoom: int, longitude: int, latitude: int) -> tuple[int, int]:
    """The place of a cell on the map, counted from the south-west: each zoom has `2 ** (zoom + 3)` in a row."""
    per_degree = 2 ** (zoom + 3)
    return (longitude + 180_000_000) * per_degree // 360_000_000, (latitude + 90_000_000) * per_degree // 360_000_000


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _parcel_row(
    number: int,
    parcel: Row,
    platforms: Sequence[str],
    merged: Merged,
    liens: Sequence[Row],
    coverages: Sequence[Coverage],
    now: datetime,
    *,
    is_partial: bool,
) -> tuple[SearchRow, int | None]:
    """The row, and when its freshness ends."""
    state, county, norm, parcel_id, owner, situs, delinquent, tax_due, scraped, received = parcel
    is_delinquent = None if delinquent is None else bool(delinquent)
    covering = [coverage for coverage in coverages if coverage.covers(platforms, is_delinquent, norm)]
    scraped_at = rows.timestamp(scraped)
    fresh, until = freshness(covering, scraped_at, now)
    amounts = [row[6] for row in liens if row[6] is not None]
    row = SearchRow(
        number=number,
        parcel_no=number,
        state=state,
        county=county,
        parcel_norm=norm,
        parcel_id=parcel_id,
        owner=shown(owner),
        situs=shown(situs),
        platforms="\n".join(platforms),
        land_use=merged.land_use,
        tax_year=merged.tax_year,
        status=merged.status,
        freshness=fresh.value,
        delinquent=None if delinquent is None else int(delinquent),
        market_value=merged.market_value,
        tax_due=tax_due,
        liens=len(liens),
        lien_amount=sum(amounts) if amounts else None,
        acres=merged.acres,
        sold_on=merged.sold_on,
        longitude=merged.longitude,
        latitude=merged.latitude,
        scraped_at=milliseconds(scraped_at),
        changed_at=milliseconds(rows.timestamp(received)),
        partial=int(is_partial),
    )
    return row, None if until is None else milliseconds(until) + 1


def _indexed(
    parcel: tuple[SearchRow, int | None], liens: Sequence[Row], platforms: Mapping[int, Sequence[Row]]
) -> IndexedParcel:
    row, stale_at = parcel
    numbers = (row.parcel_id, row.parcel_norm if not row.parcel_norm.startswith("=") else None)
    words = index_words((row.owner, row.situs), (*numbers, *(lien[1] for lien in liens)), row.state, row.county)
    of_liens: list[IndexedRow] = []
    for lien_no, certificate, certificate_year, tax_year, status, holder, amount, sale_date in liens:
        sources = platforms.get(lien_no, ())
        lien = structs.replace(
            row,
            number=lien_no,
            platforms="\n".join(dict.fromkeys(name for name, _ in sources)),
            partial=int(any(is_partial for _, is_partial in sources)),
            tax_year=tax_year,
            status=status,
            lien_amount=amount,
            sold_on=day(sale_date),
            certificate_number=shown(certificate),
            certificate_year=certificate_year,
            holder_name=shown(holder),
        )
        lien_words = index_words((row.owner, row.situs), (*numbers, certificate), row.state, row.county)
        of_liens.append(IndexedRow(lien, lien_words, None))
    return IndexedParcel(IndexedRow(row, words, stale_at), of_liens)
