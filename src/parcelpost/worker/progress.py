"""Says how the work stands: when it begins, every so often while it changes, and when it ends."""

from __future__ import annotations

from parcelpost.events import Emit, WorkStands
from parcelpost.storage.lpm import LocalPersistenceManager


class Progress:
    def __init__(self, lpm: LocalPersistenceManager, emit: Emit, seconds: float) -> None:
        self._lpm = lpm
        self._emit = emit
        self._seconds = seconds
        self._last: WorkStands | None = None

    async def step(self) -> float:
        found = await self._look()
        if found != self._last:
            self._say(found)
        return self._seconds

    async def tell(self) -> None:
        """Now, changed or not."""
        self._say(await self._look())

    async def _look(self) -> WorkStands:
        depth = await self._lpm.queue_depth()
        return WorkStands(
            pending=depth.pending,
            running=depth.processing,
            completed=depth.completed,
            not_found=depth.not_found,
            failed=depth.failed,
            expired=depth.expired,
            unsynced=depth.unsynced,
            rejected=depth.rejected,
        )

    def _say(self, found: WorkStands) -> None:
        self._last = found
        self._emit(found)
