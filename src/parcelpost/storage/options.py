"""Options of the store, with the defaults of the seeds."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from msgspec import Struct

from parcelpost.model import Site

KIB, MIB, GIB = 1024, 1024**2, 1024**3

LONGEST_DELAY = timedelta(days=7)
"""The longest delay of a task."""


class StoreOptions(Struct, frozen=True, kw_only=True):
    """See `storage` in docs/settings.md. `max_recoveries`: after so many crashes of its process a task fails."""

    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    busy_timeout_seconds: float = 10.0
    hung_after_seconds: float = 60.0
    max_bytes: int = GIB
    min_free_bytes: int = 256 * MIB
    min_free_inodes: int = 1_000
    max_target_bytes: int = 256 * KIB
    max_result_bytes: int = 16 * MIB
    max_page_bytes: int = 64 * MIB
    cache_max_bytes: int = 256 * MIB
    cache_ttl: timedelta = timedelta(hours=24)
    keep_tasks: timedelta = timedelta(days=7)
    keep_results: timedelta = timedelta(days=7)
    keep_metrics: timedelta = timedelta(days=30)
    keep_sync_log: timedelta = timedelta(days=14)
    keep_signals: timedelta = timedelta(days=30)
    keep_artifacts: timedelta = timedelta(days=7)
    keep_backups: int = 7
    retry_min: timedelta = timedelta(seconds=30)
    retry_max: timedelta = timedelta(minutes=30)
    max_recoveries: int = 25
    scheduled: frozenset[Site] = frozenset()
    """Sites whose parcels stay known, however long ago they were scraped."""
    scheduled_runs: frozenset[str] = frozenset()
    """Prefixes of task ids: the newest ended tasks of each are kept, however old."""
