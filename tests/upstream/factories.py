"""Outbox entries and heartbeats, for the tests of the protocol."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from parcelpost.model import OutboxEntry, QueueDepth, Source, TaskStatus
from parcelpost.protocol.payloads import Heartbeat, queue_counts

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PAGE = b"<html>page</html>"


def an_entry(task_id: str = "t1", **changes: Any) -> OutboxEntry:
    """A record without a page; `page=True` gives it one, `data=None` makes it an end without a record."""
    if changes.pop("page", False):
        changes = {"html_path": "echo/CT/x/p.html.gz", "raw_sha256": hashlib.sha256(PAGE).hexdigest(), **changes}
    entry = OutboxEntry(
        seq=1,
        result_id=f"r-{task_id}",
        task_id=task_id,
        source=Source.GATEWAY,
        status=TaskStatus.COMPLETED,
        success=True,
        platform="echo",
        state="CT",
        county="hartford",
        parcel_id=f"parcel-{task_id}",
        data=b'{"owner":"Ann"}',
        error=None,
        execution_time_ms=12,
        html_path=None,
        json_path=None,
        screenshot_path=None,
        log_path=None,
        raw_sha256=None,
        idempotency_key=f"{task_id}:abc",
        scraped_at=NOW,
        sync_attempts=0,
        last_error=None,
        raw_synced_at=None,
        synced_at=None,
        rejected_at=None,
        created_at=NOW,
        lease_expires_at=None,
    )
    return msgspec.structs.replace(entry, **changes)


def an_end(task_id: str = "t1", status: TaskStatus = TaskStatus.FAILED, **changes: Any) -> OutboxEntry:
    return an_entry(task_id, **{"status": status, "success": False, "data": None, "error": "no luck", **changes})


def a_beat() -> Heartbeat:
    return Heartbeat(
        active_tasks=2,
        completed_last_minute=3,
        failed_last_minute=1,
        platforms=("echo",),
        cpu_percent=12.5,
        memory_percent=float("nan"),
        queue=queue_counts(QueueDepth(pending=4, unsynced=5)),
        oldest_unsynced_seconds=6.5,
        version="1",
        paused=False,
        disk_free_bytes=10**9,
    )
