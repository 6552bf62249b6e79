"""What both sides share: reading JSON within bounds, waits and dates, the gateway's answers, raw file headers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Json, OutboxEntry, Task

Piece = Raw | bytes
"""JSON that is still to be read."""

_TIMES_ITS_TEXT = 6
_ALWAYS_BYTES = 1024 * 1024
_STEP_BYTES = 256 * 1024
_WEIGHTS = ((b",", 64), (b":", 96), (b"[", 128), (b"{", 128))
_HEAVIEST = max(weight for _, weight in _WEIGHTS)
_MOST_TOKENS = 1_000_000
_MOST_TEXT = 64 * 1024

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_MEMBER = re.compile(rb'\s*("(?:[^"\\]++|\\.)*+")\s*:(.*)', re.DOTALL)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{0,300})", re.IGNORECASE)
_MARKUP = re.compile(r"\s*<(!|\?|html|head|body)", re.IGNORECASE)


def is_too_dense(body: bytes, most_bytes: int) -> bool:
    """Whether to read that JSON would take much more memory than the longest text that is allowed, `most_bytes`.

    `[0,0,...` takes 32 bytes for each of its own, and `[[],[],...` a microsecond for three. What a comma, a colon or a
    bracket leads to is bounded, so they are counted before anything is read; those in texts count, too. An ordinary
    record of that length passes.
    """
    left = max(most_bytes * _TIMES_ITS_TEXT, _ALWAYS_BYTES)
    if len(body) * _HEAVIEST <= left:
        return False
    for start in range(0, len(body), _STEP_BYTES):
        step = body[start : start + _STEP_BYTES]
        left -= sum(step.count(sign) * weight for sign, weight in _WEIGHTS)
        if left < 0:
            return True
    return False


def members(body: Piece) -> Mapping[str, Piece]:
    """The members of a JSON object. Raises Unavailable for anything else, cut-off JSON included.

    A member that is no JSON does not spoil the others: Python writes NaN, and lone surrogates, without a word.
    """
    try:
        return _object(body)
    except (ValueError, RecursionError):
        parts = _split(bytes(body), b"{}")
    if parts is None:
        raise Unavailable("it is not a JSON object")
    found = (_MEMBER.fullmatch(part) for part in parts)
    named = ((value(member[1]), member[2]) for member in found if member)
    return {name: piece for name, piece in named if isinstance(name, str)}


def elements(piece: Piece) -> Sequence[Piece] | None:
    """The elements of a JSON array; None for anything else."""
    try:
        return _array(piece)
    except (ValueError, RecursionError):
        return _split(bytes(piece), b"[]")


def value(piece: Piece) -> Json:
    """What the piece says; None if it is no JSON."""
    try:
        return _any(piece)
    except (ValueError, RecursionError):
        return None


def member(found: Mapping[str, Piece], name: str) -> Json:
    """What that member says; None if it is missing or no JSON."""
    return value(found[name]) if name in found else None


def one_line(text: str) -> str:
    """Foreign text, fit for a log line: one line, nothing that a terminal obeys. Not shortened beyond 64 KiB."""
    line = " ".join(text[:_MOST_TEXT].split())
    return line if line.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in line)


def error_text(body: bytes) -> str:
    """What an error's body says in words, as one line; the contract's form, FastAPI's, a page's title or plain text."""
    text = body[:_MOST_TEXT].decode(errors="replace")
    if _MARKUP.match(text):
        title = _TITLE.search(text)
        return one_line(f"a page titled {title[1].strip()!r}" if title else "a page without a title")
    said = value(body[:_MOST_TEXT])
    if isinstance(said, dict):
        said = next((said[name] for name in ("error", "detail", "message") if said.get(name)), said)
    if isinstance(said, dict) and isinstance(said.get("message"), str):
        code = said.get("code")
        said = f"{said['message']} ({code})" if isinstance(code, str) and code else said["message"]
    if said is not None and not isinstance(said, str):
        said = msgspec.json.encode(said).decode()
    return one_line(text if said is None else said)


def _split(text: bytes, brackets: bytes) -> list[bytes] | None:
    """The parts between the commas of the outermost brackets. None: it is not in such brackets, or cut off."""
    text = text.strip()
    if text[:1] != brackets[:1] or text[-1:] != brackets[1:]:
        return None
    depth, start, parts, end = 0, 1, [], 0
    for token in islice(_TOKEN.finditer(text), _MOST_TOKENS):
        sign, end = token[0], token.end()
        if sign in {b"[", b"{"}:
            depth += 1
        elif sign in {b"]", b"}"}:
            depth -= 1
            if depth == 0:
                break
        elif sign == b"," and depth == 1:
            parts.append(text[start : end - 1])
            start = end
    if depth or end != len(text):
        return None
    parts.append(text[start:-1])
    return [part for part in parts if part.strip()]


LONGEST_WAIT_SECONDS = 3_600.0
"""No gateway is obeyed for longer."""

_EPOCH_FROM = 1_000_000_000  # a smaller X-RateLimit-Reset is a number of seconds from now
_EPOCH_MS_FROM = 100_000_000_000
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
_MOST_DATE_CHARS = 64


def bounded(seconds: Json) -> float:
    """A wait as given in JSON: 0 where it makes no sense, never more than the longest."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or math.isnan(seconds):
        return 0.0
    return float(min(max(seconds, 0), LONGEST_WAIT_SECONDS))


def wait_seconds(headers: Mapping[str, str], body: bytes, now: datetime) -> float:
    """The longest wait that an answer asks for: Retry-After, X-RateLimit-Reset, or the body's retry_after.

    Moments are compared with the answer's own Date where it has one: our clock and the gateway's may differ.
    `headers` must find names whatever their case, or be given in lower case.
    """
    sent = http_date(headers.get("date", "")) or now
    return max(_retry_after(headers, sent), _rate_limit(headers, sent), _from_body(body))


def rest_seconds(headers: Mapping[str, str], now: datetime) -> float:
    """How long to leave the gateway alone after an answer that was given, because it was the last one allowed."""
    used_up = _number(headers.get("x-ratelimit-remaining", "")) == 0
    return _rate_limit(headers, http_date(headers.get("date", "")) or now) if used_up else 0.0


def _retry_after(headers: Mapping[str, str], sent: datetime) -> float:
    given = headers.get("retry-after", "").strip()
    if (seconds := _number(given)) is not None:
        return bounded(seconds)
    until = http_date(given)
    return bounded((until - sent).total_seconds()) if until else 0.0


def _rate_limit(headers: Mapping[str, str], sent: datetime) -> float:
    if _number(headers.get("x-ratelimit-remaining", "0")):
        return 0.0  # there are calls left
    reset = _number(headers.get("x-ratelimit-reset", ""))
    if reset is None:
        return 0.0
    if reset >= _EPOCH_MS_FROM:
        reset /= 1_000
    return bounded(reset - sent.timestamp() if reset >= _EPOCH_FROM else reset)


def _from_body(body: bytes) -> float:
    try:
        return bounded(member(members(body), "retry_after"))
    except Unavailable:
        return 0.0


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def http_date(text: str) -> datetime | None:
    """The moment that a header names, in whatever form; None where it names none."""
    try:
        found = parsedate_to_datetime(text[:_MOST_DATE_CHARS])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


_encode = msgspec.json.Encoder().encode


LEDGER_HEADER = "X-Ledger-ID"
"""In an answer: which ledger the gateway has. In a request: which one the worker means; another refuses it (421)."""
NO_LEDGER = "none"
"""In a request: a gateway that does not say which one it has."""


def read_ledger_id(headers: Mapping[str, str]) -> str:
    """As a gateway gives it in an answer; '': it gives none."""
    return "".join(sign for sign in headers.get(LEDGER_HEADER, "") if "!" <= sign <= "~")[:64]


def ledger_name(ledger_id: str) -> str:
    """For people."""
    return "one without a ledger id" if ledger_id in ("", NO_LEDGER) else f"the one with ledger {ledger_id[:64]}"


class TaskWords(Struct, frozen=True, kw_only=True, gc=False):
    task_id: str
    type: str
    platform: str
    target: Mapping[str, Json]
    priority: int
    created_at: datetime
    lease_expires_at: datetime | None
    attempt: int
    max_retries: int


class WorkWords(Struct, frozen=True):
    tasks: Sequence[TaskWords]
    retry_after: int


class ReceiptWords(Struct, frozen=True, omit_defaults=True, gc=False):
    task_id: str
    status: Literal["stored", "duplicate", "rejected"]
    error: str | UnsetType = UNSET


class ResultsWords(Struct, frozen=True, kw_only=True):
    inserted: int
    updated: int
    failed: int
    errors: Sequence[str] | None
    receipts: Sequence[ReceiptWords]


class RawFileWords(Struct, frozen=True):
    status: Literal["ok"]
    path: str


class EndWords(Struct, frozen=True):
    status: Literal["reported"]
    success: bool


class BeatWords(Struct, frozen=True):
    acknowledged: Literal[True]
    commands: Sequence[str]
    lease_expires_at: datetime | None = None
    """Until then run the leases that the worker got after `leases_since`; null where it holds nothing."""
    leases_since: datetime | None = None


class AcceptedWords(Struct, frozen=True):
    accepted: int
    failed: int


class SelectorWords(Struct, frozen=True, kw_only=True):
    platform: str
    field: str
    selector: str
    selector_type: str
    success_rate: float
    samples: int


class SelectorsWords(Struct, frozen=True):
    selectors: Sequence[SelectorWords]


class ErrorWords(Struct, frozen=True):
    code: str
    message: str


class ProblemWords(Struct, frozen=True):
    error: ErrorWords
    request_id: str


def task_words(task: Task, attempt: int, created_at: datetime) -> TaskWords:
    target = task.target
    words = {**target.extra, "parcel_id": target.parcel_id, "state": target.state, "county": target.county}
    return TaskWords(
        task_id=task.task_id,
        type=task.type,
        platform=task.platform,
        target={**words, "url": target.url} if target.url else words,
        priority=task.priority,
        created_at=created_at,
        lease_expires_at=task.lease_expires_at,
        attempt=attempt,
        max_retries=task.max_retries,
    )


def answer(words: Struct) -> bytes:
    return _encode(words)


def error_answer(code: str, message: str, request_id: str) -> bytes:
    return _encode(ProblemWords(ErrorWords(code, message), request_id))


_MOST_PART_CHARS = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+|\.{2,}", re.ASCII)


def raw_file_name(entry: OutboxEntry) -> str:
    """`{platform}_{state}_{county}_{parcel}_{sha256 first 12}.html.gz`: ASCII, no separators, at most 240 characters.

    The gateway keeps base names only and overwrites. Where a part cannot stand as it is, or holds the underscore that
    parts are joined with, a hash of the parts as they were keeps the name unique. Raises InvalidInput without a page.
    """
    if not entry.raw_sha256:
        raise InvalidInput(f"the entry of task {entry.task_id} has no page")
    parts: tuple[str, ...] = (entry.platform, entry.state, entry.county, entry.parcel_id)
    if entry.page_shared and entry.html_path:  # several parcels' page: the same name for all of them
        parts = (*entry.html_path.split("/")[:3], entry.html_path.removesuffix(".html.gz").split("/")[-1])
    safe = [_UNSAFE.sub("-", part)[:_MOST_PART_CHARS] for part in parts]
    safe[0] = safe[0].lstrip(".-")
    name = "_".join(safe)
    if tuple(safe) != parts:
        name += f"~{hashlib.sha256(repr(parts).encode(errors='backslashreplace')).hexdigest()[:12]}"
    return f"{name}_{entry.raw_sha256[:12]}.html.gz"


def raw_file_metadata(entry: OutboxEntry) -> bytes:
    """The form's `metadata`. `sha256` is that of the page itself, which travels compressed."""
    return msgspec.json.encode(
        {
            "task_id": entry.task_id,
            "parcel_id": entry.parcel_id,
            "platform": entry.platform,
            "state": entry.state,
            "county": entry.county,
            "sha256": entry.raw_sha256,
            "content_type": "text/html",
            "content_encoding": "gzip",
            "scraped_at": iso(entry.scraped_at),
        }
    )


def read_raw_file(body: bytes) -> None:
    """Returns if the file is kept. Raises Unavailable if it is not, or if that cannot be told."""
    status = member(members(body), "status")
    if status != "ok":
        raise Unavailable("it says that the file was not kept" if status == "error" else "it does not say 'ok'")
