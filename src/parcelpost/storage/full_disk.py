"""What a write does while the disk is full, or the store locked or missing: it waits until it can be written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parcelpost.clock import Clock
from parcelpost.errors import StoreError, StoreFull
from parcelpost.events import Emit, StoreNotWritable, StoreWritable
from parcelpost.storage.health import Level, usage
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.recovery import OpenStore

T = TypeVar("T")

RETRY_SECONDS = 3.0


class Backpressure:
    """The one place where a full disk or another program's lock is waited for.

    A worker waits as long as it takes, until it drains (`stop_waiting`). A command does not wait: its user is told.
    """

    def __init__(self, store: OpenStore, options: StoreOptions, clock: Clock, emit: Emit, *, waits: bool) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._emit = emit
        self._stopped = asyncio.Event()
        if not waits:
            self._stopped.set()
        self._since = 0.0
        self.waiting = 0
        """Writes that wait now."""
        self.problem = ""
        """Why they wait; '' while the store can be written."""

    def stop_waiting(self) -> None:
        """Writes that wait now, or would wait later, raise their error instead."""
        self._stopped.set()

    async def write(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that takes space: on a full disk it waits until the executor may go on (I8)."""
        return await self._retry(write, self._until_there_is_room)

    async def write_receipts(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that leads to free space: on a full disk it may use the reserve."""
        return await self._retry(lambda: self._store.even_if_full(write, self._emit), self._pause)

    async def _retry(self, write: Callable[[], Awaitable[T]], pause: Callable[[StoreError], Awaitable[None]]) -> T:
        try:
            return await write()
        except StoreError as error:
            if not self._may_wait(error):
                raise
            first = error
        self._begin(first)
        try:
            await pause(first)
            while True:
                try:
                    result = await write()
                except StoreError as error:
                    if not self._may_wait(error):
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
        await self._clock.wait(self._stopped, RETRY_SECONDS)

    async def _until_there_is_room(self, error: StoreError) -> None:
        """The last free space belongs to receipts: what is delivered can be removed."""
        await self._pause(error)
        while isinstance(error, StoreFull) and not self._stopped.is_set() and await self._is_full():
            await self._pause(error)

    async def _is_full(self) -> bool:
        try:
            now = await usage(self._store.database, self._store.live, self._options)
        except (StoreError, OSError):
            return True  # it cannot even be read: wait on
        return now.level is Level.EXECUTOR_STOPS


def _text(error: StoreError) -> str:
    return f"{type(error).__name__}: {error}"
