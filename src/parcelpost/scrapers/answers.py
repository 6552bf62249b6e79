"""What an answer that is no page means."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from parcelpost.model import Page
from parcelpost.scrapers.challenge import challenge
from parcelpost.scrapers.exchange import Answer
from parcelpost.scrapers.fetch_errors import CannotFetch, FetchFailed, NotThere, TryLater, TurnedAway
from parcelpost.scrapers.for_a_person import SIGN_IN, TERMS

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_REST_AFTER_429_SECONDS = 30.0
"""Where it does not say how long."""
_LONGEST_SECONDS = 86_400.0
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_PERSON_ONLY = (
    (re.compile(r"log-?[io]n|sign-?in|/sso|oauth|/auth(/|$)", re.IGNORECASE), SIGN_IN),
    (re.compile(r"terms|disclaimer|agreement|accept", re.IGNORECASE), TERMS),
    (re.compile(r"captcha|challenge|robot-?check|validate", re.IGNORECASE), "asks whether we are a person"),
)
_EXPIRED = re.compile(r"expired|time-?out|session-?end|maintenance|error", re.IGNORECASE)


def page_of(answer: Answer) -> Page:
    """Keeps the charset that the site named."""
    return Page(
        body=answer.body,
        content_type=answer.headers.get("content-type", "").strip()[:200] or "application/octet-stream",
        url=str(answer.url),
    )


def problem(answer: Answer, now: datetime) -> FetchFailed | None:
    """None: it is a page, or the word that the page has not changed."""
    asked = challenge(page_of(answer))
    if asked is not None:
        return TurnedAway(asked.reason)
    if answer.is_good or answer.status == 304:
        return None
    said = f"{answer.url.host} answered {answer.status}"
    match answer.status:
        case 404 | 410:
            return NotThere(said)
        case 401 | 403 | 407 | 451:
            return TurnedAway(said)
        case 408 | 425 | 429:
            return TryLater(said, rest_seconds(answer, now) or None)
        case status if 400 <= status < 500:
            return CannotFetch(said)
        case _:
            return TryLater(said, rest_seconds(answer, now) or None)


def rest_seconds(answer: Answer, now: datetime) -> float:
    """How long the host wants to be left alone; 0: it does not ask for that."""
    if answer.status not in (429, 503):
        return 0.0
    given = answer.headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(given):
        asked = float(given)
    else:
        until = _date(given)
        asked = (until - (_date(answer.headers.get("date", "")) or now)).total_seconds() if until else 0.0
    if asked <= 0:
        asked = _REST_AFTER_429_SECONDS if answer.status == 429 else 0.0
    return min(asked, _LONGEST_SECONDS)


def away_from_the_page(asked: httpx2.URL, leads_to: httpx2.URL) -> FetchFailed | None:
    """A redirect to where only a person gets on, or to where a site sends those it cannot serve now."""
    for sign, what in _PERSON_ONLY:
        if sign.search(leads_to.path) and not sign.search(asked.path):
            return TurnedAway(f"{asked.host} {what}: it redirects to {leads_to.host}{leads_to.path}"[:300])
    if _EXPIRED.search(leads_to.path) and not _EXPIRED.search(asked.path):
        return TryLater(f"{asked.host} redirects to {leads_to.host}{leads_to.path}"[:300])
    return None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text[:64])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
