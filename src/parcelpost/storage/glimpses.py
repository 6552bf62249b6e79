"""Short looks at what goes on now, for a screen that looks every second: each by its index, none over a whole table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from parcelpost.clock import from_iso, iso
from parcelpost.storage import rows

PART_CHARS = 18
"""`2026-11-15T19:50:3`: the ten seconds that begin at :30."""

_MOST_ENDED = 20_000
_LATELY_ENDED = 2_000
_LATELY_SYNCED = 50
_ERROR_CHARS = 300

_RUNNING = """
SELECT task_id, platform, state, county, parcel_id, claimed_by, started_at, retries, assigned_browser
FROM tasks INDEXED BY tasks_held WHERE status = 'processing' ORDER BY started_at, seq LIMIT ?
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
    """SELECT 'failed', completed_at, platform, county, parcel_id, substr(error, 1, :chars) FROM tasks WHERE seq IN
        (SELECT seq FROM (SELECT seq, status FROM tasks INDEXED BY tasks_ended WHERE completed_at IS NOT NULL
                          ORDER BY completed_at DESC LIMIT :lately)
         WHERE status = 'failed' LIMIT :most)""",
    """SELECT 'again', updated_at, platform, county, parcel_id, substr(error, 1, :chars) FROM tasks
        WHERE status = 'pending' AND available_at IS NOT NULL AND error IS NOT NULL
        ORDER BY available_at DESC LIMIT :most""",
    """SELECT 'refused', rejected_at, platform, county, parcel_id, substr(last_error, 1, :chars)
        FROM results INDEXED BY results_rejected WHERE rejected_at IS NOT NULL ORDER BY seq DESC LIMIT :most""",
    """SELECT direction, created_at, '', '', '', substr(error, 1, :chars) FROM
        (SELECT * FROM sync_log ORDER BY seq DESC LIMIT :synced) WHERE error IS NOT NULL LIMIT :most""",
)


class RunningTask(Struct, frozen=True, kw_only=True):
    """A task that is held: a slot is at it, or takes it next."""

    task_id: str
    platform: str
    state: str
    county: str
    parcel_id: str
    claimed_by: str
    started_at: datetime | None
    retries: int
    browser: int | None


class Trouble(Struct, frozen=True, kw_only=True):
    """Something that went wrong a while ago."""

    kind: str
    """failed, again (a task waits for another try), refused (a result), upload or download (a round of sync)."""
    at: datetime
    platform: str
    county: str
    parcel_id: str
    error: str


class Done(Struct, frozen=True, kw_only=True):
    """How much of it, by the ten seconds in which it was (`PART_CHARS` of the moment)."""

    completed: dict[str, int]
    failed: dict[str, int]
    delivered: dict[str, int]
    fetched: dict[str, int]


def running(db: sqlite3.Connection, most: int) -> list[RunningTask]:
    """Those that have run longest first."""
    return [_running(row) for row in db.execute(_RUNNING, (most,))]


@rows.readable
def _running(row: Sequence[Any]) -> RunningTask:
    return RunningTask(
        task_id=row[0],
        platform=row[1],
        state=row[2],
        county=row[3],
        parcel_id=row[4],
        claimed_by=row[5],
        started_at=rows.moment(row[6]),
        retries=row[7],
        browser=row[8],
    )


def done_since(db: sqlite3.Connection, moment: datetime) -> Done:
    """Of the tasks only the newest twenty thousand: then what is older is missing."""
    ended = db.execute(_ENDED, (PART_CHARS, iso(moment), _MOST_ENDED)).fetchall()
    synced = db.execute(_SYNCED, (PART_CHARS, iso(moment))).fetchall()
    return Done(
        completed={part: number for part, is_bad, number in ended if not is_bad},
        failed={part: number for part, is_bad, number in ended if is_bad},
        delivered={part: number for part, direction, number in synced if direction == "upload"},
        fetched={part: number for part, direction, number in synced if direction == "download"},
    )


def troubles(db: sqlite3.Connection, most: int) -> list[Trouble]:
    """The newest first."""
    values = {"chars": _ERROR_CHARS, "lately": _LATELY_ENDED, "synced": _LATELY_SYNCED, "most": most}
    found = [row for query in _ERRORS for row in db.execute(query, values)]
    found.sort(key=lambda row: str(row[1]), reverse=True)
    return [_trouble(row) for row in found[:most]]


@rows.readable
def _trouble(row: Sequence[Any]) -> Trouble:
    kind, at, platform, county, parcel_id, error = row
    return Trouble(kind=kind, at=from_iso(at), platform=platform, county=county, parcel_id=parcel_id, error=error or "")
