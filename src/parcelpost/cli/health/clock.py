"""Checks of the clock: against common sense, the store and the gateway."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.output import moment
from parcelpost.clock import from_iso
from parcelpost.health_checks import Finding
from parcelpost.storage import clock_changes, health
from parcelpost.storage.clock_changes import ClockSetBackNote
from parcelpost.units import age, count

_RECENT = timedelta(days=1)

_NOT_BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
"""This program did not exist before."""
_NOT_AFTER = datetime(2100, 1, 1, tzinfo=UTC)
_MAY_DIFFER = timedelta(minutes=1)
_FAR_OFF = timedelta(minutes=5)
_SET_CLOCK = "set the clock, for example with 'sudo timedatectl set-ntp true'"


async def check_clock(_: CheckContext) -> list[CheckResult]:
    now = CLOCK.now()
    local = now.astimezone()
    text = f"{moment(now)}; local time {local:%H:%M}, {local.tzname() or 'no time zone'} ({local:%z})"
    findings = _zone_findings(os.environ.get("TZ", ""))
    if not _NOT_BEFORE <= now < _NOT_AFTER:
        findings.append(Finding.of("clock.wrong", f"the clock shows {now:%Y-%m-%d}, which is impossible", _SET_CLOCK))
    return [CheckResult("clock", text, findings)]


def _zone_findings(name: str) -> list[Finding]:
    """Reports an unknown time zone, which the system silently treats as UTC."""
    if "/" not in name:
        return []
    try:
        ZoneInfo(name.removeprefix(":"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = "the environment variable TZ names an unknown time zone: local times are UTC"
        fix = "correct or unset TZ; backups and clean-up run at local times"
        return [Finding.of("clock.unknown_zone", message, fix)]
    return []


async def check_clock_against_store(case: CheckContext) -> list[CheckResult]:
    """Rows from the future: the clock was ahead then, or is behind now."""
    async with open_for_reading(case.store) as database:
        newest = await database.read(health.newest_moment)
    ahead = from_iso(newest) - CLOCK.now() if newest else timedelta(0)
    if ahead < _MAY_DIFFER:
        return [CheckResult("clock", "the store has no rows from the future")]
    message = f"the clock is {age(ahead.total_seconds())} behind the newest rows of the store: it was set back"
    fix = f"{_SET_CLOCK}; if it is correct now, nothing is lost: a running worker corrects the delays"
    return [CheckResult("clock", "", [Finding.of("clock.behind_store", message, fix)])]


def compare_clocks(date: datetime, now: datetime) -> CheckResult:
    """Compares with the Date header of the gateway's response, which has whole seconds."""
    apart = abs(date - now)
    if apart <= _MAY_DIFFER:
        return CheckResult("clock", f"{apart.total_seconds():.0f} s from the gateway's")
    side = "behind" if date > now else "ahead of"
    message = f"the clock is {age(apart.total_seconds())} {side} the gateway's"
    check = "clock.differs" if apart <= _FAR_OFF else "clock.far_off"
    return CheckResult("clock", "", [Finding.of(check, message, f"{_SET_CLOCK}, here or on the gateway's machine")])


def clock_findings(waiting: clock_changes.Waiting, note: ClockSetBackNote | None, now: datetime) -> list[Finding]:
    if waiting.tasks or waiting.platforms:
        tasks, pauses = count(waiting.tasks, "task"), count(waiting.platforms, "paused platform")
        message = f"the clock was set back: {tasks} and {pauses} are waiting for a time set by the old clock"
        fix = "check that the clock is correct; a running worker corrects the times within a minute"
        return [Finding.of("clock.tasks_waiting", message, fix)]
    if note is None or abs(now - note.at) > _RECENT:
        return []
    message = f"the clock was set back by {age(note.seconds)} in the last 24 h"
    fix = f"check that it is correct now; the delays of {count(note.tasks, 'task')} were corrected"
    return [Finding.of("clock.set_back", message, fix)]
