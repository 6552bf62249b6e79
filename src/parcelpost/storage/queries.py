"""Read-only queries: counts of the queue, running tasks, recent errors, site health, reports for `doctor`."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from datetime import datetime

from msgspec import Struct, convert
from msgspec.json import encode

from parcelpost.clock import from_iso, iso
from parcelpost.health_checks import MANY_FAILURES
from parcelpost.model import QueueDepth, Source
from parcelpost.storage import migrations, outbox, rows
from parcelpost.storage.claims import READY_PLATFORMS, pauses

_COUNTS = """
SELECT platform, 'pending', count(*) FROM tasks WHERE status = 'pending' AND available_at IS NULL GROUP BY platform
UNION ALL
SELECT platform, iif(available_at > :now, 'delayed', 'pending'), count(*) FROM tasks
WHERE status = 'pending' AND available_at IS NOT NULL GROUP BY platform, available_at > :now
UNION ALL
SELECT platform, 'processing', count(*) FROM tasks WHERE status = 'processing' GROUP BY platform
UNION ALL
SELECT platform, status, count(*) FROM tasks WHERE completed_at IS NOT NULL GROUP BY platform, status
UNION ALL
SELECT platform, 'completed', -count(*) FROM tasks WHERE parent_id IS NOT NULL GROUP BY platform
"""

# The lowest seq of each platform and priority is one index probe; the oldest task is among those.
_OLDEST_PENDING = f"""
{READY_PLATFORMS}
SELECT min(created_at) FROM (
    SELECT (SELECT created_at FROM tasks
            WHERE status = 'pending' AND available_at IS NULL AND platform = ready.platform AND priority = value
            ORDER BY seq LIMIT 1) AS created_at
    FROM ready, json_each('[1,2,3,4]')
    UNION ALL
    SELECT min(created_at) FROM tasks WHERE status = 'pending' AND available_at IS NOT NULL)
"""

_FEW = 1_000
_PENDING_SOURCES = f"""
SELECT DISTINCT source FROM (
    SELECT source FROM (SELECT source FROM tasks WHERE status = 'pending' AND available_at IS NULL LIMIT {_FEW})
    UNION ALL
    SELECT source FROM (SELECT source FROM tasks WHERE status = 'pending' AND available_at IS NOT NULL LIMIT {_FEW}))
"""
_UNSENT_SOURCES = f"""
SELECT DISTINCT t.source
FROM (SELECT task_id FROM results WHERE synced = 0 AND rejected_at IS NULL ORDER BY seq LIMIT {_FEW}) AS waiting
    JOIN tasks AS t ON t.task_id = waiting.task_id
"""

_READY_COUNTS = f"""
{READY_PLATFORMS}
SELECT platform, (SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE status = 'pending' AND available_at IS NULL AND platform = ready.platform LIMIT ?))
FROM ready WHERE platform IS NOT NULL
"""
_DELAYED_COUNTS = """
SELECT platform, count(*) FROM tasks WHERE status = 'pending' AND available_at IS NOT NULL GROUP BY platform
"""
_ANY_OPEN = f"""
{READY_PLATFORMS}
SELECT EXISTS (SELECT 1 FROM ready
               WHERE platform IS NOT NULL
                   AND (:wanted IS NULL OR platform IN (SELECT value FROM json_each(:wanted))))
    OR EXISTS (SELECT 1 FROM tasks
               WHERE status = 'pending' AND available_at IS NOT NULL
                   AND (:wanted IS NULL OR platform IN (SELECT value FROM json_each(:wanted))))
    OR EXISTS (SELECT 1 FROM tasks
               WHERE status = 'processing'
                   AND (:wanted IS NULL OR platform IN (SELECT value FROM json_each(:wanted))))
"""


def counts(db: sqlite3.Connection, now: str) -> dict[str, dict[str, int]]:
    """Counts tasks by platform and status; pending tasks that are not due count as `delayed`. Without children."""
    by_platform: dict[str, dict[str, int]] = {}
    for platform, status, count in db.execute(_COUNTS, {"now": now}):
        per_status = by_platform.setdefault(platform, {})
        per_status[status] = per_status.get(status, 0) + count
    return by_platform


class WaitingSources(Struct, frozen=True, kw_only=True):
    """The sources of waiting work, taken from the first thousand rows."""

    pending: frozenset[Source]
    """Sources of pending tasks."""
    unsent: frozenset[Source]
    """Sources of undelivered results."""


def sources(db: sqlite3.Connection) -> WaitingSources:
    pending, unsent = (
        frozenset(Source(name) for (name,) in db.execute(query)) for query in (_PENDING_SOURCES, _UNSENT_SOURCES)
    )
    return WaitingSources(pending=pending, unsent=unsent)


class Supply(Struct, frozen=True, kw_only=True):
    """Open tasks of a platform."""

    ready: int
    """Due now, counted up to the given limit."""
    delayed: int
    paused: bool


def supply(db: sqlite3.Connection, limit: int, now: str) -> dict[str, Supply]:
    ready = dict(db.execute(_READY_COUNTS, (limit,)).fetchall())
    delayed = dict(db.execute(_DELAYED_COUNTS).fetchall())
    paused_platforms = {site.platform for site in pauses(db, now) if not (site.state or site.county)}
    return {
        name: Supply(ready=ready.get(name, 0), delayed=delayed.get(name, 0), paused=name in paused_platforms)
        for name in ready.keys() | delayed.keys() | paused_platforms
    }


def is_any_open(db: sqlite3.Connection, platforms: list[str] | None) -> bool:
    """Whether a task of these platforms (None: any) is pending or processing."""
    wanted = None if platforms is None else encode(platforms).decode()
    return bool(db.execute(_ANY_OPEN, {"wanted": wanted}).fetchone()[0])


def claims_by_owner(db: sqlite3.Connection) -> dict[str, int]:
    """Counts claimed tasks by owner."""
    return dict(db.execute("SELECT claimed_by, count(*) FROM tasks WHERE status = 'processing' GROUP BY 1").fetchall())


def ended_since(db: sqlite3.Connection, moment: str) -> dict[str, int]:
    query = "SELECT status, count(*) FROM tasks WHERE completed_at >= ? AND parent_id IS NULL GROUP BY status"
    return dict(db.execute(query, (moment,)).fetchall())


def depth(db: sqlite3.Connection, now: datetime) -> QueueDepth:
    totals: dict[str, int] = {}
    for per_status in counts(db, iso(now)).values():
        for status, count in per_status.items():
            totals[status] = totals.get(status, 0) + count
    undelivered = outbox.depth(db)
    oldest_pending = db.execute(_OLDEST_PENDING).fetchone()[0]
    delayed = totals.get("delayed", 0)
    return QueueDepth(
        pending=totals.get("pending", 0) + delayed,
        delayed=delayed,
        processing=totals.get("processing", 0),
        completed=totals.get("completed", 0),
        not_found=totals.get("not_found", 0),
        failed=totals.get("failed", 0),
        expired=totals.get("expired", 0),
        unsynced=undelivered.waiting,
        rejected=undelivered.rejected,
        rejected_by_operator=undelivered.rejected_by_operator,
        oldest_pending_seconds=_age(oldest_pending, now),
        oldest_unsynced_seconds=_age(undelivered.oldest, now),
    )


def _age(moment: str | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - from_iso(moment)).total_seconds())


_MAX_SITE_TASKS = 20_000
"""Upper bound of the tasks that are read by index, so that the time does not grow with the store."""

_ENDED_BY_SITE = """
SELECT platform, state, county, status, completed_at, error FROM tasks
WHERE completed_at IS NOT NULL AND parent_id IS NULL AND status <> 'expired' AND ended_by IS NULL
ORDER BY completed_at DESC LIMIT ?
"""
_TRYING_AGAIN = """
SELECT platform, state, county, 'again', updated_at, error FROM tasks
WHERE status = 'pending' AND available_at IS NOT NULL AND error IS NOT NULL ORDER BY available_at DESC LIMIT ?
"""


class SiteHealth(Struct, kw_only=True):
    platform: str
    state: str
    county: str
    """Spelled as in the tasks."""
    completed: int = 0
    failed: int = 0
    trying_again: int = 0
    """Waiting for a retry."""
    last_success: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None


def sites(db: sqlite3.Connection) -> list[SiteHealth]:
    """Returns the health of each site, from the tasks that ended last and those that wait for a retry."""
    by_site: dict[tuple[str, str, str], SiteHealth] = {}
    for platform, state, county, status, at, error in [
        *db.execute(_ENDED_BY_SITE, (_MAX_SITE_TASKS,)),
        *db.execute(_TRYING_AGAIN, (_MAX_SITE_TASKS,)),
    ]:
        site = by_site.setdefault((platform, state, county), SiteHealth(platform=platform, state=state, county=county))
        _count(site, status, from_iso(at), error)
    return list(by_site.values())


def _count(site: SiteHealth, status: str, at: datetime, error: str | None) -> None:
    if status in ("completed", "not_found"):
        site.completed += 1
        site.last_success = max(at, site.last_success or at)
        return
    if status == "failed":
        site.failed += 1
    else:
        site.trying_again += 1
    if site.last_error_at is None or at >= site.last_error_at:  # within a millisecond, the one to be tried again
        site.last_error, site.last_error_at = error, at


PART_CHARS = 18
"""The first characters of a time: `2026-11-15T19:50:3` is the ten seconds from :30 on."""

_MAX_ENDED = 20_000
_RECENTLY_ENDED = 2_000
_RECENTLY_SYNCED = 50
_ERROR_CHARS = 300

_RUNNING = """
SELECT task_id, platform, state, county, parcel_id, claimed_by, started_at, retries, assigned_browser
FROM tasks INDEXED BY tasks_processing WHERE status = 'processing' ORDER BY started_at, seq LIMIT ?
"""
_ENDED = """
SELECT substr(completed_at, 1, ?), status IN ('failed', 'expired'), count(*) FROM
    (SELECT completed_at, status FROM tasks INDEXED BY tasks_ended
     WHERE completed_at >= ? ORDER BY completed_at DESC LIMIT ?)
GROUP BY 1, 2
"""
_SYNCED = """
SELECT substr(created_at, 1, ?), direction, sum(record_count) FROM sync_log INDEXED BY sync_log_created
WHERE created_at >= ? AND success = 1
    AND ((direction = 'upload' AND record_type = 'results') OR (direction = 'download' AND record_type = 'tasks'))
GROUP BY 1, 2
"""
_ERRORS = (
    f"""SELECT 'failed', completed_at, task_id, platform, state, county, parcel_id,
            substr({rows.reason_text("ended_by", "error")}, 1, :chars) FROM tasks WHERE seq IN
        (SELECT seq FROM (SELECT seq, status FROM tasks INDEXED BY tasks_ended WHERE completed_at IS NOT NULL
                          ORDER BY completed_at DESC LIMIT :recent)
         WHERE status = 'failed' LIMIT :limit)""",
    """SELECT 'again', updated_at, task_id, platform, state, county, parcel_id, substr(error, 1, :chars) FROM tasks
        WHERE status = 'pending' AND available_at IS NOT NULL AND error IS NOT NULL
        ORDER BY available_at DESC LIMIT :limit""",
    f"""SELECT 'rejected', rejected_at, task_id, platform, state, county, parcel_id,
            substr({rows.reason_text("rejected_by", "last_error")}, 1, :chars)
        FROM results INDEXED BY results_rejected WHERE rejected_at IS NOT NULL ORDER BY seq DESC LIMIT :limit""",
    """SELECT direction, created_at, '', '', '', '', '', substr(error, 1, :chars) FROM
        (SELECT * FROM sync_log ORDER BY seq DESC LIMIT :synced) WHERE error IS NOT NULL LIMIT :limit""",
)


class RunningTask(Struct, frozen=True, kw_only=True):
    """A claimed task."""

    task_id: str
    platform: str
    state: str
    county: str
    parcel_id: str
    claimed_by: str
    started_at: datetime | None
    retries: int
    browser: int | None


class RecentError(Struct, frozen=True, kw_only=True):
    """A recent failure."""

    kind: str
    """failed, again (a task waits for a retry), rejected (a result), upload or download (a sync round)."""
    at: datetime
    task_id: str = ""
    platform: str = ""
    state: str = ""
    county: str = ""
    parcel_id: str = ""
    error: str


class Throughput(Struct, frozen=True, kw_only=True):
    """Counts by ten seconds (`PART_CHARS` of the time)."""

    completed: dict[str, int]
    failed: dict[str, int]
    delivered: dict[str, int]
    fetched: dict[str, int]


def running(db: sqlite3.Connection, limit: int) -> list[RunningTask]:
    """Returns claimed tasks, the longest running first."""
    fields = RunningTask.__struct_fields__  # in the order of the columns
    return [convert(dict(zip(fields, row, strict=True)), RunningTask) for row in db.execute(_RUNNING, (limit,))]


def throughput_since(db: sqlite3.Connection, moment: datetime) -> Throughput:
    """Counts at most the newest twenty thousand tasks."""
    ended = db.execute(_ENDED, (PART_CHARS, iso(moment), _MAX_ENDED)).fetchall()
    synced = db.execute(_SYNCED, (PART_CHARS, iso(moment))).fetchall()
    return Throughput(
        completed={part: number for part, has_failed, number in ended if not has_failed},
        failed={part: number for part, has_failed, number in ended if has_failed},
        delivered={part: number for part, direction, number in synced if direction == "upload"},
        fetched={part: number for part, direction, number in synced if direction == "download"},
    )


def recent_errors(db: sqlite3.Connection, limit: int) -> list[RecentError]:
    """Returns the newest first."""
    values = {"chars": _ERROR_CHARS, "recent": _RECENTLY_ENDED, "synced": _RECENTLY_SYNCED, "limit": limit}
    errors = [row for query in _ERRORS for row in db.execute(query, values)]
    errors.sort(key=lambda row: str(row[1]), reverse=True)
    fields = RecentError.__struct_fields__  # in the order of the columns
    return [convert(dict(zip(fields, row, strict=True)), RecentError) for row in errors[:limit]]


_PRAGMAS = ("page_size", "page_count", "freelist_count", "auto_vacuum", "journal_mode", "user_version")
_RESULTS = """
SELECT platform, CASE WHEN synced = 1 THEN 'synced' WHEN rejected_at IS NOT NULL THEN 'rejected' ELSE 'unsynced' END,
    success, count(*), max(sync_attempts) FROM results GROUP BY 1, 2, 3
"""


class ResultCount(Struct, frozen=True):
    platform: str
    state: str
    """synced, unsynced or rejected."""
    success: bool
    count: int
    most_attempts: int


class Applied(Struct, frozen=True):
    version: int
    applied_at: str
    known: bool
    """A migration of this program, unchanged."""


class Schema(Struct, frozen=True):
    applied: list[Applied]
    missing: list[str]
    """Names of missing tables, indexes and triggers."""
    unknown: int
    """How many others there are."""
    pragmas: dict[str, str | int]


def table_counts(db: sqlite3.Connection) -> dict[str, int]:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    return {name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}


def result_counts(db: sqlite3.Connection) -> list[ResultCount]:
    return [ResultCount(row[0], row[1], bool(row[2]), row[3], row[4]) for row in db.execute(_RESULTS)]


def schema(db: sqlite3.Connection) -> Schema:
    known = {migration.version: migration.checksum for migration in migrations.load()}
    applied = [
        Applied(version, str(at), known.get(version) == checksum)
        for version, at, checksum in db.execute("SELECT version, applied_at, checksum FROM schema_version")
    ]
    expected, present = _expected(), _objects(db)
    return Schema(
        applied,
        sorted(expected - present),
        len(present - expected),
        {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS},
    )


def _expected() -> set[str]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrations.apply(db, migrations.load(), "")
        return _objects(db)
    finally:
        db.close()


def _objects(db: sqlite3.Connection) -> set[str]:
    """Without the objects that SQLite creates itself."""
    names = db.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'index', 'trigger')")
    return {name for (name,) in names if not name.startswith("sqlite_")}


def versions() -> dict[str, str]:
    """Returns the version and the compile options of SQLite."""
    db = sqlite3.connect(":memory:")
    try:
        options = [name for (name,) in db.execute("PRAGMA compile_options")]
    finally:
        db.close()
    return {"sqlite": sqlite3.sqlite_version, "sqlite_options": " ".join(sorted(options))}


_MAX_REASONS = 1_000
_PARTICULAR = re.compile(r"\S*\d\S*")  # a parcel, address or amount, which differs in otherwise equal reasons

_ENDS_BY_PLATFORM = """
SELECT platform, coalesce(sum(status = 'failed'), 0), count(*) FROM tasks
WHERE completed_at >= ? AND status <> 'expired' AND ended_by IS NULL GROUP BY platform
"""
_REASONS = """
SELECT coalesce(error, '') FROM tasks WHERE completed_at >= ? AND status = 'failed' AND ended_by IS NULL
ORDER BY completed_at DESC LIMIT ?
"""


class Ends(Struct, frozen=True, kw_only=True):
    failed: int
    ended: int
    """Failed or completed, including children."""


class Failures(Struct, frozen=True, kw_only=True):
    """Tasks that failed since some time and were not retried. Those that an operator failed do not count."""

    failed: int
    ended: int
    platforms: dict[str, Ends]
    """Platforms with failures."""
    commonest: str
    """The newest error with the most common text; numbers and ids in it may differ from error to error."""

    @property
    def hopeless(self) -> list[str]:
        """Platforms whose tasks have all failed."""
        return sorted(name for name, ends in self.platforms.items() if ends.failed == ends.ended)

    @property
    def are_many(self) -> bool:
        """Whether an operator should act: more than one task in twenty failed, or all tasks of a platform."""
        return bool(self.hopeless) or self.failed > MANY_FAILURES * self.ended


def failures_since(db: sqlite3.Connection, moment: datetime) -> Failures:
    ends = {
        name: Ends(failed=failed, ended=ended) for name, failed, ended in db.execute(_ENDS_BY_PLATFORM, (iso(moment),))
    }
    failed = sum(platform.failed for platform in ends.values())
    return Failures(
        failed=failed,
        ended=sum(platform.ended for platform in ends.values()),
        platforms={name: platform for name, platform in ends.items() if platform.failed},
        commonest=_commonest(db, moment) if failed else "",
    )


def _commonest(db: sqlite3.Connection, moment: datetime) -> str:
    reasons: list[str] = [error for (error,) in db.execute(_REASONS, (iso(moment), _MAX_REASONS))]
    kinds = [_PARTICULAR.sub("", reason) for reason in reasons]
    [(kind, _)] = Counter(kinds).most_common(1)
    return reasons[kinds.index(kind)]
