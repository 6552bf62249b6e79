"""The Context that every part of a worker gets: store, upstream, settings, clock, events, control."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal

from parcelpost.clock import Clock
from parcelpost.errors import StoreError, UpstreamError
from parcelpost.events import Emit
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.settings import Settings
from parcelpost.storage.history import SyncRound
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import Upstream
from parcelpost.worker.backoff import UpstreamState
from parcelpost.worker.control import Control


class Context:
    def __init__(
        self,
        lpm: LocalPersistenceManager,
        upstream: Upstream,
        factory: ScraperFactory,
        settings: Settings,
        *,
        control: Control,
        clock: Clock,
        emit: Emit,
        worker_id: str = "",
        name: str = "",
    ) -> None:
        self.lpm = lpm
        self.upstream = upstream
        self.upstream_state = UpstreamState(settings.sync, control, clock, emit)
        self.factory = factory
        self.settings = settings
        self.control = control
        self.clock = clock
        self.emit = emit
        self.worker_id = worker_id
        """This worker's id upstream, shared by all processes on the store."""
        self.name = name
        """The name of this process: the worker's id, or `<id>-2` for a second process on the store."""

    @property
    def chosen_platforms(self) -> frozenset[str] | None:
        """Set by the upstream's command or the settings. None: all, so that tasks of unknown platforms end too (I1)."""
        return self.control.platforms or frozenset(self.settings.worker.platforms) or None

    @property
    def platforms(self) -> Sequence[str]:
        """The platforms whose tasks this worker requests: the chosen ones that are installed."""
        known = self.factory.names()
        chosen = self.chosen_platforms
        return sorted(known if chosen is None else chosen & frozenset(known))

    async def log_round(
        self,
        direction: Literal["download", "upload"],
        record_type: str,
        count: int,
        started: float,
        error: UpstreamError | None = None,
    ) -> None:
        """Adds a line to the sync log, for a call that began at this monotonic time."""
        line = SyncRound(
            direction=direction,
            record_type=record_type,
            record_count=count,
            success=error is None,
            error=None if error is None else str(error),
            duration_ms=int((self.clock.monotonic() - started) * 1000),
        )
        with contextlib.suppress(StoreError):  # the call counts, not the log
            await self.lpm.sync_log.record(line)
