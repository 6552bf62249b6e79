"""Queries for the schedules of a standalone worker: which parcels are known, and how fresh they are.

`tasks.add_refreshes` adds the tasks of a run.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import asdict

from parcelpost.clock import from_iso, iso
from parcelpost.model import Site

# A gateway's own schedules refresh its parcels.
_KNOWN = """
FROM tasks AS t LEFT JOIN results AS r ON r.task_id = t.task_id
WHERE t.platform = :platform AND t.state = :state AND t.county = :county AND t.status = 'completed'
    AND t.parent_id IS NULL AND t.source IN ('local_file', 'cli') AND t.parcel_id <> ''
GROUP BY t.parcel_id, t.target_json
"""
# Next to max(), SQLite takes bare columns from the row with the maximum: here the newest record.
_IS_DELINQUENT = "HAVING NOT :delinquent_only OR coalesce(json_extract(r.data, '$.delinquent'), t.was_delinquent)"
_NEWEST = f"SELECT t.seq, max(t.completed_at) AS at {_KNOWN} {_IS_DELINQUENT} ORDER BY t.parcel_id"
_FRESHNESS = f"""
WITH gone AS (
    SELECT parcel_id, target_json, max(completed_at) AS at FROM tasks
    WHERE platform = :platform AND state = :state AND county = :county AND status = 'not_found' AND parent_id IS NULL
    GROUP BY parcel_id, target_json)
SELECT count(*) - count(gone.at), count(CASE WHEN gone.at IS NULL AND known.at >= :since THEN 1 END),
    min(iif(gone.at IS NULL, known.at, NULL)), count(gone.at)
FROM (SELECT t.parcel_id, t.target_json, max(t.completed_at) AS at {_KNOWN} {_IS_DELINQUENT}) AS known
LEFT JOIN gone ON gone.parcel_id = known.parcel_id AND gone.target_json = known.target_json AND gone.at > known.at
"""
_NEWEST_ENDED = """
SELECT seq, max(completed_at) FROM tasks
WHERE platform = :platform AND state = :state AND county = :county AND (status = 'completed' OR status = 'not_found')
    AND parent_id IS NULL AND source IN ('local_file', 'cli')
GROUP BY parcel_id, target_json, status
"""
_NEWEST_ENDED_OF_RUNS = """
SELECT seq, max(completed_at) FROM tasks
WHERE task_id >= :prefix AND task_id < :end AND (status = 'completed' OR status = 'not_found') AND parent_id IS NULL
GROUP BY parcel_id, target_json, status
"""
_FRESHNESS_OF_RUNS = """
SELECT count(*) FILTER (WHERE gone IS NULL), count(*) FILTER (WHERE gone IS NULL AND at >= :since),
    CASE WHEN count(*) FILTER (WHERE gone IS NULL AND at IS NULL) = 0 THEN min(at) FILTER (WHERE gone IS NULL) END,
    count(gone)
FROM (SELECT at, CASE WHEN gone_at > coalesce(at, '') THEN 1 END AS gone FROM (
    SELECT max(CASE WHEN t.status = 'completed' THEN t.completed_at END) AS at,
        max(CASE WHEN t.status = 'not_found' THEN t.completed_at END) AS gone_at
    FROM tasks AS t
    WHERE t.task_id >= :prefix AND t.task_id < :end AND t.parent_id IS NULL GROUP BY t.parcel_id, t.target_json))
"""
_OPEN = """
SELECT count(*) FROM tasks
WHERE task_id >= :prefix AND task_id < :end AND status IN ('pending', 'processing')
    AND substr(task_id, 1, length(:run)) <> :run
"""


class StoreFreshness(NamedTuple):
    """How many of a schedule's parcels were scraped since a given time."""

    parcels: int
    fresh: int
    oldest_at: datetime | None
    not_found: int
    """Further parcels that the site no longer has."""


def newest_ended(db: sqlite3.Connection, site: Site) -> list[int]:
    """Returns the tasks by which a schedule knows its parcels and when each was scraped: by `seq`, of each parcel the
    newest with a record, and the newest for which the site had none.
    """
    return [seq for seq, _ in db.execute(_NEWEST_ENDED, _values(site))]


def newest_ended_of_runs(db: sqlite3.Connection, prefix: str) -> list[int]:
    """Like `newest_ended`, for a schedule with a file or a list: of tasks whose ids begin with `prefix`."""
    return [seq for seq, _ in db.execute(_NEWEST_ENDED_OF_RUNS, _range(prefix))]


def known_parcels(db: sqlite3.Connection, site: Site, *, delinquent_only: bool) -> list[int]:
    """Returns the newest completed task of each parcel, by `seq`, ordered by parcel id."""
    return [seq for seq, _ in db.execute(_NEWEST, _values(site, delinquent_only))]


def freshness(db: sqlite3.Connection, site: Site, since: datetime, *, delinquent_only: bool) -> StoreFreshness:
    values = _values(site, delinquent_only) | {"since": iso(since)}
    return _freshness(db.execute(_FRESHNESS, values).fetchone())


def _freshness(row: tuple[int, int, str | None, int]) -> StoreFreshness:
    parcels, fresh, oldest, not_found = row
    return StoreFreshness(parcels, fresh, from_iso(oldest) if oldest else None, not_found)


def freshness_of_runs(db: sqlite3.Connection, prefix: str, since: datetime) -> StoreFreshness:
    """Returns the freshness of a schedule with a file or a list: of tasks whose ids begin with `prefix`."""
    values = _range(prefix) | {"since": iso(since)}
    return _freshness(db.execute(_FRESHNESS_OF_RUNS, values).fetchone())


def open_tasks(db: sqlite3.Connection, prefix: str, run: str) -> int:
    """Returns how many tasks whose ids begin with `prefix` have not ended, other than those of this run."""
    values = _range(prefix) | {"run": run}
    return int(db.execute(_OPEN, values).fetchone()[0])


def _values(site: Site, delinquent_only: bool = False) -> dict[str, object]:
    return {**asdict(site), "delinquent_only": int(delinquent_only)}


def _range(prefix: str) -> dict[str, str]:
    return {"prefix": prefix, "end": f"{prefix}~"}
