"""The end of a task that the store would not take: there is no row of it here, and its upstream waits for it."""

from __future__ import annotations

from datetime import datetime

from parcelpost.model import OutboxEntry, Task, TaskStatus


def refused(task: Task, problem: str, now: datetime) -> OutboxEntry:
    """As the sync would report it."""
    target = task.target
    return OutboxEntry(
        seq=0,
        result_id="",
        task_id=task.task_id,
        source=task.source,
        status=TaskStatus.FAILED,
        success=False,
        platform=task.platform,
        state=target.state,
        county=target.county,
        parcel_id=target.parcel_id,
        data=None,
        error=f"the worker cannot store the task: {problem}",
        execution_time_ms=0,
        html_path=None,
        json_path=None,
        screenshot_path=None,
        log_path=None,
        raw_sha256=None,
        idempotency_key="",
        scraped_at=now,
        sync_attempts=0,
        last_error=None,
        raw_synced_at=None,
        synced_at=None,
        rejected_at=None,
        created_at=now,
        lease_expires_at=task.lease_expires_at,
        lease_id=task.lease_id,
    )
