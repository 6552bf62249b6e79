"""The janitor loop, and what watches the store beside it: its level, its figures, the progress of the work."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed, StorageLevelChanged, StoreFound, StoreLost, WorkStands
from parcelpost.settings.schema import ExecutorSettings, JanitorSettings
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.history import Sample
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.telemetry import Figures
from parcelpost.worker.resources import Load

_EVERY_SECONDS = 0.5


class StorageWatch:
    def __init__(self, lpm: LocalPersistenceManager, emit: Emit) -> None:
        self._lpm = lpm
        self._emit = emit
        self.usage: Usage | None = None
        self.missing = ""
        """What is wrong when the store's files are no longer where they were."""

    def level(self) -> Level:
        """What may go on."""
        return Level.EXECUTOR_STOPS if self.missing else self.fill_level()

    def fill_level(self) -> Level:
        return self.usage.level if self.usage else Level.FINE

    async def step(self) -> float:
        self._look_for_files()
        if not self.missing:
            await self._look_at_usage()
        return _EVERY_SECONDS

    def _look_for_files(self) -> None:
        before, self.missing = self.missing, self._lpm.missing
        if self.missing and self.missing != before:
            self._emit(StoreLost(reason=self.missing))
        elif before and not self.missing:
            self.usage = None
            self._emit(StoreFound(path=str(self._lpm.path)))

    async def _look_at_usage(self) -> None:
        before = self.fill_level()
        usage = await self._lpm.maintenance.usage()
        self.usage = usage
        if usage.level is not before:
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
                await self._lpm.maintenance.refill()


async def figures(lpm: LocalPersistenceManager) -> Figures:
    health = await lpm.maintenance.health()
    newest = health.newest_backup_age_seconds
    return Figures(
        depth=await lpm.queue_depth(),
        store_bytes=health.usage.total,
        store_max_bytes=health.usage.max_bytes,
        disk_free_bytes=health.usage.disk_free,
        disk_free_inodes=health.usage.free_inodes,
        without_backup_seconds=health.age_seconds if newest is None else newest,
        paused=list(await lpm.paused_platforms()),
    )


class Progress:
    def __init__(self, lpm: LocalPersistenceManager, emit: Emit, seconds: float) -> None:
        self._lpm = lpm
        self._emit = emit
        self._seconds = seconds
        self._last: WorkStands | None = None

    async def step(self) -> float:
        found = await self._look()
        if found != self._last:
            self._say(found)
        return self._seconds

    async def tell(self) -> None:
        """Now, changed or not."""
        self._say(await self._look())

    async def _look(self) -> WorkStands:
        depth = await self._lpm.queue_depth()
        return WorkStands(
            pending=depth.pending,
            running=depth.processing,
            completed=depth.completed,
            not_found=depth.not_found,
            failed=depth.failed,
            expired=depth.expired,
            unsynced=depth.unsynced,
            rejected=depth.rejected,
        )

    def _say(self, found: WorkStands) -> None:
        self._last = found
        self._emit(found)


_TURN_SECONDS = 15.0
_NOT_ON_DUTY_SECONDS = 5.0
_SAMPLE_SECONDS = 60.0
_RELIEF_SECONDS = 60.0
_AGAIN_SECONDS = 600.0
_FULL_VACUUM_EVERY = timedelta(days=7)
_DAY = timedelta(days=1)
STATE = "janitor"


class LastRuns(Struct, frozen=True, kw_only=True):
    """When each chore was last done. Kept over restarts."""

    backup: datetime
    clean: datetime
    vacuum: datetime


class JanitorLoop:
    """Of several processes on one store only one keeps house and samples the load; at the cap each makes room."""

    def __init__(
        self,
        lpm: LocalPersistenceManager,
        settings: JanitorSettings,
        executor: ExecutorSettings,
        *,
        level: Callable[[], Level],
        load: Callable[[], Load],
        clock: Clock,
        emit: Emit,
    ) -> None:
        self._lpm = lpm
        self._backup_at = time.fromisoformat(settings.backup_at)
        self._clean_at = time.fromisoformat(settings.clean_at)
        hours = executor.max_task_age_hours
        self._max_age = timedelta(hours=hours) if hours else None
        self._level = level
        self._load = load
        self._clock = clock
        self._emit = emit
        self._sampled_at = clock.monotonic()
        self._relieved_at = -_RELIEF_SECONDS
        self._runs: LastRuns | None = None
        """None: not looked up yet."""
        self._not_before: dict[str, float] = {}
        """By the monotonic clock: when a chore that failed is tried again."""

    async def step(self) -> float:
        is_leader = self._lpm.leader_locks.take("janitor")
        await self._relieve(is_leader)  # before all that writes: on a full disk nothing else works
        if not is_leader:
            return _NOT_ON_DUTY_SECONDS
        await self._lpm.recover_abandoned()
        await self._lpm.maintenance.correct_times()
        await self._lpm.expire_tasks(self._max_age)
        if self._clock.monotonic() - self._sampled_at >= _SAMPLE_SECONDS:
            await self._sample()
        await self._chores()
        return _TURN_SECONDS

    async def _relieve(self, is_leader: bool) -> None:
        if self._level() is Level.FINE or self._clock.monotonic() - self._relieved_at < _RELIEF_SECONDS:
            return
        self._relieved_at = self._clock.monotonic()
        if is_leader:
            await self._lpm.maintenance.relieve()
        else:
            await self._lpm.maintenance.give_back()

    async def _sample(self) -> None:
        self._sampled_at = self._clock.monotonic()
        window = await self._lpm.metrics.window(_SAMPLE_SECONDS)
        load = self._load()
        browsers = await self._lpm.browsers.all()
        average = window.average_execution_time_ms
        await self._lpm.metrics.record(
            Sample(
                tasks_completed=window.completed,
                tasks_failed=window.failed,
                average_execution_time_ms=None if average is None else round(average),
                browsers_active=sum(browser.status in ("idle", "busy") for browser in browsers),
                ram_used_gb=load.memory.used_bytes / 1024**3,
                ram_percent=load.memory.percent,
                cpu_percent=load.cpu_percent,
            )
        )

    async def _chores(self) -> None:
        now = self._clock.now()
        runs = await self._last_runs(now)
        if runs.backup < _last(self._backup_at, now) and await self._do("backup", self._lpm.maintenance.backup):
            runs = await self._remember(replace(runs, backup=now))
        if runs.clean < _last(self._clean_at, now):
            full = now - runs.vacuum >= _FULL_VACUUM_EVERY
            if await self._do("clean", lambda: self._lpm.maintenance.clean(full=full)):
                await self._remember(replace(runs, clean=now, vacuum=now if full else runs.vacuum))

    async def _last_runs(self, now: datetime) -> LastRuns:
        known = self._runs or await self._lpm.state.get(STATE, LastRuns)
        if known is None:  # the first start: nothing was missed
            return await self._remember(LastRuns(backup=now, clean=now, vacuum=now))
        runs = LastRuns(
            backup=_believable(known.backup, now),
            clean=_believable(known.clean, now),
            vacuum=_believable(known.vacuum, now),
        )
        return runs if runs == self._runs else await self._remember(runs)

    async def _remember(self, runs: LastRuns) -> LastRuns:
        self._runs = runs
        with contextlib.suppress(StoreError):  # then a chore is done once more after a restart
            await self._lpm.state.put(STATE, runs)
        return runs

    async def _do(self, name: str, chore: Callable[[], Awaitable[object]]) -> bool:
        """Whether it was done. One that fails is tried again later, and keeps the others from nothing."""
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
    """The newest moment, not later than now, when the local clock showed `at`."""
    today = now.astimezone().date()
    moment = _local(today, at)
    return moment if moment <= now else _local(today - _DAY, at)


def _local(day: date, at: time) -> datetime:
    """By that day's own offset: summer time may have begun or ended since. A moment it skips comes an hour later."""
    return datetime.fromtimestamp(datetime.combine(day, at).timestamp(), UTC)


def _believable(moment: datetime, now: datetime) -> datetime:
    """One far ahead was written by a clock that was wrong: waiting for it could take years."""
    return moment if moment <= now + _DAY else now
