"""Schedules: validation, operator actions, freshness, and the runner, which starts runs when they are due and queues
their tasks as the window and the site's pace allow.

Tasks are queued just in time, so the queue holds few of them: one that is paused, or whose site blocks the workers,
stops within moments, and after an outage a run goes on where it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import InvalidInput, LedgerError
from parcelpost.events import Emit, RunSkipped, RunStarted, ScheduleFailed
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import (
    Freshness,
    RunOutcome,
    RunRow,
    Schedule,
    ScheduleRow,
    Scope,
    WorkerRow,
)
from parcelpost.health_checks import STALE_BELOW, Finding
from parcelpost.model import Site, Target, Task
from parcelpost.places import county_name, parcel_norm, state_code
from parcelpost.private_addresses import AddressRefused, Guard
from parcelpost.protocol.server import CONTROL, check_deliverable
from parcelpost.schedule import (
    DAY_SECONDS,
    LIST_SECONDS,
    duration_text,
    longest_interval,
    make_timing,
    next_run,
    parse_duration,
)
from parcelpost.units import age, count

if TYPE_CHECKING:
    from parcelpost.gateway.context import Platforms

_MAX_OPEN_TASKS = 500
"""Of a run: while no worker takes them, no more are queued."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DEFAULT_PACE_SECONDS = 1.0
_MAX_PACE_SECONDS = 86_400.0
_MAX_RUNS = 50
_MAX_NAMED = 3
_MAX_URL_CHARS = 2_000
_MAX_ERROR_CHARS = 500
_LIST = "list"
"""Takes the place of a parcel number in the task for a whole list: workers accept no task without one."""
_CATCH_UP = timedelta(minutes=1)
"""After a block, a pause or an outage, this much of the pace is made up for, not all of it."""
_FRESHNESS_AGE = timedelta(seconds=60)


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an operator says of a schedule. Either `every` or `cron`."""

    name: str
    platform: str
    state: str
    county: str
    every: str = ""
    """Such as 12h, 7d or 2w."""
    at: str = ""
    """Time of day, such as 02:00, for whole days."""
    timezone: str = ""
    """Such as America/New_York. '': the gateway's."""
    cron: str = ""
    """Five fields, such as `0 2 * * 1`."""
    scope: Scope = Scope.KNOWN
    window: str = ""
    """Over which a run is spread, such as 6h. '': the interval, at most a day, or an hour for a list."""
    pace_seconds: float | None = None
    """Minimum time between two tasks; null: the site's."""
    url: str = ""
    """URL of the list, for scope `list`."""
    parcels: tuple[str, ...] = ()
    """Parcel numbers, for scope `file`. Spellings of one number count once."""


def make_schedule(
    new: NewSchedule,
    now: datetime,
    platforms: Platforms | None,
    targets: Sequence[Target] = (),
    *,
    reported: Collection[str] = (),
    is_known: bool = False,
) -> tuple[Schedule, Sequence[Target]]:
    """Returns the schedule and what it scrapes, if that is a file or a list. `targets`: those of a file. `reported`:
    platforms of the workers, which are known, too. `is_known`: the ledger has parcels of the county (`is_in_ledger`).

    Raises InvalidInput.
    """
    if not _NAME.fullmatch(new.name):
        raise InvalidInput(
            f"name: {new.name!r:.80} is not valid",
            hint="use up to 64 lower-case letters and digits, with . _ - between them",
        )
    state, county = state_code(new.state), county_name(new.county)
    if not (new.platform and state and county):
        raise InvalidInput("a schedule requires a platform, a state and a county")
    targets = targets or _targets(new, state, county)
    task = Task(
        task_id=new.name, platform=new.platform, target=Target(parcel_id="", state=state, county=county, url=new.url)
    )
    check_deliverable(task)
    if len(new.url) > _MAX_URL_CHARS or CONTROL.search(new.url):
        raise InvalidInput(f"url: must have at most {_MAX_URL_CHARS:,} characters, none of them control characters")
    if platforms is not None:
        task = task if is_known else platforms.checked(task, reported)
        if new.scope is Scope.LIST:
            platforms.check_list(task.platform, targets[0])
    check_url = _check_any_url if platforms is None else platforms.check_url
    for url in {target.url for target in targets if target.url}:
        check_url(url)
    timing = make_timing(new.every, new.at, new.timezone, new.cron)
    interval = longest_interval(timing).total_seconds()
    longest = LIST_SECONDS if new.scope is Scope.LIST and len(targets) == 1 else DAY_SECONDS
    window = parse_duration("window", new.window) if new.window else min(interval, longest)
    if window > interval:
        raise InvalidInput(f"window: {duration_text(window)} is longer than the interval, {duration_text(interval)}")
    site_pace = _DEFAULT_PACE_SECONDS if platforms is None else platforms.pace_seconds(task.site)
    if new.pace_seconds is not None and not site_pace <= new.pace_seconds <= _MAX_PACE_SECONDS:
        raise InvalidInput(f"pace: must be at least {site_pace:g} seconds, the site's own pace, and at most a day")
    schedule = Schedule(
        name=new.name,
        platform=task.platform,
        state=state,
        county=county,
        timing=timing,
        scope=new.scope,
        window_seconds=window,
        pace_seconds=max(new.pace_seconds or site_pace, 0.001),
        created_at=now,
    )
    return schedule, targets


def _check_any_url(url: str) -> None:
    """Raises InvalidInput. Workers may be allowed to request private addresses."""
    try:
        Guard(["0.0.0.0/0", "::/0"]).url(url)
    except AddressRefused as error:
        raise InvalidInput(f"url: {error}") from None


async def is_in_ledger(ledger: Ledger, new: NewSchedule) -> bool:
    """Whether the platform has delivered parcels of the county, so that some worker can scrape it."""
    try:
        state, county = state_code(new.state), county_name(new.county)
    except InvalidInput:
        return False
    return await ledger.has_parcels(Site(new.platform, state, county))


def first_run(schedule: Schedule, now: datetime) -> datetime:
    """At once, unless the schedule has a time of day."""
    timing = schedule.timing
    return next_run(timing, schedule.created_at, now) if timing.at or timing.cron else now


def _targets(new: NewSchedule, state: str, county: str) -> list[Target]:
    if new.scope is Scope.LIST:
        return [Target(parcel_id=_LIST, state=state, county=county, url=new.url)]
    if new.url:
        raise InvalidInput("url requires scope list", hint="set scope to list, or omit url")
    if (new.scope is Scope.FILE) != bool(new.parcels):
        raise InvalidInput("parcels are required with scope file, and not allowed with any other scope")
    targets = (_target(number.strip(), state, county) for number in new.parcels)
    return list({parcel_norm(target.parcel_id): target for target in targets}.values())


def _target(parcel_id: str, state: str, county: str) -> Target:
    """Raises InvalidInput."""
    target = Target(parcel_id=parcel_id, state=state, county=county)
    check_deliverable(Task(task_id="", platform="", target=target))
    if not parcel_norm(parcel_id):
        raise InvalidInput(f"parcels: {parcel_id!a:.40} is not a parcel number")
    return target


class Action(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RUN_NOW = "run-now"
    DELETE = "delete"


async def act(ledger: Ledger, name: str, action: Action, now: datetime) -> bool:
    """Returns whether there is such a schedule. Raises InvalidInput if the action does not fit its state."""
    row = await find_schedule(ledger, name)
    if row is None:
        return False
    if action is Action.DELETE:
        return await ledger.delete_schedule(row.schedule_no)
    if action is Action.PAUSE:
        await ledger.set_paused(row.schedule_no, row.paused_at or now)
    elif action is Action.RESUME:
        await ledger.set_paused(row.schedule_no, None)
    else:
        if row.paused_at is not None:
            raise InvalidInput(f"schedule {name} is paused", hint="resume it first")
        if row.run is not None:
            raise InvalidInput(f"a run of schedule {name} is in progress")
        if not await ledger.set_next_run(row.schedule_no, row.next_run_at, now):
            raise InvalidInput(f"schedule {name} changed at the same moment", hint="try again")
    return True


async def find_schedule(ledger: Ledger, name: str) -> ScheduleRow | None:
    """Returns None if there is none, or for '', which names none."""
    rows = await ledger.schedules(name) if name else ()
    return rows[0] if rows else None


class ScheduleState(StrEnum):
    WAITING = "waiting"
    """Waiting for the next run."""
    RUNNING = "running"
    RESTING = "resting"
    """A run is in progress, and the site blocks every worker."""
    FAILING = "failing"
    """An error keeps it from running, or all tasks of its last run failed."""
    PAUSED = "paused"


class ScheduleRun(Struct, frozen=True, kw_only=True):
    due_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: RunOutcome
    total: int
    """Tasks."""
    queued: int
    """How many of them were queued so far."""
    done: int
    """Once it has ended: tasks with a record, or whose parcel the site does not have."""
    failed: int


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    name: str
    platform: str
    state: str
    county: str
    scope: Scope
    status: ScheduleState
    message: str
    """Why it rests or fails, or that a run was skipped; else ''."""
    timing: str
    """Such as `every 7 days at 02:00 America/New_York`."""
    window_seconds: float
    pace_seconds: float
    created_at: datetime
    next_run_at: datetime | None
    """null while it is paused."""
    max_age_seconds: float
    """A parcel scraped within that time is fresh: the interval, and the window in which a run may reach it."""
    parcels: int
    fresh: int
    not_found: int
    """Further parcels that the site no longer has."""
    fresh_share: float | None
    """null if there are no parcels yet."""
    is_due: bool
    """Whether it has had the time to scrape every parcel."""
    is_stale: bool
    """Whether it is due and not paused, and too few parcels are fresh."""
    oldest_at: datetime | None
    """Time of the oldest scrape; null if a parcel was never scraped."""
    failing_since: datetime | None
    open_tasks: int
    """Queued or leased tasks of the run in progress."""
    run: ScheduleRun | None
    """The run in progress."""
    last_run: ScheduleRun | None


class ScheduleDetail(Struct, frozen=True):
    schedule: ScheduleStatus
    runs: Sequence[ScheduleRun]
    """The 50 newest runs, newest first."""


async def schedule_detail(
    ledger: Ledger, name: str, workers: Sequence[WorkerRow], now: datetime, cache: FreshnessCache
) -> ScheduleDetail | None:
    """Returns None if there is no such schedule."""
    row = await find_schedule(ledger, name)
    if row is None:
        return None
    statuses = await schedule_statuses(ledger, workers, now, cache, name)
    runs = await ledger.schedule_runs(row.schedule_no, _MAX_RUNS)
    return ScheduleDetail(statuses[0], list(map(run_response, runs))) if statuses else None


class FreshnessCache:
    """Counts the parcels of a schedule at most once a minute."""

    def __init__(self) -> None:
        self._counted: dict[int, tuple[datetime, Freshness]] = {}

    async def get(self, ledger: Ledger, row: ScheduleRow, now: datetime) -> Freshness:
        at, counted = self._counted.get(row.schedule_no, (now, None))
        if counted is None or not at <= now < at + _FRESHNESS_AGE:
            counted = await ledger.freshness(row, row.schedule.fresh_since(now))
            self._counted[row.schedule_no] = (now, counted)
        return counted

    def keep(self, rows: Iterable[ScheduleRow]) -> None:
        """Deletes the counts of all other schedules."""
        known = {row.schedule_no for row in rows}
        self._counted = {number: counted for number, counted in self._counted.items() if number in known}


async def schedule_statuses(
    ledger: Ledger, workers: Sequence[WorkerRow], now: datetime, cache: FreshnessCache, name: str = ""
) -> list[ScheduleStatus]:
    """Of all schedules, or the one with this name."""
    rows = await ledger.schedules(name)
    if not name:
        cache.keep(rows)
    return [_status(row, await cache.get(ledger, row, now), blocked_workers(row, workers, now), now) for row in rows]


def _status(row: ScheduleRow, freshness: Freshness, blocked: Sequence[str], now: datetime) -> ScheduleStatus:
    schedule, last, state, message = row.schedule, row.last_run, ScheduleState.WAITING, ""
    if row.run:
        state = ScheduleState.RUNNING
        if row.last_skipped and row.last_skipped.run_no > row.run.run_no:
            due = f"{row.last_skipped.due_at:%Y-%m-%d %H:%M} UTC"
            message = f"the run due {due} was skipped because this one is not done"
    failing_since = row.failing_since
    if last and last.failed and not last.done:
        state, message, failing_since = ScheduleState.FAILING, _all_failed(last), failing_since or last.started_at
    if row.run and blocked:
        state, message = (
            ScheduleState.RESTING,
            f"the site blocks {', '.join(blocked[:_MAX_NAMED])}; the run continues after the pause",
        )
    if row.error:
        state, message = ScheduleState.FAILING, row.error
    if row.paused_at is not None:
        state, message = ScheduleState.PAUSED, ""
    max_age = now - schedule.fresh_since(now)
    is_due = now - schedule.created_at > max_age
    is_active = is_due and row.paused_at is None
    is_stale = is_active and freshness.share is not None and freshness.share < STALE_BELOW
    return ScheduleStatus(
        name=schedule.name,
        platform=schedule.platform,
        state=schedule.state,
        county=schedule.county,
        scope=schedule.scope,
        status=state,
        message=message,
        timing=schedule.timing.text,
        window_seconds=schedule.window_seconds,
        pace_seconds=schedule.pace_seconds,
        created_at=schedule.created_at,
        next_run_at=None if row.paused_at else row.next_run_at,
        max_age_seconds=max_age.total_seconds(),
        parcels=freshness.parcels,
        fresh=freshness.fresh,
        not_found=freshness.not_found,
        fresh_share=freshness.share,
        is_due=is_due,
        is_stale=is_stale,
        oldest_at=freshness.oldest_at,
        failing_since=failing_since,
        open_tasks=row.open_tasks,
        run=run_response(row.run) if row.run else None,
        last_run=run_response(row.last_run) if row.last_run else None,
    )


def _all_failed(run: RunRow) -> str:
    return (
        "the only task of its last run failed"
        if run.failed == 1
        else f"all {run.failed:,} tasks of its last run failed"
    )


def run_response(run: RunRow) -> ScheduleRun:
    return ScheduleRun(
        due_at=run.due_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        outcome=run.outcome,
        total=run.total,
        queued=run.added,
        done=run.done,
        failed=run.failed,
    )


def schedule_findings(statuses: Sequence[ScheduleStatus], now: datetime) -> Iterable[Finding]:
    for status in statuses:
        place = f"{status.county}, {status.state}"
        if status.status is ScheduleState.FAILING:
            since = age((now - status.failing_since).total_seconds()) if status.failing_since else "now"
            message = f"schedule {status.name} has been failing for {since}: {status.message}"
            fix = "see why its tasks failed on the dashboard's page Failures, or delete it and add it with valid values"
            yield Finding.of("schedule.failing", message, fix)
        elif status.status is ScheduleState.RESTING:
            fix = "no action needed: it continues on its own; if the site keeps blocking, use a slower pace"
            yield Finding.of("schedule.resting", f"schedule {status.name} is on hold: {status.message}", fix)
        elif status.message:
            fix = "start more workers, or use a longer interval"
            yield Finding.of("schedule.skipped", f"schedule {status.name}: {status.message}", fix)
        if status.is_stale:
            old = status.parcels - status.fresh
            message = f"schedule {status.name} is behind: {old:,} of {count(status.parcels, 'parcel')} in {place} "
            message += f"were not scraped in the last {age(status.max_age_seconds)}"
            show = f"parcelpost gateway schedule show {status.name}"
            yield Finding.of("schedule.stale", message, f"check that workers take its tasks; see '{show}'", show)


class ScheduleRunner:
    """Any number of gateways may run schedules of one ledger."""

    def __init__(self, ledger: Ledger, clock: Clock, emit: Emit) -> None:
        self._ledger = ledger
        self._clock = clock
        self._emit = emit

    async def step(self) -> None:
        """A schedule that fails does not stop the others. Raises LedgerError."""
        now, failed = self._clock.now(), set[int]()
        running = [row for row in await self._active() if row.run is not None]
        workers = await self._ledger.workers() if running else ()
        last_added_at: dict[Site, datetime] = {}
        for row in running:
            site, run_added_at = row.schedule.site, row.run.last_added_at if row.run else now
            last_added_at[site] = max(run_added_at, last_added_at.get(site, run_added_at))
        for row in sorted(running, key=_last_added_at):  # the schedules of a site take turns
            if not blocked_workers(row, workers, now):
                await self._attempt(partial(self._extend, last_added_at), row, now, failed)
        for row in await self._active():  # a run that has just ended makes room for the next
            await self._attempt(self._start_if_due, row, now, failed)
            if row.error and row.schedule_no not in failed:
                await self._ledger.set_error(row.schedule_no, "", now)

    async def _attempt(
        self,
        action: Callable[[ScheduleRow, datetime], Awaitable[None]],
        row: ScheduleRow,
        now: datetime,
        failed: set[int],
    ) -> None:
        try:
            await action(row, now)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other schedules go on
            failed.add(row.schedule_no)
            message = f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
            if row.error != message:
                await self._ledger.set_error(row.schedule_no, message, now)
                self._emit(ScheduleFailed(schedule=row.schedule.name, error=message))

    async def _active(self) -> list[ScheduleRow]:
        return [row for row in await self._ledger.schedules() if row.paused_at is None]

    async def _start_if_due(self, row: ScheduleRow, now: datetime) -> None:
        """Runs missed while no gateway was running are made up by a single run."""
        schedule = row.schedule
        following = next_run(schedule.timing, schedule.created_at, now)
        if row.next_run_at <= now:
            total = 0 if row.run else await self._ledger.run_total(row, now)
            if await self._ledger.start_run(row, total, now, following):
                skipped = RunSkipped(schedule=schedule.name, late_seconds=_late(row, now))
                started = RunStarted(schedule=schedule.name, tasks=total, late_seconds=_late(row, now))
                self._emit(skipped if row.run else started)
        elif row.next_run_at > following:  # the clock was ahead when it was set
            await self._ledger.set_next_run(row.schedule_no, row.next_run_at, following)

    async def _extend(self, last_added_at: dict[Site, datetime], row: ScheduleRow, now: datetime) -> None:
        """Updates when a task was last added for the schedule's site."""
        run, site = row.run, row.schedule.site
        if run is None:
            return
        pace = timedelta(seconds=row.schedule.pace_seconds)
        added_at = max(last_added_at[site], now - max(pace, _CATCH_UP))
        most = 0 if run.all_added else _allowed(row, run, added_at, now)
        if most or run.all_added:
            added_at = max(added_at + most * pace, now - pace)
            if await self._ledger.extend_run(row, most, now, added_at):
                last_added_at[site] = added_at


def _last_added_at(row: ScheduleRow) -> datetime:
    return row.run.last_added_at if row.run else row.next_run_at


def _allowed(row: ScheduleRow, run: RunRow, last_added_at: datetime, now: datetime) -> int:
    """Returns how many tasks may be queued now: no more than the window and the site's pace allow, and few enough to
    wait.
    """
    schedule = row.schedule
    spacing = max(schedule.pace_seconds, schedule.window_seconds / max(1, run.total))
    due = math.floor((now - run.started_at).total_seconds() / spacing) + 1 - run.added
    by_pace = math.floor((now - last_added_at).total_seconds() / schedule.pace_seconds)
    return max(0, min(due, by_pace, _MAX_OPEN_TASKS - row.open_tasks))


def _late(row: ScheduleRow, now: datetime) -> float:
    return max(0.0, (now - row.next_run_at).total_seconds())


def blocked_workers(row: ScheduleRow, workers: Iterable[WorkerRow], now: datetime) -> Sequence[str]:
    """Returns the ids of the platform's live workers if its site blocks all of them; else nothing."""
    site = row.schedule.site
    able = [
        worker.heartbeat
        for worker in workers
        if worker.is_alive(now) and (not worker.heartbeat.platforms or site.platform in worker.heartbeat.platforms)
    ]
    if all(any(paused.covers(site) for paused in heartbeat.blocked) for heartbeat in able):
        return sorted(heartbeat.worker_id for heartbeat in able)
    return ()
