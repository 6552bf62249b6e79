"""When a schedule is due: every so often, on certain days at a time of day in a time zone, or by a cron expression.

The gateway's schedules and those in a standalone worker's settings file follow the same rules.
"""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import Struct

from parcelpost.errors import InvalidInput

DAY_SECONDS = 86_400
LIST_SECONDS = 3_600
"""What the one task of a list has by default, from when it is due."""
MIN_SECONDS = 300
MAX_SECONDS = 366 * DAY_SECONDS

_DURATION = re.compile(r"(\d{1,6})\s*(m|min|h|d|w)", re.ASCII | re.IGNORECASE)
_UNIT_SECONDS = {"m": 60, "min": 60, "h": 3_600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+\-/]{1,64}")
_MAX_CRON_CHARS = 100
_CRON_FIELDS = 5
_SAMPLED_FROM = datetime(2026, 1, 1)  # noqa: DTZ001 - as clocks show it in any time zone
_SAMPLED = timedelta(days=400)
_LOCALTIME = Path("/etc/localtime")
_ZONE_FOLDER = "zoneinfo/"


class Timing(Struct, frozen=True, kw_only=True):
    """Either `every_seconds` or `cron`."""

    every_seconds: int = 0
    at: str = ""
    """Time of day, `02:00`, of an interval of whole days. '': counted from when the schedule was added."""
    timezone: str = "UTC"
    cron: str = ""

    @property
    def text(self) -> str:
        """`every 7 days at 02:00 America/New_York`."""
        if self.cron:
            return f"{self.cron} {self.timezone}"
        at = f" at {self.at} {self.timezone}" if self.at else ""
        return f"every {duration_text(self.every_seconds).removeprefix('1 ')}{at}"


def make_timing(every: str, at: str, timezone: str, cron: str) -> Timing:
    """From what an operator wrote. Raises InvalidInput."""
    if bool(every) == bool(cron):
        raise InvalidInput("specify either every or cron", hint="for example every 7d, or cron '0 2 * * 1'")
    timing = Timing(
        every_seconds=parse_duration("every", every) if every else 0,
        at=at,
        timezone=timezone or local_timezone(),
        cron=" ".join(cron.split()),
    )
    check(timing)
    return timing


def check(timing: Timing) -> None:
    """Raises InvalidInput."""
    _zone(timing.timezone)
    if timing.cron:
        if timing.at or timing.every_seconds:
            raise InvalidInput("at and every cannot be combined with cron", hint="set the time in cron: '0 2 * * 1'")
        _check_cron(timing)
        return
    if not MIN_SECONDS <= timing.every_seconds <= MAX_SECONDS:
        raise InvalidInput("every: must be from 5 minutes to 366 days")
    if timing.at and not _TIME.fullmatch(timing.at):
        raise InvalidInput(f"at: not a time of day: {timing.at!r:.40}", hint="for example 02:00")
    if timing.at and timing.every_seconds % DAY_SECONDS:
        raise InvalidInput("at requires an interval of whole days", hint="for example every 1d or every 7d")


def parse_duration(name: str, text: str) -> int:
    """`30m`, `12h`, `7d`, `2w` in seconds. Raises InvalidInput."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{name}: not a duration: {text!r:.40}", hint="use 30m, 12h, 7d or 2w")
    return int(match[1]) * _UNIT_SECONDS[match[2].lower()]


def duration_text(seconds: float) -> str:
    for unit, length in (("day", DAY_SECONDS), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:g} seconds"


def local_timezone() -> str:
    """The name of this machine's time zone; UTC if it cannot be known."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        try:
            named = str(_LOCALTIME.readlink()).partition(_ZONE_FOLDER)[2]
        except OSError:
            return "UTC"
    try:
        return _zone(named).key
    except InvalidInput:
        return "UTC"


def next_run(timing: Timing, anchor: datetime, after: datetime) -> datetime:
    """Returns the first moment after `after`, in UTC. Intervals are counted from the anchor.

    Where the clocks are set forward, a time of day that is skipped comes as much later, or of a cron expression at the
    moment of the change; where they are set back, one that comes twice counts the first time.
    """
    if timing.cron:
        return _next_of_cron(timing, after)
    if timing.at:
        return _next_at(timing, anchor, after)
    every = timedelta(seconds=timing.every_seconds)
    return anchor.astimezone(UTC) + every * (math.floor((after - anchor) / every) + 1)


def longest_interval(timing: Timing) -> timedelta:
    """Returns the longest time between two consecutive runs, not counting an hour when the clocks are set back."""
    return max(_cron_intervals(timing.cron)) if timing.cron else timedelta(seconds=timing.every_seconds)


@lru_cache(maxsize=1_000)
def _cron_intervals(cron: str) -> tuple[timedelta, timedelta]:
    """Returns the shortest and the longest time between two runs, over more than a year.

    Raises CronSimError, and StopIteration if there is no such date.
    """
    times = CronSim(cron, _SAMPLED_FROM)
    minutes = sorted(60 * hour + minute for hour, minute in product(times.hours, times.minutes))
    dates = CronSim(" ".join(["0", "0", *cron.split()[2:]]), _SAMPLED_FROM)
    days = [next(dates), next(dates)]
    while days[-1] < _SAMPLED_FROM + _SAMPLED:
        days.append(next(dates))
    within = [later - earlier for earlier, later in pairwise(minutes)]
    overnight = minutes[0] - minutes[-1]
    between = [int((later - earlier).total_seconds()) // 60 + overnight for earlier, later in pairwise(days)]
    return timedelta(minutes=min(within + between)), timedelta(minutes=max(within + between))


def _next_at(timing: Timing, anchor: datetime, after: datetime) -> datetime:
    zone, at = _zone(timing.timezone), time.fromisoformat(timing.at)
    days = timing.every_seconds // DAY_SECONDS
    first = _moment(anchor.astimezone(zone).date(), at, zone)
    start = first.astimezone(zone).date() if first >= anchor else anchor.astimezone(zone).date() + timedelta(days=1)
    periods = max(0, (after.astimezone(zone).date() - start).days // days)
    while (moment := _moment(start + timedelta(days=days * periods), at, zone)) <= after:
        periods += 1
    return moment


def _moment(day: date, at: time, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, at, zone).astimezone(UTC)


def _next_of_cron(timing: Timing, after: datetime) -> datetime:
    """In the hour that comes twice, the iterator starts with the first, which may be before `after`."""
    moments = (moment.astimezone(UTC) for moment in CronSim(timing.cron, after.astimezone(_zone(timing.timezone))))
    return next(moment for moment in moments if moment > after)


def _check_cron(timing: Timing) -> None:
    hint = "five fields: minute, hour, day of the month, month, day of the week; for example '0 2 * * 1'"
    if len(timing.cron) > _MAX_CRON_CHARS or len(timing.cron.split()) != _CRON_FIELDS:
        raise InvalidInput(f"not a cron expression: {timing.cron!r:.60}", hint=hint)
    try:
        shortest, _ = _cron_intervals(timing.cron)
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "no such date"
        raise InvalidInput(f"not a cron expression: {timing.cron!r:.60}: {reason}", hint=hint) from None
    if shortest.total_seconds() < MIN_SECONDS:
        raise InvalidInput("cron: runs must be at least 5 minutes apart")


def _zone(name: str) -> ZoneInfo:
    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidInput(f"no such time zone: {name!r:.60}", hint="use a name such as America/New_York or UTC")
