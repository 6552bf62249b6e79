"""What platform code returned or raised, as a valid Outcome: an exception such as ValueError means Retry."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.model import (
    Blocked,
    Busy,
    Done,
    Encoded,
    GiveUp,
    Json,
    NotFound,
    Outcome,
    Page,
    PageRecord,
    Retry,
)
from parcelpost.scrapers.fetch.errors import outcome_of_http_error
from parcelpost.storage.options import LONGEST_DELAY
from parcelpost.storage.results import number_of, page_records

T = TypeVar("T")


async def guarded(attempt: Awaitable[Outcome]) -> Outcome:
    """Returns what an attempt on the worker's own event loop returns, or what its exception means."""
    try:
        return await attempt
    except Exception as error:  # noqa: BLE001 - a bug in a platform must not end the worker
        return from_exception(error)


_MAX_REASON_CHARS = 500


def checked(outcome: object) -> Outcome:
    """Returns the outcome itself, or a GiveUp that says what is wrong with it."""
    if isinstance(outcome, Done):
        return _checked_done(outcome)
    if isinstance(outcome, Retry) and outcome.partial is not None:
        partial = _checked_done(outcome.partial) if isinstance(_fields(outcome.partial)[0], Done) else None
        outcome = structs.replace(outcome, partial=partial if isinstance(partial, Done) else None)
    if isinstance(outcome, Retry | Busy):
        return _checked_wait(outcome, "after_seconds", outcome.after_seconds)
    if isinstance(outcome, Blocked):
        return _checked_wait(outcome, "cool_down_seconds", outcome.cool_down_seconds)
    if isinstance(outcome, GiveUp | NotFound):
        return structs.replace(outcome, reason=brief(outcome.reason))
    return GiveUp(f"returned a {type(outcome).__name__}, not an Outcome")


def from_exception(error: BaseException) -> Outcome:
    """Returns what the error's HTTP status means, else a Retry such as `ValueError: message`. Never raises."""
    outcome = _or_none(lambda: outcome_of_http_error(error))
    if isinstance(outcome, Outcome):
        return outcome
    message = _or_none(lambda: brief(error))
    return Retry(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def _or_none(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except BaseException:  # noqa: BLE001 - methods of a foreign exception may raise anything
        return None


def encoded(outcome: Outcome, encode: Callable[[Mapping[str, Json]], Encoded]) -> Outcome:
    """Returns the outcome with its records encoded, or a GiveUp if they cannot be."""
    if isinstance(outcome, Retry) and outcome.partial is not None:
        partial = encoded(outcome.partial, encode)
        return structs.replace(outcome, partial=partial if isinstance(partial, Done) else None)
    if not isinstance(outcome, Done) or isinstance(outcome.data, Encoded):
        return outcome
    try:
        if not outcome.additional_records and not number_of(outcome.data):
            return structs.replace(outcome, data=encode(outcome.data))
        records = [
            structs.replace(record, data=encode(_plain(record)))
            for record in page_records([outcome.data, *outcome.additional_records])
        ]
        return structs.replace(outcome, data=records[0].data, additional_records=(), page_records=tuple(records))
    except InvalidInput as error:
        return GiveUp(brief(error))


def _plain(record: PageRecord) -> Mapping[str, Json]:
    return {} if isinstance(record.data, Encoded) else record.data


def brief(value: object) -> str:
    """Returns a shortened text without characters that cannot be encoded."""
    return str(value)[:_MAX_REASON_CHARS].encode(errors="replace").decode()


def _checked_done(outcome: Done) -> Outcome:
    data, page, moment = _fields(outcome.data, outcome.page, outcome.scraped_at)
    if not isinstance(data, Mapping):
        return _invalid(outcome, "data", data)
    additional = outcome.additional_records
    if not isinstance(_fields(additional)[0], tuple) or not all(
        isinstance(record, Mapping) for record in _fields(*additional)
    ):
        return _invalid(outcome, "additional_records", additional)
    if page is not None and not (isinstance(page, Page) and isinstance(_fields(page.body)[0], bytes)):
        return _invalid(outcome, "page", page)
    if moment is None:
        return outcome
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return GiveUp("returned a Done whose scraped_at is not a time with a time zone")
    return structs.replace(outcome, scraped_at=moment.astimezone(UTC))


def _fields(*values: object) -> tuple[object, ...]:
    """Widens the types: platform code may have put any object there."""
    return values


def _checked_wait(outcome: Retry | Blocked | Busy, field: str, seconds: object) -> Outcome:
    if seconds is not None or isinstance(outcome, Busy):
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
            return _invalid(outcome, field, seconds)
        seconds = min(float(seconds), LONGEST_DELAY.total_seconds())
    return structs.replace(outcome, **{"reason": brief(outcome.reason), field: seconds})


def _invalid(outcome: Outcome, field: str, value: object) -> GiveUp:
    actual = repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
    return GiveUp(f"returned a {type(outcome).__name__} whose {field} is {actual}")
