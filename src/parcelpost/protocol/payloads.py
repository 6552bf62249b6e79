"""The HTTP payloads that worker and gateway share; reading untrusted JSON and waits; names of raw files."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Broken, Json, OutboxEntry, PausedSite, QueueDepth, Task

Name = Annotated[str, Meta(min_length=1, max_length=500)]
Place = Annotated[str, Meta(max_length=500)]
Key = Annotated[str, Meta(max_length=1_024)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Moment = Annotated[datetime, Meta(tz=True)]


# GET /work


class BadTask(Struct, frozen=True, kw_only=True):
    """An element of `tasks` that cannot be read as a task."""

    task_id: str
    """Empty if the element has none."""
    problem: str


class Work(Struct, frozen=True, kw_only=True):
    """The tasks of one `get_work` call, as the worker reads them."""

    tasks: Sequence[Task]
    bad: Sequence[BadTask] = ()
    retry_after: float = 0.0
    """Seconds to wait before the next call after an empty response."""
    rest: float = 0.0
    """Seconds to pause all calls because this one used up the rate limit."""


class GrantedTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task as the gateway writes it."""

    task_id: str
    type: str
    platform: str
    target: Mapping[str, Json]
    priority: int
    created_at: datetime
    lease_expires_at: datetime | None
    attempt: int
    max_retries: int


class WorkReply(Struct, frozen=True):
    tasks: Sequence[GrantedTask]
    retry_after: int


def granted_task(task: Task, attempt: int, created_at: datetime) -> GrantedTask:
    target = task.target
    fields = {**target.extra, "parcel_id": target.parcel_id, "state": target.state, "county": target.county}
    return GrantedTask(
        task_id=task.task_id,
        type=task.type,
        platform=task.platform,
        target={**fields, "url": target.url} if target.url else fields,
        priority=task.priority,
        created_at=created_at,
        lease_expires_at=task.lease_expires_at,
        attempt=attempt,
        max_retries=task.max_retries,
    )


# POST /results


class ParcelResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
    """Sent after the task's lease ended."""
    multi_record: bool | None = None
    """Whether it is one record of a multi-record page, so that its parcel need not be the task's. Null: unknown."""


class Receipt(Struct, frozen=True, omit_defaults=True, gc=False):
    """The upstream's decision on one entry. A `duplicate` was stored earlier."""

    task_id: str
    status: Literal["stored", "duplicate", "rejected"]
    error: str = ""

    @property
    def is_stored(self) -> bool:
        return self.status != "rejected"


class ResultsReply(Struct, frozen=True, kw_only=True):
    inserted: int
    updated: int
    failed: int
    errors: Sequence[str] | None
    receipts: Sequence[Receipt]


class Submitted(Struct, frozen=True, kw_only=True):
    """What happened to a batch of results: how many were stored and, if the upstream says so, which."""

    stored: int
    failed: int
    errors: Sequence[str] = ()
    receipts: Mapping[str, Receipt] = {}
    """By task ID. An entry's receipt takes precedence over the counts."""


# POST /raw-files


class RawMetadata(Struct, frozen=True, kw_only=True):
    """The form's `metadata`. `sha256` is the hash of the page, after decompression if `content_encoding` is gzip."""

    task_id: Name
    parcel_id: Name
    platform: Name
    state: Place
    county: Place
    sha256: str
    content_type: Name
    scraped_at: Moment
    content_encoding: str | None = None


class RawFileReply(Struct, frozen=True):
    status: Literal["ok"]
    path: str
    sha256: str
    """Of the page: a doubled answer to another upload confirms nothing."""


# POST /tasks/{task_id}/fail and /complete


ArtifactKind = Literal["screenshot", "page"]
"""What the last failed attempt at a task saw: a picture of the page in a browser, and the page's HTML."""
ARTIFACT_KINDS: tuple[ArtifactKind, ...] = ("screenshot", "page")


class Failure(Struct, frozen=True, kw_only=True):
    error: str = ""
    attempts: int = 0
    permanent: bool = True
    """False if another worker may try the task."""
    artifacts: tuple[str, ...] = ()
    """What the worker can upload, such as a screenshot: see `wanted_artifacts` in the reply."""


class Completion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a task without a record. Without a flag, the task is done."""

    expired: bool = False
    """The task was not started: another worker may do it."""
    not_found: bool = False
    """The site has no such parcel."""
    error: str = ""


class EndReply(Struct, frozen=True, omit_defaults=True):
    status: Literal["reported"]
    success: bool
    task_id: str
    wanted_artifacts: Sequence[ArtifactKind] = ()
    """What the worker should upload to POST /artifacts."""


# POST /artifacts

MAX_ARTIFACT_BYTES = 4 * 1024**2
"""Of a screenshot, and of a compressed page."""


class ArtifactMetadata(Struct, frozen=True, kw_only=True):
    """The form's `metadata`. A page is compressed with gzip. `sha256` is the hash of the file as sent."""

    task_id: Name
    kind: ArtifactKind
    sha256: str


class ArtifactReply(Struct, frozen=True):
    status: Literal["ok"]
    sha256: str
    """Of the file as sent."""


# POST /heartbeat


class Heartbeat(Struct, frozen=True, kw_only=True):
    """The state of a worker. Missing or invalid fields count as 0 or empty."""

    active_tasks: int = 0
    completed_last_minute: int = 0
    failed_last_minute: int = 0
    platforms: tuple[str, ...] = ()
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    queue: Mapping[str, int] | None = None
    """Number of tasks and results by state. Null: unknown."""
    oldest_unsynced_seconds: float = 0.0
    version: str = ""
    paused: bool = False
    disk_free_bytes: int = 0
    blocked: tuple[PausedSite, ...] = ()
    """Sites that are paused because they, or others on their host, blocked the worker."""
    broken: tuple[Broken, ...] = ()
    """Fields that are no longer found where they used to be."""
    leaving: bool = False
    """Whether this is the last heartbeat of a worker that is stopping."""


COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")
_PLATFORMS_COMMAND = re.compile(r"platforms:([\w.-]+(,[\w.-]+)*)?", re.ASCII)
MAX_COMMAND_CHARS = 1_000


def check_command(command: str) -> None:
    """Raises InvalidInput unless workers know the command."""
    if command in COMMANDS or (len(command) <= MAX_COMMAND_CHARS and _PLATFORMS_COMMAND.fullmatch(command)):
        return
    message = f"unknown command: {command!a:.100}; use {', '.join(COMMANDS)} or platforms:A,B"
    raise InvalidInput(message, hint="see 'parcelpost gateway command --help'")


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    acknowledged: Literal[True] = True
    commands: Sequence[str] = ()
    """Commands to carry out, in order."""
    lease_expires_at: datetime | None = None
    """New end of all leases granted to this worker after `leases_since`. Null: no lease was extended."""
    leases_since: datetime | None = None


QUEUE_COUNTS = ("pending", "processing", "completed", "failed", "expired", "unsynced", "rejected")


def queue_counts(depth: QueueDepth) -> dict[str, int]:
    """Returns the counts that a heartbeat reports. A parcel that was not found counts as completed."""
    counts = {name: getattr(depth, name) for name in QUEUE_COUNTS}
    return {**counts, "completed": depth.completed + depth.not_found}


# The optional parts: POST /signals, POST /metrics, GET /selectors


class MetricsSample(Struct, frozen=True, kw_only=True):
    """A worker's measurements at one time, by column of `agent_metrics`."""

    at: datetime
    values: Mapping[str, float | int | None]


class AcceptedReply(Struct, frozen=True):
    accepted: int
    failed: int


class RankedSelector(Struct, frozen=True, kw_only=True):
    """A selector's success rate across the fleet."""

    platform: str
    field: str
    selector: str
    selector_type: str
    success_rate: float
    samples: int


class SelectorsReply(Struct, frozen=True):
    selectors: Sequence[RankedSelector]


# Errors


class ErrorDetail(Struct, frozen=True):
    code: str
    message: str


class ErrorReply(Struct, frozen=True):
    error: ErrorDetail
    request_id: str


def error_body(code: str, message: str, request_id: str) -> bytes:
    return msgspec.json.encode(ErrorReply(ErrorDetail(code, message), request_id))


# Ledger ids

LEDGER_HEADER = "X-Ledger-ID"
"""In a response: the gateway's ledger. In a request: the ledger the worker expects; any other gateway returns 421."""
NO_LEDGER = "none"
"""Header value of a worker that expects a gateway without a ledger ID."""


def read_ledger_id(headers: Mapping[str, str]) -> str:
    """Returns the ledger ID in a response's headers, or ''."""
    return "".join(char for char in headers.get(LEDGER_HEADER, "") if "!" <= char <= "~")[:64]


def ledger_name(ledger_id: str) -> str:
    """Describes a ledger in a message."""
    return "one without a ledger ID" if ledger_id in ("", NO_LEDGER) else f"the one with ledger {ledger_id[:64]}"


# Untrusted JSON

Piece = Raw | bytes
"""JSON that was not decoded yet."""

_MEMORY_PER_TEXT_BYTE = 6
_ALWAYS_ALLOWED_BYTES = 1024 * 1024
_STEP_BYTES = 256 * 1024
_WEIGHTS = ((b",", 64), (b":", 96), (b"[", 128), (b"{", 128))
_HEAVIEST = max(weight for _, weight in _WEIGHTS)
_MAX_TOKENS = 1_000_000
_MAX_TEXT_CHARS = 64 * 1024

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_MEMBER = re.compile(rb'\s*("(?:[^"\\]++|\\.)*+")\s*:(.*)', re.DOTALL)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{0,300})", re.IGNORECASE)
_MARKUP = re.compile(r"\s*<(!|\?|html|head|body)", re.IGNORECASE)


def is_too_dense(body: bytes, max_bytes: int) -> bool:
    """Whether decoding this JSON would take far more memory than an ordinary record of `max_bytes`.

    Each byte of `[0,0,...` takes 32 bytes in memory, and three bytes of `[[],[],...` take a microsecond. Commas, colons
    and brackets bound the number of values, so they are counted before decoding, including those inside strings.
    """
    left = max(max_bytes * _MEMORY_PER_TEXT_BYTE, _ALWAYS_ALLOWED_BYTES)
    if len(body) * _HEAVIEST <= left:
        return False
    for start in range(0, len(body), _STEP_BYTES):
        step = body[start : start + _STEP_BYTES]
        left -= sum(step.count(char) * weight for char, weight in _WEIGHTS)
        if left < 0:
            return True
    return False


def members(body: Piece) -> Mapping[str, Piece]:
    """Returns the members of a JSON object. Raises Unavailable for anything else, including truncated JSON.

    Invalid JSON in one member does not affect the others: Python programs write NaN and lone surrogates.
    """
    try:
        return _object(body)
    except (ValueError, RecursionError):
        parts = _split(bytes(body), b"{}")
    if parts is None:
        raise Unavailable("it is not a JSON object")
    matches = (_MEMBER.fullmatch(part) for part in parts)
    named = ((value(match[1]), match[2]) for match in matches if match)
    return {name: piece for name, piece in named if isinstance(name, str)}


def elements(piece: Piece) -> Sequence[Piece] | None:
    """Returns the elements of a JSON array, None for anything else. An invalid element does not affect the others."""
    try:
        return _array(piece)
    except (ValueError, RecursionError):
        return _split(bytes(piece), b"[]")


def value(piece: Piece) -> Json:
    """Returns the decoded value, None for invalid JSON."""
    try:
        return _any(piece)
    except (ValueError, RecursionError):
        return None


def member(pieces: Mapping[str, Piece], name: str) -> Json:
    """Returns a member's value, None if it is missing or invalid JSON."""
    return value(pieces[name]) if name in pieces else None


def one_line(text: str) -> str:
    """Makes untrusted text safe for a log: one line, no control characters, at most 64 KiB."""
    line = " ".join(text[:_MAX_TEXT_CHARS].split())
    return line if line.isprintable() else "".join(char if char.isprintable() else "?" for char in line)


def error_text(body: bytes) -> str:
    """Returns the message of an error body as one line: of the contract's JSON, FastAPI's, a page's title or text."""
    text = body[:_MAX_TEXT_CHARS].decode(errors="replace")
    if _MARKUP.match(text):
        title = _TITLE.search(text)
        return one_line(f"a page titled {title[1].strip()!r}" if title else "a page without a title")
    message = value(body[:_MAX_TEXT_CHARS])
    if isinstance(message, dict):
        message = next((message[name] for name in ("error", "detail", "message") if message.get(name)), message)
    if isinstance(message, dict) and isinstance(message.get("message"), str):
        code = message.get("code")
        message = f"{message['message']} ({code})" if isinstance(code, str) and code else message["message"]
    if message is not None and not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    return one_line(text if message is None else message)


def _split(text: bytes, brackets: bytes) -> list[bytes] | None:
    """Returns the parts between the commas inside the outermost brackets, None if those are missing or not closed."""
    text = text.strip()
    if text[:1] != brackets[:1] or text[-1:] != brackets[1:]:
        return None
    depth, start, parts, end = 0, 1, [], 0
    for token in islice(_TOKEN.finditer(text), _MAX_TOKENS):
        char, end = token[0], token.end()
        if char in {b"[", b"{"}:
            depth += 1
        elif char in {b"]", b"}"}:
            depth -= 1
            if depth == 0:
                break
        elif char == b"," and depth == 1:
            parts.append(text[start : end - 1])
            start = end
    if depth or end != len(text):
        return None
    parts.append(text[start:-1])
    return [part for part in parts if part.strip()]


# Waits and dates

LONGEST_WAIT_SECONDS = 3_600.0
"""Upper bound of a wait that the upstream requests."""

_EPOCH_FROM = 1_000_000_000  # a smaller X-RateLimit-Reset is a number of seconds from now
_EPOCH_MS_FROM = 100_000_000_000
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
_MAX_DATE_CHARS = 64


def bounded_wait(seconds: Json) -> float:
    """Returns a wait given in JSON: 0 if it is invalid, at most LONGEST_WAIT_SECONDS."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or math.isnan(seconds):
        return 0.0
    return float(min(max(seconds, 0), LONGEST_WAIT_SECONDS))


def wait_seconds(headers: Mapping[str, str], body: bytes, now: datetime) -> float:
    """Returns the longest wait that an answer requests: Retry-After, X-RateLimit-Reset, or the body's retry_after.

    Times are compared with the answer's Date if it has one, because our clock and the gateway's may differ. `headers`
    must be case-insensitive, or have names in lower case.
    """
    sent_at = http_date(headers.get("date", "")) or now
    return max(_retry_after(headers, sent_at), _rate_limit(headers, sent_at), _body_wait(body))


def rest_seconds(headers: Mapping[str, str], now: datetime) -> float:
    """Returns how long to make no more calls, because a successful one used up the rate limit."""
    used_up = _number(headers.get("x-ratelimit-remaining", "")) == 0
    return _rate_limit(headers, http_date(headers.get("date", "")) or now) if used_up else 0.0


def _retry_after(headers: Mapping[str, str], sent_at: datetime) -> float:
    text = headers.get("retry-after", "").strip()
    if (seconds := _number(text)) is not None:
        return bounded_wait(seconds)
    until = http_date(text)
    return bounded_wait((until - sent_at).total_seconds()) if until else 0.0


def _rate_limit(headers: Mapping[str, str], sent_at: datetime) -> float:
    if _number(headers.get("x-ratelimit-remaining", "0")):
        return 0.0  # there are calls left
    reset = _number(headers.get("x-ratelimit-reset", ""))
    if reset is None:
        return 0.0
    if reset >= _EPOCH_MS_FROM:
        reset /= 1_000
    return bounded_wait(reset - sent_at.timestamp() if reset >= _EPOCH_FROM else reset)


def _body_wait(body: bytes) -> float:
    try:
        return bounded_wait(member(members(body), "retry_after"))
    except Unavailable:
        return 0.0


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def http_date(text: str) -> datetime | None:
    """Returns the time in a header, in any format that HTTP allows; None if it is invalid."""
    try:
        moment = parsedate_to_datetime(text[:_MAX_DATE_CHARS])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Names of raw files

_MAX_PART_CHARS = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+|\.{2,}", re.ASCII)


def raw_file_name(entry: OutboxEntry) -> str:
    """`{platform}_{state}_{county}_{parcel}_{sha256 first 12}.html.gz`: ASCII, no separators, at most 240 characters.

    The gateway keeps only base names, and overwrites. If a part is not safe, or contains the underscore that joins the
    parts, a hash of the original parts keeps the name unique. The entry must have a page.
    """
    parts: tuple[str, ...] = (entry.platform, entry.state, entry.county, entry.parcel_id)
    if entry.page_shared and entry.html_path:  # all parcels of a page must get the same name
        parts = (*entry.html_path.split("/")[:3], entry.html_path.removesuffix(".html.gz").split("/")[-1])
    safe = [_UNSAFE.sub("-", part)[:_MAX_PART_CHARS] for part in parts]
    safe[0] = safe[0].lstrip(".-")
    name = "_".join(safe)
    if tuple(safe) != parts:
        name += f"~{hashlib.sha256(repr(parts).encode(errors='backslashreplace')).hexdigest()[:12]}"
    return f"{name}_{(entry.raw_sha256 or '')[:12]}.html.gz"


def raw_file_metadata(entry: OutboxEntry) -> bytes:
    return msgspec.json.encode(
        RawMetadata(
            task_id=entry.task_id,
            parcel_id=entry.parcel_id,
            platform=entry.platform,
            state=entry.state,
            county=entry.county,
            sha256=entry.raw_sha256 or "",
            content_type="text/html",
            scraped_at=entry.scraped_at,
            content_encoding="gzip",
        )
    )
