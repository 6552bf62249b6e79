"""How full the store is, and whether it is there, kept current for the loops that must stop (I8)."""

from __future__ import annotations

from parcelpost.events import Emit, StorageLevelChanged, StoreFound, StoreLost
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.lpm import LocalPersistenceManager

_EVERY_SECONDS = 0.5


class StorageWatch:
    def __init__(self, lpm: LocalPersistenceManager, emit: Emit) -> None:
        self._lpm = lpm
        self._emit = emit
        self.usage: Usage | None = None
        self.missing = ""
        """What is wrong when the store's files are no longer where they were."""

    def level(self) -> Level:
        """What may go on."""
        return Level.EXECUTOR_STOPS if self.missing else self.fill_level()

    def fill_level(self) -> Level:
        return self.usage.level if self.usage else Level.FINE

    async def step(self) -> float:
        self._look_for_files()
        if not self.missing:
            await self._look_at_usage()
        return _EVERY_SECONDS

    def _look_for_files(self) -> None:
        before, self.missing = self.missing, self._lpm.missing
        if self.missing and self.missing != before:
            self._emit(StoreLost(reason=self.missing))
        elif before and not self.missing:
            self.usage = None
            self._emit(StoreFound(path=str(self._lpm.path)))

    async def _look_at_usage(self) -> None:
        before = self.fill_level()
        usage = await self._lpm.janitor.usage()
        self.usage = usage
        if usage.level is not before:
            self._emit(
                StorageLevelChanged(
                    level=usage.level,
                    bytes=usage.total,
                    max_bytes=usage.max_bytes,
                    free_bytes=usage.disk_free,
                    free_inodes=usage.free_inodes,
                )
            )
            if usage.level is Level.FINE:
                await self._lpm.janitor.refill()
