"""Writes while the disk is full, or the store is locked or missing: they wait until the store is writable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parcelpost.errors import StoreError, StoreFull
from parcelpost.events import StoreNotWritable, StoreWritable
from parcelpost.storage.health import Level, usage
from parcelpost.storage.recovery import OpenStore

T = TypeVar("T")

_RETRY_SECONDS = 3.0


class Backpressure:
    """The only place that waits for a full disk or another program's lock.

    A worker waits as long as it takes, until it drains (`stop_waiting`). A command does not wait: it reports the error.
    """

    def __init__(self, store: OpenStore, *, waits: bool) -> None:
        self._store = store
        self._clock = store.clock
        self._emit = store.emit
        self._stopped = asyncio.Event()
        if not waits:
            self._stopped.set()
        self._since = 0.0
        self.waiting = 0
        """How many writes are waiting."""
        self.problem = ""
        """Why they wait; '' while the store can be written."""

    def stop_waiting(self) -> None:
        """From now on, writes raise their error instead of waiting, including those that are waiting."""
        self._stopped.set()

    async def write(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that takes space: on a full disk it waits until the executor may continue (I8)."""
        return await self._retry(write, self._until_there_is_room, self._may_wait)

    async def write_receipts(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that helps to free space: on a full disk it may use the reserve."""
        return await self._retry(lambda: self._store.even_if_full(write), self._pause, self._may_wait)

    async def write_while_open(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write in the background, retried until the store is closed, whatever the error."""
        return await self._retry(write, self._sleep, self._is_open)

    async def _retry(
        self,
        write: Callable[[], Awaitable[T]],
        pause: Callable[[StoreError], Awaitable[None]],
        may_wait: Callable[[StoreError], bool],
    ) -> T:
        try:
            return await write()
        except StoreError as error:
            if not may_wait(error):
                raise
            first = error
        self._begin(first)
        try:
            await pause(first)
            while True:
                try:
                    result = await write()
                except StoreError as error:
                    if not may_wait(error):
                        raise
                    self.problem = _text(error)
                    again = error
                else:
                    self._written()
                    return result
                await pause(again)
        finally:
            self.waiting -= 1
            self.problem = self.problem if self.waiting else ""

    def _may_wait(self, error: StoreError) -> bool:
        return error.retry_helps and not self._stopped.is_set()

    def _is_open(self, _error: StoreError) -> bool:
        return not self._store.database.is_closed

    def _begin(self, error: StoreError) -> None:
        self.waiting += 1
        if not self.problem:
            self.problem = _text(error)
            self._since = self._clock.monotonic()
            self._emit(StoreNotWritable(error=self.problem, hint=error.hint))

    def _written(self) -> None:
        if self.waiting == 1:
            self._emit(StoreWritable(seconds=self._clock.monotonic() - self._since))

    async def _pause(self, _error: StoreError) -> None:
        await self._clock.wait(self._stopped, _RETRY_SECONDS)

    async def _sleep(self, _error: StoreError) -> None:
        await self._clock.sleep(_RETRY_SECONDS)

    async def _until_there_is_room(self, error: StoreError) -> None:
        """Leaves the last free space to receipts: they allow delivered rows to be deleted."""
        await self._pause(error)
        while isinstance(error, StoreFull) and not self._stopped.is_set() and await self._is_full():
            await self._pause(error)

    async def _is_full(self) -> bool:
        try:
            now = await usage(self._store.database, self._store.live, self._store.options)
        except (StoreError, OSError):
            return True  # the store cannot even be read
        return now.level is Level.EXECUTOR_STOPS


def _text(error: StoreError) -> str:
    return f"{type(error).__name__}: {error}"
