"""How the queue stands, what is paused, and recovery after a death."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.json import encode

from parcelpost.clock import from_iso, iso
from parcelpost.model import QueueDepth, Source
from parcelpost.storage import outbox
from parcelpost.storage.tasks import READY_PLATFORMS

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

# The lowest seq of each platform and priority is one probe of the index; the oldest task is among those.
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

_FREE_RECOVERIES = 10
_FIRST_DELAY_SECONDS = 60


def counts(db: sqlite3.Connection, now: str) -> dict[str, dict[str, int]]:
    """Per platform and status; what is pending but not yet due stands under `delayed`. Children do not count."""
    found: dict[str, dict[str, int]] = {}
    for platform, status, count in db.execute(_COUNTS, {"now": now}):
        per_status = found.setdefault(platform, {})
        per_status[status] = per_status.get(status, 0) + count
    return found


class WaitingSources(Struct, frozen=True, kw_only=True):
    """Where that came from which waits, as far as the first thousand tell."""

    pending: frozenset[Source]
    """Tasks to do."""
    unsent: frozenset[Source]
    """Tasks whose results are to be delivered."""


def sources(db: sqlite3.Connection) -> WaitingSources:
    pending, unsent = (
        frozenset(Source(name) for (name,) in db.execute(query)) for query in (_PENDING_SOURCES, _UNSENT_SOURCES)
    )
    return WaitingSources(pending=pending, unsent=unsent)


class Supply(Struct, frozen=True, kw_only=True):
    """What one platform has to do."""

    ready: int
    """Due now; counted no further than was asked for."""
    delayed: int
    paused: bool


def supply(db: sqlite3.Connection, most: int, now: str) -> dict[str, Supply]:
    ready = dict(db.execute(_READY_COUNTS, (most,)).fetchall())
    delayed = dict(db.execute(_DELAYED_COUNTS).fetchall())
    off = paused(db, now)
    return {
        name: Supply(ready=ready.get(name, 0), delayed=delayed.get(name, 0), paused=name in off)
        for name in ready.keys() | delayed.keys() | off.keys()
    }


def is_any_open(db: sqlite3.Connection, platforms: list[str] | None) -> bool:
    """Whether a task waits or is worked on, of these platforms or of any."""
    wanted = None if platforms is None else encode(platforms).decode()
    return bool(db.execute(_ANY_OPEN, {"wanted": wanted}).fetchone()[0])


def held(db: sqlite3.Connection) -> dict[str, int]:
    """Owner -> how many tasks it works on."""
    return dict(db.execute("SELECT claimed_by, count(*) FROM tasks WHERE status = 'processing' GROUP BY 1").fetchall())


def ended_since(db: sqlite3.Connection, moment: str) -> dict[str, int]:
    query = "SELECT status, count(*) FROM tasks WHERE completed_at >= ? AND parent_id IS NULL GROUP BY status"
    return dict(db.execute(query, (moment,)).fetchall())


def claimed_by_others(db: sqlite3.Connection, owner: str) -> int:
    query = "SELECT count(*) FROM tasks WHERE status = 'processing' AND claimed_by <> ?"
    count: int = db.execute(query, (owner,)).fetchone()[0]
    return count


def depth(db: sqlite3.Connection, now: datetime) -> QueueDepth:
    totals: dict[str, int] = {}
    for per_status in counts(db, iso(now)).values():
        for status, count in per_status.items():
            totals[status] = totals.get(status, 0) + count
    unsynced, rejected, oldest_unsynced = outbox.depth(db)
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
        unsynced=unsynced,
        rejected=rejected,
        set_aside=outbox.set_aside(db) if rejected else 0,
        oldest_pending_seconds=_age(oldest_pending, now),
        oldest_unsynced_seconds=_age(oldest_unsynced, now),
    )


def recover(db: sqlite3.Connection, dead: list[str], now: datetime, max_recoveries: int) -> tuple[int, int]:
    """Brings back what the dead held (I9). Answers how many are pending again, and how many were given up.

    A task that is there at every death is probably its cause: it waits longer each time, apart from its neighbours,
    and is failed after `max_recoveries`.
    """
    back = """UPDATE tasks SET status = 'pending', recoveries = recoveries + 1, available_at = ?, updated_at = ?,
                  started_at = NULL, claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
              WHERE seq = ?"""
    fail = """UPDATE tasks SET status = 'failed', error = ?, completed_at = ?, updated_at = ?,
                  claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
              WHERE seq = ?"""
    recovered, hopeless = 0, []
    for owner in dead:
        held = "SELECT seq, recoveries FROM tasks WHERE status = 'processing' AND claimed_by = ?"
        for seq, recoveries in db.execute(held, (owner,)).fetchall():
            if recoveries >= max_recoveries:
                why = f"its worker died {recoveries + 1} times while it held this task"
                db.execute(fail, (why, iso(now), iso(now), seq))
                hopeless.append(seq)
            else:
                db.execute(back, (_delay_until(seq, recoveries, now), iso(now), seq))
                recovered += 1
    outbox.report(db, hopeless)
    return recovered, len(hopeless)


def recover_silent(db: sqlite3.Connection, silent_since: str, now: datetime) -> int:
    """Claims without a sign of life are no longer current; their tasks are pending again."""
    change = """UPDATE tasks SET status = 'pending', recoveries = recoveries + 1, updated_at = ?, started_at = NULL,
                    claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
                WHERE status = 'processing' AND updated_at < ?"""
    return db.execute(change, (iso(now), silent_since)).rowcount


def pause(db: sqlite3.Connection, platform: str, until: str | None, reason: str, now: str) -> None:
    change = "INSERT OR REPLACE INTO platform_pauses (platform, paused_until, reason, created_at) VALUES (?, ?, ?, ?)"
    db.execute(change, (platform, until, reason, now))


def resume(db: sqlite3.Connection, platform: str) -> bool:
    return db.execute("DELETE FROM platform_pauses WHERE platform = ?", (platform,)).rowcount == 1


def paused(db: sqlite3.Connection, now: str) -> dict[str, tuple[str | None, str]]:
    """Platform -> until when (None: until resumed) and why."""
    query = "SELECT platform, paused_until, reason FROM platform_pauses WHERE paused_until IS NULL OR paused_until > ?"
    return {platform: (until, reason) for platform, until, reason in db.execute(query, (now,))}


def _delay_until(seq: int, recoveries: int, now: datetime) -> str | None:
    excess = recoveries - _FREE_RECOVERIES
    if excess < 0:
        return None
    spread = 0.5 + (seq * 0x9E3779B97F4A7C15 % 2**64) / 2**64  # the same for a task each time, unlike its neighbours'
    return iso(now + timedelta(seconds=min(_FIRST_DELAY_SECONDS * 2**excess, 3600) * spread))


def _age(moment: str | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - from_iso(moment)).total_seconds())
