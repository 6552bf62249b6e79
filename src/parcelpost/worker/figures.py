"""How queue and store stand, for who watches over the worker."""

from __future__ import annotations

from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.telemetry import Figures


async def figures(lpm: LocalPersistenceManager) -> Figures:
    health = await lpm.janitor.health()
    newest = health.newest_backup_age_seconds
    return Figures(
        depth=await lpm.queue_depth(),
        store_bytes=health.usage.total,
        store_max_bytes=health.usage.max_bytes,
        disk_free_bytes=health.usage.disk_free,
        disk_free_inodes=health.usage.free_inodes,
        without_backup_seconds=health.age_seconds if newest is None else newest,
        paused=list(await lpm.paused_platforms()),
    )
