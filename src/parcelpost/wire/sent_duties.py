"""What workers send beside results, read at the gateway: heartbeats, ends, signals, figures, a raw file's metadata."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidInput, NotNow
from parcelpost.model import Broken, Json, Signal
from parcelpost.wire.duties import MOST_BROKEN
from parcelpost.wire.reading import Piece, elements, member, members, one_line, value
from parcelpost.wire.requests import Moment, Name, Place

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
_LATEST_FROM_NOW = timedelta(days=1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SELECTOR_TYPES = {"css", "xpath", "label", "jsonpath"}
_QUEUE = ("pending", "processing", "completed", "failed", "expired", "unsynced", "rejected")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class SentBeat(Struct, frozen=True, kw_only=True):
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


def read_beat(body: bytes) -> SentBeat:
    """Raises InvalidInput for what is no JSON object."""
    found = _object(body, "a heartbeat")
    queue = member(found, "queue")
    return SentBeat(
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
    except NotNow:
        found = {}
    error = _text(member(found, "error"), _MOST_TEXT_CHARS)
    return SentEnd(error or "the worker gave no reason", member(found, "permanent") is not False)


def read_completion(body: bytes) -> SentEnd | None:
    """None: it is done. Otherwise it is not found, or was never started, and another worker may do it."""
    try:
        found = members(body)
    except NotNow:
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
    found = [sample for piece in pieces if (sample := _sample(value(piece), now + _LATEST_FROM_NOW))]
    return found, len(pieces) - len(found)


def read_raw_metadata(text: str) -> RawMetadata:
    """Raises InvalidInput that names the field at fault."""
    try:
        found = msgspec.json.decode(text, type=RawMetadata)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata: {one_line(str(error))[:300]}") from None
    if not _SHA256.fullmatch(found.sha256):
        raise InvalidInput("metadata: sha256 is not a SHA-256 in lower-case hex")
    if found.content_encoding not in {None, "", "identity", "gzip"}:
        raise InvalidInput("metadata: content_encoding is neither gzip nor identity")
    return found


def _object(body: bytes, what: str) -> Mapping[str, Piece]:
    try:
        return members(body)
    except NotNow:
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
