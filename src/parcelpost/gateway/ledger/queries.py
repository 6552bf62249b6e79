"""Read queries that SQLite and PostgreSQL share.

Parameters are written `?`; `numbered` turns them into PostgreSQL's `$1`. Times are bound as datetimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import count
from typing import Any, Protocol

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.rows import TASK_COLUMNS, Row
from parcelpost.gateway.models import (
    EndedTask,
    IngestedResult,
    KnownTask,
    LienRow,
    ParcelFilter,
    ParcelKey,
    ParcelRecord,
    ParcelRow,
    QueueRow,
    RecordVersion,
    TaskRow,
)


@cache
def numbered(sql: str) -> str:
    """With `$1`, `$2`, ... for each `?`. No statement of ours has a question mark in a literal."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in zip(count(1), rest, strict=False))


def like_pattern(word: str) -> str:
    """Returns the LIKE pattern (ESCAPE '!') for texts that contain this word, case-insensitive."""
    escaped = _fold(word).replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def search_text(*context: str) -> str:
    """Returns the text that `containing` matches: one line per part."""
    return "\n".join(map(_fold, context))


def _fold(text: str) -> str:
    return text.casefold().replace("\n", " ")


def is_matchable(value: Any) -> bool:
    """Whether a stored value can equal it: stored text has no NUL and no lone surrogate."""
    if not isinstance(value, str):
        return True
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


KEY = "p.platform, p.state, p.county, p.parcel_id"

_OWNER_PART = "\n{}\n"  # of parcels.search: number, owner and address, a line each


class Conditions:
    """Conditions joined by AND."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self._context: list[str] = []

    def add(self, part: str, *args: Any) -> None:
        self._context.append(part)
        self.args += args

    def __str__(self) -> str:
        return " AND ".join(self._context) or "1 = 1"


def parcel_conditions(wanted: ParcelFilter, after: ParcelKey | None = None) -> Conditions:
    found = Conditions()
    _add_parcel_conditions(found, wanted)
    liens = Conditions()
    _add_lien_conditions(liens, wanted)
    if liens.args:
        exists = "EXISTS (SELECT 1 FROM liens l WHERE l.parcel_no = p.parcel_no AND l.position < p.lien_count AND "
        found.add(f"{exists}{liens})", *liens.args)
    if after is not None:
        found.add(f"({KEY}) > (?, ?, ?, ?)", *key_values(after))
    return found


def key_condition(key: ParcelKey) -> Conditions:
    found = Conditions()
    found.add(f"({KEY}) = (?, ?, ?, ?)", *key_values(key))
    return found


def lien_conditions(wanted: ParcelFilter, after: tuple[ParcelKey, int] | None) -> Conditions:
    found = Conditions()
    _add_parcel_conditions(found, wanted)
    _add_lien_conditions(found, wanted)
    if after is not None:
        key, position = after
        found.add(f"({KEY}) >= (?, ?, ?, ?)", *key_values(key))
        found.add(f"(({KEY}) > (?, ?, ?, ?) OR l.position > ?)", *key_values(key), position)
    return found


def _add_parcel_conditions(found: Conditions, wanted: ParcelFilter) -> None:
    for column in ("platform", "state", "county"):
        if value := getattr(wanted, column):
            found.add(f"p.{column} = ?", value)
    if wanted.owner:
        found.add("p.search LIKE ? ESCAPE '!'", f"%{_OWNER_PART.format(like_pattern(wanted.owner))}%")
    if wanted.search:
        found.add("p.search LIKE ? ESCAPE '!'", like_pattern(wanted.search))
    if wanted.delinquent is not None:
        found.add("p.delinquent = ?", wanted.delinquent)
    if wanted.changed_since is not None:
        found.add("p.received_at >= ?", wanted.changed_since)


def _add_lien_conditions(found: Conditions, wanted: ParcelFilter) -> None:
    if wanted.lien_status:
        found.add("l.status = ?", wanted.lien_status.lower())
    if wanted.min_lien_cents is not None:
        found.add("l.amount_cents >= ?", wanted.min_lien_cents)
    if wanted.max_lien_cents is not None:
        found.add("l.amount_cents <= ?", wanted.max_lien_cents)


def key_values(key: ParcelKey) -> tuple[str, str, str, str]:
    return key.platform, key.state, key.county, key.parcel_id


PAGE_CHARS = 8 * 1024 * 1024


def bounded_select(columns: str, source: str, conditions: Conditions, order: str) -> str:
    """`columns` of the first rows that `conditions` leave of `source` (parcels `p` and results `r`), in that order.

    After those of the conditions it takes two arguments: how many rows at most, and after how many characters of data
    no other row begins. What a page does not hold is not read into memory: lengths are, one after the other.
    """
    plain = order.replace("p.", "").replace("r.", "")
    return f"""
WITH page AS (
    SELECT {KEY}, p.parcel_no, r.task_id, r.scraped_at, length(r.data) AS chars
    FROM {source} WHERE {conditions} ORDER BY {order} LIMIT ?
), counted AS (
    SELECT parcel_no, task_id,
           sum(chars) OVER (ORDER BY {plain} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS chars_before
    FROM page
)
SELECT {columns}
FROM counted c
JOIN parcels p ON p.parcel_no = c.parcel_no
JOIN results r ON r.parcel_no = c.parcel_no AND r.task_id = c.task_id
WHERE coalesce(c.chars_before, 0) < ? ORDER BY {order}
"""


_TASK = f"SELECT {TASK_COLUMNS}, state, max_attempts, ended_at, error FROM tasks WHERE task_id = ?"

_WITHOUT_RECORD = f"""
SELECT {TASK_COLUMNS}, state, max_attempts, ended_at, error, seq FROM tasks
WHERE state IN ('not_found', 'failed', 'dead') AND state = ?"""  # the first part is the condition of the index

_LEASES = """
SELECT lease_id, task_id, worker_id, granted_at, expires_at, ended_at, ended_as
FROM leases WHERE task_id = ? ORDER BY lease_id
"""

_KNOWN_TASKS = """
SELECT t.task_id, t.platform, t.target,
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

_PARCEL_COLUMNS = f"""{KEY}, p.owner, p.situs, p.delinquent, p.tax_due_cents, p.lien_count,
       p.scraped_at, p.first_seen_at, p.received_at, p.task_id, r.raw_sha256, p.parcel_no"""
_NEWEST = "parcels p JOIN results r ON r.parcel_no = p.parcel_no AND r.task_id = p.task_id"
_PARCELS = f"SELECT {_PARCEL_COLUMNS} FROM {_NEWEST} WHERE "
_RECORDS = f"SELECT {_PARCEL_COLUMNS}, r.data FROM {_NEWEST} WHERE "

_VERSION_COLUMNS = """r.task_id, r.worker_id, r.scraped_at, r.received_at, r.late, r.parse_duration_ms,
       r.raw_sha256, r.raw_file, r.data"""
_VERSIONS = "parcels p JOIN results r ON r.parcel_no = p.parcel_no"
_NEWEST_FIRST = "r.scraped_at DESC, r.task_id DESC"

_KNOWN_SCRAPES = f"""
SELECT r.idempotency_key, r.scraped_at FROM {_VERSIONS}
WHERE ({KEY}, r.task_id) IN (VALUES {{}})
"""

_PAGE = f"SELECT 1 FROM {_VERSIONS} WHERE ({KEY}) = (?, ?, ?, ?) AND r.raw_sha256 = ? LIMIT 1"

_LIENS = f"""
SELECT {KEY}, l.position, p.owner, p.scraped_at, p.received_at, p.parcel_no, l.certificate_number,
       l.certificate_year, l.tax_year, l.status, l.holder_name, l.amount_cents, l.sale_date, l.json
FROM parcels p JOIN liens l ON l.parcel_no = p.parcel_no AND l.position < p.lien_count
WHERE """


_CHUNK = 500
_LATEST = "p.received_at DESC, p.parcel_no DESC"


def latest_liens_query(
    wanted: ParcelFilter, most: int, before: tuple[datetime, int, int] | None = None
) -> tuple[str, list[Any]]:
    """The statement and its arguments."""
    conditions = lien_conditions(wanted, None)
    if before is not None:
        received_at, parcel_no, position = before
        conditions.add("(p.received_at, p.parcel_no) <= (?, ?)", received_at, parcel_no)
        conditions.add("((p.received_at, p.parcel_no) < (?, ?) OR l.position > ?)", received_at, parcel_no, position)
    conditions.add("p.lien_count > 0")  # of which there is an index
    return f"{_LIENS}{conditions} ORDER BY {_LATEST}, l.position LIMIT ?", [*conditions.args, most]


def ended_tasks_query(
    state: str, platform: str, most: int, before: tuple[datetime, int] | None = None
) -> tuple[str, list[Any]]:
    """The statement and its arguments."""
    conditions = Conditions()
    if platform:
        conditions.add("platform = ?", platform)
    if before is not None:
        conditions.add("(ended_at, seq) < (?, ?)", *before)
    sql = f"{_WITHOUT_RECORD} AND {conditions} ORDER BY ended_at DESC, seq DESC LIMIT ?"
    return sql, [state, *conditions.args, most]


class Database(Protocol):
    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """Returns the rows of a query. Raises LedgerUnavailable."""

    async def _run_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a writing statement once for each row of parameters, in one transaction."""


class Queries(Database, Protocol):
    """Queries for parcels, liens and tasks."""

    async def _find(self, sql: str, *args: Any) -> Sequence[Row]:
        return await self._rows(sql, args) if all(map(is_matchable, args)) else ()

    async def task(self, task_id: str) -> TaskRow | None:
        found = await self._find(_TASK, task_id)
        leases = await self._find(_LEASES, task_id)
        return rows.task_row(found[0], [rows.lease(row) for row in leases]) if found else None

    async def ended_tasks(
        self, state: str, platform: str, most: int, before: tuple[datetime, int] | None = None
    ) -> Sequence[EndedTask]:
        sql, args = ended_tasks_query(state, platform, most, before)
        return [EndedTask(rows.task_row(row, ()), row[12]) for row in await self._find(sql, *args)]

    async def known_tasks(self, task_ids: Sequence[str], worker_id: str) -> Mapping[str, KnownTask]:
        sql = _KNOWN_TASKS.format(", ".join("?" * len(task_ids)))
        found = await self._find(sql, worker_id, worker_id, *task_ids) if task_ids else ()
        return {row[0]: rows.known_task(row) for row in found}

    async def known_scrapes(self, results: Sequence[IngestedResult]) -> Mapping[str, datetime]:
        found: dict[str, datetime] = {}
        for start in range(0, len(results), _CHUNK):
            chunk = results[start : start + _CHUNK]
            sql = _KNOWN_SCRAPES.format(", ".join(["(?, ?, ?, ?, ?)"] * len(chunk)))
            args = [part for one in chunk for part in (*key_values(one.parcel), one.task_id)]
            found |= {key: rows.timestamp(at) for key, at in await self._find(sql, *args)}
        return found

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

    async def _parcels(self, conditions: Conditions, order: str, most: int) -> Sequence[ParcelRow]:
        sql = f"{_PARCELS}{conditions} ORDER BY {order} LIMIT ?"
        return [rows.parcel(row) for row in await self._find(sql, *conditions.args, most)]

    async def records(self, wanted: ParcelFilter, after: ParcelKey | None, most: int) -> Sequence[ParcelRecord]:
        conditions = parcel_conditions(wanted, after)
        sql = bounded_select(f"{_PARCEL_COLUMNS}, r.data", _NEWEST, conditions, KEY)
        return [rows.record(row) for row in await self._find(sql, *conditions.args, most, PAGE_CHARS)]

    async def parcel(self, key: ParcelKey) -> ParcelRow | None:
        conditions = key_condition(key)
        found = await self._find(f"{_PARCELS}{conditions}", *conditions.args)
        return rows.parcel(found[0]) if found else None

    async def record(self, key: ParcelKey) -> ParcelRecord | None:
        conditions = key_condition(key)
        found = await self._find(f"{_RECORDS}{conditions}", *conditions.args)
        return rows.record(found[0]) if found else None

    async def versions(
        self, key: ParcelKey, most: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[RecordVersion]:
        conditions = key_condition(key)
        if before is not None:
            conditions.add("(r.scraped_at, r.task_id) < (?, ?)", *before)
        sql = bounded_select(_VERSION_COLUMNS, _VERSIONS, conditions, _NEWEST_FIRST)
        return [rows.version(row) for row in await self._find(sql, *conditions.args, most, PAGE_CHARS)]

    async def has_page(self, key: ParcelKey, raw_sha256: str) -> bool:
        return bool(await self._find(_PAGE, key.platform, key.state, key.county, key.parcel_id, raw_sha256))

    async def liens(self, wanted: ParcelFilter, after: tuple[ParcelKey, int] | None, most: int) -> Sequence[LienRow]:
        conditions = lien_conditions(wanted, after)
        sql = f"{_LIENS}{conditions} ORDER BY {KEY}, l.position LIMIT ?"
        return [rows.lien(row) for row in await self._find(sql, *conditions.args, most)]

    async def latest_liens(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int, int] | None = None
    ) -> Sequence[LienRow]:
        sql, args = latest_liens_query(wanted, most, before)
        return [rows.lien(row) for row in await self._find(sql, *args)]
