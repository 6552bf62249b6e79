"""The janitor's rounds: what the store offers, at the times the operator set, and what was missed while off."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed
from parcelpost.settings.keys import ExecutorSettings, JanitorSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.metrics import Sample
from parcelpost.worker.resources import Load

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
        is_on_duty = self._lpm.duties.take("janitor")
        await self._relieve(is_on_duty)  # before all that writes: on a full disk nothing else works
        if not is_on_duty:
            return _NOT_ON_DUTY_SECONDS
        await self._lpm.recover_abandoned()
        await self._lpm.janitor.correct_times()
        await self._lpm.expire_tasks(self._max_age)
        if self._clock.monotonic() - self._sampled_at >= _SAMPLE_SECONDS:
            await self._sample()
        await self._chores()
        return _TURN_SECONDS

    async def _relieve(self, is_on_duty: bool) -> None:
        if self._level() is Level.FINE or self._clock.monotonic() - self._relieved_at < _RELIEF_SECONDS:
            return
        self._relieved_at = self._clock.monotonic()
        if is_on_duty:
            await self._lpm.janitor.relieve()
        else:
            await self._lpm.janitor.give_back()

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
        if runs.backup < _last(self._backup_at, now) and await self._do("backup", self._lpm.janitor.backup):
            runs = await self._remember(replace(runs, backup=now))
        if runs.clean < _last(self._clean_at, now):
            full = now - runs.vacuum >= _FULL_VACUUM_EVERY
            if await self._do("clean", lambda: self._lpm.janitor.clean(full=full)):
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
