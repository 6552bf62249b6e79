"""Ends of tasks, heartbeats, and the optional parts: signals, metrics, selectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from parcelpost.errors import NotNow
from parcelpost.model import Broken, Json, Lease, QueueDepth, Signal
from parcelpost.wire.reading import elements, member, members, value
from parcelpost.wire.work import moment

MOST_BROKEN = 200

_MOST_ERROR_CHARS = 4_000
_MOST_COMMANDS = 32
_MOST_COMMAND_CHARS = 1_000
_MOST_SELECTORS = 10_000
_MOST_SELECTOR_CHARS = 4_000

_encode = msgspec.json.Encoder().encode


class FoundSelector(Struct, frozen=True, kw_only=True):
    field: str
    selector: str
    selector_type: str
    success_rate: float
    samples: int


def failure_body(error: str | None, attempts: int) -> bytes:
    """What goes with /fail: why, after how many attempts, and that this worker will not try again."""
    return _encode({"error": (error or "")[:_MOST_ERROR_CHARS], "attempts": attempts, "permanent": True})


def expiry_body(error: str | None) -> bytes:
    """What goes with /complete for a task that was not even started: somebody else may still do it."""
    return _encode({"expired": True, "error": (error or "")[:_MOST_ERROR_CHARS]})


def not_found_body(reason: str | None) -> bytes:
    """What goes with /complete for a parcel that the site does not have."""
    return _encode({"not_found": True, "error": (reason or "")[:_MOST_ERROR_CHARS]})


def read_end(body: bytes) -> None:
    """Returns if the gateway took note; a task that it does not know is no error. Raises NotNow otherwise."""
    found = members(body)
    status = member(found, "status")
    if not isinstance(member(found, "success"), bool) and (not isinstance(status, str) or status == "error"):
        raise NotNow("it does not say that the end was noted")


def heartbeat_body(
    *,
    active_tasks: int,
    completed_last_minute: int,
    failed_last_minute: int,
    platforms: Sequence[str],
    cpu_percent: float,
    memory_percent: float,
    queue: QueueDepth,
    version: str,
    paused: bool,
    disk_free_bytes: int,
    blocked: Sequence[str] = (),
    broken: Sequence[Broken] = (),
    leaving: bool = False,
) -> bytes:
    """`blocked`: the platforms in cool-down. `broken`: the first fields of those that sites no longer show. `leaving`:
    no other will follow.
    """
    return _encode(
        {
            "active_tasks": active_tasks,
            "completed_last_minute": completed_last_minute,
            "failed_last_minute": failed_last_minute,
            "platforms": list(platforms),
            "cpu_percent": _finite(cpu_percent),
            "memory_percent": _finite(memory_percent),
            "queue": {
                "pending": queue.pending,
                "processing": queue.processing,
                "completed": queue.completed + queue.not_found,
                "failed": queue.failed,
                "expired": queue.expired,
                "unsynced": queue.unsynced,
                "rejected": queue.rejected,
            },
            "oldest_unsynced_seconds": _finite(queue.oldest_unsynced_seconds),
            "version": version,
            "paused": paused,
            "disk_free_bytes": disk_free_bytes,
            "blocked": list(blocked),
            "broken": list(broken[:MOST_BROKEN]),
            **({"leaving": True} if leaving else {}),
        }
    )


class Heard(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    commands: Sequence[str] = ()
    """As written. What is no text, too long or unprintable is left out."""
    lease_expires_at: datetime | None = None
    """Until then run all leases that this worker got after `leases_since`. None: it says nothing of leases."""
    leases_since: datetime | None = None
    leases: Sequence[Lease] = ()
    """Those with names that were extended, each with its new end."""


def read_heard(body: bytes) -> Heard:
    found = members(body)
    if "acknowledged" not in found and "commands" not in found:
        raise NotNow("it does not say that the heartbeat was noted")
    given = (value(piece) for piece in (elements(found["commands"]) or ())) if "commands" in found else ()
    until, since = (moment(member(found, name)) for name in ("lease_expires_at", "leases_since"))
    return heard(given, until, since)


def heard(
    given: Iterable[Json], until: datetime | None = None, since: datetime | None = None, leases: Sequence[Lease] = ()
) -> Heard:
    """What makes no sense is left out."""
    commands = [command for command in given if isinstance(command, str) and command.isprintable()]
    return Heard(
        commands=[command for command in commands if 0 < len(command) <= _MOST_COMMAND_CHARS][:_MOST_COMMANDS],
        lease_expires_at=until if since else None,
        leases_since=since if until else None,
        leases=leases,
    )


def signals_body(signals: Sequence[Signal]) -> bytes:
    """A bare array, each with the names of model.Signal."""
    return _encode(list(signals))


def metrics_body(samples: Sequence[tuple[str, Mapping[str, float | int | None]]]) -> bytes:
    """A bare array: each sample's timestamp and figures in one object."""
    return _encode([{"timestamp": timestamp, **figures} for timestamp, figures in samples])


def read_receipt(body: bytes) -> None:
    """Any JSON object will do. Raises NotNow for anything else."""
    members(body)


def read_selectors(body: bytes, platform: str) -> Sequence[FoundSelector]:
    """Those of that platform that can be understood, in the order given, at most ten thousand."""
    found = members(body)
    if "selectors" not in found:
        raise NotNow("it says nothing about selectors")
    pieces = elements(found["selectors"]) or ()
    read = (_selector(value(piece), platform) for piece in pieces[:_MOST_SELECTORS])
    return [selector for selector in read if selector]


def _selector(given: Json, platform: str) -> FoundSelector | None:
    if not isinstance(given, dict) or given.get("platform", platform) != platform:
        return None
    try:
        found = msgspec.convert(given, FoundSelector)
    except ValueError:
        return None
    texts = (found.field, found.selector, found.selector_type)
    if not all(text and len(text) <= _MOST_SELECTOR_CHARS and "\0" not in text for text in texts):
        return None
    return found if 0 <= found.success_rate <= 1 and 0 <= found.samples < 2**53 else None


def _finite(figure: float) -> float:
    return figure if math.isfinite(figure) else 0.0
