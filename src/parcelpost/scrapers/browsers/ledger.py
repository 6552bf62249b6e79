"""Where a pool writes down what it has, for people to see and for its successor to clean up by."""

from __future__ import annotations

from typing import Protocol

from parcelpost.model import BrowserState


class BrowserLedger(Protocol):
    """The store's `browsers`. Every method may raise a StoreError."""

    async def add(self, state: BrowserState) -> int:
        """Answers the id that it gave to the browser."""

    async def put(self, state: BrowserState) -> None: ...

    async def all(self) -> list[BrowserState]:
        """Those of all pools on the store."""

    async def orphans(self) -> list[BrowserState]:
        """Those of pools whose process is dead."""

    async def remove(self, browser_id: int) -> bool: ...

    async def reap(self, state: BrowserState) -> bool:
        """Removes one that was left behind, unless another has its place by now."""

    async def assign(self, task_id: str, browser_id: int | None) -> None: ...
