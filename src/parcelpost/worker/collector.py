"""The collector keeps the local queue between two water marks: the cache of tasks that outlives the gateway's naps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import Refused, StoreError, Unauthorized, Unavailable, UpstreamError
from parcelpost.events import Emit, LoopFailed, TaskSkipped, TasksReceived
from parcelpost.model import Task
from parcelpost.settings.schema import CollectorSettings, SyncSettings
from parcelpost.storage.health import Level
from parcelpost.storage.history import SyncRound
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import MOST_TASKS, Upstream, Work
from parcelpost.worker.backoff import Offline, UpstreamState
from parcelpost.worker.control import Control
from parcelpost.worker.delivery import refused
from parcelpost.worker.loop import COLLECTOR

_SUM_UP_SECONDS = 10.0


class _Received(Struct):
    """What came since the last event."""

    answers: int = 0
    new: int = 0
    known: int = 0
    bad: int = 0
    since: float = 0.0

    def add(self, new: int, known: int, bad: int, now: float) -> None:
        self.since = self.since if self.answers else now
        self.answers += 1
        self.new += new
        self.known += known
        self.bad += bad

    def age(self, now: float) -> float:
        return now - self.since if self.answers else 0.0


class Collector:
    """Every task is stored before anything else happens to it. A bad one is reported and harms none beside it."""

    def __init__(
        self,
        lpm: LocalPersistenceManager,
        upstream: Upstream,
        settings: CollectorSettings,
        sync: SyncSettings,
        control: Control,
        *,
        platforms: Callable[[], Sequence[str]],
        level: Callable[[], Level],
        arrived: Callable[[], None],
        clock: Clock,
        emit: Emit,
    ) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._settings = settings
        self._control = control
        self._platforms = platforms
        self._level = level
        self._arrived = arrived
        self._clock = clock
        self._emit = emit
        self.absence = UpstreamState(COLLECTOR, lpm, sync, clock, emit)
        self._not_before = 0.0
        """By the monotonic clock: the upstream asked for no call before that."""
        self._unstored: Sequence[Task] = ()
        self._received = _Received()
        self.offers_nothing = False
        """Whether the last answer held no task. What is not known counts as no."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def away(self) -> Offline | None:
        return self.absence.away

    async def step(self) -> float:
        if not self._control.may_start or self._level() is not Level.FINE:
            self._sum_up()
            return self._settings.poll_seconds
        wait = max(self.absence.remaining, self._not_before - self._clock.monotonic())
        if wait > 0:
            return wait
        if self._unstored:
            return await self._take_in(Work(tasks=self._unstored), self._clock.monotonic())
        wanted, platforms = await self._shortage()
        if wanted <= 0 or not platforms:
            self._sum_up()
            return self._settings.poll_seconds
        self._idle.clear()
        try:
            return await self._ask(min(wanted, MOST_TASKS), platforms)
        finally:
            self._idle.set()

    async def _shortage(self) -> tuple[int, Sequence[str]]:
        """How many tasks are wanted, and of which platforms.

        A platform that is paused fills no place and is not asked for; one that has a whole queue of tasks waiting for
        another try gets no more of them. So neither starves the others, and none hoards what others could do.
        """
        high = self._settings.high_water
        supply = await self._lpm.supply(high)
        wanted = self._platforms()
        here = sum(supply[name].ready for name in wanted if name in supply and not supply[name].paused)
        if here > self._settings.low_water:
            return 0, ()
        return high - here, [
            name
            for name in wanted
            if name not in supply or (not supply[name].paused and supply[name].ready + supply[name].delayed < high)
        ]

    @property
    def unstored(self) -> int:
        """Tasks that are ours, and that the store did not take when they came."""
        return 0 if self.is_asking else len(self._unstored)

    @property
    def is_asking(self) -> bool:
        return not self._idle.is_set()

    async def settled(self, seconds: float) -> None:
        """Waits that long for an answer that is under way: what it holds is taken from the upstream's queue already."""
        if self.is_asking:
            await self._clock.wait(self._idle, seconds)
        self._sum_up()
        if self._unstored:
            try:
                await self._lpm.add_tasks(self._unstored, granted=True)
            except StoreError as error:  # they come back when their lease is over; what else there is to do goes on
                message = f"{type(error).__name__}: {error}"
                self._emit(LoopFailed(loop=COLLECTOR, error=message, in_a_row=1, next_in_seconds=0.0))

    async def _ask(self, wanted: int, platforms: Sequence[str]) -> float:
        started = self._clock.monotonic()
        try:
            work = await self._upstream.get_work(wanted, platforms)
        except (Unavailable, Unauthorized) as error:
            return await self._went_away(error)
        except Refused as error:
            return await self._went_away(Unavailable(f"the gateway refuses to give work: {error}"))
        await self.absence.worked()
        return await self._take_in(work, started)

    async def _take_in(self, work: Work, started: float) -> float:
        for bad in work.bad:
            self._emit(TaskSkipped(task_id=bad.task_id, problem=bad.problem))
        self.offers_nothing = not work.tasks and not work.bad
        self._unstored = work.tasks  # should storing fail, they are stored before more are asked for
        added = await self._lpm.add_tasks(work.tasks, granted=True)
        self._unstored = ()
        await self._skip(work.tasks, added.refusals)
        bad_count = len(work.bad) + added.refused
        if not self.offers_nothing:
            self._received.add(added.new, added.known, bad_count, self._clock.monotonic())
            await self._record(added.new, started, None)
        if not added.new or self._received.age(self._clock.monotonic()) > _SUM_UP_SECONDS:
            self._sum_up()
        if added.new:
            self._arrived()
            # An answer may hold one task a platform only: ask again at once while they come.
            pause = work.rest
        else:
            pause = max(work.rest, work.retry_after, self._settings.poll_seconds)
        self._not_before = self._clock.monotonic() + pause
        return pause

    async def _skip(self, tasks: Sequence[Task], refusals: Sequence[tuple[str, str]]) -> None:
        """The store would refuse them again. Where their leases have names the upstream is told, as well as can be."""
        named = {task.task_id: task for task in tasks if task.lease_id}
        for task_id, problem in refusals:
            self._emit(TaskSkipped(task_id=task_id, problem=problem))
            if task := named.get(task_id):
                await self._report(task, problem)

    async def _report(self, task: Task, problem: str) -> None:
        with contextlib.suppress(UpstreamError):
            await self._upstream.report_end(refused(task, problem, self._clock.now()))

    def _sum_up(self) -> None:
        """One event for many answers: some upstreams give one task in each."""
        if self._received.answers:
            received, self._received = self._received, _Received()
            self._emit(TasksReceived(new=received.new, known=received.known, bad=received.bad))

    async def _went_away(self, error: Unavailable | Unauthorized) -> float:
        self.offers_nothing = False
        self._sum_up()
        await self._record(0, self._clock.monotonic(), error)
        return await self.absence.failed(error)

    async def _record(self, count: int, started: float, error: UpstreamError | None) -> None:
        with contextlib.suppress(StoreError):
            await self._lpm.sync_log.record(
                SyncRound(
                    direction="download",
                    record_type="tasks",
                    record_count=count,
                    success=error is None,
                    error=None if error is None else str(error),
                    duration_ms=int((self._clock.monotonic() - started) * 1000),
                )
            )
