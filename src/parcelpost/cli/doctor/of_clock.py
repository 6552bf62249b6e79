"""The clock: whether it can be right, by itself and beside what was written before."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.output import age, moment
from parcelpost.cli.running import CLOCK, looking
from parcelpost.cli.status_report import Problem
from parcelpost.clock import from_iso
from parcelpost.storage import health

NOT_BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
"""This program did not exist before."""
_NOT_AFTER = datetime(2100, 1, 1, tzinfo=UTC)
_MAY_DIFFER = timedelta(minutes=1)
_DIFFERS_MUCH = timedelta(minutes=5)
_SET_IT = "set the clock, for instance with 'sudo timedatectl set-ntp true'"


async def look(_: Case) -> list[Answer]:
    now = CLOCK.now()
    local = now.astimezone()
    said = f"{moment(now)}; local time {local:%H:%M}, {local.tzname() or 'no zone'} ({local:%z})"
    problems = _zone_problems(os.environ.get("TZ", ""))
    if not NOT_BEFORE <= now < _NOT_AFTER:
        problems.append(Problem(f"the clock says {now:%Y-%m-%d}, which cannot be", _SET_IT, "clock"))
    return [Answer("clock", said, problems)]


def _zone_problems(named: str) -> list[Problem]:
    """Of a zone that is not known the system makes UTC, without a word."""
    if "/" not in named:
        return []
    try:
        ZoneInfo(named.removeprefix(":"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        what = "the environment variable TZ names a time zone that is not known here: local times are UTC"
        remedy = "correct TZ, or leave it out; backups and clean-up are made at local times"
        return [Problem(what, remedy, "clock", warning=True)]
    return []


async def against_store(case: Case) -> list[Answer]:
    """Rows from the future: it was ahead then, or is behind now."""
    async with looking(case.store) as database:
        newest = await database.read(health.newest_moment)
    ahead = from_iso(newest) - CLOCK.now() if newest else timedelta(0)
    if ahead < _MAY_DIFFER:
        return [Answer("clock", "not behind what was written last")]
    what = f"the clock is {age(ahead.total_seconds())} behind what the store's newest rows say: it was set back"
    remedy = f"{_SET_IT}; where it is right now, nothing is lost, and a running worker corrects what waits"
    return [Answer("clock", "", [Problem(what, remedy, "clock", warning=True)])]


def against_gateway(date: datetime, now: datetime) -> Answer:
    """The answer came a moment before `now`, and headers know no fractions of a second."""
    apart = abs(date - now)
    if apart <= _MAY_DIFFER:
        return Answer("clock", f"{apart.total_seconds():.0f} s from the gateway's")
    side = "behind" if date > now else "ahead of"
    what = f"the clock is {age(apart.total_seconds())} {side} the gateway's"
    remedy = f"{_SET_IT}, here or where the gateway runs"
    return Answer("clock", "", [Problem(what, remedy, "clock", warning=apart <= _DIFFERS_MUCH)])
