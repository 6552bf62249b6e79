"""The collector keeps the local queue between a low and a high water mark, so that it outlasts an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from parcelpost.errors import Unauthorized, Unavailable, UpstreamError
from parcelpost.events import TaskSkipped, TasksReceived
from parcelpost.model import Target, Task, TaskStatus
from parcelpost.protocol.payloads import Work
from parcelpost.storage.tasks import Added
from parcelpost.upstream.base import MAX_TASKS
from parcelpost.worker.backoff import COLLECTOR
from parcelpost.worker.batch_delivery import end_of
from parcelpost.worker.context import Context

_SUM_UP_SECONDS = 10.0


class _Received(Struct):
    """Counts since the last TasksReceived event."""

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
    """Stores every task before anything else happens to it, and only then reports bad ones."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lpm = context.lpm
        self._upstream = context.upstream
        self._state = context.upstream_state
        self._settings = context.settings.collector
        self._clock = context.clock
        self._emit = context.emit
        self._not_before = 0.0
        """Monotonic time of the next call that the upstream allows."""
        self._received = _Received()
        self._received_tasks = 0
        self.offers_nothing = False
        """Whether the last answer had no tasks. False until the first answer and after a failed call."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def step(self) -> float:
        if not self._context.control.may_collect:
            self._sum_up()
            return self._settings.poll_seconds
        wait = max(self._state.remaining(COLLECTOR), self._not_before - self._clock.monotonic())
        if wait > 0:
            return wait
        wanted, platforms = await self._shortage()
        if wanted <= 0 or not platforms:
            self._sum_up()
            return self._settings.poll_seconds
        self._idle.clear()
        try:
            return await self._request(min(wanted, MAX_TASKS), platforms)
        finally:
            self._idle.set()

    async def _shortage(self) -> tuple[int, Sequence[str]]:
        """Returns how many tasks to request, and from which platforms.

        A paused platform is neither counted nor requested, and one whose queue is full of delayed tasks gets no more:
        neither starves the others, and no task waits here that another worker could do.
        """
        high = self._settings.high_water
        supply = await self._lpm.supply(high)
        wanted = self._context.platforms
        ready = sum(supply[name].ready for name in wanted if name in supply and not supply[name].paused)
        if ready > self._settings.low_water:
            return 0, ()
        return high - ready, [
            name
            for name in wanted
            if name not in supply or (not supply[name].paused and supply[name].ready + supply[name].delayed < high)
        ]

    @property
    def in_hand(self) -> int:
        """How many received tasks wait until the store is writable."""
        return self._received_tasks if self._lpm.backpressure.waiting else 0

    @property
    def is_requesting(self) -> bool:
        return not self._idle.is_set()

    async def settle(self, seconds: float) -> None:
        """Waits up to that long for the answer to a pending request: its tasks have left the upstream's queue."""
        if self.is_requesting:
            await self._clock.wait(self._idle, seconds)
        self._sum_up()

    async def _request(self, wanted: int, platforms: Sequence[str]) -> float:
        started = self._clock.monotonic()
        try:
            work = await self._upstream.get_work(wanted, platforms)
        except (Unavailable, Unauthorized) as error:
            return await self._failed(error)
        self._state.worked(COLLECTOR)
        return await self._store(work, started)

    async def _store(self, work: Work, started: float) -> float:
        self.offers_nothing = not work.tasks and not work.bad
        self._received_tasks = len(work.tasks)
        try:
            added = await self._lpm.add_tasks(work.tasks, leased=True)
        finally:
            self._received_tasks = 0
        if not self.offers_nothing:
            bad_count = len(work.bad) + added.refused
            self._received.add(added.new, added.known, bad_count, self._clock.monotonic())
            await self._context.log_round("download", "tasks", added.new, started)
        if not added.new or self._received.age(self._clock.monotonic()) > _SUM_UP_SECONDS:
            self._sum_up()
        if added.new:
            self._context.control.wake("slots")
            # Some upstreams return one task per call, so the next call follows at once.
            pause = work.rest
        else:
            pause = max(work.rest, work.retry_after, self._settings.poll_seconds)
        self._not_before = self._clock.monotonic() + pause
        await self._report_bad(work, added)
        return pause

    async def _report_bad(self, work: Work, added: Added) -> None:
        """Reports bad tasks to the upstream as failed, which would otherwise lease them again forever.

        At most as many as one request asks for, and none after a failed call: the others follow when they come again.
        """
        by_id = {task.task_id: task for task in work.tasks}
        unreadable = Target(parcel_id="", state="", county="")
        bad = [
            *((Task(task_id=task.task_id, platform="", target=unreadable), "read", task.problem) for task in work.bad),
            *((by_id[task_id], "store", problem) for task_id, problem in added.refusals),
        ][:MAX_TASKS]
        for task, _, problem in bad:
            self._emit(TaskSkipped(task_id=task.task_id, problem=problem))
        for task, verb, problem in bad:
            if task.task_id:
                error = f"the worker cannot {verb} the task: {problem}"
                try:
                    await self._upstream.report_end(end_of(task, TaskStatus.FAILED, error, self._clock.now()))
                except (Unavailable, Unauthorized):
                    return
                except UpstreamError:
                    continue  # it may accept the others

    def _sum_up(self) -> None:
        """Reports many answers in one event."""
        if self._received.answers:
            received, self._received = self._received, _Received()
            self._emit(TasksReceived(new=received.new, known=received.known, bad=received.bad))

    async def _failed(self, error: Unavailable | Unauthorized) -> float:
        self.offers_nothing = False
        self._sum_up()
        await self._context.log_round("download", "tasks", 0, self._clock.monotonic(), error)
        return self._state.failed(COLLECTOR, error)
