"""The modes of a worker: which of its loops run."""

from __future__ import annotations

from parcelpost.worker.worker import ONE_BY_ONE, Worker


class WorkerRunner:
    """`legacy`: one loop that scrapes and requests tasks, with the sync beside it."""

    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        if until_empty:
            worker.add_until_empty(collects=True)

    async def run(self) -> None:
        """Runs until the control says leave, or with `until_empty` until nothing is left to do."""
        worker = self._worker
        worker.supervisor.add(ONE_BY_ONE, self._step, worker.longest_attempt_seconds, group="slots")
        await worker.run("legacy")

    async def _step(self) -> float:
        """One task from the store, or if there is none, more from upstream."""
        idle = await self._worker.executor.slots[0].step()
        if idle == 0:
            return 0.0
        return min(idle, await self._worker.collector.step())


class OndemandRunner:
    """`ondemand`: collector, executor, sync, heartbeat and janitor."""

    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        if until_empty:
            worker.add_until_empty(collects=True)

    async def run(self) -> None:
        """Runs until the control says leave, or with `until_empty` until nothing is left to do."""
        self._worker.add_collector()
        self._worker.add_slots()
        await self._worker.run("ondemand")


class StandaloneRunner:
    """`standalone`: tasks that are in the store; results are delivered where there is an upstream."""

    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        if until_empty:
            worker.add_until_empty(collects=False)

    async def run(self) -> None:
        """As the others; with `until_empty` until no task is left and everything that can be delivered is."""
        self._worker.add_slots()
        await self._worker.run("standalone")
