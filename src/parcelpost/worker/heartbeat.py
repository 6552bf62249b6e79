"""The heartbeat: reports the worker's state upstream, extends leases, and receives the upstream's commands."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec.structs import astuple, replace

from parcelpost import __version__
from parcelpost.errors import (
    NotOffered,
    StoreError,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from parcelpost.events import FleetSelectorsReceived
from parcelpost.model import Lease, PausedSite, QueueDepth
from parcelpost.protocol.payloads import Heartbeat, queue_counts
from parcelpost.storage.history import Window
from parcelpost.worker.backoff import HEARTBEAT
from parcelpost.worker.collector import Collector
from parcelpost.worker.commands import Commands
from parcelpost.worker.context import Context
from parcelpost.worker.executor import Executor
from parcelpost.worker.identity import is_last_process
from parcelpost.worker.learning import Learning
from parcelpost.worker.resources import Resources
from parcelpost.worker.sync import SyncManager

_LONGEST_SILENCE_SECONDS = 240.0
"""Gateways consider a worker offline after 300 s."""
_NOT_LEADER_SECONDS = 5.0
_SELECTORS_SECONDS = 3_600.0
_SELECTORS_AFTER_FAILURE_SECONDS = 300.0
_ENOUGH_SAMPLES = 20


class HeartbeatLoop:
    """All processes on a store are one worker upstream, and one of them sends its heartbeats.

    The others read the received commands from the store.
    """

    def __init__(
        self,
        context: Context,
        executor: Executor,
        collector: Collector,
        sync: SyncManager,
        resources: Resources,
        learning: Learning,
    ) -> None:
        self._context = context
        self._lpm = context.lpm
        self._upstream = context.upstream
        self._state = context.upstream_state
        self._settings = context.settings.heartbeat
        self._control = context.control
        self._clock = context.clock
        self._emit = context.emit
        self._executor = executor
        self._collector = collector
        self._resources = resources
        self._learning = learning
        self._depth = QueueDepth()
        self._window = Window(completed=0, failed=0, average_execution_time_ms=None)
        self._blocked: tuple[PausedSite, ...] = ()
        self._leases: Sequence[Lease] = ()
        self._claimed_by_peers = 0
        self._selectors_at: dict[str, float] = {}
        """Monotonic time at which the fleet's selector stats are due, by platform."""
        self._offers_selectors = True
        self.commands = Commands(context, sync)

    async def step(self) -> float:
        await self.commands.follow_shared()
        if not self._lpm.leader_locks.take("heartbeat"):
            self._state.clear(HEARTBEAT)
            await self._get_selectors()
            return min(self._settings.seconds, _NOT_LEADER_SECONDS)
        if self._state.retries_early(HEARTBEAT) and (wait := self._state.remaining(HEARTBEAT)) > 0:
            return wait
        try:
            beat = await self._heartbeat()
            extended = await self._upstream.extend_leases(self._leases)
            reply = await self._upstream.heartbeat(beat)
        except (Unavailable, Unauthorized) as error:
            return self._failed(error)
        self._state.worked(HEARTBEAT)
        with contextlib.suppress(StoreError):  # the next reply repeats it
            if reply.lease_expires_at and reply.leases_since:
                await self._lpm.leases.extend_all(reply.lease_expires_at, reply.leases_since)
            if extended:
                await self._lpm.leases.extend(extended)
        await self.commands.follow(reply.commands)
        await self._get_selectors()
        return self._settings.seconds

    async def goodbye(self) -> None:
        """Sends the last heartbeat, which reports that this worker is stopping, and ignores the commands in its reply.

        Does nothing while the upstream is offline or has requested a pause, or if a peer process continues.
        """
        if self._state.remaining(HEARTBEAT) > 0 or not is_last_process(self._lpm):
            return
        with contextlib.suppress(UpstreamError):
            await self._upstream.heartbeat(replace(await self._heartbeat(), active_tasks=0, leaving=True))

    async def _heartbeat(self) -> Heartbeat:
        try:
            self._depth = await self._lpm.queue_depth()
            self._window = await self._lpm.metrics.window(60.0)
            pauses = await self._lpm.pauses()
            self._blocked = tuple(PausedSite(*astuple(site)) for site, pause in pauses.items() if pause.until)
            self._leases = await self._lpm.leases.list()
            self._claimed_by_peers = await self._lpm.claimed_by_peers()
        except StoreError:
            pass  # send the last known values, so that the upstream knows that the worker is alive
        load, usage = self._resources.load, self._control.usage
        return Heartbeat(
            active_tasks=self._executor.active + self._collector.in_hand + self._claimed_by_peers,
            completed_last_minute=self._window.completed,
            failed_last_minute=self._window.failed,
            platforms=tuple(self._context.platforms),
            cpu_percent=load.cpu_percent,
            memory_percent=load.memory.percent,
            queue=queue_counts(self._depth),
            oldest_unsynced_seconds=self._depth.oldest_unsynced_seconds,
            version=__version__,
            paused=self._control.paused,
            disk_free_bytes=usage.disk_free if usage else 0,
            blocked=self._blocked,
            broken=tuple(self._learning.broken),
        )

    def _failed(self, error: Unavailable | Unauthorized) -> float:
        """Returns the pause: short enough to stay online upstream, unless our credentials were rejected."""
        pause = max(self._settings.seconds, self._state.failed(HEARTBEAT, error))
        return pause if isinstance(error, Unauthorized) else min(pause, _LONGEST_SILENCE_SECONDS)

    async def _get_selectors(self) -> None:
        """Requests the fleet's selector stats, of one platform per step, so that no heartbeat is late."""
        now = self._clock.monotonic()
        due = [name for name in self._context.platforms if now >= self._selectors_at.get(name, 0.0)]
        if not due or not self._offers_selectors:
            return
        platform = due[0]
        self._selectors_at[platform] = now + _SELECTORS_SECONDS
        try:
            stats = await self._upstream.get_selectors(platform)
        except NotOffered:
            self._offers_selectors = False
        except (Unavailable, Unauthorized) as error:
            wait = error.retry_after if isinstance(error, Unavailable) else 0.0
            self._selectors_at |= dict.fromkeys(due, now + max(_SELECTORS_AFTER_FAILURE_SECONDS, wait))
        else:
            known = [stat for stat in stats if stat.platform == platform and stat.samples >= _ENOUGH_SAMPLES]
            self._learning.ranking.set_fleet_stats(
                platform, [(stat.field, stat.selector_type, stat.selector, stat.success_rate) for stat in known]
            )
            self._emit(FleetSelectorsReceived(platform=platform, selectors=len(known)))
