"""What workers send, read at the gateway. Foreign until it is read here; what is given back is bounded and typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from parcelpost.errors import InvalidInput, NotNow
from parcelpost.model import Json
from parcelpost.wire.reading import Piece, elements, member, members, one_line

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
    except NotNow:
        return ""
    return given[:_MOST_ECHOED_CHARS] if isinstance(given, str) else ""


def _said(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return one_line(str(error))[:_MOST_PROBLEM_CHARS]
