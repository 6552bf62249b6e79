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
_IS_DELINQUENT = "HAVING NOT :delinquent_only OR json_extract(r.data, '$.delinquent')"
_NEWEST = f"SELECT t.seq, max(t.completed_at) AS at {_KNOWN} {_IS_DELINQUENT} ORDER BY t.parcel_id"
_FRESHNESS = f"""
SELECT count(*), count(CASE WHEN at >= :since THEN 1 END), min(at) FROM (
    SELECT max(t.completed_at) AS at {_KNOWN} {_IS_DELINQUENT})
"""
_FRESHNESS_OF_FILE = """
SELECT count(*), count(CASE WHEN at >= :since THEN 1 END), CASE WHEN count(at) = count(*) THEN min(at) END FROM (
    SELECT max(CASE WHEN t.status = 'completed' THEN t.completed_at END) AS at FROM tasks AS t
    WHERE t.task_id >= :prefix AND t.task_id < :end AND t.parent_id IS NULL GROUP BY t.parcel_id, t.target_json)
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


def known_parcels(db: sqlite3.Connection, site: Site, *, delinquent_only: bool) -> list[int]:
    """Returns the newest completed task of each parcel, by `seq`, ordered by parcel id."""
    return [seq for seq, _ in db.execute(_NEWEST, _values(site, delinquent_only))]


def freshness(db: sqlite3.Connection, site: Site, since: datetime, *, delinquent_only: bool) -> StoreFreshness:
    values = _values(site, delinquent_only) | {"since": iso(since)}
    parcels, fresh, oldest = db.execute(_FRESHNESS, values).fetchone()
    return StoreFreshness(parcels, fresh, from_iso(oldest) if oldest else None)


def freshness_of_file(db: sqlite3.Connection, prefix: str, since: datetime) -> StoreFreshness:
    """Returns the freshness of the parcels of a schedule with a file: those of tasks whose ids begin with `prefix`."""
    values = {"prefix": prefix, "end": f"{prefix}~", "since": iso(since)}
    parcels, fresh, oldest = db.execute(_FRESHNESS_OF_FILE, values).fetchone()
    return StoreFreshness(parcels, fresh, from_iso(oldest) if oldest else None)


def open_tasks(db: sqlite3.Connection, prefix: str, run: str) -> int:
    """Returns how many tasks whose ids begin with `prefix` have not ended, other than those of this run."""
    values = {"prefix": prefix, "end": f"{prefix}~", "run": run}
    return int(db.execute(_OPEN, values).fetchone()[0])


def _values(site: Site, delinquent_only: bool) -> dict[str, object]:
    return {**asdict(site), "delinquent_only": int(delinquent_only)}
