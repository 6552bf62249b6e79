"""The part of the ledger that SQLite and PostgreSQL share: schema versions, pruning, workers, selectors and metrics.

Schema files are numbered: `0001.sql` is version 1. They are applied in order and never edited once released.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from parcelpost.errors import LedgerError
from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.artifacts import ArtifactQueries
from parcelpost.gateway.ledger.queries import is_matchable, refresh_conditions
from parcelpost.gateway.ledger.schedules import MAX_RETRIES, ScheduleQueries
from parcelpost.gateway.ledger.search import SearchQueries
from parcelpost.gateway.ledger.tasks import HEAD_TURN, SITE_TURN, TaskQueries
from parcelpost.gateway.ledger.webhooks import PRUNE_RETRIES, WebhookQueries
from parcelpost.gateway.models import ActivityRow, AddCounts, RefreshFilter, WorkerRow
from parcelpost.model import REFRESH, Signal, Task
from parcelpost.protocol.payloads import MetricsSample, RankedSelector

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
SCHEMA_VERSION = "SELECT coalesce(max(version), 0) FROM schema_version"
RECORD_VERSION = "INSERT INTO schema_version (version, applied_at) VALUES (?, ?)"


class Migration(Struct, frozen=True):
    version: int
    sql: str


def load_migrations(folder: Path) -> list[Migration]:
    return [Migration(int(file.stem), file.read_text(encoding="utf-8")) for file in sorted(folder.glob("[0-9]*.sql"))]


def migrations_after(version: int, folder: Path) -> list[Migration]:
    """Returns what brings that version up to date. Raises LedgerError for one newer than this program knows."""
    steps = load_migrations(folder)
    newest = steps[-1].version
    if version > newest:
        raise LedgerError(
            f"the ledger has schema version {version}, this program supports versions up to {newest}",
            hint="upgrade this program",
        )
    return steps[version:]


_PRUNE_TASKS = """
DELETE FROM tasks WHERE seq IN (
    SELECT seq FROM tasks WHERE ended_at < ? AND (state <> 'not_found' OR run_no IS NULL OR run_no NOT IN (
        SELECT max(run_no) FROM schedule_runs WHERE outcome <> 'skipped' GROUP BY schedule_no, outcome))
    ORDER BY ended_at LIMIT ?)
"""
_PRUNE_ACTIVITY = """
DELETE FROM activity WHERE (minute, platform, outcome) IN
    (SELECT minute, platform, outcome FROM activity WHERE minute < ? LIMIT ?)
"""
_PRUNE_METRICS = "DELETE FROM metrics WHERE (worker_id, at) IN (SELECT worker_id, at FROM metrics WHERE at < ? LIMIT ?)"
_PRUNE_SELECTORS = """
DELETE FROM selector_stats WHERE (day, platform, field, selector, selector_type) IN
    (SELECT day, platform, field, selector, selector_type FROM selector_stats WHERE day < ? LIMIT ?)
"""


_PRUNE_RUNS = """
DELETE FROM schedule_runs WHERE run_no IN (
    SELECT r.run_no FROM schedule_runs r WHERE r.ended_at < ?
    AND EXISTS (SELECT 1 FROM schedule_runs n
                WHERE n.schedule_no = r.schedule_no AND n.run_no > r.run_no AND n.outcome = 'ended')
    LIMIT ?)
"""
_PRUNE_COMMANDS = """
DELETE FROM commands WHERE command_id IN (SELECT command_id FROM commands WHERE created_at < ? LIMIT ?)
"""
_PRUNE_WORKERS = """
DELETE FROM workers WHERE worker_id IN (
    SELECT w.worker_id FROM workers w WHERE w.last_seen_at < ?
    AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.worker_id = w.worker_id)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = w.worker_id AND l.ended_at IS NULL)
    LIMIT ?)
"""


_PRUNE_WORKER_IDS = """
DELETE FROM worker_ids WHERE worker_id IN (
    SELECT i.worker_id FROM worker_ids i WHERE i.used_at < ?
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = i.worker_id AND l.ended_at IS NULL)
    LIMIT ?)
"""


def _prune_statements(before: datetime, silent_before: datetime) -> Sequence[tuple[str, Any]]:
    """Statements, each with its first parameter. A task's leases are deleted with it."""
    day = before.date().isoformat()
    return (
        (_PRUNE_TASKS, before),
        (_PRUNE_ACTIVITY, before),
        (_PRUNE_METRICS, before),
        (_PRUNE_SELECTORS, day),
        (_PRUNE_RUNS, before),
        (_PRUNE_COMMANDS, before),
        (PRUNE_RETRIES, before),
        (_PRUNE_WORKERS, silent_before),
        (_PRUNE_WORKER_IDS, silent_before),
    )


UPSERT_WORKER = """
INSERT INTO workers (worker_id, heartbeat, leaving, first_seen_at, last_seen_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE
SET heartbeat = excluded.heartbeat, leaving = excluded.leaving, last_seen_at = excluded.last_seen_at
"""

WORKER_ID_OWNER = "SELECT token FROM worker_ids WHERE worker_id = ?"
COUNT_WORKER_IDS = "SELECT count(*) FROM worker_ids WHERE token = ?"
IDLE_WORKER_ID = """
SELECT i.worker_id FROM worker_ids i WHERE i.token = ? AND i.used_at < ?
AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = i.worker_id AND l.ended_at IS NULL)
ORDER BY i.used_at LIMIT 1
"""
DELETE_WORKER = tuple(f"DELETE FROM {table} WHERE worker_id = ?" for table in ("commands", "workers", "worker_ids"))
CLAIM_WORKER_ID = """
INSERT INTO worker_ids (worker_id, token, used_at) VALUES (?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE SET token = excluded.token, used_at = excluded.used_at
"""

RELEASE_WORKER_ID = "DELETE FROM worker_ids WHERE worker_id = ? RETURNING token"

_REFRESHABLE = "FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no WHERE "
_SITE = "lower(s.platform || '/' || p.state || '/' || p.county)"
_REFRESH = f"""
INSERT INTO tasks (
    task_id, platform, type, priority, state, target, max_retries, max_attempts, created_at, refresh_of, site, turn
)
WITH chosen AS (
    SELECT s.source_no, s.platform, s.target, s.scraped_at, {_SITE} AS site
    {_REFRESHABLE}{{}} ORDER BY s.scraped_at, s.source_no LIMIT ?
), head (turn) AS ({HEAD_TURN.format("?")}), bases AS (
    SELECT c.site, CASE WHEN h.turn > {SITE_TURN.format("?", "c.site")} THEN h.turn
                        ELSE {SITE_TURN.format("?", "c.site")} END AS turn
    FROM (SELECT DISTINCT site FROM chosen) c CROSS JOIN head h
)
SELECT '{REFRESH}-' || c.source_no || '-' || ?, c.platform, '{REFRESH}', ?, 'queued', c.target, ?, ?, ?, c.source_no,
       c.site, b.turn - 1 + row_number() OVER (PARTITION BY c.site ORDER BY c.scraped_at, c.source_no)
FROM chosen c JOIN bases b ON b.site = c.site WHERE TRUE ORDER BY c.scraped_at, c.source_no
"""

_UNLESS_KNOWN = "ON CONFLICT (task_id) DO NOTHING"  # the clock was set back, and shows the same moment again

_RELEASE_LEASES = """
UPDATE leases SET expires_at = ?
WHERE worker_id = ? AND ended_at IS NULL AND granted_at < ? AND expires_at > ?
"""

_WORKERS = """
SELECT w.worker_id, w.heartbeat, w.first_seen_at, w.last_seen_at,
       (SELECT count(*) FROM leases l WHERE l.worker_id = w.worker_id AND l.ended_at IS NULL)
FROM (SELECT * FROM workers ORDER BY last_seen_at DESC LIMIT ?) w ORDER BY w.worker_id
"""

_ADD_COMMANDS = """
INSERT INTO commands (worker_id, command, created_at)
SELECT worker_id, ?, ? FROM workers WHERE ? IN (worker_id, '') AND last_seen_at >= ? AND NOT leaving
"""
_COMMANDS = "SELECT worker_id, command FROM commands ORDER BY command_id"

_COUNT_SIGNALS = """
INSERT INTO selector_stats (day, platform, field, selector, selector_type, successes, samples, last_seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, platform, field, selector, selector_type) DO UPDATE
SET successes = selector_stats.successes + excluded.successes,
    samples = selector_stats.samples + excluded.samples,
    last_seen_at = excluded.last_seen_at
"""

_SELECTORS = """
SELECT platform, field, selector, selector_type, sum(successes), sum(samples)
FROM selector_stats WHERE day >= ?"""
_BEST_FIRST = """
GROUP BY platform, field, selector, selector_type
ORDER BY platform, field, 1.0 * sum(successes) / sum(samples) DESC, sum(samples) DESC, selector LIMIT ?
"""

_ADD_METRICS = "INSERT INTO metrics (worker_id, at, figures) VALUES (?, ?, ?) ON CONFLICT (worker_id, at) DO NOTHING"
_METRICS = "SELECT at, figures FROM metrics WHERE worker_id = ? AND at >= ? ORDER BY at DESC LIMIT ?"

_ADD_ACTIVITY = """
INSERT INTO activity (minute, platform, outcome, count) VALUES (?, ?, ?, ?)
ON CONFLICT (minute, platform, outcome) DO UPDATE SET count = activity.count + excluded.count
"""
_ACTIVITY = "SELECT minute, platform, outcome, count FROM activity WHERE minute >= ? ORDER BY 1, 2, 3"

_REFRESHED_AT_ONCE = 10_000
"""Others write in between."""
_MAX_SELECTOR_BYTES = 1_500
_MAX_FIELD_BYTES = 300


class SqlLedger(SearchQueries, ScheduleQueries, TaskQueries, ArtifactQueries, WebhookQueries, Protocol):
    """Refreshing, workers, commands, selectors, metrics, activity and pruning."""

    _max_attempts: int

    async def add_tasks(self, added: Sequence[Task], now: datetime) -> AddCounts:
        new = await self._queue([rows.queued_task(task) for task in added], now) if added else 0
        return AddCounts(new, len(added) - new)

    async def ledger_id(self) -> str:
        ((ledger_id,),) = await self._find("SELECT ledger_id FROM identity")
        return str(ledger_id)

    async def release_leases(self, worker_id: str, granted_before: datetime, now: datetime) -> None:
        await self._change(_RELEASE_LEASES, now, worker_id, granted_before, now)

    async def refresh(self, wanted: RefreshFilter, priority: int, now: datetime, most: int) -> int:
        conditions = refresh_conditions(wanted)
        stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%S%f}"
        queued = 0
        while queued < most:
            chunk = min(_REFRESHED_AT_ONCE, most - queued)
            new = await self._change(
                f"{_REFRESH.format(conditions)} {_UNLESS_KNOWN}",
                *conditions.args,
                chunk,
                *(priority, priority, priority),
                *(stamp, priority, MAX_RETRIES, self._max_attempts, now),
            )
            queued += new
            if new < chunk:
                break
        return queued

    async def refreshable(self, wanted: RefreshFilter) -> int:
        conditions = refresh_conditions(wanted)
        ((number,),) = await self._find(f"SELECT count(*) {_REFRESHABLE}{conditions}", *conditions.args)
        return int(number)

    async def add_command(self, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
        return await self._change(_ADD_COMMANDS, command, now, worker_id, alive_since)

    async def prune(self, ended_before: datetime, silent_before: datetime, most: int) -> int:
        removed = 0
        for statement, before in _prune_statements(ended_before, silent_before):
            if removed < most:
                removed += await self._change(statement, before, most - removed)
        return removed

    async def workers(self, most: int = 100_000) -> Sequence[WorkerRow]:
        pending = defaultdict(list)
        for worker_id, command in await self._find(_COMMANDS):
            pending[worker_id].append(command)
        return [rows.worker(row, pending.get(row[0], ())) for row in await self._find(_WORKERS, most)]

    async def add_signals(self, signals: Sequence[Signal], now: datetime) -> None:
        samples: Counter[tuple[str, str, str, str]] = Counter()
        successes: Counter[tuple[str, str, str, str]] = Counter()
        for signal in filter(_is_countable, signals):
            key = (signal.platform, signal.field, signal.selector, signal.selector_type)
            samples[key] += 1
            successes[key] += signal.success
        day = now.date().isoformat()
        await self._run_all(
            _COUNT_SIGNALS, [(day, *key, successes[key], count, now) for key, count in sorted(samples.items())]
        )

    async def selectors(self, platform: str, since: datetime, most: int) -> Sequence[RankedSelector]:
        sql = f"{_SELECTORS}{' AND platform = ?' if platform else ''}{_BEST_FIRST}"
        args = [since.date().isoformat(), *([platform] if platform else []), most]
        return [rows.selector(row) for row in await self._find(sql, *args)]

    async def add_metrics(self, worker_id: str, samples: Sequence[MetricsSample]) -> None:
        values = {sample.at: rows.encode(sample.values).decode() for sample in samples}
        await self._run_all(_ADD_METRICS, [(worker_id, at, figures) for at, figures in sorted(values.items())])

    async def metrics(self, worker_id: str, since: datetime, most: int) -> Sequence[MetricsSample]:
        return [rows.sample(row) for row in reversed(await self._find(_METRICS, worker_id, since, most))]

    async def add_activity(self, counts: Mapping[tuple[str, str], int], minute: datetime) -> None:
        await self._run_all(_ADD_ACTIVITY, [(minute, *key, count) for key, count in sorted(counts.items())])

    async def activity(self, since: datetime) -> Sequence[ActivityRow]:
        return [rows.activity(row) for row in await self._find(_ACTIVITY, since)]

    async def first_activity(self, since: datetime) -> datetime | None:
        ((minute,),) = await self._find("SELECT min(minute) FROM activity WHERE minute >= ?", since)
        return rows.timestamp_or_none(minute)


def _is_countable(signal: Signal) -> bool:
    """Whether a signal can be stored: it must be text that fits into an index."""
    names = (signal.platform, signal.field, signal.selector_type)
    return (
        all(map(is_matchable, (*names, signal.selector)))
        and len(signal.selector.encode()) <= _MAX_SELECTOR_BYTES
        and len("".join(names).encode()) <= _MAX_FIELD_BYTES
    )
