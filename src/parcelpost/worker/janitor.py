"""The janitor: recovery, expiry, backups, clean-up; measures store and machine, reports progress, publishes status."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed, StorageLevelChanged, StoreFound, StoreLost, WorkProgress
from parcelpost.storage.health import Level
from parcelpost.storage.history import Sample
from parcelpost.storage.queries import Failures
from parcelpost.telemetry import Figures
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import FailureCount
from parcelpost.worker.resources import Resources
from parcelpost.worker.schedules import StandaloneSchedules
from parcelpost.worker.status import Publisher, delete_old_statuses

_STEP_SECONDS = 0.5
_RECORD_SECONDS = 2.0
_CHORES_SECONDS = 15.0
_NOT_LEADER_SECONDS = 5.0
_OBSERVE_SECONDS = 10.0
_SAMPLE_SECONDS = 60.0
_RELIEF_SECONDS = 60.0
_AGAIN_SECONDS = 600.0
_FULL_VACUUM_EVERY = timedelta(days=7)
_DAY = timedelta(days=1)
STATE = "janitor"
_REPORT_SECONDS = 1.0


class LastRuns(Struct, frozen=True, kw_only=True):
    """When each chore was last done. Survives restarts."""

    backup: datetime
    clean: datetime
    vacuum: datetime


class _BackgroundTask:
    """Work that may take long or wait for the store: it runs concurrently with the janitor's steps.

    Once its failures are final, the next step raises the last one, which ends the worker.
    """

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, float]], emit: Emit) -> None:
        self._work = work
        self._failures = FailureCount(name, emit)
        self._task: asyncio.Task[float] | None = None
        self._due_at = 0.0
        self._began = 0.0

    def seconds(self, now: float) -> float:
        """Returns how long it has been running, 0 if it is not."""
        return 0.0 if self._task is None or self._task.done() else now - self._began

    def start_if_due(self, now: float) -> None:
        if self._task is not None and self._task.done():
            self._due_at = now + self._delay_after(self._task)
            self._task = None
        if self._task is None and now >= self._due_at:
            self._began = now
            self._task = asyncio.create_task(self._work())

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()

    def _delay_after(self, ended: asyncio.Task[float]) -> float:
        error = ended.exception()
        if error is None:
            self._failures.reset()
            return ended.result()
        pause = self._failures.add(error)
        if self._failures.is_final:
            raise error
        return pause


class Janitor:
    """Each step measures the store and the machine. Reports and chores run in the background.

    One process per store does the chores (leader lock). At the size limit every process frees space.
    """

    def __init__(
        self,
        context: Context,
        resources: Resources,
        learning: Learning,
        publisher: Publisher,
        *,
        progress_seconds: float,
        observe: Callable[[Figures], None] | None = None,
    ) -> None:
        """`observe` is called with the store's figures, for the metrics page."""
        settings = context.settings
        self.context = context
        self._lpm = context.lpm
        self._maintenance = context.lpm.maintenance
        self._control = context.control
        self._clock = context.clock
        self._emit = context.emit
        self._resources = resources
        self._learning = learning
        self._publisher = publisher
        self._progress_seconds = progress_seconds
        self._observe_figures = observe
        self._backup_at = time.fromisoformat(settings.janitor.backup_at)
        self._clean_at = time.fromisoformat(settings.janitor.clean_at)
        hours = settings.executor.max_task_age_hours
        self._max_age = timedelta(hours=hours) if hours else None
        self._reports = _BackgroundTask("janitor: reports", self._report, self._emit)
        self._chores = _BackgroundTask("janitor: chores", self.do_chores, self._emit)
        self._due: dict[str, float] = {}
        """Monotonic time at which each periodic action is due."""
        self._progress: WorkProgress | None = None
        self._sampled_at = self._clock.monotonic()
        self._relieved_at = -_RELIEF_SECONDS
        self._runs: LastRuns | None = None
        """None: not read yet."""
        self._not_before: dict[str, float] = {}
        """Monotonic time before which a failed chore is not tried again."""
        self.schedules: StandaloneSchedules | None = None
        """Set by a standalone worker that keeps running when its queue is empty."""
        self.cleaning_since: datetime | None = None
        self.check_end: Callable[[], Awaitable[None]] | None = None
        """Ends the run when nothing is left to do; None: it does not end by itself."""
        self.parent_pid: int | None = None
        """The process that started this worker and whose end drains it; None: there is none."""
        self.failures: Failures | None = None
        """Failures of the last day; set only if the metrics page is served."""

    @property
    def chores_seconds(self) -> float:
        """How long the chores have been running, 0 if they are not. They may lock the store."""
        return self._chores.seconds(self._clock.monotonic())

    async def start(self) -> None:
        """Takes the first measurements and loads the learned ranking, before any loop runs."""
        await self.watch_storage()
        await self._resources.sample()
        with contextlib.suppress(StoreError):  # tried again in `record`; no task waits for it
            await self._learning.load()

    async def step(self) -> float:
        if self.parent_pid is not None and os.getppid() != self.parent_pid:
            self._control.leave("the process that started it has ended")
        if self._is_due("resources", self.context.settings.resources.sample_seconds):
            await self._resources.sample()
        await self.watch_storage()
        now = self._clock.monotonic()
        self._reports.start_if_due(now)
        self._chores.start_if_due(now)
        if self.check_end is not None:
            await self.check_end()
        return _STEP_SECONDS

    async def close(self) -> None:
        """Stops background work, stores the last signals and reports the progress."""
        for task in (self._chores, self._reports):
            await task.cancel()
        await self.record()
        with contextlib.suppress(StoreError):
            await self.report_progress(even_if_unchanged=True)

    async def flush(self) -> None:
        """Stores the signals collected since the last step."""
        with contextlib.suppress(StoreError):
            await self._learning.flush()

    def _is_due(self, name: str, seconds: float) -> bool:
        now = self._clock.monotonic()
        if now < self._due.get(name, 0.0):
            return False
        self._due[name] = now + seconds
        return True

    # The store and the queue

    async def watch_storage(self) -> None:
        before, missing = self._control.missing, self._lpm.watch_files()
        self._control.missing = missing
        if missing:
            if missing != before:
                self._emit(StoreLost(reason=missing))
            return
        if before:
            self._control.usage = None
            self._emit(StoreFound(path=str(self._lpm.path)))
        level = self._control.fill_level
        usage = self._control.usage = await self._maintenance.usage()
        if usage.level is not level:
            self._emit(
                StorageLevelChanged(
                    level=usage.level,
                    bytes=usage.total,
                    max_bytes=usage.max_bytes,
                    free_bytes=usage.disk_free,
                    free_inodes=usage.free_inodes,
                )
            )
            if usage.level is Level.FINE:
                await self._maintenance.refill()

    async def _report(self) -> float:
        if self._is_due("record", _RECORD_SECONDS):
            await self.record()
        if self._is_due("progress", self._progress_seconds):
            await self.report_progress()
        if self._observe_figures is not None and self._is_due("figures", _OBSERVE_SECONDS):
            await self._observe(self._observe_figures)
        return _REPORT_SECONDS

    async def report_progress(self, *, even_if_unchanged: bool = False) -> None:
        progress = convert(await self._lpm.queue_depth(), WorkProgress, from_attributes=True)
        if even_if_unchanged or progress != self._progress:
            self._progress = progress
            self._emit(progress)

    async def _observe(self, observe: Callable[[Figures], None]) -> None:
        health = await self._maintenance.health()
        newest = health.newest_backup_age_seconds
        observe(
            Figures(
                depth=await self._lpm.queue_depth(),
                store_bytes=health.usage.total,
                store_max_bytes=health.usage.max_bytes,
                disk_free_bytes=health.usage.disk_free,
                disk_free_inodes=health.usage.free_inodes,
                without_backup_seconds=health.age_seconds if newest is None else newest,
                paused=[site.platform for site in await self._lpm.pauses()],
            )
        )
        self.failures = await self._lpm.failures_since(self._clock.now() - _DAY)

    async def record(self) -> None:
        """Stores new signals and publishes the status. No task waits for these writes."""
        with contextlib.suppress(StoreError):  # a full disk is reported by the writes that wait for it
            await self._learning.load()
            await self._learning.flush()
        self._learning.find_broken()
        await self._publisher.publish()

    # Chores

    async def do_chores(self) -> float:
        is_leader = self._lpm.leader_locks.take("janitor")
        await self._relieve(is_leader)  # first: on a full disk the other chores fail
        if not is_leader:
            return _NOT_LEADER_SECONDS
        await self._lpm.recover_abandoned()
        await self._maintenance.correct_times()
        await self._lpm.expire_tasks(self._max_age)
        if self.schedules is not None:
            await self.schedules.step()
        if self._clock.monotonic() - self._sampled_at >= _SAMPLE_SECONDS:
            await self._sample()
        await self._back_up_and_clean()
        return _CHORES_SECONDS

    async def _relieve(self, is_leader: bool) -> None:
        if self._control.fill_level is Level.FINE or self._clock.monotonic() - self._relieved_at < _RELIEF_SECONDS:
            return
        self._relieved_at = self._clock.monotonic()
        if is_leader:
            await self._maintenance.relieve()
        else:
            await self._maintenance.give_back()

    async def _sample(self) -> None:
        self._sampled_at = self._clock.monotonic()
        window = await self._lpm.metrics.window(_SAMPLE_SECONDS)
        load = self._resources.load
        browsers = await self._lpm.browsers.all()
        average = window.average_execution_time_ms
        uploads = await self._lpm.sync_log.recent(1, direction="upload")
        await self._lpm.metrics.record(
            Sample(
                tasks_completed=window.completed,
                tasks_failed=window.failed,
                average_execution_time_ms=None if average is None else round(average),
                browsers_active=sum(browser.status in ("idle", "busy") for browser in browsers),
                ram_used_gb=load.memory.used_bytes / 1024**3,
                ram_percent=load.memory.percent,
                cpu_percent=load.cpu_percent,
                cache_hit_rate=self._lpm.cache.hit_rate,
                sync_latency_ms=uploads[0].duration_ms if uploads else None,
            )
        )

    async def _back_up_and_clean(self) -> None:
        now = self._clock.now()
        runs = await self._last_runs(now)
        if runs.backup < _last(self._backup_at, now) and await self._do("backup", self._maintenance.backup):
            runs = await self._remember(replace(runs, backup=now))
        if runs.clean < _last(self._clean_at, now):
            full = now - runs.vacuum >= _FULL_VACUUM_EVERY
            if await self._do("clean", lambda: self._clean(full=full)):
                await self._remember(replace(runs, clean=now, vacuum=now if full else runs.vacuum))

    async def _clean(self, *, full: bool) -> None:
        self.cleaning_since = self._clock.now()
        try:
            await self._publisher.publish()
            await delete_old_statuses(self._lpm.state, self._clock.now())
            await self._maintenance.clean(full=full)
        finally:
            self.cleaning_since = None

    async def _last_runs(self, now: datetime) -> LastRuns:
        known = self._runs or await self._lpm.state.get(STATE, LastRuns)
        if known is None:  # the first start
            return await self._remember(LastRuns(backup=now, clean=now, vacuum=now))
        runs = LastRuns(
            backup=_believable(known.backup, now),
            clean=_believable(known.clean, now),
            vacuum=_believable(known.vacuum, now),
        )
        return runs if runs == self._runs else await self._remember(runs)

    async def _remember(self, runs: LastRuns) -> LastRuns:
        self._runs = runs
        with contextlib.suppress(StoreError):  # at worst a chore is done twice
            await self._lpm.state.put(STATE, runs)
        return runs

    async def _do(self, name: str, chore: Callable[[], Awaitable[object]]) -> bool:
        """Returns whether the chore was done. A failed chore is tried again later and does not stop the others."""
        if self._clock.monotonic() < self._not_before.get(name, 0.0):
            return False
        try:
            await chore()
        except StoreError as error:
            self._not_before[name] = self._clock.monotonic() + _AGAIN_SECONDS
            self._emit(
                LoopFailed(loop=f"janitor: {name}", error=str(error), in_a_row=1, next_in_seconds=_AGAIN_SECONDS)
            )
            return False
        return True


def _last(at: time, now: datetime) -> datetime:
    """Returns the last time, not later than now, at which the local clock showed `at`."""
    today = now.astimezone().date()
    moment = _local(today, at)
    return moment if moment <= now else _local(today - _DAY, at)


def _local(day: date, at: time) -> datetime:
    """Uses that day's own offset from UTC. A time that daylight saving skips comes an hour later."""
    return datetime.fromtimestamp(datetime.combine(day, at).timestamp(), UTC)


def _believable(moment: datetime, now: datetime) -> datetime:
    """Returns `now` for a time in the far future, written while the clock was wrong: waiting could take years."""
    return moment if moment <= now + _DAY else now
