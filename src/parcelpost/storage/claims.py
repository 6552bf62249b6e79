"""Which task is next, and which platforms and sites are paused.

Tasks are claimed by priority, then age, except delayed tasks, ended leases, paused platforms and sites, and excluded
sites. Every query reads only the heads of a partial index, so that a claim costs the same with a million tasks as with
ten. The status itself is changed in `tasks.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import encode

from parcelpost.model import Site

Sites = Collection[Site]

_MAX_PROMOTED = 2_000

# One index probe for each platform with ready tasks, instead of a scan of the whole index.
READY_PLATFORMS = """
WITH RECURSIVE ready (platform) AS (
    SELECT min(platform) FROM tasks WHERE status = 'pending' AND available_at IS NULL
    UNION ALL
    SELECT (SELECT min(platform) FROM tasks
            WHERE status = 'pending' AND available_at IS NULL AND platform > ready.platform)
    FROM ready WHERE ready.platform IS NOT NULL)
"""
_UNPAUSED_PLATFORMS = f"""
{READY_PLATFORMS}
SELECT platform FROM ready
WHERE platform IS NOT NULL
    AND platform NOT IN (SELECT platform FROM platform_pauses
                         WHERE state = '' AND county = '' AND (paused_until IS NULL OR paused_until > ?))
"""
_PAUSED = """
SELECT platform, state, county, paused_until, reason FROM platform_pauses
WHERE paused_until IS NULL OR paused_until > ? ORDER BY county, state, platform
"""
_NEXT_MOMENTS = """
SELECT
    coalesce((SELECT min(available_at) FROM tasks
              WHERE status = 'pending' AND available_at IS NOT NULL), '9999'),
    coalesce((SELECT min(lease_expires_at) FROM tasks
              WHERE status = 'pending' AND lease_expires_at IS NOT NULL), '9999')
"""
_PROMOTE = """
UPDATE tasks SET available_at = NULL WHERE seq IN (
    SELECT seq FROM tasks WHERE status = 'pending' AND available_at <= ? ORDER BY available_at LIMIT ?)
"""

# Platforms with excluded sites are read site by site.
_SITES = """
WITH RECURSIVE site (platform, state, county) AS (
    SELECT platform, state, county FROM tasks WHERE seq = (
        SELECT seq FROM tasks INDEXED BY tasks_sites
        WHERE status = 'pending' AND available_at IS NULL AND platform = :platform
        ORDER BY state, county LIMIT 1)
    UNION ALL
    SELECT next.platform, next.state, next.county
    FROM site JOIN tasks AS next ON next.seq = (
        SELECT seq FROM tasks INDEXED BY tasks_sites
        WHERE status = 'pending' AND available_at IS NULL AND platform = site.platform
            AND (state, county) > (site.state, site.county)
        ORDER BY state, county LIMIT 1))
SELECT state, county FROM site
"""
# The first tasks of each platform and site, from its part of an index; then the first of those.
_HEADS = """
SELECT json_group_array(seq) FROM (
    SELECT priority, seq FROM (
        SELECT head.priority, head.seq
        FROM json_each(:platforms) AS open
        JOIN tasks AS head ON head.seq IN (
            SELECT seq FROM tasks INDEXED BY tasks_ready
            WHERE status = 'pending' AND available_at IS NULL AND platform = open.value
                AND (lease_expires_at IS NULL OR lease_expires_at > :now)
            ORDER BY priority, seq LIMIT :limit)
        UNION ALL
        SELECT head.priority, head.seq
        FROM json_each(:sites) AS open
        JOIN tasks AS head ON head.seq IN (
            SELECT seq FROM tasks INDEXED BY tasks_sites
            WHERE status = 'pending' AND available_at IS NULL
                AND platform = open.value ->> 0 AND state = open.value ->> 1 AND county = open.value ->> 2
                AND (lease_expires_at IS NULL OR lease_expires_at > :now)
            ORDER BY priority, seq LIMIT :limit))
    ORDER BY priority, seq LIMIT :limit)
"""


class TaskFilter(NamedTuple):
    """Which tasks a caller may get."""

    platforms: frozenset[str] | None = None
    """None: all platforms."""
    exclude_sites: frozenset[Site] = frozenset()


def promote_due(db: sqlite3.Connection, now: str) -> bool:
    """Makes delayed tasks ready that are due. Returns whether leases of pending tasks have ended."""
    next_due, next_lease_end = db.execute(_NEXT_MOMENTS).fetchone()
    if next_due <= now:
        db.execute(_PROMOTE, (now, _MAX_PROMOTED))
    return bool(next_lease_end <= now)


def unpaused_platforms(db: sqlite3.Connection, now: str) -> list[str]:
    """Returns platforms with ready tasks that are not paused."""
    return [row[0] for row in db.execute(_UNPAUSED_PLATFORMS, (now,))]


def next_tasks(db: sqlite3.Connection, platforms: list[str], task_filter: TaskFilter, now: str, limit: int) -> str:
    """Returns the next tasks of these platforms that match the filter, as a JSON array of `seq`."""
    allowed = [name for name in platforms if task_filter.platforms is None or name in task_filter.platforms]
    excluded = task_filter.exclude_sites | {site for site in pauses(db, now) if site.state or site.county}
    by_site = {site.platform for site in excluded}
    sites = [
        site
        for platform in allowed
        if platform in by_site
        for state, county in db.execute(_SITES, {"platform": platform})
        if (site := Site(platform, state, county)) not in excluded
    ]
    values = {
        "platforms": encode([name for name in allowed if name not in by_site]).decode(),
        "sites": encode(sites).decode(),
        "now": now,
        "limit": limit,
    }
    return str(db.execute(_HEADS, values).fetchone()[0])


def pause(
    db: sqlite3.Connection, platform: str, until: str | None, reason: str, now: str, sites: Collection[Site] = ()
) -> None:
    """Pauses these sites of the platform; without any, the whole platform."""
    change = """
    INSERT OR REPLACE INTO platform_pauses (platform, state, county, paused_until, reason, created_at)
    VALUES (?, ?, ?, ?, ?, ?)
    """
    for site in sites or [Site(platform, "", "")]:
        db.execute(change, (site.platform, site.state, site.county, until, reason, now))


def resume(db: sqlite3.Connection, platform: str) -> bool:
    """Resumes the platform and its sites."""
    return db.execute("DELETE FROM platform_pauses WHERE platform = ?", (platform,)).rowcount > 0


class Pause(Struct, frozen=True):
    until: str | None
    """None: until an operator resumes it."""
    reason: str


def pauses(db: sqlite3.Connection, now: str) -> dict[Site, Pause]:
    """Returns the pauses by site. Whole platforms come first, as sites without state and county."""
    return {Site(*site): Pause(until, reason) for *site, until, reason in db.execute(_PAUSED, (now,))}
