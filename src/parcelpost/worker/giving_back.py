"""Tasks that go back to the queue, also where the store does not take them back at once."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

from parcelpost.errors import StoreError
from parcelpost.model import Claim
from parcelpost.storage.lpm import LocalPersistenceManager


class GivingBack:
    """Shared by the slots of one executor. While this process lives nobody else brings back what it holds (I9)."""

    def __init__(self, lpm: LocalPersistenceManager) -> None:
        self._lpm = lpm
        self._owed: deque[Claim] = deque()

    async def release(self, claim: Claim, delay: timedelta | None = None) -> bool:
        """Whether it is back in the queue by this. What the store does not take is owed."""
        try:
            return await self._lpm.release(claim, delay)
        except StoreError:
            self._owed.append(claim)
            return False

    async def settle(self) -> None:
        """What is owed goes back. Raises a StoreError: it stays owed."""
        while self._owed:
            claim = self._owed.popleft()
            try:
                await self._lpm.release(claim)
            except BaseException:
                self._owed.append(claim)
                raise
