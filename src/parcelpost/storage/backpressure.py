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

    A worker waits as long as it takes, until it drains. A command does not wait: it reports the error.
    """

    def __init__(self, store: OpenStore, *, waits: bool) -> None:
        self._store = store
        self._clock = store.clock
        self._emit = store.emit
        self._waits = waits
        self._claims_stopped = asyncio.Event()
        self._stopped = asyncio.Event()
        if not waits:
            self.stop_waiting()
        self._since = 0.0
        self.waiting = 0
        """How many writes are waiting."""
        self.problem = ""
        """Why they wait; '' while the store can be written."""

    def stop_claims(self) -> None:
        """From now on, claims do not wait: the worker drains and starts no more tasks."""
        self._claims_stopped.set()

    def stop_waiting(self) -> None:
        """From now on, all writes raise their error instead of waiting, including those that are waiting."""
        self._claims_stopped.set()
        self._stopped.set()

    async def claim(self, claim: Callable[[], Awaitable[list[T]]]) -> list[T]:
        """Like `write`, but returns no claims once the worker drains."""
        try:
            return await self._retry(claim, self._claims_stopped, takes_space=True)
        except StoreError as error:
            if self._waits and error.retry_helps:
                return []
            raise

    async def write(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that takes space: on a full disk it waits until the executor may continue (I8)."""
        return await self._retry(write, self._stopped, takes_space=True)

    async def write_receipts(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write that helps to free space: on a full disk it may use the reserve."""
        return await self._retry(lambda: self._store.even_if_full(write), self._stopped)

    async def write_while_open(self, write: Callable[[], Awaitable[T]]) -> T:
        """A write in the background, retried until the store is closed, whatever the error."""
        return await self._retry(write, asyncio.Event(), lambda _: not self._store.database.is_closed)

    async def _retry(
        self,
        write: Callable[[], Awaitable[T]],
        end: asyncio.Event,
        may_wait: Callable[[StoreError], bool] = lambda error: error.retry_helps,
        *,
        takes_space: bool = False,
    ) -> T:
        """Retries the write until `end` is set, after errors with which it may wait."""
        try:
            return await write()
        except StoreError as error:
            if end.is_set() or not may_wait(error):
                raise
            failure = error
        self._begin(failure)
        try:
            while True:
                await self._clock.wait(end, _RETRY_SECONDS)
                if takes_space and isinstance(failure, StoreFull) and not end.is_set() and await self._is_full():
                    continue  # leaves the last free space to receipts: they allow delivered rows to be deleted
                try:
                    result = await write()
                except StoreError as error:
                    if end.is_set() or not may_wait(error):
                        raise
                    self.problem = _text(error)
                    failure = error
                else:
                    self._written()
                    return result
        finally:
            self.waiting -= 1
            self.problem = self.problem if self.waiting else ""

    def _begin(self, error: StoreError) -> None:
        self.waiting += 1
        if not self.problem:
            self.problem = _text(error)
            self._since = self._clock.monotonic()
            self._emit(StoreNotWritable(error=self.problem, hint=error.hint))

    def _written(self) -> None:
        if self.waiting == 1:
            self._emit(StoreWritable(seconds=self._clock.monotonic() - self._since))

    async def _is_full(self) -> bool:
        try:
            now = await usage(self._store.database, self._store.live, self._store.options)
        except (StoreError, OSError):
            return True  # the store cannot even be read
        return now.level is Level.EXECUTOR_STOPS


def _text(error: StoreError) -> str:
    return f"{type(error).__name__}: {error}"
