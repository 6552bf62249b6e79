"""A standalone worker's schedules, from its settings file: scrapes known parcels again, or a whole list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from parcelpost.events import RunSkipped, RunStarted
from parcelpost.model import REFRESH, Priority, Site, Source, Target, Task
from parcelpost.places import county_slug, state_or_text
from parcelpost.schedule import Timing, next_run
from parcelpost.settings.schema import ScheduleSettings
from parcelpost.storage import refresh
from parcelpost.storage.options import LONGEST_DELAY

if TYPE_CHECKING:
    from parcelpost.worker.context import Context  # status reads this module too, and needs no scrapers

_CHUNK = 1_000
SCHEDULE_STATE = "schedule "
"""What the state of each is stored under, before its name."""


class StoredSchedule(Struct, frozen=True, kw_only=True):
    """What is kept over restarts."""

    timing: Timing
    anchor: datetime
    """When the worker first saw this timing: intervals are counted from there."""
    next_run_at: datetime


def schedule_site(schedule: ScheduleSettings) -> Site:
    """As tasks are stored."""
    return Site(schedule.platform, state_or_text(schedule.state), county_slug(schedule.county))


class StandaloneSchedules:
    """Run by the one process of a store that does the chores."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._schedules: Mapping[str, ScheduleSettings] = context.settings.schedules

    async def step(self) -> None:
        """Starts what is due. What was missed while no worker ran is made up for once."""
        for name, schedule in self._schedules.items():
            await self._start_if_due(name, schedule)

    async def _start_if_due(self, name: str, schedule: ScheduleSettings) -> None:
        state, now = self._context.lpm.state, self._context.clock.now()
        known = await state.get(f"{SCHEDULE_STATE}{name}", StoredSchedule)
        if known is None or known.timing != schedule.timing:
            at_once = not (schedule.timing.at or schedule.timing.cron)
            first = now if at_once else next_run(schedule.timing, now, now)
            known = StoredSchedule(timing=schedule.timing, anchor=now, next_run_at=first)
            await state.put(f"{SCHEDULE_STATE}{name}", known)
        following = next_run(schedule.timing, known.anchor, now)
        if known.next_run_at <= now:
            await self._run(name, schedule, known.next_run_at, now)
        elif known.next_run_at <= following:
            return
        await state.put(
            f"{SCHEDULE_STATE}{name}", StoredSchedule(timing=known.timing, anchor=known.anchor, next_run_at=following)
        )

    async def _run(self, name: str, schedule: ScheduleSettings, due_at: datetime, now: datetime) -> None:
        """The ids of its tasks tell when it was due: a run that was begun before a crash is completed, not repeated.
        No name contains a colon, so no other schedule's tasks have this prefix.
        """
        context, prefix = self._context, f"{REFRESH}-{name}:"
        run = f"{prefix}{due_at.astimezone(UTC):%Y%m%dT%H%M%S}-"
        late = max(0.0, (now - due_at).total_seconds())
        if await context.lpm.open_refreshes(prefix, run):
            context.emit(RunSkipped(schedule=name, late_seconds=late))
            return
        if schedule.list:
            await context.lpm.add_tasks([_list_task(run, schedule)])
            context.emit(RunStarted(schedule=name, tasks=1, late_seconds=late))
            return
        seqs = await context.lpm.known_parcels(schedule_site(schedule), delinquent_only=schedule.delinquent_only)
        pace = max(context.settings.fetch.pace_seconds, schedule.pace_seconds)
        spacing = max(pace, schedule.window_seconds / max(1, len(seqs)))
        longest = LONGEST_DELAY.total_seconds()
        for first in range(0, len(seqs), _CHUNK):
            await context.lpm.add_refreshes(run, seqs[first : first + _CHUNK], first, spacing, longest, now)
        context.emit(RunStarted(schedule=name, tasks=len(seqs), late_seconds=late))


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
