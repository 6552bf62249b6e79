"""Search: an index of parcels and liens that follows the ledger, and the queries over it.

The index has one narrow row for each parcel and each lien, and the words that it is found by. Whatever a batch of
results changes is noted in `search_queue` in the same transaction; `update_search` takes it from there. All of it is
derived: an index of another version, or one that is missing, is made again from the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct, structs
from msgspec.structs import astuple

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import PAGE_CHARS, Conditions
from parcelpost.gateway.ledger.rows import Row
from parcelpost.gateway.ledger.schedules import ScheduleQueries
from parcelpost.gateway.models import (
    Cluster,
    FacetCounts,
    Scope,
    SearchFilter,
    SearchMap,
    SearchOrder,
    SearchPage,
    SearchRow,
)
from parcelpost.gateway.search_rows import (
    Asked,
    Coverage,
    Merged,
    RecordFacts,
    asked,
    day,
    freshness,
    index_words,
    merge,
    read_facts,
    shown,
)
from parcelpost.schedule import longest_interval

INDEX_VERSION = 1
"""Of what the index holds. With another one, it is made again."""

PARCELS, LIENS = "parcels", "liens"
MAX_FACET_VALUES = 50
_REBUILT_AT_ONCE = 2_000

COLUMNS = SearchRow.__struct_fields__
_COLUMN_TYPES = {
    "no": "{integer} PRIMARY KEY",
    "parcel_no": "{integer} NOT NULL",
    "acres": "{real}",
    "longitude": "{real}",
    "latitude": "{real}",
    **dict.fromkeys(("state", "county", "parcel_norm", "parcel_id", "platforms", "freshness"), "{text} NOT NULL"),
    **dict.fromkeys(("owner", "situs", "land_use", "status", "sold_on", "certificate_number", "holder_name"), "{text}"),
    **dict.fromkeys(
        ("tax_year", "delinquent", "market_value", "tax_due", "lien_amount", "certificate_year"), "{integer}"
    ),
    **dict.fromkeys(("liens", "scraped_at", "changed_at"), "{integer} NOT NULL"),
}
FACETS = {
    "state": "state",
    "county": "county",
    "platform": "platforms",
    "tax_year": "tax_year",
    "use": "land_use",
    "status": "status",
    "freshness": "freshness",
    "delinquent": "delinquent",
    "has_liens": "CASE WHEN liens > 0 THEN 1 ELSE 0 END",
}
"""What is counted, by the facet's name."""
_FLAG_FACETS = ("delinquent", "has_liens")

_INDEX = ("parcels", "liens", "parcels_words", "liens_words", "state")
DROP = [f"DROP TABLE IF EXISTS search_{name}" for name in _INDEX]
TABLES = {"search_queue", *(f"search_{name}" for name in _INDEX)}
STATE_VERSION = "SELECT version FROM search_state"
START_REBUILD = f"""
INSERT INTO search_state (only_row, version, rebuilt_to, rebuild_until)
SELECT 1, {INDEX_VERSION}, 0, coalesce(max(parcel_no), 0) FROM parcels
"""


class Dialect(Struct, frozen=True):
    """Where the databases differ."""

    integer: str
    real: str
    text: str
    identity: str
    words_table: str
    """Of words, by number."""
    add_words: str
    matches: str
    query: Callable[[Sequence[Asked]], str]
    follow: Sequence[str]
    """What puts the parcels of new results into the queue."""


def _quoted(word: str, prefix: str) -> str:
    return f'"{word}"{prefix}'


def _fts_query(parts: Sequence[Asked]) -> str:
    return " AND ".join(_either(part, _quoted, "*", " AND ", " OR ") for part in parts)


def _lexeme(word: str, prefix: str) -> str:
    return f"'{word}'{prefix}"


def _ts_query(parts: Sequence[Asked]) -> str:
    return " & ".join(_either(part, _lexeme, ":*", " & ", " | ") for part in parts)


def _either(part: Asked, quote: Callable[[str, str], str], star: str, both: str, either: str) -> str:
    prefix = star if part.is_prefix else ""
    *first, last = part.words
    words = both.join([*(quote(word, "") for word in first), quote(last, prefix)])
    return f"(({words}){either}{quote(part.joined, prefix)})" if first else words


SQLITE = Dialect(
    integer="INTEGER",
    real="REAL",
    text="TEXT",
    identity="INTEGER PRIMARY KEY AUTOINCREMENT",
    words_table="CREATE VIRTUAL TABLE {} USING fts5 (words, tokenize = 'ascii', detail = none, prefix = '1 2 3')",
    add_words="INSERT INTO {} (rowid, words) VALUES (?, ?)",
    matches="no IN (SELECT rowid FROM {0} WHERE {0} MATCH ?)",
    query=_fts_query,
    follow=[
        "DROP TRIGGER IF EXISTS results_to_index",
        """CREATE TRIGGER results_to_index AFTER INSERT ON results_to_compare BEGIN
            INSERT INTO search_queue (parcel_no) SELECT parcel_no FROM sources WHERE source_no = new.source_no;
        END""",
    ],
)
POSTGRES = Dialect(
    integer="BIGINT",
    real="DOUBLE PRECISION",
    text='TEXT COLLATE "C"',
    identity="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    words_table="CREATE TABLE {} (rowid BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
    add_words="INSERT INTO {} (rowid, words) VALUES (?, array_to_tsvector(string_to_array(?, ' ')))",
    matches="no IN (SELECT rowid FROM {0} WHERE words @@ ?::text::tsquery)",
    query=_ts_query,
    follow=[
        """CREATE OR REPLACE FUNCTION queue_for_search() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO search_queue (parcel_no)
            SELECT DISTINCT s.parcel_no FROM added a JOIN sources s ON s.source_no = a.source_no;
            RETURN NULL;
        END $$""",
        "DROP TRIGGER IF EXISTS results_to_index ON results_to_compare",
        """CREATE TRIGGER results_to_index AFTER INSERT ON results_to_compare REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION queue_for_search()""",
    ],
)


def create_statements(dialect: Dialect) -> list[str]:
    """Statements that make an empty index, whatever was there before."""
    types = {"integer": dialect.integer, "real": dialect.real, "text": dialect.text}
    made = [*DROP]
    made.append(
        f"CREATE TABLE IF NOT EXISTS search_queue (queue_no {dialect.identity}, parcel_no {dialect.integer} NOT NULL)"
    )
    made.append(
        f"""CREATE TABLE search_state (
            only_row {dialect.integer} PRIMARY KEY CHECK (only_row = 1), version {dialect.integer} NOT NULL,
            rebuilt_to {dialect.integer} NOT NULL, rebuild_until {dialect.integer} NOT NULL)"""
    )
    for table in (PARCELS, LIENS):
        columns = ", ".join(f"{name} {_COLUMN_TYPES[name].format(**types)}" for name in COLUMNS)
        made.append(f"CREATE TABLE search_{table} ({columns})")
        made.append(dialect.words_table.format(f"search_{table}_words"))
    made.append("CREATE INDEX search_liens_of_parcel ON search_liens (parcel_no)")
    if dialect is POSTGRES:
        by_word = "CREATE INDEX search_{0}_by_word ON search_{0}_words USING gin (words)"
        made += [by_word.format(table) for table in (PARCELS, LIENS)]
    return [*made, *dialect.follow, START_REBUILD]


_QUEUED = "SELECT queue_no, parcel_no FROM search_queue ORDER BY queue_no LIMIT ?"
_LEFT = """
SELECT (SELECT coalesce(max(queue_no) - min(queue_no) + 1, 0) FROM search_queue),
       coalesce((SELECT rebuild_until - rebuilt_to FROM search_state), 0)
"""
_PARCELS = """
SELECT parcel_no, state, county, parcel_norm, parcel_id, owner, situs, delinquent, tax_due_cents, lien_count,
       scraped_at, received_at
FROM parcels WHERE parcel_no IN ({})
"""
_SOURCES = """
SELECT s.parcel_no, s.platform, s.source_no, s.task_id, length(r.data)
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
SELECT ls.lien_no, s.platform FROM lien_sources ls JOIN sources s ON s.source_no = ls.source_no
WHERE ls.lien_no IN ({}) ORDER BY s.platform
"""
_FILE_PARCELS = "SELECT schedule_no, parcel_norm FROM schedule_targets WHERE schedule_no IN ({})"
_REBUILD_STATE = "SELECT rebuilt_to, rebuild_until FROM search_state WHERE rebuilt_to < rebuild_until"
_NEXT_TO_REBUILD = "SELECT parcel_no FROM parcels WHERE parcel_no > ? AND parcel_no <= ? ORDER BY parcel_no LIMIT ?"
_ADD_TO_QUEUE = "INSERT INTO search_queue (parcel_no) VALUES (?)"
_SET_REBUILT = "UPDATE search_state SET rebuilt_to = ?"


Statement = tuple[str, Sequence[Sequence[Any]]]
"""A writing statement, and its parameters for each time it is run."""


class Guard(Struct, frozen=True):
    """A count that must still be what it was for a change to be made."""

    sql: str
    args: Sequence[Any]
    count: int


class IndexedParcel(Struct, frozen=True):
    """A parcel and its liens, each with its words."""

    parcel: tuple[SearchRow, str]
    liens: Sequence[tuple[SearchRow, str]]


class SearchQueries(ScheduleQueries, Protocol):
    _dialect: Dialect

    async def _change_if(self, guard: Guard, statements: Sequence[Statement]) -> bool:
        """Runs writing statements in one transaction, unless the guard's count has changed. Returns whether it did."""

    # The index

    async def left_to_index(self) -> int:
        ((queued, to_rebuild),) = await self._find(_LEFT)
        return int(queued) + int(to_rebuild)

    async def update_search(self, now: datetime, most: int) -> int:
        await self._queue_rebuilt()
        queued = await self._find(_QUEUED, most)
        if not queued:
            return 0
        numbers = list(dict.fromkeys(number for _, number in queued))
        made = await self._indexed_parcels(numbers, now)
        queue_nos = [queue_no for queue_no, _ in queued]
        marks = ", ".join("?" * len(queue_nos))
        guard = Guard(f"SELECT count(*) FROM search_queue WHERE queue_no IN ({marks})", queue_nos, len(queue_nos))
        await self._change_if(guard, await self._index_statements(numbers, made, queue_nos))
        return len(queued)

    async def _queue_rebuilt(self) -> None:
        for rebuilt_to, until in await self._find(_REBUILD_STATE):
            if await self._find(_QUEUED, 1):
                return
            numbers = await self._find(_NEXT_TO_REBUILD, rebuilt_to, until, _REBUILT_AT_ONCE)
            last = numbers[-1][0] if len(numbers) == _REBUILT_AT_ONCE else until
            guard = Guard("SELECT count(*) FROM search_state WHERE rebuilt_to = ?", [rebuilt_to], 1)
            await self._change_if(guard, [(_ADD_TO_QUEUE, numbers), (_SET_REBUILT, [(last,)])])

    async def _index_statements(
        self, numbers: Sequence[int], made: Sequence[IndexedParcel], queue_nos: Sequence[int]
    ) -> list[Statement]:
        known_liens = await self._find_by_number(
            "SELECT parcel_no, no FROM search_liens WHERE parcel_no IN ({})", numbers
        )
        old_liens = [(number,) for of_parcel in known_liens.values() for (number,) in of_parcel]
        parcels = [indexed.parcel for indexed in made]
        liens = [lien for indexed in made for lien in indexed.liens]
        marks = ", ".join("?" * len(COLUMNS))
        statements: list[Statement] = []
        for table, old, new in ((PARCELS, [(number,) for number in numbers], parcels), (LIENS, old_liens, liens)):
            words = f"search_{table}_words"
            statements += [
                (f"DELETE FROM search_{table} WHERE no = ?", old),
                (f"DELETE FROM {words} WHERE rowid = ?", old),
                (
                    f"INSERT INTO search_{table} ({', '.join(COLUMNS)}) VALUES ({marks})",
                    [astuple(row) for row, _ in new],
                ),
                (self._dialect.add_words.format(words), [(row.no, text) for row, text in new if text]),
            ]
        statements.append(("DELETE FROM search_queue WHERE queue_no = ?", [(number,) for number in queue_nos]))
        return statements

    async def _indexed_parcels(self, numbers: Sequence[int], now: datetime) -> list[IndexedParcel]:
        parcels = await self._find_by_number(_PARCELS, numbers)
        sources = await self._find_by_number(_SOURCES, numbers)
        liens = await self._find_by_number(_LIENS, numbers)
        platforms = await self._find_by_number(_LIEN_PLATFORMS, [row[0] for of in liens.values() for row in of])
        facts = await self._facts([row for of in sources.values() for row in of])
        coverages = await self._coverages()
        made: list[IndexedParcel] = []
        for number, (parcel,) in parcels.items():
            of = sources[number]
            merged = merge([facts[row[1]] for row in of])
            names = sorted({row[0] for row in of})
            row = _parcel_row(number, parcel, names, merged, liens[number], coverages, now)
            made.append(_indexed(row, liens[number], platforms))
        return made

    async def _facts(self, sources: Iterable[Row]) -> Mapping[int, RecordFacts]:
        """Of sources: platform, number, task, length. A few megabytes at a time."""
        facts: defaultdict[int, RecordFacts] = defaultdict(RecordFacts)
        chunk: list[int] = []
        chars = 0
        for _, source_no, _, length in sources:
            chunk.append(source_no)
            chars += length or 0
            if chars > PAGE_CHARS:
                facts |= await self._facts_of(chunk)
                chunk, chars = [], 0
        facts |= await self._facts_of(chunk)
        return facts

    async def _facts_of(self, source_nos: Sequence[int]) -> dict[int, RecordFacts]:
        data = await self._find_by_number(_DATA, source_nos)
        return {source_no: read_facts(text) for source_no, ((text,),) in data.items()}

    async def _coverages(self) -> Mapping[tuple[str, str], Sequence[Coverage]]:
        """By state and county."""
        coverages: defaultdict[tuple[str, str], list[Coverage]] = defaultdict(list)
        schedules = await self.schedules()
        of_files = [row.schedule_no for row in schedules if row.schedule.scope is Scope.FILE]
        norms = await self._find_by_number(_FILE_PARCELS, of_files)
        for row in schedules:
            schedule = row.schedule
            coverage = Coverage(
                schedule.platform,
                schedule.scope,
                frozenset(norm for (norm,) in norms[row.schedule_no]) if row.schedule_no in norms else frozenset(),
                longest_interval(schedule.timing) + timedelta(seconds=schedule.window_seconds),
            )
            coverages[schedule.state, schedule.county].append(coverage)
        return coverages

    # Queries

    async def search(self, table: str, wanted: SearchFilter, order: SearchOrder, offset: int, most: int) -> SearchPage:
        """Returns rows of parcels or liens. Those without a value in the column that orders them come last."""
        conditions = self._conditions(table, wanted)
        ((total,),) = await self._find(f"SELECT count(*) FROM search_{table} WHERE {conditions}", *conditions.args) or (
            (0,),
        )
        column, direction = order.column, "DESC" if order.is_descending else "ASC"
        column = f"lower({column})" if column in ("owner", "situs", "holder_name") else column
        sql = f"""SELECT {", ".join(COLUMNS)} FROM search_{table} WHERE {conditions}
            ORDER BY {column} IS NULL, {column} {direction}, no {direction} LIMIT ? OFFSET ?"""
        found = await self._find(sql, *conditions.args, most, offset)
        return SearchPage([SearchRow(*row) for row in found], int(total))

    async def search_facets(self, table: str, wanted: SearchFilter) -> FacetCounts:
        """Returns the values of each facet with their counts, as if nothing of that facet were selected."""
        facets: dict[str, list[tuple[str | int | bool, int]]] = {}
        for name, dimension in FACETS.items():
            conditions = self._conditions(table, wanted, but=name)
            sql = f"SELECT {dimension}, count(*) FROM search_{table} WHERE {conditions} GROUP BY 1"
            facets[name] = _facet_values(name, await self._find(sql, *conditions.args))
        conditions = self._conditions(table, wanted)
        ((total,),) = await self._find(f"SELECT count(*) FROM search_{table} WHERE {conditions}", *conditions.args) or (
            (0,),
        )
        return FacetCounts(facets, int(total))

    async def search_map(self, wanted: SearchFilter, cell_degrees: float) -> SearchMap:
        """Returns the parcels that match, clustered by cells of that many degrees."""
        conditions = self._conditions(PARCELS, wanted)
        located = f"{conditions} AND longitude IS NOT NULL"
        sql = f"""
        SELECT avg(longitude), avg(latitude), count(*), sum(CASE WHEN delinquent = 1 THEN 1 ELSE 0 END),
               coalesce(sum(lien_amount), 0), min(longitude), min(latitude), max(longitude), max(latitude), min(no)
        FROM search_parcels WHERE {located}
        GROUP BY CAST((longitude + 180) / ? AS INTEGER), CAST((latitude + 90) / ? AS INTEGER)
        ORDER BY 10
        """
        found = await self._find(sql, *conditions.args, cell_degrees, cell_degrees)
        clusters = [
            Cluster(
                longitude=row[0],
                latitude=row[1],
                count=int(row[2]),
                delinquent=int(row[3]),
                lien_amount=int(row[4]),
                box=(row[5], row[6], row[7], row[8]),
                no=row[9],
            )
            for row in found
        ]
        singles = [cluster.no for cluster in clusters if cluster.count == 1]
        columns = ", ".join(COLUMNS)
        by_no = await self._find_by_number(f"SELECT no, {columns} FROM search_parcels WHERE no IN ({{}})", singles)
        ((total,),) = await self._find(f"SELECT count(*) FROM search_parcels WHERE {conditions}", *conditions.args) or (
            (0,),
        )
        return SearchMap(
            [(c, SearchRow(*by_no[c.no][0]) if c.count == 1 and c.no in by_no else None) for c in clusters],
            int(total),
            int(total) - sum(cluster.count for cluster in clusters),
        )

    def _conditions(self, table: str, wanted: SearchFilter, but: str = "") -> Conditions:
        """`but`: the name of a facet whose selection is left out."""
        conditions = Conditions()
        parts = asked(wanted.text)
        if parts:
            conditions.add(self._dialect.matches.format(f"search_{table}_words"), self._dialect.query(parts))
        selections: tuple[tuple[str, Sequence[Any]], ...] = (
            ("state", wanted.states),
            ("county", wanted.counties),
            ("tax_year", wanted.tax_years),
            ("use", wanted.uses),
            ("status", wanted.statuses),
            ("freshness", wanted.freshness),
        )
        for name, values in selections:
            if values and name != but:
                conditions.add(f"{FACETS[name]} IN ({', '.join('?' * len(values))})", *values)
        if wanted.platforms and but != "platform":
            like = " OR ".join(["'\n' || platforms || '\n' LIKE ? ESCAPE '!'"] * len(wanted.platforms))
            conditions.add(f"({like})", *(_line_pattern(name) for name in wanted.platforms))
        if wanted.delinquent is not None and but != "delinquent":
            conditions.add("delinquent = ?", int(wanted.delinquent))
        if wanted.has_liens is not None and but != "has_liens":
            conditions.add("liens > 0" if wanted.has_liens else "liens = 0")
        if wanted.owner:
            conditions.add("owner = ?", wanted.owner)
        for column, (least, most) in wanted.ranges.items():
            if least is not None:
                conditions.add(f"{column} >= ?", least)
            if most is not None:
                conditions.add(f"{column} <= ?", most)
        if wanted.box is not None:
            west, south, east, north = wanted.box
            conditions.add("latitude BETWEEN ? AND ?", south, north)
            joint = "AND" if west <= east else "OR"
            conditions.add(f"(longitude >= ? {joint} longitude <= ?)", west, east)
        return conditions


def _line_pattern(name: str) -> str:
    escaped = name.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%\n{escaped}\n%"


def _facet_values(name: str, counted: Sequence[Row]) -> list[tuple[str | int | bool, int]]:
    counts = Counter[str | int | bool]()
    for value, count in counted:
        if value is None:
            continue
        values = value.split("\n") if name == "platform" else [bool(value) if name in _FLAG_FACETS else value]
        for each in values:
            counts[each] += int(count)
    return sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:MAX_FACET_VALUES]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _parcel_row(
    number: int,
    parcel: Row,
    platforms: Sequence[str],
    merged: Merged,
    liens: Sequence[Row],
    coverages: Mapping[tuple[str, str], Sequence[Coverage]],
    now: datetime,
) -> SearchRow:
    state, county, norm, parcel_id, owner, situs, delinquent, tax_due, _, scraped, received = parcel
    is_delinquent = None if delinquent is None else bool(delinquent)
    covering = [c for c in coverages.get((state, county), ()) if c.covers(platforms, is_delinquent, norm)]
    scraped_at = rows.timestamp(scraped)
    fresh, _ = freshness(covering, scraped_at, now)
    amounts = [row[6] for row in liens if row[6] is not None]
    return SearchRow(
        no=number,
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
        scraped_at=_milliseconds(scraped_at),
        changed_at=_milliseconds(rows.timestamp(received)),
    )


def _indexed(row: SearchRow, liens: Sequence[Row], platforms: Mapping[int, Sequence[Row]]) -> IndexedParcel:
    numbers = (row.parcel_id, row.parcel_norm if not row.parcel_norm.startswith("=") else None)
    own = index_words((row.owner, row.situs), (*numbers, *(lien[1] for lien in liens)))
    of_liens: list[tuple[SearchRow, str]] = []
    for lien_no, certificate, certificate_year, tax_year, status, holder, amount, sale_date in liens:
        lien = structs.replace(
            row,
            no=lien_no,
            platforms="\n".join(dict.fromkeys(name for (name,) in platforms.get(lien_no, ()))),
            tax_year=tax_year,
            status=status,
            lien_amount=amount,
            sold_on=day(sale_date),
            certificate_number=shown(certificate),
            certificate_year=certificate_year,
            holder_name=shown(holder),
        )
        of_liens.append((lien, index_words((row.owner, row.situs), (*numbers, certificate))))
    return IndexedParcel((row, own), of_liens)
