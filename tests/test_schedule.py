"""When schedules are due, also where the clocks change."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.schedule import Timing, local_timezone, longest_interval, make_timing, next_run

NEW_YORK = "America/New_York"
ADDED = datetime(2026, 3, 5, 15, 30, tzinfo=UTC)


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC)


def runs(timing: Timing, count: int, anchor: datetime = ADDED, after: datetime | None = None) -> list[datetime]:
    found = [next_run(timing, anchor, after or anchor)]
    while len(found) < count:
        found.append(next_run(timing, anchor, found[-1]))
    return found


def test_an_interval_counts_from_when_the_schedule_was_added_and_skips_what_was_missed() -> None:
    timing = make_timing("12h", "", NEW_YORK, "")
    assert runs(timing, 2) == [ADDED + timedelta(hours=12), ADDED + timedelta(hours=24)]
    assert next_run(timing, ADDED, ADDED + timedelta(hours=60.5)) == ADDED + timedelta(hours=72)


def test_a_time_of_day_stays_where_the_clocks_change() -> None:
    daily = make_timing("1d", "02:30", NEW_YORK, "")
    # 2:30 does not exist on 8 March: it comes an hour later by the clock, 24 hours after the last.
    assert runs(daily, 4) == [
        local("2026-03-06T02:30"),
        local("2026-03-07T02:30"),
        local("2026-03-08T03:30"),
        local("2026-03-09T02:30"),
    ]
    # 1:30 comes twice on 1 November: the first counts, and only that.
    autumn = make_timing("1d", "01:30", NEW_YORK, "")
    after = local("2026-10-31T12:00")
    assert runs(autumn, 2, after=after) == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC), local("2026-11-02T01:30")]
    weekly = make_timing("7d", "02:00", NEW_YORK, "")
    assert runs(weekly, 2) == [local("2026-03-06T02:00"), local("2026-03-13T02:00")]
    assert next_run(weekly, ADDED, local("2026-04-01T00:00")) == local("2026-04-03T02:00")


def test_a_cron_expression_is_read_in_its_time_zone() -> None:
    mondays = make_timing("", "", NEW_YORK, "0 2  * * 1")
    assert runs(mondays, 2) == [local("2026-03-09T02:00"), local("2026-03-16T02:00")]
    for cron, hours in (
        ("0 2 * * 1,3", 5 * 24),
        ("0 8-18 * * *", 14),
        ("*/5 9-17 * * 1-5", 63 + 1 / 12),
        ("0 * * 1 *", 334 * 24 + 1),
        ("30 4 1 * *", 31 * 24),
        ("0 0 29 2 *", 1_461 * 24),
    ):
        assert longest_interval(make_timing("", "", "UTC", cron)) == timedelta(hours=hours), cron
    nightly = make_timing("", "", NEW_YORK, "30 1 * * *")
    after = local("2026-10-31T12:00")
    assert runs(nightly, 2, after=after) == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC), local("2026-11-02T01:30")]


def test_a_run_is_always_after_the_moment_asked_for() -> None:
    nightly = make_timing("", "", NEW_YORK, "30 1 * * *")
    in_the_second_hour = datetime(2026, 11, 1, 6, 15, tzinfo=UTC)
    assert next_run(nightly, ADDED, in_the_second_hour) == local("2026-11-02T01:30")
    skipped = make_timing("", "", NEW_YORK, "30 2 * * *")
    assert next_run(skipped, ADDED, local("2026-03-08T01:00")) == local("2026-03-08T03:00")
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    zones = (NEW_YORK, "Australia/Lord_Howe", "Europe/London", "America/Havana", "America/Sao_Paulo", "UTC")
    timings = [make_timing("1d", f"{hour:02}:30", zone, "") for zone in zones for hour in (0, 1, 2, 3)]
    crons = ("30 1 * * *", "0 0 * * *", "45 1,2 * * 0", "*/5 * * * *", "15 */2 * * *", "0 3 1 * *", "59 23 * * 6")
    timings += [make_timing("", "", zone, cron) for zone in zones for cron in crons]
    for timing in timings:
        for change in clock_changes(timing.timezone):
            for _ in range(20):
                after = change + timedelta(seconds=chance.uniform(-7_500, 7_500))
                due = next_run(timing, ADDED, after)
                assert due > after, (timing, after, seed)
                assert due == next_run(timing, ADDED, due - timedelta(microseconds=1)), (timing, after, seed)


def clock_changes(zone: str) -> list[datetime]:
    """The hours of 2026 after which the clocks of a zone show another offset; noon of a day where they never do."""
    hours = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(365 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    return [hour for hour, (before, now) in zip(hours[1:], pairwise(offsets), strict=True) if before != now] or hours[
        :1
    ]


def test_what_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [
        ("", "", "UTC", ""),
        ("1d", "", "UTC", "0 2 * * *"),
        ("7 fortnights", "", "UTC", ""),
        ("1m", "", "UTC", ""),
        ("400d", "", "UTC", ""),
        ("12h", "02:00", "UTC", ""),
        ("1d", "25:00", "UTC", ""),
        ("1d", "2:00", "UTC", ""),
        ("1d", "", "Europe/Atlantis", ""),
        ("1d", "", "../../etc/passwd", ""),
        ("", "02:00", "UTC", "0 2 * * *"),
        ("", "", "UTC", "0 2 * *"),
        ("", "", "UTC", "* * * * * *"),
        ("", "", "UTC", "99 2 * * *"),
        ("", "", "UTC", "0 2 30 2 *"),
        ("", "", "UTC", "* * * * *"),
        ("", "", "UTC", "0,20,40,41 * * * *"),
        ("", "", "UTC", "0,58 8,9 * * *"),
        ("", "", "UTC", "0 " * 200),
    ]
    for given in wrong:
        with pytest.raises(InvalidInput):
            make_timing(*given)
    monkeypatch.setenv("TZ", "Nowhere/Land")
    assert local_timezone() == "UTC"
    monkeypatch.setenv("TZ", NEW_YORK)
    assert make_timing("1d", "02:00", "", "").timezone == NEW_YORK
