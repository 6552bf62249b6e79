"""What platform code answers, made into an Outcome that nothing further on can stumble over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.model import Blocked, Busy, Done, Encoded, GiveUp, Json, Listed, NotFound, Outcome, Page, Retry, Signal
from parcelpost.storage.options import LONGEST_DELAY
from parcelpost.storage.results import listed, number_of

_MAX_REASON_CHARS = 500

Attempted = Done | NotFound | Retry | GiveUp | Blocked
"""What an attempt comes to; after a Busy there was none."""

WORDS: dict[type[Attempted], str] = {
    Done: "done",
    NotFound: "not_found",
    Retry: "retry",
    GiveUp: "give_up",
    Blocked: "blocked",
}
"""What the events call them."""


def sound(found: object) -> Outcome:
    """The outcome itself, or a GiveUp that says what is wrong with it."""
    if isinstance(found, Done):
        return _sound_done(found)
    if isinstance(found, Retry | Busy):
        return _sound_wait(found, "after_seconds", found.after_seconds)
    if isinstance(found, Blocked):
        return _sound_wait(found, "cool_down_seconds", found.cool_down_seconds)
    if isinstance(found, GiveUp | NotFound):
        return structs.replace(found, reason=brief(found.reason))
    return GiveUp(f"returned a {type(found).__name__}, not an Outcome")


def encoded(outcome: Outcome, encode: Callable[[Mapping[str, Json]], Encoded]) -> Outcome:
    """The same with its records encoded, or a GiveUp that says why they cannot be."""
    if not isinstance(outcome, Done) or isinstance(outcome.data, Encoded):
        return outcome
    try:
        if not outcome.more and not number_of(outcome.data):
            return structs.replace(outcome, data=encode(outcome.data))
        found = [structs.replace(one, data=encode(_plain(one))) for one in listed([outcome.data, *outcome.more])]
        return structs.replace(outcome, data=found[0].data, more=(), listed=tuple(found))
    except InvalidInput as error:
        return GiveUp(brief(error))


def _plain(one: Listed) -> Mapping[str, Json]:
    return {} if isinstance(one.data, Encoded) else one.data


def brief(value: object) -> str:
    """Short, and text that any log and any file can hold."""
    return str(value)[:_MAX_REASON_CHARS].encode(errors="replace").decode()


def _sound_done(found: Done) -> Outcome:
    data, page, moment = _fields(found.data, found.page, found.scraped_at)
    if not isinstance(data, Mapping):
        return _wrong(found, "data", data)
    more = found.more
    if not isinstance(_fields(more)[0], tuple) or not all(isinstance(one, Mapping) for one in _fields(*more)):
        return _wrong(found, "more", more)
    if page is not None and not (isinstance(page, Page) and isinstance(_fields(page.body)[0], bytes)):
        return _wrong(found, "page", page)
    if moment is None:
        return found
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return GiveUp("returned a Done whose scraped_at is not a time with a zone")
    return structs.replace(found, scraped_at=moment.astimezone(UTC))


def signals_of(outcome: Outcome | None) -> Sequence[Signal]:
    """How the selectors did, as far as an outcome tells."""
    found = getattr(outcome, "signals", ())
    return found if isinstance(found, tuple) and all(isinstance(one, Signal) for one in found) else ()


def _fields(*values: object) -> tuple[object, ...]:
    """The values, with nothing taken for granted of their types: nobody has checked them yet."""
    return values


def _sound_wait(found: Retry | Blocked | Busy, field: str, seconds: object) -> Outcome:
    if seconds is not None or isinstance(found, Busy):
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
            return _wrong(found, field, seconds)
        seconds = min(float(seconds), LONGEST_DELAY.total_seconds())
    return structs.replace(found, **{"reason": brief(found.reason), field: seconds})


def _wrong(found: Outcome, field: str, value: object) -> GiveUp:
    told = repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
    return GiveUp(f"returned a {type(found).__name__} whose {field} is {told}")
