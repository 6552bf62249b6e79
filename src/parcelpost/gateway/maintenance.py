"""The gateway's background loop: expires leases, runs schedules, finds changes, keeps the search up to date, prunes old
rows and writes counters to the ledger.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from parcelpost.errors import LedgerError
from parcelpost.events import LeasesEnded, LedgerFound, LedgerLost, LedgerPruned, LoopFailed, ResultNotCompared
from parcelpost.gateway.context import Context
from parcelpost.gateway.schedules import ScheduleRunner

_STEP_SECONDS = 2.0
_MAX_PAUSE = 10.0  # after failures: leases must not wait long
_PRUNE_SECONDS = 60.0
_STUCK_SECONDS = 1_800.0  # beyond every timeout of a ledger
_BATCH = 1_000
_ARTIFACTS_AT_ONCE = 200
_MAX_ROUNDS = 20
_COMPARED_AT_ONCE = 100
_INDEXED_AT_ONCE = 200
_BUSY_RESULTS = 2_000  # stored since the last step
_BUSY_SECONDS = 0.1
_BUSY_SHARE = 0.05  # of the time
_BUSY_SEARCH_SHARE = 0.03


class _Backlog:
    """Work that results leave behind. It is done a little at a time: others write, too. While more than a thousand
    results arrive per second, it takes only a share of the time, so that they are not held up, and catches up later.
    """

    def __init__(self, context: Context, busy_share: float) -> None:
        self._clock = context.clock
        self._busy_share = busy_share
        self._next_at = 0.0

    async def catch_up(self, work: Callable[[], Awaitable[int]], *, is_busy: bool) -> None:
        """`work` returns how much it did; 0 when nothing is left."""
        began = self._clock.monotonic()
        if is_busy and began < self._next_at:
            return
        until = began + (_BUSY_SECONDS if is_busy else _STEP_SECONDS)
        while self._clock.monotonic() < until and await work():
            pass
        ended = self._clock.monotonic()
        self._next_at = ended + (ended - began) / self._busy_share


class Maintenance:
    """One step every few seconds until stopped. It waits for an unavailable ledger; any other failure is reported and
    retried.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._schedules = ScheduleRunner(context.ledger, context.clock, context.emit)
        self._lost_at: float | None = None
        self._failures = 0
        self._prune_at = 0.0
        self._stored = 0
        self._is_busy = False
        self._changes = _Backlog(context, _BUSY_SHARE)
        self._search = _Backlog(context, _BUSY_SEARCH_SHARE)
        self._began: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a step has taken far too long."""
        return self._began is not None and self._context.clock.monotonic() - self._began > _STUCK_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        while not await self._context.clock.wait(stop, await self.step()):
            pass

    async def finish(self) -> None:
        """Writes the last counts, after the server has stopped."""
        await self._do(self._flush)

    async def step(self) -> float:
        """Returns the seconds until the next step."""
        self._began = self._context.clock.monotonic()
        try:
            return await self._do(
                self._look_how_busy,
                self._expire_leases,
                self._schedules.step,
                self._flush,
                self._find_changes,
                self._update_search,
                self._prune,
            )
        finally:
            self._began = None

    async def _do(self, *jobs: Callable[[], Awaitable[None]]) -> float:
        """Runs all jobs, even if one fails."""
        outage: LedgerError | None = None
        failure: Exception | None = None
        for job in jobs:
            try:
                await job()
            except LedgerError as error:
                outage = error
            except Exception as error:  # noqa: BLE001 - a loop must not die
                failure = error
        if outage:
            self._lost(outage)
        else:
            self._found()
        return self._failed(failure) if failure else self._succeeded()

    async def _look_how_busy(self) -> None:
        counts = self._context.counters.totals
        stored = sum(number for (_, outcome), number in counts.items() if outcome == "stored")
        self._is_busy, self._stored = stored - self._stored > _BUSY_RESULTS, stored

    async def _expire_leases(self) -> None:
        queued, dead = Counter[str](), Counter[str]()
        for _ in range(_MAX_ROUNDS):
            ended = await self._context.ledger.expire_leases(self._context.clock.now(), _BATCH)
            queued.update(ended.queued)
            dead.update(ended.dead)
            if len(ended.queued) + len(ended.dead) < _BATCH:
                break
        for outcome, platforms in (("expired", queued), ("dead", dead)):
            for platform, number in platforms.items():
                self._context.counters.count(platform, outcome, number)
        if queued or dead:
            self._context.emit(LeasesEnded(queued=queued.total(), dead=dead.total()))

    async def _find_changes(self) -> None:
        await self._changes.catch_up(self._compare, is_busy=self._is_busy)

    async def _update_search(self) -> None:
        clock, ledger = self._context.clock, self._context.ledger
        await self._search.catch_up(lambda: ledger.update_search(clock.now(), _INDEXED_AT_ONCE), is_busy=self._is_busy)

    async def _compare(self) -> int:
        """Returns how many results were compared. One that cannot be compared does not stop the others."""
        try:
            return await self._context.ledger.find_changes(self._context.clock.now(), _COMPARED_AT_ONCE)
        except LedgerError:
            raise
        except Exception:  # noqa: BLE001 - whatever a record may cause
            return await self._compare_one_by_one()

    async def _compare_one_by_one(self) -> int:
        ledger, clock = self._context.ledger, self._context.clock
        for compared in range(_COMPARED_AT_ONCE):
            if (first := await ledger.first_to_compare()) is None:
                return compared
            try:
                await ledger.find_changes(clock.now(), 1)
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a record may cause
                await ledger.skip_comparison(first.queue_no)
                reason = f"{type(error).__name__}: {error}"
                self._context.emit(ResultNotCompared(platform=first.platform, task_id=first.task_id, error=reason))
        return _COMPARED_AT_ONCE

    async def _flush(self) -> None:
        taken = dict(self._context.counters.take())
        try:
            for minute in list(taken):
                await self._context.ledger.add_activity(taken[minute], minute)
                del taken[minute]
        finally:
            for minute, counts in taken.items():
                self._context.counters.put_back(minute, counts)

    async def _prune(self) -> None:
        """Deletes a few rows at a time, so that requests do not wait long for the ledger."""
        if self._context.clock.monotonic() < self._prune_at:
            return
        now, settings = self._context.clock.now(), self._context.settings
        ended_before = now - timedelta(days=settings.keep_days)
        silent_before = now - timedelta(days=settings.keep_workers_days)
        self._prune_at = self._context.clock.monotonic() + _PRUNE_SECONDS
        removed = await self._context.ledger.prune(ended_before, silent_before, _BATCH)
        if removed:
            self._context.emit(LedgerPruned(removed=removed))
        if await self._remove_artifacts() or removed:
            self._prune_at = 0.0

    async def _remove_artifacts(self) -> int:
        """Deletes files first: no file is left without its row. Returns how many artifacts were deleted."""
        unused = await self._context.ledger.unused_artifacts(_ARTIFACTS_AT_ONCE)
        for task_id, kind in unused:
            await self._context.raw_store.delete_artifact(task_id, kind)
            await self._context.ledger.delete_artifact(task_id, kind)
        return len(unused)

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        pause = min(_MAX_PAUSE, _STEP_SECONDS * self._failures)
        message = f"{type(error).__name__}: {error}"
        self._context.emit(
            LoopFailed(loop="maintenance", error=message, in_a_row=self._failures, next_in_seconds=pause)
        )
        return pause

    def _succeeded(self) -> float:
        self._failures = 0
        return _STEP_SECONDS

    def _lost(self, error: LedgerError) -> None:
        if self._lost_at is None:
            self._lost_at = self._context.clock.monotonic()
            self._context.emit(LedgerLost(reason=str(error)))

    def _found(self) -> None:
        if self._lost_at is not None:
            self._context.emit(LedgerFound(offline_seconds=self._context.clock.monotonic() - self._lost_at))
            self._lost_at = None
