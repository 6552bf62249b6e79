"""When an upstream is tried again: never too soon, never too late, whatever the clock does."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.clock import ManualClock
from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.backoff import Backoff, Offline

NOW = ManualClock().now()
AN_HOUR = 3_600.0
INSTANT = 0.000_002  # times are whole microseconds

seconds = st.floats(0.01, 100_000)
failures = st.integers(1, 60)
requestedes = st.floats(0.0, allow_nan=False) | st.sampled_from([0.0, 1.0, AN_HOUR, 1e300])


def fail(backoff: Backoff, times: int, now: datetime = NOW, *, requested: float = 0.0) -> Offline:
    assert times > 0
    return [backoff.failed(Unavailable("away", retry_after=requested), now) for _ in range(times)][-1]


def pause(away: Offline, now: datetime = NOW) -> float:
    return (away.until - now).total_seconds()


@given(seconds, seconds, failures)
def test_without_a_requested_the_pause_is_between_the_least_and_the_most(least: float, most: float, times: int) -> None:
    found = pause(fail(Backoff(least, most), times))
    assert least - INSTANT <= found <= max(least, most) + INSTANT


@given(failures)
def test_the_pause_doubles_at_most(times: int) -> None:
    assert 30 <= pause(fail(Backoff(30, 300), times)) <= min(300, 30 * 2**times)


def test_pauses_are_spread_over_the_whole_range() -> None:
    found = [pause(fail(Backoff(30, 300), 10)) for _ in range(1_000)]
    assert min(found) < 60
    assert max(found) > 270
    assert 140 < sum(found) / len(found) < 190


@given(seconds, seconds, failures, requestedes)
def test_the_pause_is_never_shorter_than_the_requested_up_to_an_hour(
    least: float, most: float, times: int, requested: float
) -> None:
    found = pause(fail(Backoff(least, most), times, requested=requested))
    assert found >= min(requested, AN_HOUR) - INSTANT
    assert found <= max(least, most, AN_HOUR) + INSTANT


@pytest.mark.parametrize("requested", [float("nan"), float("-inf"), -5.0])
def test_a_requested_that_makes_no_sense_is_none(requested: float) -> None:
    assert 30 <= pause(fail(Backoff(30, 300), 1, requested=requested)) <= 60


@given(seconds, seconds, st.integers(0, 20))
def test_an_upstream_that_denies_us_is_left_alone_for_the_longest(least: float, most: float, before: int) -> None:
    backoff = Backoff(least, most)
    if before:
        fail(backoff, before)
    away = backoff.failed(Unauthorized("who are you?"), NOW)
    assert away.denied
    assert away.reason == "who are you?"
    assert pause(away) == pytest.approx(max(least, most), abs=INSTANT)


def test_being_denied_is_forgotten_with_the_next_failure() -> None:
    backoff = Backoff(30, 300)
    assert backoff.failed(Unauthorized(), NOW).denied
    assert not fail(backoff, 1).denied


def test_the_first_failure_of_a_row_is_remembered() -> None:
    backoff = Backoff(30, 300)
    fail(backoff, 1)
    later = NOW + timedelta(hours=2)
    away = fail(backoff, 4, later)
    assert (away.since, away.failures) == (NOW, 5)
    assert away.until > later


@given(failures)
def test_a_success_starts_over_and_says_what_has_ended(times: int) -> None:
    backoff = Backoff(30, 300)
    away = fail(backoff, times)
    assert backoff.worked() == away
    assert backoff.worked() is None
    assert backoff.remaining(NOW) == 0
    again = fail(backoff, 1, NOW + timedelta(days=1))
    assert (again.failures, again.since) == (1, NOW + timedelta(days=1))


def test_the_time_that_remains_goes_by() -> None:
    backoff = Backoff(30, 30)
    assert backoff.remaining(NOW) == 0
    fail(backoff, 1)
    assert backoff.remaining(NOW) == 30
    assert backoff.remaining(NOW + timedelta(seconds=12)) == 18
    assert backoff.remaining(NOW + timedelta(seconds=30)) == 0
    assert backoff.remaining(NOW + timedelta(days=30)) == 0


def time_until_the_next_try(backoff: Backoff, now: datetime, set_back: list[timedelta]) -> float:
    """What really goes by for a loop that does as it is told; before each further look the clock may be set back."""
    total = 0.0
    for _ in range(len(set_back) + 3):
        wait = backoff.remaining(now)
        if wait == 0:
            return total
        total += wait
        now += timedelta(seconds=wait) - (set_back.pop(0) if set_back else timedelta(0))
    raise AssertionError(f"still waiting after {total} s")


@given(failures, st.timedeltas(timedelta(0), timedelta(days=1_000)), requestedes)
def test_a_clock_that_is_set_back_costs_one_more_pause_at_most(times: int, back: timedelta, requested: float) -> None:
    backoff = Backoff(30, 300)
    promised = pause(fail(backoff, times, requested=requested))
    waited = time_until_the_next_try(backoff, NOW, [back])
    assert promised - INSTANT <= waited <= 2 * promised + INSTANT


@given(failures, st.lists(st.timedeltas(timedelta(0), timedelta(days=1_000)), max_size=5))
def test_a_clock_that_is_set_back_again_and_again_costs_a_pause_each_time(times: int, back: list[timedelta]) -> None:
    backoff = Backoff(30, 300)
    promised = pause(fail(backoff, times))
    assert time_until_the_next_try(backoff, NOW, list(back)) <= (len(back) + 1) * promised + INSTANT


@given(st.timedeltas(timedelta(0), timedelta(days=1_000)))
def test_a_clock_that_was_set_back_while_the_worker_was_off_costs_an_hour_at_most(back: timedelta) -> None:
    before = Backoff(30, 300)
    fail(before, 5)
    after = Backoff(30, 300)
    after.offline = before.offline
    assert time_until_the_next_try(after, NOW - back, []) <= AN_HOUR


@pytest.mark.parametrize("reason", ["away", "", "503: « \N{SNOWMAN} »\n\x00\t", "x" * 10_000])
async def test_what_is_known_of_an_absence_outlives_the_process(tmp_path: Path, reason: str) -> None:
    clock = ManualClock(datetime.fromisoformat("2026-03-04T05:06:07.123456+00:00"))
    backoff = Backoff(30, 300)
    backoff.failed(Unavailable(reason, retry_after=77), clock.now())
    away = backoff.failed(Unauthorized(reason), clock.now())
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        assert await lpm.state.get("sync", Offline) is None
        await lpm.state.put("sync", away)
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        kept = await lpm.state.get("sync", Offline)
    assert kept == away
    resumed = Backoff(30, 300)
    resumed.offline = kept
    clock.advance(100)
    assert resumed.remaining(clock.now()) == 200
    assert resumed.failed(Unavailable(reason), clock.now()).failures == 3
