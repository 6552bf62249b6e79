"""The gateway's side: reads what workers and operators send, within bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Broken, Json, Signal, Task
from parcelpost.places import normalized
from parcelpost.protocol.client import MOST_BROKEN, name_of, read_task
from parcelpost.protocol.payloads import Piece, elements, member, members, one_line, value

MOST_RESULTS = 1_000
"""No worker sends more in one batch."""

MOST_NAME_BYTES = 500
"""Of an id, a platform, and each part of a parcel's key."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""What none of them may hold."""

_MOST_DATA_BYTES = 16 * 1024 * 1024
_MOST_PROBLEM_CHARS = 300
_MOST_ECHOED_CHARS = 4_096
_SURELY_SHORT = 125
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_FROM_NOW = timedelta(days=1)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)

Name = Annotated[str, Meta(min_length=1, max_length=500)]
Place = Annotated[str, Meta(max_length=500)]
Key = Annotated[str, Meta(max_length=1_024)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Moment = Annotated[datetime, Meta(tz=True)]


class SentResult(Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a batch."""

    task_id: Name
    parcel_id: Name
    platform: Name
    state: Place
    county: Place
    data: Raw
    """A JSON object."""
    scraped_at: Moment
    parse_duration_ms: Milliseconds
    raw_html_hash: str | None = None
    idempotency_key: Key | None = None
    raw_file: Key | None = None
    late: bool | None = False
    listed: bool | None = None


class ReadResult(Struct, frozen=True):
    """An entry found whole, and what its data says."""

    sent: SentResult
    record: dict[str, Json]


class BadEntry(Struct, frozen=True, kw_only=True):
    """An entry that is none; its neighbours do not suffer."""

    task_id: str
    """As sent; '' where even that cannot be told."""
    parcel_id: str
    platform: str
    """'' where it names none that can be one."""
    problem: str


_batch = msgspec.json.Decoder(list[SentResult]).decode
_entry = msgspec.json.Decoder(SentResult).decode
_record = msgspec.json.Decoder(dict[str, Any]).decode


def read_batch(body: bytes, now: datetime) -> Iterator[ReadResult | BadEntry]:
    """A batch of results, entry by entry, in order. Raises InvalidInput for what is no array, or too long a one.

    Records are read as they are asked for: a hundred of them at once keep the garbage collector busy.
    """
    try:
        found = _batch(body)
    except (ValueError, RecursionError):
        return _one_by_one(body, now)
    _check_length(len(found))
    latest = now + _LATEST_FROM_NOW
    return (_checked(entry, latest) for entry in found)


def _one_by_one(body: bytes, now: datetime) -> Iterator[ReadResult | BadEntry]:
    pieces = elements(body)
    if pieces is None:
        raise InvalidInput("the body is not a JSON array of results")
    _check_length(len(pieces))
    latest = now + _LATEST_FROM_NOW
    return (_read_alone(piece, latest) for piece in pieces)


def _read_alone(piece: Piece, latest: datetime) -> ReadResult | BadEntry:
    try:
        return _checked(_entry(piece), latest)
    except (ValueError, RecursionError) as error:
        task_id, parcel_id, platform = (_told(piece, name) for name in ("task_id", "parcel_id", "platform"))
        return _bad(task_id, parcel_id, platform, _said(error))


def _bad(task_id: str, parcel_id: str, platform: str, problem: str) -> BadEntry:
    is_name = platform.isprintable() and len(platform.encode()) <= MOST_NAME_BYTES
    return BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform if is_name else "", problem=problem)


def _check_length(length: int) -> None:
    if length > MOST_RESULTS:
        raise InvalidInput(f"the batch holds {length:,} results; at most {MOST_RESULTS:,} are taken")


def _checked(entry: SentResult, latest: datetime) -> ReadResult | BadEntry:
    """All of the data is read: a value that was skipped was not looked at, and a later reader would stumble over it."""
    problem = _problem(entry, latest)
    if not problem:
        try:
            return ReadResult(entry, _record(entry.data))
        except (ValueError, RecursionError) as error:
            problem = f"data: {_said(error)}"
    return _bad(entry.task_id, entry.parcel_id, entry.platform, problem)


def _problem(entry: SentResult, latest: datetime) -> str:
    names = (entry.task_id, entry.parcel_id, entry.platform)
    if not all(map(str.strip, names)):
        return "task_id, parcel_id or platform is blank"
    text = "".join((*names, entry.state, entry.county, entry.idempotency_key or "", entry.raw_file or ""))
    if not text.isprintable() and CONTROL.search(text):
        return "a name holds control characters"
    if len(text) > _SURELY_SHORT and not _fits(entry):
        return "its names are too long for an index"
    if entry.scraped_at > latest:
        return "scraped_at is more than a day in the future; is the worker's clock right?"
    if entry.scraped_at < _EARLIEST:
        return "scraped_at is before 1970"
    if entry.raw_html_hash and not _SHA256.fullmatch(entry.raw_html_hash):
        return "raw_html_hash is not a SHA-256 in hex"
    data = memoryview(entry.data)
    if bytes(data[:1]) != b"{":
        return "data is not an object"
    if len(data) > _MOST_DATA_BYTES:
        return f"data has {len(data):,} bytes; at most {_MOST_DATA_BYTES:,} are taken"
    return ""


def _fits(entry: SentResult) -> bool:
    """What a database's index can hold; a letter may take four bytes."""
    names = (entry.task_id, entry.platform, entry.state, entry.county, entry.parcel_id)
    return all(len(name.encode()) <= MOST_NAME_BYTES for name in names)


def _told(piece: Piece, name: str) -> str:
    try:
        given = member(members(piece), name)
    except Unavailable:
        return ""
    return given[:_MOST_ECHOED_CHARS] if isinstance(given, str) else ""


def _said(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return one_line(str(error))[:_MOST_PROBLEM_CHARS]


T = TypeVar("T")

MOST_SIGNALS = 10_000
MOST_SAMPLES = 10_000

_MOST_PLATFORMS = 500
_MOST_NAMES_CHARS = 4_096
_MOST_BROKEN_CHARS = 12_288
"""A beat is kept, and is part of every overview: it may not be large, however many names it holds."""
_MOST_NAME_CHARS = 512
_MOST_TEXT_CHARS = 4_000
_MOST_COUNT = 2**53
_MOST_FIGURES = 50
_MOST_WAYS = 20
_MOST_WAY_CHARS = 600
_LATEST_SAMPLE_FROM_NOW = timedelta(days=1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SELECTOR_TYPES = {"css", "xpath", "label", "jsonpath"}
_QUEUE = ("pending", "processing", "completed", "failed", "expired", "unsynced", "rejected")
_PAGE_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class SentHeartbeat(Struct, frozen=True, kw_only=True):
    """What a worker did not say, or said in a way that makes no sense, is 0, '' or empty; `queue` is then None."""

    active_tasks: int
    completed_last_minute: int
    failed_last_minute: int
    platforms: tuple[str, ...]
    cpu_percent: float
    memory_percent: float
    queue: Mapping[str, int] | None
    oldest_unsynced_seconds: float
    version: str
    paused: bool
    disk_free_bytes: int
    blocked: tuple[str, ...]
    broken: tuple[Broken, ...]
    leaving: bool


class SentEnd(Struct, frozen=True):
    error: str
    permanent: bool
    not_found: bool = False
    """The site has no such parcel; `error` is what it said."""


class SentSample(Struct, frozen=True):
    at: datetime
    figures: Mapping[str, float | int | None]


class RawMetadata(Struct, frozen=True, kw_only=True):
    """What is told about a raw file. `sha256` is that of the page, unpacked where `content_encoding` is gzip."""

    task_id: Name
    parcel_id: Name
    platform: Name
    state: Place
    county: Place
    sha256: str
    content_type: Name
    scraped_at: Moment
    content_encoding: str | None = None


def read_heartbeat(body: bytes) -> SentHeartbeat:
    """Raises InvalidInput for what is no JSON object."""
    found = _object(body, "a heartbeat")
    queue = member(found, "queue")
    return SentHeartbeat(
        active_tasks=_count(member(found, "active_tasks")),
        completed_last_minute=_count(member(found, "completed_last_minute")),
        failed_last_minute=_count(member(found, "failed_last_minute")),
        platforms=_names(member(found, "platforms")),
        cpu_percent=_figure(member(found, "cpu_percent")),
        memory_percent=_figure(member(found, "memory_percent")),
        queue={name: _count(queue.get(name)) for name in _QUEUE} if isinstance(queue, dict) else None,
        oldest_unsynced_seconds=_figure(member(found, "oldest_unsynced_seconds")),
        version=_text(member(found, "version"), 200),
        paused=member(found, "paused") is True,
        disk_free_bytes=_count(member(found, "disk_free_bytes")),
        blocked=_names(member(found, "blocked")),
        broken=_all_broken(member(found, "broken")),
        leaving=member(found, "leaving") is True,
    )


def read_failure(body: bytes) -> SentEnd:
    """Any body will do, none too: that a task failed matters more than why."""
    try:
        found = members(body)
    except Unavailable:
        found = {}
    error = _text(member(found, "error"), _MOST_TEXT_CHARS)
    return SentEnd(error or "the worker gave no reason", member(found, "permanent") is not False)


def read_completion(body: bytes) -> SentEnd | None:
    """None: it is done. Otherwise it is not found, or was never started, and another worker may do it."""
    try:
        found = members(body)
    except Unavailable:
        return None
    error = _text(member(found, "error"), _MOST_TEXT_CHARS)
    if member(found, "not_found") is True:
        return SentEnd(error, True, not_found=True)
    if member(found, "expired") is not True:
        return None
    return SentEnd(error or "it expired before it was started", False)


def read_signals(body: bytes) -> tuple[Sequence[Signal], int]:
    """Those that can be understood, and how many cannot."""
    pieces = _array(body, "signals", MOST_SIGNALS)
    found = [signal for piece in pieces if (signal := _signal(piece))]
    return found, len(pieces) - len(found)


def read_samples(body: bytes, now: datetime) -> tuple[Sequence[SentSample], int]:
    """Those that can be understood, and how many cannot."""
    pieces = _array(body, "samples", MOST_SAMPLES)
    found = [sample for piece in pieces if (sample := _sample(value(piece), now + _LATEST_SAMPLE_FROM_NOW))]
    return found, len(pieces) - len(found)


def read_raw_metadata(text: str) -> RawMetadata:
    """Raises InvalidInput that names the field at fault."""
    try:
        found = msgspec.json.decode(text, type=RawMetadata)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata: {one_line(str(error))[:300]}") from None
    if not _PAGE_SHA256.fullmatch(found.sha256):
        raise InvalidInput("metadata: sha256 is not a SHA-256 in lower-case hex")
    if found.content_encoding not in {None, "", "identity", "gzip"}:
        raise InvalidInput("metadata: content_encoding is neither gzip nor identity")
    return found


def _object(body: bytes, what: str) -> Mapping[str, Piece]:
    try:
        return members(body)
    except Unavailable:
        raise InvalidInput(f"{what} is a JSON object") from None


def _array(body: bytes, what: str, most: int) -> Sequence[Piece]:
    pieces = elements(body)
    if pieces is None:
        raise InvalidInput(f"the body is not a JSON array of {what}")
    if len(pieces) > most:
        raise InvalidInput(f"the body holds {len(pieces):,} {what}; at most {most:,} are taken")
    return pieces


def _signal(piece: Piece) -> Signal | None:
    try:
        found = msgspec.json.decode(piece, type=Signal)
    except (ValueError, RecursionError):
        return None
    needed = (found.platform, found.field, found.selector)
    if found.selector_type not in _SELECTOR_TYPES or not all(_is_name(text, _MOST_TEXT_CHARS) for text in needed):
        return None
    shortened: dict[str, Any] = {
        name: _text(getattr(found, name), _MOST_TEXT_CHARS) or None for name in ("context", "error_message")
    }
    shortened["task_id"] = _text(found.task_id, _MOST_NAME_CHARS) or None
    shortened["execution_time_ms"] = None if found.execution_time_ms is None else _count(found.execution_time_ms, 2**31)
    return msgspec.structs.replace(found, **shortened)


def _sample(given: Json, latest: datetime) -> SentSample | None:
    if not isinstance(given, dict):
        return None
    try:
        at = msgspec.convert(given.pop("timestamp", None), Moment).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    figures = {name: figure for name, figure in given.items() if _is_name(name, 64) and _is_figure(figure)}
    return SentSample(at, figures) if at <= latest and len(figures) <= _MOST_FIGURES else None


def _is_figure(given: Json) -> bool:
    if isinstance(given, bool):
        return False
    return given is None or (isinstance(given, int | float) and abs(given) <= _MOST_COUNT and math.isfinite(given))


def _is_name(text: str, most: int) -> bool:
    return 0 < len(text) <= most and not _CONTROL.search(text)


def _count(given: Json, most: int = _MOST_COUNT) -> int:
    return given if type(given) is int and 0 <= given < most else 0


def _figure(given: Json) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if is_number and 0 <= given <= _MOST_COUNT else 0.0


def _names(given: Json) -> tuple[str, ...]:
    listed = given[:_MOST_PLATFORMS] if isinstance(given, list) else ()
    names = [name for name in listed if isinstance(name, str) and _is_name(name, _MOST_NAME_CHARS)]
    return tuple(_first(names, _MOST_NAMES_CHARS))


def _all_broken(given: Json) -> tuple[Broken, ...]:
    listed = given[:MOST_BROKEN] if isinstance(given, list) else ()
    return tuple(_first([one for entry in listed if (one := _broken(entry))], _MOST_BROKEN_CHARS))


def _first(items: Sequence[T], most: int) -> Iterator[T]:
    """As many as make that many characters of JSON."""
    for item in items:
        most -= len(msgspec.json.encode(item))
        if most < 0:
            return
        yield item


def _broken(given: Json) -> Broken | None:
    try:
        found = msgspec.convert(given, Broken)
    except (ValueError, RecursionError):
        return None
    places = (found.state, found.county)
    if not all(_is_name(name, _MOST_NAME_CHARS) for name in (found.platform, found.field)):
        return None
    if any(len(place) > _MOST_NAME_CHARS or _CONTROL.search(place) for place in places):
        return None
    ways = tuple(_text(way, _MOST_WAY_CHARS) for way in found.failing[:_MOST_WAYS])
    moment = found.since if found.since is not None and found.since.tzinfo is not None else None
    return msgspec.structs.replace(
        found,
        failing=tuple(filter(None, ways)),
        example=_text(found.example, _MOST_NAME_CHARS),
        success_rate=min(_figure(found.success_rate), 1.0),
        used_to=min(_figure(found.used_to), 1.0),
        since=moment,
    )


def _text(given: Json, most: int) -> str:
    return one_line(given)[:most] if isinstance(given, str) else ""


class TaskOrder(Struct, frozen=True, kw_only=True):
    """For documents: `read_orders` takes numbers for texts, too, and ignores what it does not know."""

    task_id: Annotated[str, Meta(min_length=1, max_length=MOST_NAME_BYTES)]
    platform: Annotated[str, Meta(min_length=1, max_length=MOST_NAME_BYTES)]
    target: Mapping[str, Json]
    type: str = "scrape"
    priority: Annotated[int, Meta(ge=1, le=4)] = 3
    max_retries: Annotated[int, Meta(ge=0, le=1_000)] = 3


class BadOrder(Struct, frozen=True, kw_only=True):
    position: int
    """1 for the first."""
    task_id: str
    problem: str


class Orders(Struct, frozen=True, kw_only=True):
    tasks: Sequence[tuple[int, Task]]
    """Each with its position."""
    bad: Sequence[BadOrder]


def read_orders(body: bytes, most: int) -> Orders:
    """Every good task of a JSON array, or of lines of JSON, whatever stands beside it.

    Raises InvalidInput for what is neither, or more than that many.
    """
    pieces = elements(body) if body.lstrip()[:1] == b"[" else list(islice(_lines(body), most + 1))
    if pieces is None:
        raise InvalidInput("the body is no JSON array, or cut off")
    if len(pieces) > most:
        raise InvalidInput(f"the body holds more than {most:,} tasks, which is what is taken at once")
    tasks: list[tuple[int, Task]] = []
    bad: list[BadOrder] = []
    for position, piece in enumerate(pieces, 1):
        try:
            tasks.append((position, _order(piece)))
        except InvalidInput as error:
            bad.append(BadOrder(position=position, task_id=name_of(piece), problem=str(error)))
    return Orders(tasks=tasks, bad=bad)


def _lines(body: bytes) -> Iterator[bytes]:
    return (line for line in BytesIO(body) if line.strip())


def _order(piece: Piece) -> Task:
    """Unlike a worker, which would lose the task, a gateway refuses what it would have to guess."""
    task = read_task(piece)
    task = structs.replace(task, target=normalized(task.target))
    given = value(piece)
    for name, taken in (("priority", int(task.priority)), ("max_retries", task.max_retries)):
        wish = given.get(name)
        if wish is not None and (type(wish) is not int or wish != taken):
            raise InvalidInput(f"{name} is out of range or no whole number")
    check_deliverable(task)
    return task


def check_deliverable(task: Task) -> None:
    """Raises InvalidInput for a task whose result `read_batch` would refuse for its names."""
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
        if size > MOST_NAME_BYTES:
            raise InvalidInput(f"{field} has {size:,} bytes; at most {MOST_NAME_BYTES} are taken")
        if CONTROL.search(name):
            raise InvalidInput(f"{field} holds control characters")
