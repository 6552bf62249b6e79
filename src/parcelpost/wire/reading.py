"""Reading foreign JSON, one member at a time, so that a bad one spoils no other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Raw

from parcelpost.errors import NotNow
from parcelpost.model import Json

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
    """The members of a JSON object. Raises NotNow for anything else, cut-off JSON included.

    A member that is no JSON does not spoil the others: Python writes NaN, and lone surrogates, without a word.
    """
    try:
        return _object(body)
    except (ValueError, RecursionError):
        parts = _split(bytes(body), b"{}")
    if parts is None:
        raise NotNow("it is not a JSON object")
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
