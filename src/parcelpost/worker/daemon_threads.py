"""Threads for blocking calls of platform code (`asyncio.to_thread`, a host's address) that never hold up the exit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]

Capture = Callable[[Callable[[], Any]], tuple[Any, BaseException | None]]
"""Makes a call: its result, or whatever it raised."""


class DaemonThreads(ThreadPoolExecutor):
    """As its parent, which an event loop insists on; but the interpreter does not wait for its threads to end."""

    def __init__(self, capture: Capture, most: int = 32) -> None:
        super().__init__(max_workers=most)
        self._capture = capture
        self._most = most
        self._started = 0
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.unfinished = 0
        """Calls that have not ended yet. One that has is not counted when its caller hears of it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self.unfinished += 1
            if self._started < min(self._most, self.unfinished):
                threading.Thread(target=self._work, name="platform-call", daemon=True).start()
                self._started += 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The threads end after what was asked of them. Waits for none."""
        del wait, cancel_futures
        with self._lock:
            for _ in range(self._started):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._perform(*job)
            del job

    def _perform(self, future: Future[Any], call: Callable[[], Any]) -> None:
        wanted = future.set_running_or_notify_cancel()
        result, error = self._capture(call) if wanted else (None, None)
        with self._lock:
            self.unfinished -= 1
        if wanted and error is None:
            future.set_result(result)
        elif wanted:
            future.set_exception(error)
