"""How the tasks of each county's site ended lately."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from msgspec import Struct

from parcelpost.clock import from_iso

_MOST = 20_000
"""Tasks that are looked at: by their indexes, and so in the same time however many there are."""

_ENDED = """
SELECT platform, state, county, status, completed_at, error FROM tasks
WHERE completed_at IS NOT NULL AND parent_id IS NULL AND status <> 'expired' ORDER BY completed_at DESC LIMIT ?
"""
_TRYING_AGAIN = """
SELECT platform, state, county, 'again', updated_at, error FROM tasks
WHERE status = 'pending' AND available_at IS NOT NULL AND error IS NOT NULL ORDER BY available_at DESC LIMIT ?
"""


class SiteHealth(Struct, kw_only=True):
    platform: str
    state: str
    county: str
    """As the tasks write it."""
    completed: int = 0
    failed: int = 0
    trying_again: int = 0
    """Waiting for another try."""
    last_success: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None


def sites(db: sqlite3.Connection) -> list[SiteHealth]:
    """Of the last tasks that ended, and of those that wait for another try."""
    found: dict[tuple[str, str, str], SiteHealth] = {}
    for platform, state, county, status, at, error in [
        *db.execute(_ENDED, (_MOST,)),
        *db.execute(_TRYING_AGAIN, (_MOST,)),
    ]:
        site = found.setdefault((platform, state, county), SiteHealth(platform=platform, state=state, county=county))
        _count(site, status, from_iso(at), error)
    return list(found.values())


def _count(site: SiteHealth, status: str, at: datetime, error: str | None) -> None:
    if status in ("completed", "not_found"):
        site.completed += 1
        site.last_success = max(at, site.last_success or at)
        return
    if status == "failed":
        site.failed += 1
    else:
        site.trying_again += 1
    if site.last_error_at is None or at > site.last_error_at:
        site.last_error, site.last_error_at = error, at
