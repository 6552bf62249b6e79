"""The end of a task that is not in the outbox, and that its upstream waits for."""

from __future__ import annotations

from datetime import datetime

from parcelpost.model import OutboxEntry, Task, TaskStatus


def refused(task: Task, problem: str, now: datetime) -> OutboxEntry:
    """The store would not take it: there is no row of it here."""
    return end_of(task, TaskStatus.FAILED, f"the worker cannot store the task: {problem}", now)


def end_of(task: Task, status: TaskStatus, error: str | None, now: datetime) -> OutboxEntry:
    """As the sync would report it."""
    target = task.target
    return OutboxEntry(
        seq=0,
        result_id="",
        task_id=task.task_id,
        source=task.source,
        status=status,
        success=status is TaskStatus.COMPLETED,
        platform=task.platform,
        state=target.state,
        county=target.county,
        parcel_id=target.parcel_id,
        data=None,
        error=error,
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
