"""What platform code answers is made sound before anything else looks at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from parcelpost.model import Blocked, Busy, Done, GiveUp, NotFound, Outcome, Page, Retry
from parcelpost.worker.attempt import OUTCOME_NAMES
from parcelpost.worker.outcomes import checked

SOUND = [
    Done(data={"owner": "Ann"}, page=Page(body=b"<p>")),
    Retry("r", 3.0),
    Retry("r"),
    GiveUp("g"),
    Blocked("b", 60.0),
    NotFound("n"),
]


@pytest.mark.parametrize("outcome", SOUND)
def test_a_sound_outcome_stays_as_it_is(outcome: Outcome) -> None:
    assert checked(outcome) == outcome
    assert type(outcome) in OUTCOME_NAMES


WRONG = {
    "returned a dict, not an Outcome": {"owner": "Ann"},
    "returned a NoneType, not an Outcome": None,
    "returned a Done whose data is a list": Done(data=[1]),  # type: ignore[arg-type]
    "returned a Done whose page is a str": Done(data={}, page="<p>"),  # type: ignore[arg-type]
    "returned a Done whose page is a Page": Done(data={}, page=Page(body="<p>")),  # type: ignore[arg-type]
    "returned a Done whose scraped_at is not a time with a time zone": Done(data={}, scraped_at=datetime(2026, 1, 1)),  # noqa: DTZ001
    "returned a Retry whose after_seconds is nan": Retry("r", float("nan")),
    "returned a Busy whose after_seconds is a NoneType": Busy("b", None),  # type: ignore[arg-type]
    "returned a Busy whose after_seconds is -1.0": Busy("b", -1.0),
    "returned a Retry whose after_seconds is a str": Retry("r", "3"),  # type: ignore[arg-type]
    "returned a Blocked whose cool_down_seconds is -1.0": Blocked("b", -1.0),
}


def test_what_is_no_sound_outcome_is_given_up_with_what_is_wrong(subtests: pytest.Subtests) -> None:
    for reason, value in WRONG.items():
        with subtests.test(reason=reason, value=value):
            assert checked(value) == GiveUp(reason)


def test_reasons_are_short_and_storable() -> None:
    assert checked(GiveUp("x" * 9_000_000)) == GiveUp("x" * 500)
    assert checked(NotFound("lone \ud800")) == NotFound("lone ?")
    assert checked(GiveUp(None)) == GiveUp("None")  # type: ignore[arg-type]


def test_no_wait_is_longer_than_a_week() -> None:
    assert checked(Retry("r", 1e300)) == Retry("r", 7 * 86_400.0)
    assert checked(Blocked("b", 10**30)) == Blocked("b", 7 * 86_400.0)


def test_the_time_of_a_record_comes_out_in_utc() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=-5)))
    found = checked(Done(data={}, scraped_at=noon))
    assert isinstance(found, Done)
    assert found.scraped_at == noon
    assert found.scraped_at.tzinfo is UTC
