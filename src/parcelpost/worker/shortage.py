"""How a worker tells other processes that memory keeps it from its work."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.worker.pressure import Pressure

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager
    from parcelpost.worker.resources import Resources

SHORTAGE_STATE = "shortage "
"""With the worker's id: the name under which the store keeps it."""

_LOOK_SECONDS = 1.0


class Shortage(Struct, frozen=True, kw_only=True):
    """What one worker lacks, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: what is said here ends with it."""
    since: datetime
    pressure: str
    starts_tasks: bool
    summary: str
    """As it was then; '' while all is fine."""


class ShortageNotes:
    """Notes in the store whenever the pressure has changed; a loop of its own, as a store may keep one waiting."""

    def __init__(self, resources: Resources, lpm: LocalPersistenceManager, worker_id: str, clock: Clock) -> None:
        self._resources = resources
        self._lpm = lpm
        self._worker_id = worker_id
        self._clock = clock
        self._noted = Pressure.FINE

    async def step(self) -> float:
        if self._resources.pressure is not self._noted:
            with contextlib.suppress(StoreError):  # noted at the next look
                await self._note()
        return _LOOK_SECONDS

    async def _note(self) -> None:
        pressure = self._resources.pressure
        shortage = Shortage(
            worker_id=self._worker_id,
            owner=self._lpm.owner_id,
            since=self._clock.now(),
            pressure=pressure.words,
            starts_tasks=pressure < Pressure.NO_NEW_TASKS,
            summary=self._resources.summary,
        )
        await self._lpm.state.put(f"{SHORTAGE_STATE}{self._worker_id}", shortage)
        self._noted = pressure
