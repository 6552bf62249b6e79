"""A standalone worker's schedules, from its settings file: scrapes known parcels again, those in a file, or a whole
list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from parcelpost.errors import InvalidInput
from parcelpost.events import RunSkipped, RunStarted, ScheduleFailed
from parcelpost.model import REFRESH, Priority, Site, Source, Target, Task
from parcelpost.places import county_slug, state_or_text
from parcelpost.schedule import Timing, next_run
from parcelpost.settings.schema import ScheduleSettings
from parcelpost.storage import refresh
from parcelpost.storage.options import LONGEST_DELAY

if TYPE_CHECKING:
    from parcelpost.worker.context import Context  # status reads this module too, and needs no scrapers

_CHUNK = 1_000
_RETRY_AFTER = timedelta(minutes=5)
_MAX_ERROR_CHARS = 500
SCHEDULE_STATE = "schedule "
"""What the state of each is stored under, before its name."""


class StoredSchedule(Struct, frozen=True, kw_only=True):
    """What is kept over restarts."""

    timing: Timing
    anchor: datetime
    """When the worker first saw this timing: intervals are counted from there."""
    next_run_at: datetime
    error: str = ""
    """Why its last run could not be started."""


def run_prefix(name: str) -> str:
    """Of the ids of its tasks. No name contains a colon, so no other schedule's tasks have it."""
    return f"{REFRESH}-{name}:"


ReadTargets = Callable[[ScheduleSettings], Sequence[Target]]
"""Reads a schedule's file. Raises InvalidInput or OSError."""


def schedule_site(schedule: ScheduleSettings) -> Site:
    """As tasks are stored."""
    return Site(schedule.platform, state_or_text(schedule.state), county_slug(schedule.county))


class StandaloneSchedules:
    """Run by the one process of a store that does the chores."""

    def __init__(self, context: Context, read_targets: ReadTargets | None = None) -> None:
        """`read_targets`: None in programs that read no files."""
        self._context = context
        self._read_targets = read_targets
        self._schedules: Mapping[str, ScheduleSettings] = context.settings.schedules

    async def step(self) -> None:
        """Starts what is due. What was missed while no worker ran is made up for once."""
        for name, schedule in self._schedules.items():
            if not schedule.paused:
                await self._start_if_due(name, schedule)

    async def _start_if_due(self, name: str, schedule: ScheduleSettings) -> None:
        context = self._context
        state, now = context.lpm.state, context.clock.now()
        known = await state.get(f"{SCHEDULE_STATE}{name}", StoredSchedule)
        if known is None or known.timing != schedule.timing:
            at_once = not (schedule.timing.at or schedule.timing.cron)
            first = now if at_once else next_run(schedule.timing, now, now)
            known = StoredSchedule(timing=schedule.timing, anchor=now, next_run_at=first)
            await state.put(f"{SCHEDULE_STATE}{name}", known)
        following, error = next_run(schedule.timing, known.anchor, now), ""
        if known.next_run_at <= now:
            try:
                await self._run(name, schedule, known.next_run_at, now)
            except (InvalidInput, OSError) as failure:  # of its file
                error, following = str(failure)[:_MAX_ERROR_CHARS], min(following, now + _RETRY_AFTER)
                if error != known.error:
                    context.emit(ScheduleFailed(schedule=name, error=error))
        elif known.next_run_at <= following:
            return
        await state.put(
            f"{SCHEDULE_STATE}{name}",
            StoredSchedule(timing=known.timing, anchor=known.anchor, next_run_at=following, error=error),
        )

    async def _run(self, name: str, schedule: ScheduleSettings, due_at: datetime, now: datetime) -> None:
        """The ids of its tasks tell when it was due: a run that was begun before a crash is completed, not repeated."""
        context, prefix = self._context, run_prefix(name)
        run = f"{prefix}{due_at.astimezone(UTC):%Y%m%dT%H%M%S}-"
        late = max(0.0, (now - due_at).total_seconds())
        if await context.lpm.open_refreshes(prefix, run):
            context.emit(RunSkipped(schedule=name, late_seconds=late))
            return
        if schedule.list:
            await context.lpm.add_tasks([_list_task(run, schedule)])
            context.emit(RunStarted(schedule=name, tasks=1, late_seconds=late))
            return
        site, lpm, longest = schedule_site(schedule), context.lpm, LONGEST_DELAY.total_seconds()
        if schedule.file:
            if self._read_targets is None:
                raise InvalidInput("this program reads no files of parcels")
            targets = await asyncio.to_thread(self._read_targets, schedule)
            spacing = self._spacing(schedule, len(targets))
            for first in range(0, len(targets), _CHUNK):
                chunk = targets[first : first + _CHUNK]
                await lpm.add_refresh_targets(run, site, chunk, first, spacing, longest, now)
            context.emit(RunStarted(schedule=name, tasks=len(targets), late_seconds=late))
            return
        seqs = await lpm.known_parcels(site, delinquent_only=schedule.delinquent_only)
        spacing = self._spacing(schedule, len(seqs))
        for first in range(0, len(seqs), _CHUNK):
            await lpm.add_refreshes(run, seqs[first : first + _CHUNK], first, spacing, longest, now)
        context.emit(RunStarted(schedule=name, tasks=len(seqs), late_seconds=late))

    def _spacing(self, schedule: ScheduleSettings, tasks: int) -> float:
        pace = max(self._context.settings.fetch.pace_seconds, schedule.pace_seconds)
        return max(pace, schedule.window_seconds / max(1, tasks))


def _list_task(run: str, schedule: ScheduleSettings) -> Task:
    site = schedule_site(schedule)
    return Task(
        task_id=f"{run}list",
        platform=site.platform,
        target=Target(parcel_id="", state=site.state, county=site.county, url=schedule.url),
        source=Source.LOCAL_FILE,
        type=REFRESH,
        priority=Priority.BATCH,
        max_retries=refresh.MAX_RETRIES,
    )
