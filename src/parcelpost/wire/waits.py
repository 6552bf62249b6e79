"""How long a gateway wants to be left alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from parcelpost.errors import NotNow
from parcelpost.model import Json
from parcelpost.wire.reading import member, members

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
    except NotNow:
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
