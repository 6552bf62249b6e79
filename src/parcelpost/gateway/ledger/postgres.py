"""The ledger in PostgreSQL, for any number of gateway processes. Needs the extra `postgres`.

A task's row is always locked before its lease's row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import asyncpg
from msgspec.structs import astuple

from parcelpost.changes import compare
from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, InvalidSettings, LedgerError, LedgerUnavailable, ParcelpostError
from parcelpost.gateway.ledger import rows, search_index, search_schema, sql
from parcelpost.gateway.ledger.base import EXPIRED_ERROR, BatchEntry, DedupedBatch, dedupe, lease_ending
from parcelpost.gateway.ledger.queries import (
    ADD_CHANGE,
    DROP_UNCHANGED,
    IS_COMPARED,
    KNOWN_FACTS,
    LAST_CHANGE,
    PAGE_CHARS,
    STORE_FACTS,
    TO_COMPARE,
    numbered,
    search_text,
    too_slow,
)
from parcelpost.gateway.ledger.rows import TASK_COLUMNS, Row
from parcelpost.gateway.ledger.schedules import ADD_SCHEDULE, ADD_TARGET
from parcelpost.gateway.ledger.search import SEARCH_SECONDS, KeptCounts
from parcelpost.gateway.ledger.search_groups import Groups
from parcelpost.gateway.ledger.sql import (
    CLAIM_WORKER_ID,
    COUNT_WORKER_IDS,
    DELETE_WORKER,
    IDLE_WORKER_ID,
    RELEASE_WORKER_ID,
    WORKER_ID_OWNER,
    SqlLedger,
)
from parcelpost.gateway.ledger.tasks import HEAD_TURN, SITE_TURN, TURN_AGAIN
from parcelpost.gateway.models import (
    OFFLINE_AFTER,
    AddCounts,
    ExpiredLeases,
    Grant,
    IngestedResult,
    StoreOutcome,
    TaskOutcome,
    TaskState,
    WorkerHeartbeat,
    failure_reason,
)
from parcelpost.model import Task

_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 60.0
_STEP_SECONDS = 3_600.0  # an index of a large table takes its time, and others wait for whoever makes it
_MAX_CONNECTIONS = 10

_SERVER_SETTINGS = {
    "application_name": "parcelpost gateway",
    "jit": "off",  # its statements are short: compiling them takes longer than they do
    "lock_timeout": "30s",
    "statement_timeout": "55s",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}

_MAX_SEARCHES = 4
_SEARCH_SETTINGS = {
    "statement_timeout": f"{SEARCH_SECONDS:g}s",
    "default_transaction_read_only": "on",
    "plan_cache_mode": "force_custom_plan",  # what is searched for decides
    "max_parallel_workers_per_gather": "0",
    # Everything has an index for its order, which also says which rows are chosen.
    "enable_seqscan": "off",
    "enable_sort": "off",
}

_SCHEMA = Path(__file__).parent / "schema" / "postgres"
_SCHEMA_LOCK = 0x7061_7263_656C  # "parcel": one process at a time changes the schema

_UNAVAILABLE_CLASSES = {
    "08",  # the connection
    "40",  # rolled back: a deadlock, a failed serialization
    "53",  # no room, no memory, no connection left
    "55",  # a lock not available
    "57",  # shutting down, starting up, cancelled
    "58",  # an I/O error of the server
}
_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised while the server closes the connection
    OSError,
    TimeoutError,
    UnicodeEncodeError,
)
_READ_ONLY = "25006"  # a standby, for as long as another server takes over


class Pools(NamedTuple):
    """Connections, which come back by themselves."""

    main: asyncpg.Pool[asyncpg.Record]
    search: asyncpg.Pool[asyncpg.Record]
    """A few, so that searches do not take all."""


@asynccontextmanager
async def connect(url: str, now: datetime) -> AsyncIterator[Pools]:
    """Opens the pools, and brings the schema up to date."""
    async with AsyncExitStack() as stack:
        with translate_errors():
            main = await _pool(url, 1, _MAX_CONNECTIONS, _SERVER_SETTINGS)
            stack.callback(main.terminate)  # every call is one transaction: there is nothing to wait for
            await _bring_up_to_date(main, now)
            search = await _pool(url, 0, _MAX_SEARCHES, _SERVER_SETTINGS | _SEARCH_SETTINGS)
            stack.callback(search.terminate)
        yield Pools(main, search)


class _Searching(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """A search changes nothing of its connection."""
        return ""


async def _pool(url: str, least: int, most: int, settings: dict[str, str]) -> asyncpg.Pool[asyncpg.Record]:
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its tracebacks during an outage; events report it
    try:
        return await asyncpg.create_pool(
            url,
            min_size=least,
            max_size=most,
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS,
            server_settings=settings,
            connection_class=asyncpg.Connection if least else _Searching,
        )
    except ValueError as error:  # the driver's message for an invalid address
        raise InvalidSettings(f"server.database: {error}") from error


async def _bring_up_to_date(pool: asyncpg.Pool[asyncpg.Record], now: datetime) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _SCHEMA_LOCK, timeout=_STEP_SECONDS)
        await connection.execute(sql.VERSION_TABLE)
        version = await connection.fetchval(sql.SCHEMA_VERSION)
        for step in sql.migrations_after(version, _SCHEMA):
            await connection.execute(step.sql, timeout=_STEP_SECONDS)
            await connection.execute(numbered(sql.RECORD_VERSION), step.version, iso(now))
        if not await _has_search_index(connection):
            for statement in search_schema.create_statements(search_schema.POSTGRES):
                await connection.execute(statement, timeout=_STEP_SECONDS)


async def _has_search_index(connection: Any) -> bool:
    """Whether there is one of this version, however much of the ledger it holds yet."""
    for table in search_schema.TABLES:
        if await connection.fetchval("SELECT to_regclass($1)", table) is None:
            return False
    return bool(await connection.fetchval(search_schema.STATE_VERSION) == search_schema.INDEX_VERSION)


@contextmanager
def translate_errors() -> Iterator[None]:
    try:
        yield
    except ParcelpostError:
        raise
    except _FAILURES as error:
        translation = _translate(error)
        if translation is error:
            raise
        raise translation from error


def _translate(error: Exception) -> Exception:
    message = f"PostgreSQL: {str(error) or type(error).__name__}"
    if isinstance(error, asyncpg.PostgresError):
        return _of_state(error, error.sqlstate or "", message)
    if isinstance(error, ValueError):  # found by the driver: half a character, a number beyond 64 bits
        return InvalidInput(f"the ledger cannot store a value: {error}")
    return LedgerUnavailable(message)


def _of_state(error: Exception, state: str, message: str) -> Exception:
    if state[:2] in _UNAVAILABLE_CLASSES or state == _READ_ONLY:
        return LedgerUnavailable(message)
    if state[:2] in ("22", "54"):  # no such text or number; too long for an index
        return InvalidInput(f"the ledger cannot store a value: {error}")
    if state[:2] in ("28", "3D", "3F") or state == "42501":
        return LedgerError(message, hint="check the user, its permissions and the database name in server.database")
    return error


_QUEUE_TASKS = f"""
WITH given AS (
    SELECT t.*
    FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::integer[], $7::text[],
                $8::bigint[], $9::bigint[])
         WITH ORDINALITY AS t (task_id, platform, type, priority, target, max_retries, site, refresh_of, run_no, place)
), heads AS (
    SELECT g.priority, ({HEAD_TURN.format("g.priority")}) AS turn FROM (SELECT DISTINCT priority FROM given) g
), bases AS (
    SELECT g.priority, g.site, greatest(h.turn, {SITE_TURN.format("g.priority", "g.site")}) AS turn
    FROM (SELECT DISTINCT priority, site FROM given) g JOIN heads h ON h.priority = g.priority
)
INSERT INTO tasks (
    task_id, platform, type, priority, target, max_retries, site, refresh_of, run_no, max_attempts, created_at, state,
    turn
)
SELECT g.task_id, g.platform, g.type, g.priority, g.target, g.max_retries, g.site, g.refresh_of, g.run_no, $10, $11,
       'queued', b.turn - 1 + row_number() OVER (PARTITION BY g.priority, g.site ORDER BY g.place)
FROM given g JOIN bases b ON b.priority = g.priority AND b.site = g.site ORDER BY g.place
ON CONFLICT (task_id) DO NOTHING
"""

_GRANT_TASKS = f"SELECT {TASK_COLUMNS} FROM grant_tasks($1, $2, $3, $4, $5) ORDER BY priority, turn, seq"

_EXPIRE_LEASES = f"""
WITH over AS MATERIALIZED (
    SELECT l.lease_id FROM leases l JOIN tasks t ON t.task_id = l.task_id
    WHERE l.ended_at IS NULL AND l.expires_at <= $1
    ORDER BY l.expires_at LIMIT $2 FOR UPDATE OF t SKIP LOCKED
), ended AS (
    UPDATE leases l SET ended_at = $1, ended_as = 'expired' FROM over
    WHERE l.lease_id = over.lease_id AND l.ended_at IS NULL AND l.expires_at <= $1 RETURNING l.task_id
)
UPDATE tasks t
SET state = CASE WHEN t.attempts < t.max_attempts THEN 'queued' ELSE 'dead' END, turn = {TURN_AGAIN.format("t")},
    ended_at = CASE WHEN t.attempts < t.max_attempts THEN NULL ELSE $1 END,
    error = CASE WHEN t.attempts < t.max_attempts THEN NULL ELSE $3 END, reason = $3
FROM ended WHERE t.task_id = ended.task_id RETURNING t.platform, t.state
"""

# $3: how the lease ends, $4: the task's state, $5: its state if it may not be tried again.
_END_TASK = f"""
WITH held AS MATERIALIZED (
    SELECT l.lease_id FROM leases l JOIN tasks t ON t.task_id = l.task_id
    WHERE t.task_id = $1 AND t.state = 'leased' AND l.worker_id = $2 AND l.ended_at IS NULL FOR UPDATE OF t
), ended AS (
    UPDATE leases l SET ended_at = $7, ended_as = $3, error = $6 FROM held
    WHERE l.lease_id = held.lease_id AND l.ended_at IS NULL RETURNING l.task_id
), decided AS (
    SELECT t.seq, CASE WHEN t.attempts < t.max_attempts THEN $4 ELSE $5 END AS state
    FROM ended JOIN tasks t ON t.task_id = ended.task_id
)
UPDATE tasks t
SET state = decided.state, error = $6, reason = $8, ended_at = CASE WHEN decided.state = 'queued' THEN NULL ELSE $7 END,
    turn = {TURN_AGAIN.format("t")}
FROM decided WHERE t.seq = decided.seq RETURNING t.platform, t.state
"""

# Leases that are being ended are not waited for. $6: whether to extend any, $7: whether it leaves, $8: commands
# that were ordered before then are dropped.
_RECORD_HEARTBEAT = """
WITH known AS (
    INSERT INTO workers (worker_id, heartbeat, leaving, first_seen_at, last_seen_at) VALUES ($1, $2, $7, $3, $3)
    ON CONFLICT (worker_id) DO UPDATE
    SET heartbeat = excluded.heartbeat, leaving = excluded.leaving, last_seen_at = excluded.last_seen_at
), held AS MATERIALIZED (
    SELECT lease_id FROM leases
    WHERE $6 AND worker_id = $1 AND ended_at IS NULL AND granted_at > $5 AND expires_at < $4 FOR UPDATE SKIP LOCKED
), extended AS (
    UPDATE leases l SET expires_at = $4 FROM held WHERE l.lease_id = held.lease_id
), taken AS (
    DELETE FROM commands WHERE worker_id = $1 RETURNING command_id, command, created_at
)
SELECT command FROM taken WHERE created_at >= $8 AND NOT $7 ORDER BY command_id
"""

# Large tables are estimated, as their last vacuum saw them.
_COUNTS = """
WITH estimates AS (
    SELECT relname, reltuples::bigint AS rows FROM pg_class
    WHERE oid IN ('parcels'::regclass, 'liens'::regclass, 'results'::regclass)
)
SELECT relname, CASE
    WHEN rows > 100000 THEN rows
    WHEN relname = 'parcels' THEN (SELECT count(*) FROM parcels)
    WHEN relname = 'liens' THEN (SELECT count(*) FROM liens)
    ELSE (SELECT count(*) FROM results)
END
FROM estimates
"""


_ENTRY_ARRAYS = 25
_LIEN_ARRAYS = 11

_STORE_RESULTS = (
    f"SELECT answer FROM store_results({', '.join(f'${n}' for n in range(1, 3 + _ENTRY_ARRAYS + _LIEN_ARRAYS))})"
)


def result_arrays(batch: DedupedBatch) -> list[Sequence[Any]]:
    """By column: all entries, then the liens that they show."""
    entries = [_entry_values(entry, batch) for entry in batch.entries]
    places = {entry.place: place for place, entry in enumerate(batch.entries, 1)}
    liens = [
        (places[entry.place], position, lien.key or None, *rows.lien_values(lien))
        for entry, position, lien in batch.liens()
    ]
    return [*zip(*entries, strict=True), *(zip(*liens, strict=True) if liens else [()] * _LIEN_ARRAYS)]


def _is_newest(batch: DedupedBatch, entry: BatchEntry) -> bool:
    return batch.newest[entry.result.source] is entry


def _entry_values(entry: BatchEntry, batch: DedupedBatch) -> tuple[Any, ...]:
    result, key, search_fields = entry.result, entry.result.source, entry.result.search_fields
    return (
        *astuple(key),
        result.parcel_id,
        search_fields.is_partial,
        search_fields.is_listed,
        search_fields.has_all_liens,
        result.target,
        result.task_id,
        batch.leading[key.parcel] is entry,
        _is_newest(batch, entry),
        entry.scraped_at,
        result.late,
        result.parse_duration_ms,
        result.idempotency_key,
        result.raw_sha256,
        result.raw_file,
        result.data.decode(),
        search_fields.owner,
        search_fields.situs,
        search_fields.delinquent,
        search_fields.tax_due_cents,
        len(search_fields.liens),
        search_text(result.parcel_id, search_fields.owner, search_fields.situs),
    )


T = TypeVar("T")

_TRIES = 5
_CHANGES_LOCK = 0x6368_616E_6765  # "change": one at a time finds changes, so that their numbers have no gaps
_WORKER_IDS_LOCK = 0x776F_726B_6572  # "worker": one at a time takes an id


class PostgresLedger(SqlLedger):
    """Each call is one statement, or a few in one transaction."""

    _dialect = search_schema.POSTGRES

    def __init__(self, pools: Pools, max_attempts: int) -> None:
        self._pool, self._search_pool = pools
        self._max_attempts = max_attempts
        self._groups = {table: Groups() for table in (search_schema.PARCELS, search_schema.LIENS)}
        self._kept_counts = KeptCounts()

    async def add_tasks(self, added: Sequence[Task], now: datetime) -> AddCounts:
        with translate_errors():
            return await super().add_tasks(added, now)

    async def _queue(self, added: Sequence[rows.QueuedTask], now: datetime) -> int:
        return await self._change(_QUEUE_TASKS, *zip(*added, strict=True), self._max_attempts, now)

    async def _add_schedule(self, values: Sequence[Any], targets: Sequence[tuple[int, str, str]]) -> bool:
        async def add() -> bool:
            async with self._pool.acquire() as connection, connection.transaction():
                schedule_no = await connection.fetchval(numbered(ADD_SCHEDULE), *values)
                if schedule_no is not None and targets:
                    await connection.executemany(numbered(ADD_TARGET), [(schedule_no, *target) for target in targets])
                return schedule_no is not None

        return await _with_retries(add)

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        granted = await self._fetch(_GRANT_TASKS, worker_id, sorted(set(platforms)), capacity, now, until)
        return [rows.grant(row, row[6], until) for row in granted]

    async def expire_leases(self, now: datetime, most: int) -> ExpiredLeases:
        expired = await self._fetch(_EXPIRE_LEASES, now, most, EXPIRED_ERROR)
        queued = [platform for platform, state in expired if state == TaskState.QUEUED]
        return ExpiredLeases(queued, [platform for platform, state in expired if state == TaskState.DEAD])

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> TaskOutcome | None:
        ending = lease_ending(error, again, not_found)
        ended = await self._fetch(_END_TASK, task_id, worker_id, *ending, error, now, failure_reason(error))
        return TaskOutcome(ended[0][0], TaskState(ended[0][1])) if ended else None

    async def store(self, results: Sequence[IngestedResult], worker_id: str, now: datetime) -> Sequence[StoreOutcome]:
        outcomes = [StoreOutcome.DUPLICATE] * len(results)
        batch = dedupe(results)
        if batch.entries:
            stored = await self._fetch(_STORE_RESULTS, worker_id, now, *result_arrays(batch))
            for entry, (outcome,) in zip(batch.entries, stored, strict=True):
                outcomes[entry.place] = StoreOutcome(outcome)
        return outcomes

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        async def claim() -> str | None:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _WORKER_IDS_LOCK)
                owner = await connection.fetchval(numbered(WORKER_ID_OWNER), worker_id)
                if owner is not None and owner != token and owner in names:
                    return str(owner)
                if owner != token and await connection.fetchval(numbered(COUNT_WORKER_IDS), token) >= most:
                    idle = await connection.fetchval(numbered(IDLE_WORKER_ID), token, idle_before)
                    if idle is None:
                        return None
                    for statement in DELETE_WORKER:
                        await connection.execute(numbered(statement), idle)
                await connection.execute(numbered(CLAIM_WORKER_ID), worker_id, token, now)
                return token

        return await _with_retries(claim)

    async def release_worker_id(self, worker_id: str) -> str | None:
        released = await self._fetch(numbered(RELEASE_WORKER_ID), worker_id)
        return str(released[0][0]) if released else None

    async def record_heartbeat(
        self, heartbeat: WorkerHeartbeat, now: datetime, until: datetime, oldest_grant: datetime
    ) -> Sequence[str]:
        text = rows.encode(heartbeat).decode()
        holds = (until, oldest_grant, not heartbeat.holds_nothing)
        commands = await self._fetch(
            _RECORD_HEARTBEAT, heartbeat.worker_id, text, now, *holds, heartbeat.leaving, now - OFFLINE_AFTER
        )
        return [command for (command,) in commands]

    async def find_changes(self, now: datetime, most: int) -> int:
        async def find() -> int:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _CHANGES_LOCK)
                waiting: list[Any] = await connection.fetch(numbered(TO_COMPARE), most, PAGE_CHARS)
                if not waiting:
                    return 0
                parcels = {row[1] for row in waiting}
                facts: list[Any] = await connection.fetch(
                    numbered(KNOWN_FACTS.format(", ".join("?" * len(parcels)))), *parcels
                )
                known, changes = await asyncio.to_thread(
                    compare, rows.to_compare(waiting), [rows.known_facts(row) for row in facts]
                )
                last = await connection.fetchval(LAST_CHANGE)
                changed = [rows.change_values(change, number, now) for number, change in enumerate(changes, last + 1)]
                await connection.executemany(numbered(STORE_FACTS), [rows.facts_values(change) for change in known])
                await connection.executemany(numbered(ADD_CHANGE), changed)
                await connection.executemany(numbered(IS_COMPARED), [row[:1] for row in waiting])
                await connection.executemany(numbered(DROP_UNCHANGED), rows.unchanged(known))
                return len(waiting)

        return await _with_retries(find)

    async def counts(self) -> Mapping[str, int]:
        return dict(await self._fetch(_COUNTS))

    async def check(self) -> None:
        await self._fetch("SELECT 1")

    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        return await self._fetch(numbered(sql), *args)

    async def _change_index(self, changes: int, statements: Sequence[search_index.Statement]) -> bool:
        async def change() -> bool:
            async with self._pool.acquire() as connection, connection.transaction():
                if await connection.execute(numbered(search_index.COUNT_CHANGE), changes) != "UPDATE 1":
                    return False
                for statement, values in statements:
                    await connection.executemany(numbered(statement), values)
                return True

        return await _with_retries(change)

    async def _search_rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        try:
            with translate_errors():
                found: list[Any] = await self._search_pool.fetch(numbered(sql), *args)
                return found
        except LedgerUnavailable as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                raise too_slow(SEARCH_SECONDS) from None
            raise

    def _numbers(self, numbers: Sequence[int]) -> Any:
        return numbers

    async def _run_all(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await _with_retries(lambda: self._pool.executemany(numbered(sql), values))

    async def _fetch(self, sql: str, *args: Any) -> list[Any]:
        return await _with_retries(lambda: self._pool.fetch(sql, *args))

    async def _change(self, sql: str, *args: Any) -> int:
        """PostgreSQL reports the number of rows as the last word of `INSERT 0 5`."""
        return int((await _with_retries(lambda: self._pool.execute(numbered(sql), *args))).split()[-1])


async def _with_retries(run: Callable[[], Awaitable[T]]) -> T:
    """Retries at once if PostgreSQL aborted the transaction to resolve a deadlock: it changed nothing."""
    with translate_errors():
        for _ in range(_TRIES - 1):
            try:
                return await run()
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue
        return await run()
