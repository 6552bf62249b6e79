"""The modes of a worker: which of its parts run."""

from __future__ import annotations

from parcelpost.worker.worker import ONE_BY_ONE, Worker


class WorkerRunner:
    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        self._until_empty = until_empty

    async def run(self) -> None:
        """Until told to leave, or with `until_empty` until there is nothing left to do."""
        worker = self._worker
        worker.crew.add(ONE_BY_ONE, self._step, worker.longest_attempt_seconds)
        worker.add_delivery()
        worker.add_housekeeping()
        if self._until_empty:
            worker.add_end(collects=True)
        await worker.run("legacy")

    async def _step(self) -> float:
        """One task from the store, or if there is none, more from upstream."""
        worker = self._worker
        idle = await worker.executor.slots[0].step()
        if idle == 0:
            return 0.0
        return min(idle, await worker.collector.step())


class OndemandRunner:
    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        self._until_empty = until_empty

    async def run(self) -> None:
        """Until told to leave, or with `until_empty` until there is nothing left to do."""
        worker = self._worker
        worker.crew.add("collector", worker.collector.step)
        worker.add_slots()
        worker.add_delivery()
        worker.add_housekeeping()
        if self._until_empty:
            worker.add_end(collects=True)
        await worker.run("ondemand")


class StandaloneRunner:
    def __init__(self, worker: Worker, *, until_empty: bool = False) -> None:
        self._worker = worker
        self._until_empty = until_empty

    async def run(self) -> None:
        """Until told to leave, or with `until_empty` until no task is left and what can be delivered is."""
        worker = self._worker
        worker.add_slots()
        worker.add_delivery()
        worker.add_housekeeping()
        if self._until_empty:
            worker.add_end(collects=False)
        await worker.run("standalone")
