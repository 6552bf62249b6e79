"""Work that waits together is done together: the mechanism behind group commit and shared fsyncs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from parcelpost.errors import StoreClosed

Answers = Sequence[Any]
Process = Callable[[list[Any]], Answers]
"""Runs on the worker thread: answers each item with a value, or with an exception to raise at its caller."""
Hop = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function on the worker thread and waits for it."""


_GROUPS_A_HOP = 16
"""Then whatever else waits for the thread has its turn."""


class Batcher:
    """Collects what callers submit and hands everything that waits to `process`, in order, on another thread.

    There is no timer: a lone caller is served at once, and while the thread is busy the next group gathers. The thread
    goes on from group to group by itself; callers are answered in between. A cancelled caller's item is either
    skipped whole or processed whole.
    """

    def __init__(
        self, hop: Hop, process: Process, *, max_group: int, dropped: Callable[[Any, Any], None] = lambda *_: None
    ) -> None:
        self._hop = hop
        self._process = process
        self._dropped = dropped  # told of each item whose caller was cancelled while it was processed, and its answer
        self._max_group = max_group
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._runner = self._loop.create_task(self._run())

    def submit(self, item: Any) -> asyncio.Future[Any]:
        if self.closed:
            raise StoreClosed
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((item, future))
        if self._idle.is_set():
            self._idle.clear()
            self._wake.set()
        return future

    async def close(self) -> None:
        """Finishes what waits, then stops. Nothing can be submitted after."""
        self.closed = True
        await self._idle.wait()
        self._runner.cancel()
        await asyncio.wait([self._runner])

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                try:
                    await self._hop(self._drain)
                except Exception as error:  # noqa: BLE001 - the thread itself failed: every waiting caller is told
                    self._fail_waiting(error)
            self._idle.set()

    def _drain(self) -> None:
        for _ in range(_GROUPS_A_HOP):
            if not self._waiting:
                return
            group: list[tuple[Any, asyncio.Future[Any]]] = []
            while self._waiting and len(group) < self._max_group:
                entry = self._waiting.popleft()
                if not entry[1].cancelled():
                    group.append(entry)
            if group:
                answers = self._process([item for item, _ in group])
                self._loop.call_soon_threadsafe(self._deliver, group, answers)

    def _fail_waiting(self, error: Exception) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _deliver(self, group: list[tuple[Any, asyncio.Future[Any]]], answers: Answers) -> None:
        for (item, future), answer in zip(group, answers, strict=True):
            if future.done():
                self._dropped(item, answer)
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
