"""The modes of a worker: which of its loops run, and when a run with `--until-empty` ends."""

from __future__ import annotations

from parcelpost.worker.backoff import COLLECTOR, SYNC, Offline
from parcelpost.worker.collector import Collector
from parcelpost.worker.context import Context
from parcelpost.worker.executor import Executor
from parcelpost.worker.schedules import StandaloneSchedules
from parcelpost.worker.status import read_statuses
from parcelpost.worker.worker import ONE_BY_ONE, Worker


class UntilEmpty:
    """Ends a run when nothing is left to do, or when it has waited too long for an upstream that is offline."""

    def __init__(self, context: Context, executor: Executor, collector: Collector | None, *, delivers: bool) -> None:
        """`collector`: None if the run requests no tasks. Without `delivers`, results stay in the store."""
        self._context = context
        self._executor = executor
        self._collector = collector
        self._delivers = delivers
        self._waits_since: float | None = None
        """Monotonic time since when there has been nothing to do but wait for the upstream."""
        self.gave_up: Offline | None = None
        """The outage that ended the run, if it was not ended by an empty store."""

    async def check(self) -> None:
        """Called at every step of the janitor."""
        lpm, clock = self._context.lpm, self._context.clock
        if self._executor.active or await lpm.is_any_open(self._context.chosen_platforms):
            self._waits_since = None
            return
        is_undelivered = self._delivers and bool(await lpm.get_unsynced_results(1))
        if self._is_nothing_offered() and not is_undelivered:
            self._context.control.leave("nothing is left to do")
            return
        offline = (self._collector and self._context.upstream_state.offline(COLLECTOR)) or await self._sync_outage()
        give_up_seconds = self._context.settings.worker.give_up_seconds
        if offline is None:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = clock.monotonic()
        elif clock.monotonic() - self._waits_since >= give_up_seconds:
            self.gave_up = offline
            self._context.control.leave(f"the upstream was unavailable for {give_up_seconds:g} s")

    def _is_nothing_offered(self) -> bool:
        collector = self._collector
        return collector is None or (collector.offers_nothing and not collector.is_requesting)

    async def _sync_outage(self) -> Offline | None:
        """Returns this process's outage or, if a peer process delivers, the one that it published."""
        if offline := self._context.upstream_state.offline(SYNC):
            return offline
        peers = self._context.lpm.peers()
        statuses = await read_statuses(self._context.lpm.state)
        outages = [status.outages for status in statuses if status.owner in peers]
        return next((outage[SYNC] for outage in outages if SYNC in outage), None)


class _Runner:
    _collects = True

    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        """`until_empty`: the run ends when no task is left and everything that can be delivered is delivered."""
        self._worker = worker
        self.until_empty: UntilEmpty | None = None
        if until_empty:
            collector = worker.collector if self._collects else None
            self.until_empty = UntilEmpty(worker.context, worker.executor, collector, delivers=worker.delivers)
            worker.janitor.check_end = self.until_empty.check


class WorkerRunner(_Runner):
    """`legacy`: one loop that scrapes and requests tasks, with the sync beside it."""

    async def run(self) -> None:
        """Runs until a drain is requested or, with `until_empty`, nothing is left to do."""
        worker = self._worker
        worker.supervisor.add(ONE_BY_ONE, self._step, worker.longest_attempt_seconds, group="slots")
        await worker.run("legacy")

    async def _step(self) -> float:
        """Works on one task from the store, or if there is none, requests more from the upstream."""
        idle = await self._worker.executor.slots[0].step()
        if idle == 0:
            return 0.0
        return min(idle, await self._worker.collector.step())


class OndemandRunner(_Runner):
    """`ondemand`: collector, executor, sync, heartbeat and janitor."""

    async def run(self) -> None:
        """Runs until a drain is requested or, with `until_empty`, nothing is left to do."""
        worker = self._worker
        worker.supervisor.add("collector", worker.collector.step)
        worker.add_slots()
        await worker.run("ondemand")


class StandaloneRunner(_Runner):
    """`standalone`: works on tasks that are in the store; delivers results if there is an upstream."""

    _collects = False

    async def run(self) -> None:
        """Runs until a drain is requested or, with `until_empty`, nothing is left to do."""
        self._worker.add_slots()
        if self.until_empty is None:
            self._worker.janitor.schedules = StandaloneSchedules(self._worker.context, self._worker.read_targets)
        await self._worker.run("standalone")
