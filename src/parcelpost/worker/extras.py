"""The optional parts of an upstream: learning signals and the worker's own figures. Nothing else suffers by them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from parcelpost.client.upstream import MetricsSample, Upstream
from parcelpost.clock import Clock, iso
from parcelpost.errors import NotAllowed, NotNow, NotOffered, Refused, StoreError, TooLarge, UpstreamError
from parcelpost.settings.keys import SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.sync_log import SyncRound
from parcelpost.worker.backoff import Backoff

_TURN_SECONDS = 30.0
_SIGNALS_A_CALL = 500
_SAMPLES_A_CALL = 200
_AFTER_SETTING_BACK = timedelta(hours=1)
_STATE = "metrics_sent"


class _Sent(msgspec.Struct, frozen=True):
    until: datetime


class Extras:
    """A loop of its own, so that nothing waits for it. What an upstream does not offer is not asked for again until the
    next start; what it refuses is no reason to stop anything.
    """

    def __init__(self, lpm: LocalPersistenceManager, upstream: Upstream, settings: SyncSettings, clock: Clock) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._clock = clock
        self._backoff = Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
        self._takes_signals = True
        self._takes_metrics = True

    async def step(self) -> float:
        if not (self._takes_signals or self._takes_metrics) or not self._lpm.duties.take("sync"):
            return _TURN_SECONDS
        try:
            await self._send()
        except (NotNow, NotAllowed) as error:
            now = self._clock.now()
            self._backoff.failed(error, now)
            return max(_TURN_SECONDS, self._backoff.remaining(now))
        self._backoff.worked()
        return _TURN_SECONDS

    async def last(self) -> None:
        """What is left at the end of a run, unless the upstream is away."""
        if self._backoff.remaining(self._clock.now()) <= 0:
            await self.step()

    async def _send(self) -> None:
        if self._takes_signals:
            try:
                await self._send_signals()
            except (NotOffered, Refused, TooLarge):
                self._takes_signals = False
        if self._takes_metrics:
            try:
                await self._send_metrics()
            except (NotOffered, Refused, TooLarge):
                self._takes_metrics = False

    async def _send_signals(self) -> None:
        while stored := await self._lpm.signals.unsynced(_SIGNALS_A_CALL):
            async with self._logged("learning_signals", len(stored)):
                await self._upstream.submit_signals([one.signal for one in stored], stored[0].signal_id)
            await self._lpm.signals.mark_synced([one.signal_id for one in stored])

    async def _send_metrics(self) -> None:
        now = self._clock.now()
        since = await self._sent_until(now)
        found = await self._lpm.metrics.since(since, _SAMPLES_A_CALL)
        new = [timed for timed in found if since < timed.timestamp <= now]
        if not new:
            return
        samples = [
            MetricsSample(timestamp=iso(timed.timestamp), values=msgspec.to_builtins(timed.sample)) for timed in new
        ]
        async with self._logged("agent_metrics", len(samples)):
            await self._upstream.submit_metrics(samples)
        await self._lpm.state.put(_STATE, _Sent(new[-1].timestamp))

    @asynccontextmanager
    async def _logged(self, record_type: str, count: int) -> AsyncIterator[None]:
        """A line in the sync log, whether the round worked or not. What is not offered is no round."""
        started = self._clock.monotonic()
        try:
            yield
        except NotOffered:
            raise
        except UpstreamError as error:
            await self._log(record_type, 0, started, str(error))
            raise
        await self._log(record_type, count, started, None)

    async def _log(self, record_type: str, count: int, started: float, error: str | None) -> None:
        line = SyncRound(
            direction="upload",
            record_type=record_type,
            record_count=count,
            success=error is None,
            error=error,
            duration_ms=int((self._clock.monotonic() - started) * 1000),
        )
        with contextlib.suppress(StoreError):
            await self._lpm.sync_log.record(line)

    async def _sent_until(self, now: datetime) -> datetime:
        sent = await self._lpm.state.get(_STATE, _Sent)
        if sent is None:
            return datetime.fromtimestamp(0, now.tzinfo)
        return sent.until if sent.until <= now else now - _AFTER_SETTING_BACK  # the clock was set back
