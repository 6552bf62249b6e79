"""The gateway's side of the protocol: reads and validates what workers and operators send, within bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Broken, Json, PausedSite, Signal, Task
from parcelpost.places import normalized
from parcelpost.protocol.client import MAX_BROKEN, MAX_PAUSED_SITES, read_task, task_id_of
from parcelpost.protocol.payloads import (
    QUEUE_COUNTS,
    ArtifactMetadata,
    Completion,
    Failure,
    Heartbeat,
    MetricsSample,
    Moment,
    ParcelResult,
    Piece,
    RawMetadata,
    elements,
    member,
    members,
    one_line,
    value,
)

MAX_RESULTS = 1_000
"""Limit per batch."""

MAX_NAME_BYTES = 500
"""Limit for an ID, a platform, and each part of a parcel's key."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that none of them may contain."""

_MAX_DATA_BYTES = 16 * 1024 * 1024
_MAX_PROBLEM_CHARS = 300
_MAX_ECHOED_CHARS = 4_096
_SURELY_SHORT = 125
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


class ReadResult(Struct, frozen=True):
    """A valid entry with its decoded data."""

    sent: ParcelResult
    record: dict[str, Json]


class BadEntry(Struct, frozen=True, kw_only=True):
    """An invalid entry. The others of its batch are still stored."""

    task_id: str
    """The ID as sent; '' if it cannot be read."""
    parcel_id: str
    platform: str
    """Platform of the entry; '' if it is not a valid name."""
    problem: str


_batch = msgspec.json.Decoder(list[ParcelResult]).decode
_entry = msgspec.json.Decoder(ParcelResult).decode
_record = msgspec.json.Decoder(dict[str, Any]).decode


def read_batch(body: bytes) -> Iterator[ReadResult | BadEntry]:
    """Yields the entries of a batch in order. Raises InvalidInput if it is not an array or is too long.

    Records are decoded lazily, because a hundred of them at once keep the garbage collector busy.
    """
    try:
        entries = _batch(body)
    except (ValueError, RecursionError):
        return _one_by_one(body)
    _check_length(len(entries))
    return map(_checked, entries)


def _one_by_one(body: bytes) -> Iterator[ReadResult | BadEntry]:
    pieces = elements(body)
    if pieces is None:
        raise InvalidInput("the body is not a JSON array of results")
    _check_length(len(pieces))
    return map(_read_alone, pieces)


def _read_alone(piece: Piece) -> ReadResult | BadEntry:
    try:
        return _checked(_entry(piece))
    except (ValueError, RecursionError) as error:
        task_id, parcel_id, platform = (_field(piece, name) for name in ("task_id", "parcel_id", "platform"))
        return _bad(task_id, parcel_id, platform, _message(error))


def _bad(task_id: str, parcel_id: str, platform: str, problem: str) -> BadEntry:
    is_name = platform.isprintable() and len(platform.encode()) <= MAX_NAME_BYTES
    return BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform if is_name else "", problem=problem)


def _check_length(length: int) -> None:
    if length > MAX_RESULTS:
        raise InvalidInput(f"the batch contains {length:,} results; at most {MAX_RESULTS:,} are allowed")


def _checked(entry: ParcelResult) -> ReadResult | BadEntry:
    """Decodes all data, so that no later reader fails on it."""
    problem = _problem(entry)
    if not problem:
        try:
            return ReadResult(entry, _record(entry.data))
        except (ValueError, RecursionError) as error:
            problem = f"data: {_message(error)}"
    return _bad(entry.task_id, entry.parcel_id, entry.platform, problem)


def _problem(entry: ParcelResult) -> str:
    names = (entry.task_id, entry.parcel_id, entry.platform)
    if not all(map(str.strip, names)):
        return "task_id, parcel_id or platform is blank"
    text = "".join((*names, entry.state, entry.county, entry.idempotency_key or "", entry.raw_file or ""))
    if not text.isprintable() and CONTROL.search(text):
        return "a field contains control characters"
    if len(text) > _SURELY_SHORT and not _fits_index(entry):
        return "its key fields are too long for an index"
    if entry.scraped_at < _EARLIEST:
        return "scraped_at is before 1970"
    if entry.raw_html_hash and not _SHA256.fullmatch(entry.raw_html_hash):
        return "raw_html_hash is not a SHA-256 in hex"
    data = memoryview(entry.data)
    if bytes(data[:1]) != b"{":
        return "data is not an object"
    if len(data) > _MAX_DATA_BYTES:
        return f"data has {len(data):,} bytes; at most {_MAX_DATA_BYTES:,} are allowed"
    return ""


def _fits_index(entry: ParcelResult) -> bool:
    """Whether its names fit into a database index; a character may take four bytes."""
    names = (entry.task_id, entry.platform, entry.state, entry.county, entry.parcel_id)
    return all(len(name.encode()) <= MAX_NAME_BYTES for name in names)


def _field(piece: Piece, name: str) -> str:
    try:
        text = member(members(piece), name)
    except Unavailable:
        return ""
    return text[:_MAX_ECHOED_CHARS] if isinstance(text, str) else ""


def _message(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return one_line(str(error))[:_MAX_PROBLEM_CHARS]


T = TypeVar("T")

MAX_SIGNALS = 10_000
MAX_SAMPLES = 10_000

_MAX_PLATFORMS = 500
_MAX_NAMES_CHARS = 4_096
_MAX_BROKEN_CHARS = 12_288
_MAX_PAUSED_CHARS = 12_288
"""A heartbeat is stored and is part of every overview, so it must not be large."""
_MAX_NAME_CHARS = 512
_MAX_TEXT_CHARS = 4_000
_MAX_COUNT = 2**53
_MAX_VALUES = 50
_MAX_SELECTORS = 20
_MAX_SELECTOR_CHARS = 600
_LATEST_SAMPLE_FROM_NOW = timedelta(days=1)
_SELECTOR_TYPES = {"css", "xpath", "label", "jsonpath"}
_PAGE_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def read_heartbeat(body: bytes) -> Heartbeat:
    """Reads invalid fields as 0, '' or empty. Raises InvalidInput if the body is not a JSON object."""
    try:
        fields = members(body)
    except Unavailable:
        raise InvalidInput("a heartbeat is a JSON object") from None
    queue = member(fields, "queue")
    return Heartbeat(
        active_tasks=_count(member(fields, "active_tasks")),
        completed_last_minute=_count(member(fields, "completed_last_minute")),
        failed_last_minute=_count(member(fields, "failed_last_minute")),
        platforms=_names(member(fields, "platforms")),
        cpu_percent=_number(member(fields, "cpu_percent")),
        memory_percent=_number(member(fields, "memory_percent")),
        queue={name: _count(queue.get(name)) for name in QUEUE_COUNTS} if isinstance(queue, dict) else None,
        oldest_unsynced_seconds=_number(member(fields, "oldest_unsynced_seconds")),
        version=_text(member(fields, "version"), 200),
        paused=member(fields, "paused") is True,
        disk_free_bytes=_count(member(fields, "disk_free_bytes")),
        blocked=_paused_sites(member(fields, "blocked")),
        broken=_all_broken(member(fields, "broken")),
        leaving=member(fields, "leaving") is True,
    )


def read_failure(body: bytes) -> Failure:
    """Reads any body, even an empty one: that a task failed matters more than why."""
    failure = _decoded(body, Failure) or Failure()
    return replace(failure, error=_text(failure.error, _MAX_TEXT_CHARS) or "the worker gave no reason")


def read_completion(body: bytes) -> Completion:
    """Reads any body, even an empty one: without a flag, the task is done."""
    completion = _decoded(body, Completion) or Completion()
    return replace(completion, error=_text(completion.error, _MAX_TEXT_CHARS))


def _decoded(body: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        return None


def read_signals(body: bytes) -> tuple[Sequence[Signal], int]:
    """Returns the valid signals, and how many are invalid."""
    pieces = _array(body, "signals", MAX_SIGNALS)
    signals = [signal for piece in pieces if (signal := _signal(piece))]
    return signals, len(pieces) - len(signals)


def read_samples(body: bytes, now: datetime) -> tuple[Sequence[MetricsSample], int]:
    """Returns the valid samples, and how many are invalid."""
    pieces = _array(body, "samples", MAX_SAMPLES)
    samples = [sample for piece in pieces if (sample := _sample(value(piece), now + _LATEST_SAMPLE_FROM_NOW))]
    return samples, len(pieces) - len(samples)


def read_raw_metadata(text: str) -> RawMetadata:
    """Raises InvalidInput naming the bad field."""
    try:
        metadata = msgspec.json.decode(text, type=RawMetadata)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata: {one_line(str(error))[:300]}") from None
    if not _PAGE_SHA256.fullmatch(metadata.sha256):
        raise InvalidInput("metadata: sha256 is not a SHA-256 in lower-case hex")
    if metadata.content_encoding not in {None, "", "identity", "gzip"}:
        raise InvalidInput("metadata: content_encoding is neither gzip nor identity")
    return metadata


def read_artifact_metadata(text: str) -> ArtifactMetadata:
    """Raises InvalidInput naming the bad field."""
    try:
        metadata = msgspec.json.decode(text, type=ArtifactMetadata)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata: {one_line(str(error))[:300]}") from None
    if not _PAGE_SHA256.fullmatch(metadata.sha256):
        raise InvalidInput("metadata: sha256 is not a SHA-256 in lower-case hex")
    return metadata


def _array(body: bytes, name: str, limit: int) -> Sequence[Piece]:
    pieces = elements(body)
    if pieces is None:
        raise InvalidInput(f"the body is not a JSON array of {name}")
    if len(pieces) > limit:
        raise InvalidInput(f"the body contains {len(pieces):,} {name}; at most {limit:,} are allowed")
    return pieces


def _signal(piece: Piece) -> Signal | None:
    signal = _decoded(bytes(piece), Signal)
    if signal is None or signal.selector_type not in _SELECTOR_TYPES:
        return None
    if not all(_is_name(text, _MAX_TEXT_CHARS) for text in (signal.platform, signal.field, signal.selector)):
        return None
    return replace(
        signal,
        task_id=_text(signal.task_id, _MAX_NAME_CHARS) or None,
        context=_text(signal.context, _MAX_TEXT_CHARS) or None,
        error_message=_text(signal.error_message, _MAX_TEXT_CHARS) or None,
        execution_time_ms=None if signal.execution_time_ms is None else _count(signal.execution_time_ms, 2**31),
    )


def _sample(fields: Json, latest: datetime) -> MetricsSample | None:
    if not isinstance(fields, dict):
        return None
    try:
        at = msgspec.convert(fields.pop("timestamp", None), Moment).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    values = {name: number for name, number in fields.items() if _is_name(name, 64) and _is_measure(number)}
    return MetricsSample(at=at, values=values) if at <= latest and len(values) <= _MAX_VALUES else None


def _is_measure(value: Json) -> bool:
    if isinstance(value, bool):
        return False
    return value is None or (isinstance(value, int | float) and abs(value) <= _MAX_COUNT and math.isfinite(value))


def _is_name(text: str, max_chars: int) -> bool:
    return 0 < len(text) <= max_chars and not CONTROL.search(text)


def _count(value: Json, limit: int = _MAX_COUNT) -> int:
    return value if type(value) is int and 0 <= value < limit else 0


def _number(value: Json) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _MAX_COUNT else 0.0


def _names(value: Json) -> tuple[str, ...]:
    items = value[:_MAX_PLATFORMS] if isinstance(value, list) else ()
    names = [name for name in items if isinstance(name, str) and _is_name(name, _MAX_NAME_CHARS)]
    return tuple(_first(names, _MAX_NAMES_CHARS))


def _paused_sites(value: Json) -> tuple[PausedSite, ...]:
    items = value[:MAX_PAUSED_SITES] if isinstance(value, list) else ()
    return tuple(_first([site for item in items if (site := _paused_site(item))], _MAX_PAUSED_CHARS))


def _paused_site(fields: Json) -> PausedSite | None:
    try:
        site = msgspec.convert(fields, PausedSite)
    except (ValueError, RecursionError):
        return None
    is_valid = _is_name(site.platform, _MAX_NAME_CHARS) and _are_places(site.state, site.county)
    return site if is_valid else None


def _are_places(*places: str) -> bool:
    return not any(len(place) > _MAX_NAME_CHARS or CONTROL.search(place) for place in places)


def _all_broken(value: Json) -> tuple[Broken, ...]:
    items = value[:MAX_BROKEN] if isinstance(value, list) else ()
    return tuple(_first([broken for item in items if (broken := _broken(item))], _MAX_BROKEN_CHARS))


def _first(items: Sequence[T], max_chars: int) -> Iterator[T]:
    """Yields items until their JSON would exceed `max_chars`."""
    for item in items:
        max_chars -= len(msgspec.json.encode(item))
        if max_chars < 0:
            return
        yield item


def _broken(fields: Json) -> Broken | None:
    try:
        broken = msgspec.convert(fields, Broken)
    except (ValueError, RecursionError):
        return None
    if not all(_is_name(name, _MAX_NAME_CHARS) for name in (broken.platform, broken.field)):
        return None
    if not _are_places(broken.state, broken.county):
        return None
    failing = (_text(selector, _MAX_SELECTOR_CHARS) for selector in broken.failing[:_MAX_SELECTORS])
    return replace(
        broken,
        failing=tuple(filter(None, failing)),
        example=_text(broken.example, _MAX_NAME_CHARS),
        same_value=_text(broken.same_value, _MAX_NAME_CHARS),
        success_rate=min(_number(broken.success_rate), 1.0),
        used_to=min(_number(broken.used_to), 1.0),
        since=broken.since if broken.since is not None and broken.since.tzinfo is not None else None,
    )


def _text(value: Json, max_chars: int) -> str:
    return one_line(value)[:max_chars] if isinstance(value, str) else ""


class NewTask(Struct, frozen=True, kw_only=True):
    """A task to queue. Numbers may also be sent as text; unknown fields are ignored."""

    task_id: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
    platform: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
    target: Mapping[str, Json]
    type: str = "scrape"
    priority: Annotated[int, Meta(ge=1, le=4)] = 3
    max_retries: Annotated[int, Meta(ge=0, le=1_000)] = 3


class BadNewTask(Struct, frozen=True, kw_only=True):
    position: int
    """Starting with 1."""
    task_id: str
    problem: str


class NewTasks(Struct, frozen=True, kw_only=True):
    tasks: Sequence[tuple[int, Task]]
    """Tasks with their positions."""
    bad: Sequence[BadNewTask]


def read_new_tasks(body: bytes, limit: int) -> NewTasks:
    """Returns every valid task of a JSON array or of JSON lines, even if others are invalid.

    Raises InvalidInput for a body that is neither, or contains more than `limit` tasks.
    """
    pieces = elements(body) if body.lstrip()[:1] == b"[" else list(islice(_lines(body), limit + 1))
    if pieces is None:
        raise InvalidInput("the body is not a JSON array, or is incomplete")
    if len(pieces) > limit:
        raise InvalidInput(f"the body contains more than {limit:,} tasks, the limit for one request")
    tasks: list[tuple[int, Task]] = []
    bad: list[BadNewTask] = []
    for position, piece in enumerate(pieces, 1):
        try:
            tasks.append((position, _new_task(piece)))
        except InvalidInput as error:
            bad.append(BadNewTask(position=position, task_id=task_id_of(piece), problem=str(error)))
    return NewTasks(tasks=tasks, bad=bad)


def _lines(body: bytes) -> Iterator[bytes]:
    return (line for line in BytesIO(body) if line.strip())


def _new_task(piece: Piece) -> Task:
    """A gateway refuses invalid optional values; a worker, which would lose the task, uses defaults."""
    task = read_task(piece)
    task = replace(task, target=normalized(task.target))
    fields = value(piece)
    for name, number in (("priority", int(task.priority)), ("max_retries", task.max_retries)):
        sent = fields.get(name)
        if sent is not None and (type(sent) is not int or sent != number):
            raise InvalidInput(f"{name} is out of range or not a whole number")
    check_deliverable(task)
    return task


def check_deliverable(task: Task) -> None:
    """Raises InvalidInput for a task whose names `read_batch` would refuse in its result."""
    target = task.target
    names = {
        "task_id": task.task_id,
        "platform": task.platform,
        "state": target.state,
        "county": target.county,
        "parcel_id": target.parcel_id,
    }
    for field, name in names.items():
        size = len(name.encode(errors="surrogatepass"))
        if size > MAX_NAME_BYTES:
            raise InvalidInput(f"{field} has {size:,} bytes; at most {MAX_NAME_BYTES} are allowed")
        if CONTROL.search(name):
            raise InvalidInput(f"{field} contains control characters")
