"""Options of the store, with the defaults of the seeds."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.model import Site
from parcelpost.settings.schema import StoreLimits

LONGEST_DELAY = timedelta(days=7)
"""The longest delay of a task."""


class StoreOptions(StoreLimits, frozen=True, kw_only=True):
    """See `storage` in docs/settings.md. `max_recoveries`: after so many crashes of its process a task fails."""

    retry_min_seconds: float = 30.0
    retry_max_seconds: float = 1_800.0
    max_recoveries: int = 25
    scheduled: frozenset[Site] = frozenset()
    """Sites whose parcels stay known, however long ago they were scraped."""
    scheduled_runs: frozenset[str] = frozenset()
    """Prefixes of task ids: the newest ended tasks of each are kept, however old."""
