"""`run --until-empty`: ends a run when nothing is left to do."""

from __future__ import annotations

from parcelpost.worker.backoff import COLLECTOR, SYNC, Offline
from parcelpost.worker.collector import Collector
from parcelpost.worker.context import Context
from parcelpost.worker.executor import Executor
from parcelpost.worker.status import read_statuses


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
