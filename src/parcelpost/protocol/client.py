"""The worker's side: makes request bodies, reads answers.

Whatever an answer holds is foreign until it is read here. A `read_` function raises Unavailable, and nothing else, for
an answer that is not what the contract says; what it returns is bounded and typed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Broken, Json, Lease, OutboxEntry, Priority, QueueDepth, Signal, Source, Target, Task
from parcelpost.protocol.payloads import Piece, bounded, elements, member, members, one_line, raw_file_name, value

_MOST_TASKS = 10_000  # a hundred are ever asked for
_MOST_NAME_CHARS = 512
_MOST_URL_CHARS = 8_000
_MOST_RETRIES = 1_000
_TARGET_FIELDS = {"parcel_id", "state", "county", "url"}
_PRIORITIES = {int(priority): priority for priority in Priority}


class UnreadTask(Struct, frozen=True, kw_only=True):
    """An element of `tasks` that is none."""

    task_id: str
    """'' where even that cannot be told."""
    problem: str


class WorkAnswer(Struct, frozen=True, kw_only=True):
    tasks: Sequence[Task]
    bad: Sequence[UnreadTask]
    retry_after: float
    """Seconds, 0 where nothing sensible was said."""


def read_work(body: bytes) -> WorkAnswer:
    """Every good task of the answer, whatever stands beside it, in the order given."""
    found = members(body)
    if "tasks" not in found and "retry_after" not in found:
        raise Unavailable("it says nothing about tasks")
    given = elements(found["tasks"]) if "tasks" in found else ()
    if given is None:
        if bytes(found["tasks"]).strip() != b"null":
            raise Unavailable("its tasks are not a list")
        given = ()  # the Go one's empty list
    if len(given) > _MOST_TASKS:
        raise Unavailable(f"it holds {len(given):,} tasks")
    tasks: list[Task] = []
    bad: list[UnreadTask] = []
    for piece in given:
        try:
            tasks.append(read_task(piece))
        except InvalidInput as error:
            bad.append(UnreadTask(task_id=name_of(piece), problem=str(error)))
    return WorkAnswer(tasks=tasks, bad=bad, retry_after=bounded(member(found, "retry_after")))


def read_task(piece: Piece) -> Task:
    """Raises InvalidInput that names the field at fault. Optional fields that make no sense count as not given."""
    given = value(piece)
    if not isinstance(given, dict):
        raise InvalidInput("the task is not a JSON object")
    task_id = _text("task_id", given.get("task_id"))
    if not task_id.strip("."):
        raise InvalidInput("task_id consists of dots, which no address can name")
    target = given.get("target")
    if not isinstance(target, dict):
        raise InvalidInput("target is not an object")
    return Task(
        task_id=task_id,
        platform=_text("platform", given.get("platform")),
        target=_target(target),
        source=Source.GATEWAY,
        type=_text("type", given.get("type") or "scrape"),
        priority=_priority(given.get("priority")),
        lease_expires_at=moment(given.get("lease_expires_at")),
        **_retries(given.get("max_retries")),
    )


def _target(given: Mapping[str, Json]) -> Target:
    url = given.get("url")
    return Target(
        parcel_id=_text("target.parcel_id", _as_text(given.get("parcel_id"))),
        state=_text("target.state", _as_text(given.get("state")), may_be_empty=True),
        county=_text("target.county", _as_text(given.get("county")), may_be_empty=True),
        url="" if url is None else _text("target.url", url, most=_MOST_URL_CHARS, may_be_empty=True),
        extra={name: value for name, value in given.items() if name not in _TARGET_FIELDS},
    )


def _text(field: str, given: Json, *, most: int = _MOST_NAME_CHARS, may_be_empty: bool = False) -> str:
    if not isinstance(given, str):
        raise InvalidInput(f"{field} is missing" if given is None else f"{field} is not text")
    if len(given) > most:
        raise InvalidInput(f"{field} has {len(given):,} characters; at most {most:,} are taken")
    if not given.strip() and (given or not may_be_empty):
        raise InvalidInput(f"{field} is empty")
    if any(sign < " " or sign == "\x7f" for sign in given):
        raise InvalidInput(f"{field} holds control characters")
    return given


def _as_text(given: Json) -> Json:
    """A number written where text belongs; a whole one without its `.0`."""
    if isinstance(given, float) and given.is_integer() and abs(given) < 2**53:
        return str(int(given))
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


def _priority(given: Json) -> Priority:
    """A task that was handed out is lost upstream if it is not taken: an odd priority is no reason for that."""
    return _PRIORITIES.get(given, Priority.NORMAL) if type(given) is int else Priority.NORMAL


def _retries(given: Json) -> Mapping[str, Any]:
    return {"max_retries": given} if type(given) is int and 0 <= given <= _MOST_RETRIES else {}


def moment(given: Json) -> datetime | None:
    """RFC 3339 with a zone, in UTC."""
    try:
        found = msgspec.convert(given, datetime)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def name_of(piece: Piece) -> str:
    try:
        name = member(members(piece), "task_id")
    except Unavailable:
        return ""
    return one_line(str(name))[:_MOST_NAME_CHARS] if isinstance(name, str | int) else ""


_MOST_ERRORS = 100
_MOST_BATCH_ERROR_CHARS = 300
_STORED = {"stored": True, "duplicate": True, "rejected": False}

_encode = msgspec.json.Encoder().encode


class _ParcelResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    task_id: str
    parcel_id: str
    platform: str
    state: str
    county: str
    data: Raw
    scraped_at: str
    parse_duration_ms: int
    raw_html_hash: str | UnsetType = UNSET
    idempotency_key: str
    raw_file: str | UnsetType = UNSET
    late: bool = False
    listed: bool  # always sent: without it a gateway cannot tell a wrong parcel from a list's


class EntryReceipt(Struct, frozen=True):
    stored: bool
    error: str


class BatchAnswer(Struct, frozen=True, kw_only=True):
    stored: int
    failed: int
    errors: Sequence[str]
    receipts: Mapping[str, EntryReceipt]
    """By task id, for entries of the batch only."""


def results_body(entries: Sequence[OutboxEntry], now: datetime) -> bytes:
    """A bare array in the order given. Raises InvalidInput for an entry without a record."""
    return _encode([_result(entry, now) for entry in entries])


def _result(entry: OutboxEntry, now: datetime) -> _ParcelResult:
    if entry.data is None:
        raise InvalidInput(f"the entry of task {entry.task_id} has no record to send")
    return _ParcelResult(
        task_id=entry.task_id,
        parcel_id=entry.parcel_id,
        platform=entry.platform,
        state=entry.state,
        county=entry.county,
        data=Raw(entry.data),
        scraped_at=iso(entry.scraped_at),
        parse_duration_ms=entry.execution_time_ms,
        raw_html_hash=entry.raw_sha256 or UNSET,
        idempotency_key=entry.idempotency_key,
        raw_file=raw_file_name(entry) if entry.html_path and entry.raw_sha256 else UNSET,
        late=entry.lease_expires_at is not None and now > entry.lease_expires_at,
        listed=entry.listed,
    )


def read_results(body: bytes, task_ids: Collection[str]) -> BatchAnswer:
    """What became of the batch of these tasks. Counts that do not fit the batch are an answer that says nothing."""
    found = members(body)
    inserted, updated, failed = (_count(found, name) for name in ("inserted", "updated", "failed"))
    if inserted + updated + failed > len(task_ids):
        raise Unavailable(f"it counts {inserted + updated + failed:,} entries; {len(task_ids):,} were sent")
    errors = member(found, "errors")
    words = [_words(error) for error in errors[:_MOST_ERRORS]] if isinstance(errors, list) else []
    return BatchAnswer(
        stored=inserted + updated, failed=failed, errors=words, receipts=_receipts(found, frozenset(task_ids))
    )


def _count(found: Mapping[str, Piece], name: str) -> int:
    given = member(found, name)
    if type(given) is not int or given < 0:
        raise Unavailable(f"it does not say how many were {name}")
    return given


def _receipts(found: Mapping[str, Piece], task_ids: frozenset[str]) -> Mapping[str, EntryReceipt]:
    """Those that can be understood; where two contradict each other, neither counts."""
    receipts: dict[str, EntryReceipt] = {}
    doubtful: set[str] = set()
    pieces = elements(found["receipts"]) if "receipts" in found else ()
    for piece in (pieces or ())[: 2 * len(task_ids)]:
        given = value(piece)
        task_id = given.get("task_id") if isinstance(given, dict) else None
        status = given.get("status") if isinstance(given, dict) else None
        if not isinstance(task_id, str) or task_id not in task_ids or not isinstance(status, str):
            continue
        if (stored := _STORED.get(status)) is None:
            continue
        if task_id in receipts and receipts[task_id].stored is not stored:
            doubtful.add(task_id)
        receipts[task_id] = EntryReceipt(stored, _words(given.get("error") or ""))
    return {task_id: receipt for task_id, receipt in receipts.items() if task_id not in doubtful}


def _words(given: Json) -> str:
    text = given if isinstance(given, str) else _encode(given).decode()
    return one_line(text)[:_MOST_BATCH_ERROR_CHARS]


MOST_BROKEN = 200

_MOST_ERROR_CHARS = 4_000
_MOST_COMMANDS = 32
_MOST_COMMAND_CHARS = 1_000
_MOST_SELECTORS = 10_000
_MOST_SELECTOR_CHARS = 4_000


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
    """Returns if the gateway took note; a task that it does not know is no error. Raises Unavailable otherwise."""
    found = members(body)
    status = member(found, "status")
    if not isinstance(member(found, "success"), bool) and (not isinstance(status, str) or status == "error"):
        raise Unavailable("it does not say that the end was noted")


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


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    commands: Sequence[str] = ()
    """As written. What is no text, too long or unprintable is left out."""
    lease_expires_at: datetime | None = None
    """Until then run all leases that this worker got after `leases_since`. None: it says nothing of leases."""
    leases_since: datetime | None = None
    leases: Sequence[Lease] = ()
    """Those with names that were extended, each with its new end."""


def read_heartbeat_reply(body: bytes) -> HeartbeatReply:
    found = members(body)
    if "acknowledged" not in found and "commands" not in found:
        raise Unavailable("it does not say that the heartbeat was noted")
    given = (value(piece) for piece in (elements(found["commands"]) or ())) if "commands" in found else ()
    until, since = (moment(member(found, name)) for name in ("lease_expires_at", "leases_since"))
    return heartbeat_reply(given, until, since)


def heartbeat_reply(
    given: Iterable[Json], until: datetime | None = None, since: datetime | None = None, leases: Sequence[Lease] = ()
) -> HeartbeatReply:
    """What makes no sense is left out."""
    commands = [command for command in given if isinstance(command, str) and command.isprintable()]
    return HeartbeatReply(
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
    """Any JSON object will do. Raises Unavailable for anything else."""
    members(body)


def read_selectors(body: bytes, platform: str) -> Sequence[FoundSelector]:
    """Those of that platform that can be understood, in the order given, at most ten thousand."""
    found = members(body)
    if "selectors" not in found:
        raise Unavailable("it says nothing about selectors")
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
