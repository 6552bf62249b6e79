"""The optional parts of an upstream: learning signals and the worker's own figures. Nothing else suffers by them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from parcelpost.client.upstream import MetricsSample, Upstream
from parcelpost.clock import Clock, iso
from parcelpost.errors import NotOffered, Refused, TooLarge
from parcelpost.storage.lpm import LocalPersistenceManager

_SIGNALS_A_CALL = 500
_SAMPLES_A_CALL = 200
_STATE = "metrics_sent"


class _Sent(msgspec.Struct, frozen=True):
    until: datetime


class Extras:
    """What an upstream does not offer is not asked for again until the next start."""

    def __init__(self, lpm: LocalPersistenceManager, upstream: Upstream, clock: Clock) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._clock = clock
        self._takes_signals = True
        self._takes_metrics = True

    async def send(self) -> None:
        """Raises NotNow and NotAllowed."""
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
            await self._upstream.submit_signals([one.signal for one in stored])
            await self._lpm.signals.mark_synced([one.signal_id for one in stored])

    async def _send_metrics(self) -> None:
        sent = await self._lpm.state.get(_STATE, _Sent)
        since = sent.until if sent else datetime.fromtimestamp(0, self._clock.now().tzinfo)
        found = await self._lpm.metrics.since(since, _SAMPLES_A_CALL)
        new = [timed for timed in found if timed.timestamp > since]
        if not new:
            return
        samples = [
            MetricsSample(timestamp=iso(timed.timestamp), values=msgspec.to_builtins(timed.sample)) for timed in new
        ]
        await self._upstream.submit_metrics(samples)
        await self._lpm.state.put(_STATE, _Sent(new[-1].timestamp))
