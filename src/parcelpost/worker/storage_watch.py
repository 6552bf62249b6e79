"""How full the store is, kept current for the loops that must stop at the cap (I8)."""

from __future__ import annotations

from parcelpost.events import Emit, StorageLevelChanged
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.lpm import LocalPersistenceManager

_EVERY_SECONDS = 0.5


class StorageWatch:
    def __init__(self, lpm: LocalPersistenceManager, emit: Emit) -> None:
        self._lpm = lpm
        self._emit = emit
        self.usage: Usage | None = None

    def level(self) -> Level:
        return self.usage.level if self.usage else Level.FINE

    async def step(self) -> float:
        before = self.level()
        usage = await self._lpm.janitor.usage()
        self.usage = usage
        if usage.level is not before:
            self._emit(
                StorageLevelChanged(
                    level=usage.level, bytes=usage.total, max_bytes=usage.max_bytes, free_bytes=usage.disk_free
                )
            )
            if usage.level is Level.FINE:
                await self._lpm.janitor.refill()
        return _EVERY_SECONDS
