"""Read queries that SQLite and PostgreSQL share.

Parameters are written `?`; `numbered` turns them into PostgreSQL's `$1`. Times are bound as datetimes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import count
from typing import Any, Protocol

from msgspec.structs import astuple

from parcelpost.errors import InvalidInput
from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.rows import Row
from parcelpost.gateway.models import (
    MAX_SOURCES,
    ChangeFilter,
    ChangePage,
    IngestedResult,
    KnownTask,
    LienRow,
    ParcelFilter,
    ParcelKey,
    ParcelRecord,
    ParcelRow,
    QueueRow,
    RecordVersion,
    RefreshFilter,
    SourceKey,
    ToCompare,
)


@cache
def numbered(sql: str) -> str:
    """Replaces each `?` by `$1`, `$2`, ... Our statements have no question marks in literals."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in zip(count(1), rest, strict=False))


def like_pattern(word: str) -> str:
    """Returns the LIKE pattern (ESCAPE '!') for texts that contain this word, case-insensitive."""
    escaped = _fold(word).replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def search_text(*parts: str) -> str:
    """Returns the text that `like_pattern` is matched against: one line per part."""
    return "\n".join(map(_fold, parts))


def _fold(text: str) -> str:
    return text.casefold().replace("\n", " ")


def is_matchable(value: Any) -> bool:
    """Whether a stored value can equal it: stored text has no NUL and no lone surrogate."""
    if not isinstance(value, str):
        return True
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def too_slow(seconds: float) -> InvalidInput:
    return InvalidInput(f"this takes longer than {seconds:g} seconds", hint="search for less, or for rarer words")


KEY = "p.state, p.county, p.parcel_norm"
_SOURCE_KEY = f"{KEY}, s.platform"

_OWNER_PART = "\n{}\n"  # of sources.search: number, owner and address, a line each


class Conditions:
    """Conditions joined by AND."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self._parts: list[str] = []

    def add(self, part: str, *args: Any) -> None:
        self._parts.append(part)
        self.args += args

    def __str__(self) -> str:
        return " AND ".join(self._parts) or "1 = 1"


def parcel_conditions(wanted: ParcelFilter, after: ParcelKey | None = None) -> Conditions:
    conditions = Conditions()
    _add_parcel_conditions(conditions, wanted)
    _add_existing_source(conditions, wanted)
    _add_existing_lien(conditions, wanted)
    if after is not None:
        conditions.add(f"({KEY}) > (?, ?, ?)", *astuple(after))
    return conditions


def record_conditions(wanted: ParcelFilter, after: SourceKey | None) -> Conditions:
    """Of a parcel and one of its sources."""
    conditions = Conditions()
    _add_parcel_conditions(conditions, wanted)
    _add_source_conditions(conditions, wanted)
    _add_existing_lien(conditions, wanted)
    if after is not None:
        conditions.add(f"({KEY}) >= (?, ?, ?)", *astuple(after.parcel))  # uses the index
        conditions.add(f"({_SOURCE_KEY}) > (?, ?, ?, ?)", *astuple(after))
    return conditions


def source_condition(key: SourceKey) -> Conditions:
    conditions = Conditions()
    conditions.add(f"({_SOURCE_KEY}) = (?, ?, ?, ?)", *astuple(key))
    return conditions


def lien_conditions(wanted: ParcelFilter, after: tuple[ParcelKey, str] | None) -> Conditions:
    conditions = Conditions()
    _add_parcel_conditions(conditions, wanted)
    _add_existing_source(conditions, wanted)
    _add_lien_conditions(conditions, wanted)
    if after is not None:
        key, lien_key = after
        conditions.add(f"({KEY}) >= (?, ?, ?)", *astuple(key))
        conditions.add(f"(({KEY}) > (?, ?, ?) OR l.lien_key > ?)", *astuple(key), lien_key)
    return conditions


def _add_parcel_conditions(conditions: Conditions, wanted: ParcelFilter) -> None:
    for column in ("state", "county"):
        if value := getattr(wanted, column):
            conditions.add(f"p.{column} = ?", value)
    if wanted.delinquent is not None:
        conditions.add("p.delinquent = ?", wanted.delinquent)
    if wanted.changed_since is not None:
        conditions.add("p.received_at >= ?", wanted.changed_since)


def _add_source_conditions(conditions: Conditions, wanted: ParcelFilter) -> None:
    if wanted.platform:
        conditions.add("s.platform = ?", wanted.platform)
    if wanted.owner:
        conditions.add("s.search LIKE ? ESCAPE '!'", f"%{_OWNER_PART.format(like_pattern(wanted.owner))}%")
    if wanted.search:
        conditions.add("s.search LIKE ? ESCAPE '!'", like_pattern(wanted.search))


def _add_existing_source(conditions: Conditions, wanted: ParcelFilter) -> None:
    sources = Conditions()
    _add_source_conditions(sources, wanted)
    if sources.args:
        exists = "EXISTS (SELECT 1 FROM sources s WHERE s.parcel_no = p.parcel_no AND "
        conditions.add(f"{exists}{sources})", *sources.args)


def _add_existing_lien(conditions: Conditions, wanted: ParcelFilter) -> None:
    liens = Conditions()
    _add_lien_conditions(liens, wanted)
    if liens.args:
        conditions.add(f"EXISTS (SELECT 1 FROM liens l WHERE l.parcel_no = p.parcel_no AND {liens})", *liens.args)


def _add_lien_conditions(conditions: Conditions, wanted: ParcelFilter) -> None:
    if wanted.lien_status:
        conditions.add("l.status = ?", wanted.lien_status.lower())
    if wanted.min_lien_cents is not None:
        conditions.add("l.amount_cents >= ?", wanted.min_lien_cents)
    if wanted.max_lien_cents is not None:
        conditions.add("l.amount_cents <= ?", wanted.max_lien_cents)


def refresh_conditions(wanted: RefreshFilter, run_no: int = 0) -> Conditions:
    """Without sources that are being refreshed, other than by this run."""
    conditions = record_conditions(wanted.parcels, None)
    conditions.add("s.target <> ''")
    if wanted.norm:
        conditions.add("p.parcel_norm = ?", wanted.norm)
    if wanted.norms:
        conditions.add(f"p.parcel_norm IN ({', '.join('?' * len(wanted.norms))})", *wanted.norms)
    if wanted.scraped_before is not None:
        conditions.add("s.scraped_at < ?", wanted.scraped_before)
    conditions.add(
        """NOT EXISTS (SELECT 1 FROM tasks t WHERE t.refresh_of = s.source_no AND t.refresh_of IS NOT NULL
                AND t.ended_at IS NULL AND (t.run_no IS NULL OR t.run_no <> ?))""",
        run_no,
    )
    return conditions


def change_conditions(wanted: ChangeFilter, after: int, until: int) -> Conditions:
    conditions = Conditions()
    conditions.add("c.change_no > ? AND c.change_no <= ?", after, until)
    if wanted.kinds:
        any_kind = " OR ".join(["c.kind = ? OR c.kind LIKE ?"] * len(wanted.kinds))
        conditions.add(f"({any_kind})", *(part for kind in wanted.kinds for part in (kind, f"{kind}.%")))
    if wanted.platform:
        conditions.add("s.platform = ?", wanted.platform)
    for column in ("state", "county"):
        if value := getattr(wanted, column):
            conditions.add(f"p.{column} = ?", value)
    if wanted.field:
        pattern = like_pattern(f'"{wanted.field}":')
        conditions.add("(c.before LIKE ? ESCAPE '!' OR c.after LIKE ? ESCAPE '!')", pattern, pattern)
    if wanted.found_since is not None:
        conditions.add("c.found_at >= ?", wanted.found_since)
    return conditions


PAGE_CHARS = 8 * 1024 * 1024


def bounded_select(columns: str, source: str, conditions: Conditions, order: str) -> str:
    """Selects `columns` of the first rows of `source` (parcels `p`, sources `s` and results `r`) that match the
    conditions.

    Takes two more arguments than the conditions: the most rows, and the most characters of data after which no further
    row starts. Records beyond that are not read into memory, only their lengths.
    """
    plain = order.replace("p.", "").replace("s.", "").replace("r.", "")
    return f"""
WITH page AS (
    SELECT {_SOURCE_KEY}, s.source_no, r.task_id, r.scraped_at, length(r.data) AS chars
    FROM {source} WHERE {conditions} ORDER BY {order} LIMIT ?
), counted AS (
    SELECT source_no, task_id,
           sum(chars) OVER (ORDER BY {plain} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS chars_before
    FROM page
)
SELECT {columns}
FROM counted c
JOIN sources s ON s.source_no = c.source_no
JOIN parcels p ON p.parcel_no = s.parcel_no
JOIN results r ON r.source_no = c.source_no AND r.task_id = c.task_id
WHERE coalesce(c.chars_before, 0) < ? ORDER BY {order}
"""


_KNOWN_TASKS = """
SELECT t.task_id, t.site, t.platform, t.target,
       EXISTS (SELECT 1 FROM leases l WHERE l.task_id = t.task_id AND (l.worker_id = ? OR EXISTS (
           SELECT 1 FROM worker_ids holder JOIN worker_ids asker ON asker.token = holder.token
           WHERE holder.worker_id = l.worker_id AND asker.worker_id = ?)))
FROM tasks t WHERE t.task_id IN ({})
"""

_QUEUE = """
SELECT q.platform, q.priority, 'queued', q.tasks, t.created_at
FROM (SELECT platform, priority, count(*) AS tasks, min(seq) AS oldest
      FROM tasks WHERE state = 'queued' GROUP BY platform, priority) q
JOIN tasks t ON t.seq = q.oldest
UNION ALL
SELECT t.platform, t.priority, 'leased', count(*), NULL
FROM leases l JOIN tasks t ON t.task_id = l.task_id WHERE l.ended_at IS NULL GROUP BY t.platform, t.priority
UNION ALL
SELECT platform, priority, state, count(*), NULL
FROM tasks WHERE ended_at IS NOT NULL GROUP BY platform, priority, state
"""

_PARCEL_COLUMNS = f"""{KEY}, p.parcel_id, p.owner, p.situs, p.delinquent, p.tax_due_cents, p.lien_count,
       p.scraped_at, p.first_seen_at, p.received_at, p.parcel_no"""
_SOURCE_COLUMNS = (
    f"{_SOURCE_KEY}, s.parcel_id, s.is_partial, s.task_id, s.scraped_at, s.first_seen_at, s.received_at, r.raw_sha256"
)
_PARCELS = f"SELECT {_PARCEL_COLUMNS} FROM parcels p WHERE "
_NEWEST = """parcels p JOIN sources s ON s.parcel_no = p.parcel_no
JOIN results r ON r.source_no = s.source_no AND r.task_id = s.task_id"""
_RECORD_COLUMNS = f"{_SOURCE_COLUMNS}, {_PARCEL_COLUMNS}, r.data"

_SOURCES = f"""
SELECT p.parcel_no, {_SOURCE_COLUMNS}
FROM (SELECT source_no, row_number() OVER (PARTITION BY parcel_no ORDER BY scraped_at DESC, task_id DESC, source_no)
             AS place
      FROM sources WHERE parcel_no IN ({{}})) newest
JOIN sources s ON s.source_no = newest.source_no
JOIN parcels p ON p.parcel_no = s.parcel_no
JOIN results r ON r.source_no = s.source_no AND r.task_id = s.task_id
WHERE newest.place <= {MAX_SOURCES} ORDER BY p.parcel_no, newest.place
"""

_VERSION_COLUMNS = """r.task_id, r.worker_id, r.scraped_at, r.received_at, r.late, r.parse_duration_ms,
       r.raw_sha256, r.raw_file, r.data"""
_VERSIONS = "parcels p JOIN sources s ON s.parcel_no = p.parcel_no JOIN results r ON r.source_no = s.source_no"
_NEWEST_FIRST = "r.scraped_at DESC, r.task_id DESC"

_KNOWN_SCRAPES = """
WITH asked (state, county, parcel_norm, platform, task_id) AS (VALUES {})
SELECT r.idempotency_key, r.scraped_at
FROM asked a
JOIN parcels p ON p.state = a.state AND p.county = a.county AND p.parcel_norm = a.parcel_norm
JOIN sources s ON s.parcel_no = p.parcel_no AND s.platform = a.platform
JOIN results r ON r.source_no = s.source_no AND r.task_id = a.task_id
"""

_PAGE = f"SELECT 1 FROM {_VERSIONS} WHERE ({KEY}) = (?, ?, ?) AND r.raw_sha256 = ? LIMIT 1"

_LIENS = f"""
SELECT {KEY}, p.parcel_id, p.owner, p.received_at, p.parcel_no, l.lien_no, l.lien_key, l.certificate_number,
       l.certificate_year, l.tax_year, l.status, l.holder_name, l.amount_cents, l.sale_date
FROM parcels p JOIN liens l ON l.parcel_no = p.parcel_no
WHERE """

_LIEN_SOURCES = """
SELECT ls.lien_no, s.platform, s.parcel_id, ls.position, s.is_partial, ls.scraped_at, ls.json
FROM lien_sources ls JOIN sources s ON s.source_no = ls.source_no
WHERE ls.lien_no IN ({}) ORDER BY ls.lien_no, ls.scraped_at DESC, ls.task_id DESC, ls.source_no
"""


TO_COMPARE = """
WITH page AS (
    SELECT q.queue_no, q.source_no, q.task_id, length(r.data) AS chars
    FROM results_to_compare q LEFT JOIN results r ON r.source_no = q.source_no AND r.task_id = q.task_id
    ORDER BY q.queue_no LIMIT ?
), counted AS (
    SELECT queue_no, source_no, task_id,
           sum(chars) OVER (ORDER BY queue_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS chars_before
    FROM page
)
SELECT c.queue_no, s.parcel_no, c.source_no, c.task_id, r.scraped_at, r.data, r.raw_sha256
FROM counted c
JOIN sources s ON s.source_no = c.source_no
LEFT JOIN results r ON r.source_no = c.source_no AND r.task_id = c.task_id
WHERE coalesce(c.chars_before, 0) < ? ORDER BY r.scraped_at, c.task_id, c.source_no
"""
"""Takes the most results, and the most characters of data. Those that arrived first, in the order of their scrapes:
what one source of a parcel showed is compared with what the others showed before. Without data if a result was deleted
since.
"""
KNOWN_FACTS = """
SELECT s.parcel_no, f.source_no, f.task_id, f.scraped_at, f.facts,
       (SELECT r.raw_sha256 FROM results r WHERE r.source_no = f.source_no AND r.task_id = f.task_id)
FROM sources s JOIN source_facts f ON f.source_no = s.source_no WHERE s.parcel_no IN ({})
"""
LAST_CHANGE = "SELECT coalesce(max(change_no), 0) FROM changes"
ADD_CHANGE = """
INSERT INTO changes (change_no, found_at, kind, parcel_no, source_no, task_id, scraped_at, subject, before, after)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
STORE_FACTS = """
INSERT INTO source_facts (source_no, task_id, scraped_at, facts) VALUES (?, ?, ?, ?)
ON CONFLICT (source_no) DO UPDATE
SET task_id = excluded.task_id, scraped_at = excluded.scraped_at, facts = excluded.facts
"""
DROP_UNCHANGED = """
DELETE FROM results WHERE source_no = ? AND task_id = ? AND scraped_at = ?
AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.source_no = results.source_no AND s.task_id = results.task_id)
"""
"""A county that does not change needs no more room for each scrape. A task that was run again may have replaced its
scrape meanwhile: that one stays, and so does the newest.
"""
IS_COMPARED = "DELETE FROM results_to_compare WHERE queue_no = ?"
_FIRST_TO_COMPARE = """
SELECT q.queue_no, s.platform, q.task_id FROM results_to_compare q JOIN sources s ON s.source_no = q.source_no
ORDER BY q.queue_no LIMIT 1
"""
_LEFT_TO_COMPARE = """
SELECT coalesce((SELECT max(queue_no) FROM results_to_compare) - (SELECT min(queue_no) FROM results_to_compare) + 1, 0)
"""

CHANGES = f"""
SELECT c.change_no, c.found_at, c.kind, {KEY}, s.parcel_id, s.platform, c.task_id, c.scraped_at, c.subject,
       c.before, c.after
FROM changes c JOIN parcels p ON p.parcel_no = c.parcel_no JOIN sources s ON s.source_no = c.source_no
WHERE """

_CHUNK = 500
_MAX_SCANNED = 20_000
"""Changes that one query looks at."""
_LATEST = "p.received_at DESC, p.parcel_no DESC"


def latest_liens_query(
    wanted: ParcelFilter, most: int, before: tuple[datetime, int, str] | None = None
) -> tuple[str, list[Any]]:
    """The statement and its arguments."""
    conditions = lien_conditions(wanted, None)
    if before is not None:
        received_at, parcel_no, lien_key = before
        conditions.add("(p.received_at, p.parcel_no) <= (?, ?)", received_at, parcel_no)
        conditions.add("((p.received_at, p.parcel_no) < (?, ?) OR l.lien_key > ?)", received_at, parcel_no, lien_key)
    conditions.add("p.lien_count > 0")  # uses a partial index
    return f"{_LIENS}{conditions} ORDER BY {_LATEST}, l.lien_key LIMIT ?", [*conditions.args, most]


class Database(Protocol):
    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """Returns the rows of a query. Raises LedgerUnavailable."""

    async def _run_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a writing statement once for each row of parameters, in one transaction."""

    async def _change(self, sql: str, *args: Any) -> int:
        """Runs a writing statement and returns how many rows it changed."""


class Queries(Database, Protocol):
    """Queries for parcels and liens."""

    async def _find(self, sql: str, *args: Any) -> Sequence[Row]:
        return await self._rows(sql, args) if all(map(is_matchable, args)) else ()

    async def known_tasks(self, task_ids: Sequence[str], worker_id: str) -> Mapping[str, KnownTask]:
        sql = _KNOWN_TASKS.format(", ".join("?" * len(task_ids)))
        tasks = await self._find(sql, worker_id, worker_id, *task_ids) if task_ids else ()
        return {row[0]: rows.known_task(row) for row in tasks}

    async def known_scrapes(self, results: Sequence[IngestedResult]) -> Mapping[str, datetime]:
        scraped_at: dict[str, datetime] = {}
        for start in range(0, len(results), _CHUNK):
            chunk = results[start : start + _CHUNK]
            sql = _KNOWN_SCRAPES.format(", ".join(["(?, ?, ?, ?, ?)"] * len(chunk)))
            args = [part for result in chunk for part in (*astuple(result.source), result.task_id)]
            scraped_at |= {key: rows.timestamp(at) for key, at in await self._find(sql, *args)}
        return scraped_at

    async def queue(self) -> Sequence[QueueRow]:
        return [rows.queue(row) for row in await self._find(_QUEUE)]

    async def parcels(self, wanted: ParcelFilter, after: ParcelKey | None, most: int) -> Sequence[ParcelRow]:
        return await self._parcels(parcel_conditions(wanted, after), KEY, most)

    async def latest_parcels(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int] | None = None
    ) -> Sequence[ParcelRow]:
        conditions = parcel_conditions(wanted)
        if before is not None:
            conditions.add("(p.received_at, p.parcel_no) < (?, ?)", *before)
        return await self._parcels(conditions, _LATEST, most)

    async def parcel(self, key: ParcelKey) -> ParcelRow | None:
        conditions = Conditions()
        conditions.add(f"({KEY}) = (?, ?, ?)", *astuple(key))
        parcels = await self._parcels(conditions, KEY, 1)
        return parcels[0] if parcels else None

    async def _parcels(self, conditions: Conditions, order: str, most: int) -> Sequence[ParcelRow]:
        parcels = await self._find(f"{_PARCELS}{conditions} ORDER BY {order} LIMIT ?", *conditions.args, most)
        sources = await self._find_by_number(_SOURCES, [row[-1] for row in parcels])
        return [rows.parcel(row, [rows.source(source) for source in sources[row[-1]]]) for row in parcels]

    async def _find_by_number(self, sql: str, numbers: Sequence[int]) -> Mapping[int, Sequence[Row]]:
        """Returns the rows of a query by the number that is their first column, without it."""
        by_number: defaultdict[int, list[Row]] = defaultdict(list)
        for start in range(0, len(numbers), _CHUNK):
            chunk = numbers[start : start + _CHUNK]
            for number, *row in await self._find(sql.format(", ".join("?" * len(chunk))), *chunk):
                by_number[number].append(row)
        return by_number

    async def records(self, wanted: ParcelFilter, after: SourceKey | None, most: int) -> Sequence[ParcelRecord]:
        conditions = record_conditions(wanted, after)
        sql = bounded_select(_RECORD_COLUMNS, _NEWEST, conditions, _SOURCE_KEY)
        return [rows.record(row) for row in await self._find(sql, *conditions.args, most, PAGE_CHARS)]

    async def record(self, key: SourceKey) -> ParcelRecord | None:
        conditions = source_condition(key)
        records = await self._find(f"SELECT {_RECORD_COLUMNS} FROM {_NEWEST} WHERE {conditions}", *conditions.args)
        return rows.record(records[0]) if records else None

    async def versions(
        self, key: SourceKey, most: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[RecordVersion]:
        conditions = source_condition(key)
        if before is not None:
            conditions.add("(r.scraped_at, r.task_id) < (?, ?)", *before)
        sql = bounded_select(_VERSION_COLUMNS, _VERSIONS, conditions, _NEWEST_FIRST)
        return [rows.version(row) for row in await self._find(sql, *conditions.args, most, PAGE_CHARS)]

    async def changes(self, wanted: ChangeFilter, after: int, most: int) -> ChangePage:
        last = await self.last_change()
        until = min(last, after + _MAX_SCANNED)
        conditions = change_conditions(wanted, after, until)
        sql = f"{CHANGES}{conditions} ORDER BY c.change_no LIMIT ?"
        page = [rows.change(row) for row in await self._find(sql, *conditions.args, most)] if after < until else []
        return ChangePage(page, page[-1].change_no if len(page) == most else max(after, until), last)

    async def latest_changes(self, wanted: ChangeFilter, before: int, most: int) -> ChangePage:
        last = await self.last_change()
        until = min(last, before - 1) if before else last
        after = max(0, until - _MAX_SCANNED)
        conditions = change_conditions(wanted, after, until)
        sql = f"{CHANGES}{conditions} ORDER BY c.change_no DESC LIMIT ?"
        page = [rows.change(row) for row in await self._find(sql, *conditions.args, most)] if after < until else []
        return ChangePage(page, page[-1].change_no if len(page) == most else after + 1 if after else 0, last)

    async def count_changes(self, wanted: ChangeFilter, after: int) -> int:
        until = after + _MAX_SCANNED
        conditions = change_conditions(wanted, after, until)
        ((matching,),) = await self._find(f"SELECT count(*) FROM ({CHANGES}{conditions}) matching", *conditions.args)
        return int(matching) + max(0, await self.last_change() - until)

    async def left_to_compare(self) -> int:
        ((number,),) = await self._find(_LEFT_TO_COMPARE)
        return int(number)

    async def first_to_compare(self) -> ToCompare | None:
        waiting = await self._find(_FIRST_TO_COMPARE)
        return ToCompare(*waiting[0]) if waiting else None

    async def skip_comparison(self, queue_no: int) -> None:
        await self._change(IS_COMPARED, queue_no)

    async def last_change(self) -> int:
        ((number,),) = await self._find(LAST_CHANGE)
        return int(number)

    async def has_page(self, key: ParcelKey, raw_sha256: str) -> bool:
        return bool(await self._find(_PAGE, *astuple(key), raw_sha256))

    async def liens(self, wanted: ParcelFilter, after: tuple[ParcelKey, str] | None, most: int) -> Sequence[LienRow]:
        conditions = lien_conditions(wanted, after)
        return await self._liens(f"{_LIENS}{conditions} ORDER BY {KEY}, l.lien_key LIMIT ?", *conditions.args, most)

    async def latest_liens(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int, str] | None = None
    ) -> Sequence[LienRow]:
        sql, args = latest_liens_query(wanted, most, before)
        return await self._liens(sql, *args)

    async def _liens(self, sql: str, *args: Any) -> Sequence[LienRow]:
        """A lien that goes between the two queries has no sources."""
        liens = await self._find(sql, *args)
        sources = await self._find_by_number(_LIEN_SOURCES, [row[7] for row in liens])
        return [rows.lien(row, [rows.lien_source(source) for source in sources[row[7]]]) for row in liens]
