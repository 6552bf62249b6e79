"""Claiming beside sites that are passed over: each open site's head is one probe, however long the others' queues."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from msgspec.json import encode

from parcelpost.model import Site

Sites = Collection[Site]

# From one site to the next by its place in the index: the tasks between are never stepped over.
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


def heads(db: sqlite3.Connection, platforms: Collection[str], but: Sites, now: str, limit: int) -> str:
    """The next tasks of these platforms, as a JSON array of `seq`."""
    in_part = {site.platform for site in but}
    sites = [
        site
        for platform in platforms
        if platform in in_part
        for state, county in db.execute(_SITES, {"platform": platform})
        if (site := Site(platform, state, county)) not in but
    ]
    wanted = {
        "platforms": encode([name for name in platforms if name not in in_part]).decode(),
        "sites": encode(sites).decode(),
        "now": now,
        "limit": limit,
    }
    found: str = db.execute(_HEADS, wanted).fetchone()[0]
    return found
