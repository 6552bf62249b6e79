"""The worker's side of the protocol: writes request bodies and reads answers.

Answers are untrusted. A `read_` function returns bounded, typed values, and raises only Unavailable for an answer that
breaks the contract.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Json, OutboxEntry, Priority, Source, Target, Task, TaskStatus
from parcelpost.protocol.payloads import (
    ARTIFACT_KINDS,
    MAX_COMMAND_CHARS,
    ArtifactKind,
    BadTask,
    Completion,
    Failure,
    Heartbeat,
    HeartbeatReply,
    MetricsSample,
    ParcelResult,
    Piece,
    RankedSelector,
    Receipt,
    Submitted,
    Work,
    bounded_wait,
    elements,
    member,
    members,
    one_line,
    raw_file_name,
    value,
)

MAX_BROKEN = 200
"""Broken fields in one heartbeat."""
MAX_PAUSED_SITES = 200

_MAX_TASKS = 10_000  # no call requests more than a hundred
_MAX_NAME_CHARS = 512
_MAX_URL_CHARS = 8_000
_MAX_RETRIES = 1_000
_MAX_ERRORS = 100
_MAX_ENTRY_ERROR_CHARS = 300
_MAX_TASK_ERROR_CHARS = 4_000
_MAX_COMMANDS = 32
_MAX_SELECTORS = 10_000
_MAX_SELECTOR_CHARS = 4_000
_TARGET_FIELDS = {"parcel_id", "state", "county", "url"}
_PRIORITIES = {int(priority): priority for priority in Priority}

_encode = msgspec.json.Encoder().encode


# GET /work


def read_work(body: bytes) -> Work:
    """Returns every valid task in order, even if others are invalid."""
    answer = members(body)
    if "tasks" not in answer and "retry_after" not in answer:
        raise Unavailable("it has no tasks and no retry_after")
    pieces = elements(answer["tasks"]) if "tasks" in answer else ()
    if pieces is None:
        if bytes(answer["tasks"]).strip() != b"null":
            raise Unavailable("its tasks are not a list")
        pieces = ()  # how the Go gateway writes an empty list
    if len(pieces) > _MAX_TASKS:
        raise Unavailable(f"it contains {len(pieces):,} tasks")
    tasks: list[Task] = []
    bad: list[BadTask] = []
    for piece in pieces:
        try:
            tasks.append(read_task(piece))
        except InvalidInput as error:
            bad.append(BadTask(task_id=task_id_of(piece), problem=str(error)))
    return Work(tasks=tasks, bad=bad, retry_after=bounded_wait(member(answer, "retry_after")))


def read_task(piece: Piece) -> Task:
    """Raises InvalidInput naming the bad field. An invalid optional field counts as missing."""
    fields = value(piece)
    if not isinstance(fields, dict):
        raise InvalidInput("the task is not a JSON object")
    task_id = _text("task_id", fields.get("task_id"))
    if not task_id.strip("."):
        raise InvalidInput("task_id consists of dots, which cannot be used in a URL")
    target = fields.get("target")
    if not isinstance(target, dict):
        raise InvalidInput("target is not an object")
    return Task(
        task_id=task_id,
        platform=_text("platform", fields.get("platform")),
        target=_target(target),
        source=Source.GATEWAY,
        type=_text("type", fields.get("type") or "scrape"),
        priority=_priority(fields.get("priority")),
        lease_expires_at=_moment(fields.get("lease_expires_at")),
        **_retries(fields.get("max_retries")),
    )


def _target(fields: Mapping[str, Json]) -> Target:
    url = fields.get("url")
    return Target(
        parcel_id=_text("target.parcel_id", _as_text(fields.get("parcel_id"))),
        state=_text("target.state", _as_text(fields.get("state")), may_be_empty=True),
        county=_text("target.county", _as_text(fields.get("county")), may_be_empty=True),
        url="" if url is None else _text("target.url", url, max_chars=_MAX_URL_CHARS, may_be_empty=True),
        extra={name: value for name, value in fields.items() if name not in _TARGET_FIELDS},
    )


def _text(field: str, text: Json, *, max_chars: int = _MAX_NAME_CHARS, may_be_empty: bool = False) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{field} is missing" if text is None else f"{field} is not text")
    if len(text) > max_chars:
        raise InvalidInput(f"{field} has {len(text):,} characters; at most {max_chars:,} are allowed")
    if not text.strip() and (text or not may_be_empty):
        raise InvalidInput(f"{field} is empty")
    if any(char < " " or char == "\x7f" for char in text):
        raise InvalidInput(f"{field} contains control characters")
    return text


def _as_text(value: Json) -> Json:
    """Converts a number to text; a whole number loses its `.0`."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _priority(value: Json) -> Priority:
    """An invalid priority counts as normal, because a leased task that is not accepted is lost upstream."""
    return _PRIORITIES.get(value, Priority.NORMAL) if type(value) is int else Priority.NORMAL


def _retries(value: Json) -> Mapping[str, Any]:
    return {"max_retries": value} if type(value) is int and 0 <= value <= _MAX_RETRIES else {}


def _moment(value: Json) -> datetime | None:
    """Returns an RFC 3339 time with a zone, in UTC."""
    try:
        moment = msgspec.convert(value, datetime)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def task_id_of(piece: Piece) -> str:
    """Returns the id of an invalid task, '' if it has none."""
    try:
        task_id = member(members(piece), "task_id")
    except Unavailable:
        return ""
    return one_line(str(task_id))[:_MAX_NAME_CHARS] if isinstance(task_id, str | int) else ""


# POST /results


def results_body(entries: Sequence[OutboxEntry], now: datetime) -> bytes:
    """Returns a JSON array in the given order. Raises InvalidInput for an entry without a record."""
    return _encode([_parcel_result(entry, now) for entry in entries])


def _parcel_result(entry: OutboxEntry, now: datetime) -> ParcelResult:
    if entry.data is None:
        raise InvalidInput(f"the entry of task {entry.task_id} has no record to send")
    return ParcelResult(
        task_id=entry.task_id,
        parcel_id=entry.parcel_id,
        platform=entry.platform,
        state=entry.state,
        county=entry.county,
        data=Raw(entry.data),
        scraped_at=entry.scraped_at,
        parse_duration_ms=entry.execution_time_ms,
        raw_html_hash=entry.raw_sha256,
        idempotency_key=entry.idempotency_key,
        raw_file=raw_file_name(entry) if entry.html_path else None,
        late=entry.lease_expires_at is not None and now > entry.lease_expires_at,
        multi_record=entry.multi_record,
    )


def read_results(body: bytes, task_ids: Collection[str], hide: Callable[[str], str] = str) -> Submitted:
    """Returns the outcome of the batch of these tasks. Raises Unavailable for the answer to another batch.

    `hide` removes secrets from the gateway's messages.
    """
    answer = members(body)
    inserted, updated, failed = (_count(answer, name) for name in ("inserted", "updated", "failed"))
    if inserted + updated + failed > len(task_ids):
        raise Unavailable(f"it reports {inserted + updated + failed:,} entries; {len(task_ids):,} were sent")
    errors = member(answer, "errors")
    return Submitted(
        stored=inserted + updated,
        failed=failed,
        errors=[_message(error, hide) for error in errors[:_MAX_ERRORS]] if isinstance(errors, list) else [],
        receipts=_receipts(answer, frozenset(task_ids), hide),
    )


def _count(answer: Mapping[str, Piece], name: str) -> int:
    count = member(answer, name)
    if type(count) is not int or count < 0:
        raise Unavailable(f"it does not say how many were {name}")
    return count


def _receipts(
    answer: Mapping[str, Piece], task_ids: frozenset[str], hide: Callable[[str], str]
) -> Mapping[str, Receipt]:
    """Returns the valid receipts. If two contradict each other, neither counts.

    Raises Unavailable if all are for other tasks: then the counts are those of another batch, too.
    """
    receipts: dict[str, Receipt] = {}
    other = ""
    contradicted: set[str] = set()
    pieces = elements(answer["receipts"]) if "receipts" in answer else ()
    for piece in (pieces or ())[: 2 * len(task_ids)]:
        try:
            receipt = msgspec.convert(value(piece), Receipt)
        except ValueError:
            continue
        task_id = receipt.task_id
        if task_id not in task_ids:
            other = task_id
            continue
        if task_id in receipts and receipts[task_id].is_stored is not receipt.is_stored:
            contradicted.add(task_id)
        receipts[task_id] = replace(receipt, error=_message(receipt.error, hide))
    if other and not receipts:
        raise Unavailable(f"it is for a different batch, with the task {_message(other, hide)}")
    return {task_id: receipt for task_id, receipt in receipts.items() if task_id not in contradicted}


def _message(value: Json, hide: Callable[[str], str]) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return hide(one_line(text))[:_MAX_ENTRY_ERROR_CHARS]


# POST /raw-files and /artifacts


def read_raw_file(body: bytes, sha256: str | None) -> None:
    """Raises Unavailable unless the answer says that the file was stored."""
    answer = members(body)
    status = member(answer, "status")
    if status != "ok":
        raise Unavailable("it says that the file was not stored" if status == "error" else "it does not say 'ok'")
    _check_about(member(answer, "sha256"), sha256)


# POST /tasks/{task_id}/fail and /complete


def end_body(entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> bytes:
    """Returns the body for /fail or /complete; empty for a completed task."""
    error = (entry.error_text or "")[:_MAX_TASK_ERROR_CHARS]
    match entry.status:
        case TaskStatus.FAILED:
            return _encode(Failure(error=error, attempts=entry.attempts, artifacts=tuple(artifacts)))
        case TaskStatus.EXPIRED:
            return _encode(Completion(expired=True, error=error))
        case TaskStatus.NOT_FOUND:
            return _encode(Completion(not_found=True, error=error))
        case _:
            return b""


def read_end(body: bytes, task_id: str) -> Sequence[ArtifactKind]:
    """Returns the artifacts that the gateway wants. Raises Unavailable unless it recorded the end.

    An unknown task is not an error.
    """
    answer = members(body)
    status = member(answer, "status")
    if not isinstance(member(answer, "success"), bool) and (not isinstance(status, str) or status == "error"):
        raise Unavailable("it does not confirm that the outcome was recorded")
    _check_about(member(answer, "task_id"), task_id)
    wanted = member(answer, "wanted_artifacts")
    return [kind for kind in ARTIFACT_KINDS if kind in wanted] if isinstance(wanted, list) else []


def _check_about(told: object, expected: str | None) -> None:
    """Not every gateway tells what its answer is about."""
    if told not in (None, expected):
        raise Unavailable("it answers another request")


# POST /heartbeat


def heartbeat_body(beat: Heartbeat) -> bytes:
    """Sends NaN as 0, because JSON has no NaN."""
    return _encode(
        replace(
            beat,
            cpu_percent=_finite(beat.cpu_percent),
            memory_percent=_finite(beat.memory_percent),
            blocked=beat.blocked[:MAX_PAUSED_SITES],
            broken=beat.broken[:MAX_BROKEN],
        )
    )


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0


def read_heartbeat_reply(body: bytes) -> HeartbeatReply:
    answer = members(body)
    if "acknowledged" not in answer and "commands" not in answer:
        raise Unavailable("it does not acknowledge the heartbeat")
    pieces = elements(answer["commands"]) if "commands" in answer else ()
    until, since = (_moment(member(answer, name)) for name in ("lease_expires_at", "leases_since"))
    return HeartbeatReply(
        commands=valid_commands(map(value, pieces or ())),
        lease_expires_at=until if since else None,
        leases_since=since if until else None,
    )


def valid_commands(values: Iterable[Json]) -> list[str]:
    """Returns the valid commands: printable text that is not too long."""
    commands = [command for command in values if isinstance(command, str) and command.isprintable()]
    return [command for command in commands if 0 < len(command) <= MAX_COMMAND_CHARS][:_MAX_COMMANDS]


# The optional parts


def metrics_body(samples: Sequence[MetricsSample]) -> bytes:
    """Returns a JSON array."""
    return _encode(list(map(sample_fields, samples)))


def sample_fields(sample: MetricsSample) -> dict[str, Json]:
    """Returns a sample's timestamp and values as one object."""
    return {"timestamp": iso(sample.at), **sample.values}


def read_selectors(body: bytes, platform: str) -> Sequence[RankedSelector]:
    """Returns the platform's valid selectors in the given order, at most ten thousand."""
    answer = members(body)
    if "selectors" not in answer:
        raise Unavailable("it has no selectors")
    pieces = elements(answer["selectors"]) or ()
    selectors = (_selector(value(piece), platform) for piece in pieces[:_MAX_SELECTORS])
    return [selector for selector in selectors if selector]


def _selector(fields: Json, platform: str) -> RankedSelector | None:
    try:
        selector = msgspec.convert(fields, RankedSelector)
    except ValueError:
        return None
    texts = (selector.field, selector.selector, selector.selector_type)
    if not all(text and len(text) <= _MAX_SELECTOR_CHARS and "\0" not in text for text in texts):
        return None
    is_valid = selector.platform == platform and 0 <= selector.success_rate <= 1 and 0 <= selector.samples < 2**53
    return selector if is_valid else None
