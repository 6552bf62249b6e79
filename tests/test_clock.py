"""Time: read in one place, written as text that sorts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.clock import ManualClock, SystemClock, from_iso, iso
from parcelpost.errors import InvalidInput

zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC) | zones)  # noqa: DTZ001


@given(moments)
def test_a_moment_comes_back_to_the_millisecond(moment: datetime) -> None:
    text = iso(moment)
    assert len(text) == 24
    assert text.endswith("Z")
    back = from_iso(text)
    assert back.tzinfo is UTC
    assert timedelta(0) <= moment - back < timedelta(milliseconds=1)
    assert iso(back) == text


@given(moments, moments)
def test_text_sorts_as_time_does(one: datetime, other: datetime) -> None:
    assert (iso(one) < iso(other)) <= (one < other)
    assert (one <= other) <= (iso(one) <= iso(other))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 15, 19, 50, 33, 123_456, tzinfo=UTC), "2026-11-15T19:50:33.123Z"),
        (datetime(2026, 11, 15, tzinfo=UTC), "2026-11-15T00:00:00.000Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 999, tzinfo=UTC), "2026-01-01T00:00:00.000Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), "2026-01-01T00:00:00.999Z"),
        (datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))), "2025-12-31T23:30:00.000Z"),
    ],
)
def test_the_form_is_the_one_the_schema_names(moment: datetime, text: str) -> None:
    assert iso(moment) == text


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="2026-01-01T00:00:00 has no time zone"):
        iso(datetime(2026, 1, 1))  # noqa: DTZ001 - the point


async def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock()
    start, ticks = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == (start, ticks)
    clock.advance(1.5)
    assert clock.now() - start == timedelta(seconds=1.5)
    assert clock.monotonic() - ticks == 1.5
    await clock.sleep(60)
    assert clock.now() - start == timedelta(seconds=61.5)


def test_a_manual_clock_set_back_keeps_its_monotonic_time() -> None:
    clock = ManualClock()
    start, ticks = clock.now(), clock.monotonic()
    clock.advance(-3600)
    assert clock.now() == start - timedelta(hours=1)
    assert clock.monotonic() == ticks


async def test_the_system_clock_reads_utc_and_waits() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
