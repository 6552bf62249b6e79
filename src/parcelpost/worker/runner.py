"""The modes of a worker: which of its loops run."""

from __future__ import annotations

from parcelpost.worker.schedules import StandaloneSchedules
from parcelpost.worker.until_empty import UntilEmpty
from parcelpost.worker.worker import ONE_BY_ONE, Worker


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
