"""Schedules of a standalone worker, from its settings: scrape known parcels, those in a file, or a whole list again."""

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
from parcelpost.storage.tasks import REFRESH_RETRIES, RefreshRun

if TYPE_CHECKING:
    from parcelpost.worker.context import Context  # status reads this module too, and needs no scrapers

_CHUNK = 1_000
_RETRY_AFTER = timedelta(minutes=5)
_MAX_ERROR_CHARS = 500
SCHEDULE_STATE = "schedule "
"""Prefix of the keys under which the state of schedules is stored."""


class StoredSchedule(Struct, frozen=True, kw_only=True):
    """The state of a schedule, kept across restarts."""

    timing: Timing
    anchor: datetime
    """When the worker first saw this timing: intervals are counted from there."""
    next_run_at: datetime
    error: str = ""
    """Why its last run could not be started."""


def run_prefix(name: str) -> str:
    """Returns the prefix of the ids of a schedule's tasks. Names contain no colon, so no two schedules share one."""
    return f"{REFRESH}-{name}:"


ReadTargets = Callable[[ScheduleSettings], Sequence[Target]]
"""Reads a schedule's file. Raises InvalidInput or OSError."""


def schedule_site(schedule: ScheduleSettings) -> Site:
    """Returns the site as tasks name it."""
    return Site(schedule.platform, state_or_text(schedule.state), county_slug(schedule.county))


class StandaloneSchedules:
    """Starts the runs that are due. Only the process that does the store's chores has one at work."""

    def __init__(self, context: Context, read_targets: ReadTargets | None = None) -> None:
        """`read_targets`: None if schedules with files are not supported."""
        self._context = context
        self._read_targets = read_targets
        self._schedules: Mapping[str, ScheduleSettings] = context.settings.schedules

    async def step(self) -> None:
        """Starts each schedule that is due, once, even if several runs were missed while no worker ran."""
        for name, schedule in self._schedules.items():
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
            except (InvalidInput, OSError) as failure:  # its file is unreadable or invalid
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
        """Task ids contain the time the run was due, so a run that a crash interrupted is completed, not repeated."""
        context, prefix = self._context, run_prefix(name)
        run_id = f"{prefix}{due_at.astimezone(UTC):%Y%m%dT%H%M%S}-"
        late = max(0.0, (now - due_at).total_seconds())
        if await context.lpm.open_refreshes(prefix, run_id):
            context.emit(RunSkipped(schedule=name, late_seconds=late))
            return
        if schedule.list:
            await context.lpm.add_tasks([_list_task(run_id, schedule)])
            context.emit(RunStarted(schedule=name, tasks=1, late_seconds=late))
            return
        site, lpm = schedule_site(schedule), context.lpm
        if schedule.file:
            if self._read_targets is None:
                raise InvalidInput("this program reads no files of parcels")
            targets = await asyncio.to_thread(self._read_targets, schedule)
            run = RefreshRun(run_id, now, self._spacing(schedule, len(targets)))
            for first in range(0, len(targets), _CHUNK):
                await lpm.add_refresh_targets(run, site, targets[first : first + _CHUNK], first)
            context.emit(RunStarted(schedule=name, tasks=len(targets), late_seconds=late))
            return
        seqs = await lpm.known_parcels(site, delinquent_only=schedule.delinquent_only)
        run = RefreshRun(run_id, now, self._spacing(schedule, len(seqs)))
        for first in range(0, len(seqs), _CHUNK):
            await lpm.add_refreshes(run, seqs[first : first + _CHUNK], first)
        context.emit(RunStarted(schedule=name, tasks=len(seqs), late_seconds=late))

    def _spacing(self, schedule: ScheduleSettings, tasks: int) -> float:
        pace = max(self._context.settings.fetch.pace_seconds, schedule.pace_seconds)
        return max(pace, schedule.window_seconds / max(1, tasks))


def _list_task(run_id: str, schedule: ScheduleSettings) -> Task:
    site = schedule_site(schedule)
    return Task(
        task_id=f"{run_id}list",
        platform=site.platform,
        target=Target(parcel_id="", state=site.state, county=site.county, url=schedule.url),
        source=Source.LOCAL_FILE,
        type=REFRESH,
        priority=Priority.BATCH,
        max_retries=REFRESH_RETRIES,
    )
