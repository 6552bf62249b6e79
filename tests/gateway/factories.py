"""Tasks and arrivals with as little said as a test needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.json import decode, encode

from parcelpost.gateway.models import IngestedResult, SourceKey
from parcelpost.model import Priority, Target, Task
from parcelpost.places import parcel_norm
from parcelpost.search_fields import SearchFields, search_fields

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def task(task_id: str, platform: str = "echo", priority: Priority = Priority.NORMAL, **extra: Any) -> Task:
    target = Target(parcel_id=f"P-{task_id}", state="FL", county="union", extra=extra)
    return Task(task_id=task_id, platform=platform, target=target, priority=priority)


def parcel(parcel_id: str = "P-1", platform: str = "echo", state: str = "FL", county: str = "union") -> SourceKey:
    return SourceKey(state, county, parcel_norm(parcel_id), platform)


def facts_in(data: bytes) -> SearchFields:
    return search_fields(decode(data), data)


def arrival(
    task_id: str, key: SourceKey | str | None = None, scraped_at: datetime = NOON, *, late: bool = False, **data: Any
) -> IngestedResult:
    """Of the parcel that `task` would make, unless one is named."""
    parcel_id = key.norm if isinstance(key, SourceKey) else key or f"P-{task_id}"
    if not isinstance(key, SourceKey):
        key = parcel(parcel_id)
    body = encode(data)
    return IngestedResult(
        task_id=task_id,
        source=key,
        parcel_id=parcel_id,
        data=body,
        search_fields=facts_in(body),
        scraped_at=scraped_at,
        parse_duration_ms=7,
        idempotency_key=f"{task_id}:{hash(body)}",
        late=late,
    )
