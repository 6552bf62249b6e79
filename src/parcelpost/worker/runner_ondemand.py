"""On-demand mode: five loops that share nothing but the store, so that scraping never waits for the gateway (I7)."""

from __future__ import annotations

from parcelpost.worker.worker import Worker


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
