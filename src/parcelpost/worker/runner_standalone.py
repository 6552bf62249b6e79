"""Standalone mode: tasks from files and the command line; results stay here until an upstream is given."""

from __future__ import annotations

from parcelpost.worker.worker import Worker


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
