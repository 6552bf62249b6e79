"""Ends a run when no task is left here or offered upstream, and the outbox is empty."""

from __future__ import annotations

from collections.abc import Callable

from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.control import Control

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
        platforms: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        """`platforms`: whose tasks this worker takes, None for everybody's. It does not wait for those of others."""
        self._lpm = lpm
        self._control = control
        self._active = active
        self._offers_nothing = offers_nothing
        self._platforms = platforms
        self._delivers = delivers
        """Whether there is somebody to deliver to: otherwise results stay here."""

    async def step(self) -> float:
        if self._active() or not self._offers_nothing() or await self._lpm.is_any_open(self._platforms()):
            return _LOOK_SECONDS
        if not self._delivers or not await self._lpm.get_unsynced_results(1):
            self._control.leave("nothing is left to do")
        return _LOOK_SECONDS
