"""What every part of a worker works with."""

from __future__ import annotations

from collections.abc import Sequence

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.settings import Settings
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
        """Upstream: the same for every process on the store."""
        self.name = name
        """Of this process: the worker's id, or `<id>-2` for a second process on the store."""

    @property
    def chosen_platforms(self) -> frozenset[str] | None:
        """By the upstream's command or the settings. None: all, so that a task of an unknown platform ends too (I1)."""
        return self.control.platforms or frozenset(self.settings.worker.platforms) or None

    @property
    def platforms(self) -> Sequence[str]:
        """Those whose tasks this worker requests: the chosen ones that are installed."""
        known = self.factory.names()
        chosen = self.chosen_platforms
        return sorted(known if chosen is None else chosen & frozenset(known))
