"""What a task's document says, and what is written into it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from parcelpost.errors import InvalidInput
from parcelpost.model import Source, Task
from parcelpost.protocol import client
from parcelpost.upstream.base import BadTask
from parcelpost.upstream.firestore.calls import Found
from parcelpost.upstream.firestore.encoding import MOST_DOCUMENT_BYTES, Plain, size

QUEUED, LEASED, DONE, NOT_FOUND, FAILED = "queued", "leased", "done", "not_found", "failed"

OF_A_LEASE = ("status", "worker", "lease_id", "leased_at", "lease_expires_at", "attempts")
"""The fields that decide about one."""

OF_A_TURN = ("priority", "created_at")

_OF_A_TASK = ("type", "platform", "target", "priority", "max_retries")
_MOST_ERROR_CHARS = 4_000
_NO_ROOM = f"its document has more than {MOST_DOCUMENT_BYTES:,} bytes, and no room for the fields of a lease"
_NEVER = datetime.max.replace(tzinfo=UTC)

Fields = Mapping[str, Plain]


def has_room(found: Found) -> bool:
    """For what is written into it until it ends."""
    return size(found.fields) <= MOST_DOCUMENT_BYTES


def read(found: Found, lease_id: str, lease_expires_at: datetime) -> Task | BadTask:
    if not has_room(found):
        return BadTask(task_id=found.name, problem=_NO_ROOM)
    told = {name: found.fields[name] for name in _OF_A_TASK if name in found.fields}
    try:
        task = client.read_task(msgspec.json.encode({**told, "task_id": found.name}))
    except InvalidInput as error:
        return BadTask(task_id=found.name, problem=str(error))
    return msgspec.structs.replace(task, source=Source.FIRESTORE, lease_id=lease_id, lease_expires_at=lease_expires_at)


def turn(found: Found) -> tuple[float, datetime, str]:
    """The most urgent first, then the oldest."""
    priority = found.fields.get("priority")
    return priority if isinstance(priority, int | float) else 0.0, when(found, "created_at"), found.name


def when(found: Found, name: str, otherwise: datetime = _NEVER) -> datetime:
    """`otherwise`, where the field holds no moment."""
    moment = found.fields.get(name)
    return moment if isinstance(moment, datetime) else otherwise


def is_held(found: Found, lease_id: str | None) -> bool:
    """Under that very lease. The same worker may have lost the task since, and got it again under another."""
    return found.fields.get("status") == LEASED and bool(lease_id) and found.fields.get("lease_id") == lease_id


def leased(found: Found, worker_id: str, lease_id: str, now: datetime, lease: timedelta) -> Fields:
    return {
        "status": LEASED,
        "worker": worker_id,
        "lease_id": lease_id,
        "leased_at": now,
        "lease_expires_at": now + lease,
        "attempts": _attempts(found) + 1,
        "error": None,
    }


def ended(status: str, now: datetime, error: str | None = None) -> Fields:
    return {
        "status": status,
        "lease_expires_at": None,
        "ended_at": now,
        "error": None if error is None else error[:_MOST_ERROR_CHARS],
    }


def queued_again(found: Found, max_attempts: int, now: datetime, why: str) -> Fields:
    """Failed, where it was tried as often as it may be."""
    attempts = _attempts(found)
    if attempts >= max_attempts:
        return ended(FAILED, now, f"{why}; it was handed out {attempts} times, which is as often as may be")
    return {
        "status": QUEUED,
        "worker": None,
        "lease_id": None,
        "lease_expires_at": None,
        "error": why[:_MOST_ERROR_CHARS],
    }


def _attempts(found: Found) -> int:
    attempts = found.fields.get("attempts")
    return attempts if type(attempts) is int and attempts > 0 else 0
