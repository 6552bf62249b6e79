"""Ends a run when no task is left here or offered, and all is delivered; or when the upstream is away for too long."""

from __future__ import annotations

from collections.abc import Callable

from parcelpost.clock import Clock
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.backoff import Away
from parcelpost.worker.control import Control
from parcelpost.worker.loop_names import SYNC

_LOOK_SECONDS = 0.5


class UntilEmpty:
    def __init__(
        self,
        lpm: LocalPersistenceManager,
        control: Control,
        *,
        active: Callable[[], int],
        offers_nothing: Callable[[], bool],
        delivers: bool,
        away: Callable[[], Away | None],
        give_up_seconds: float,
        clock: Clock,
        platforms: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        """`platforms`: whose tasks this worker takes, None for everybody's. It does not wait for those of others.

        `away`: why no tasks can be asked for. `give_up_seconds`: how long to wait for an upstream that is away, once
        nothing is left to do without it.
        """
        self._lpm = lpm
        self._control = control
        self._active = active
        self._offers_nothing = offers_nothing
        self._platforms = platforms
        self._delivers = delivers
        """Whether there is somebody to deliver to: otherwise results stay here."""
        self._away = away
        self._give_up_seconds = give_up_seconds
        self._clock = clock
        self._waits_since: float | None = None
        """By the monotonic clock: since when there is nothing to do but to wait for an upstream that is away."""
        self.gave_up: Away | None = None
        """What the run ended on, if not on an empty store."""

    async def step(self) -> float:
        if self._active() or await self._lpm.is_any_open(self._platforms()):
            self._waits_since = None
            return _LOOK_SECONDS
        undelivered = self._delivers and bool(await self._lpm.get_unsynced_results(1))
        if self._offers_nothing() and not undelivered:
            self._control.leave("nothing is left to do")
            return _LOOK_SECONDS
        away = self._away() or await self._undelivered_why()
        if away is None:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self._clock.monotonic()
        elif self._clock.monotonic() - self._waits_since >= self._give_up_seconds:
            self.gave_up = away
            self._control.leave(f"the upstream was away for {self._give_up_seconds:g} s")
        return _LOOK_SECONDS

    async def _undelivered_why(self) -> Away | None:
        """As the process that delivers has noted it; that may be a peer."""
        noted = await self._lpm.state.get(SYNC, Away)
        return noted if noted and noted.failures else None
