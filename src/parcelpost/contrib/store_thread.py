"""A store on a thread and an event loop of its own, for programs whose loop is another one, or none."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from parcelpost.clock import SystemClock
from parcelpost.errors import ParcelpostError
from parcelpost.storage import LocalPersistenceManager, StoreOptions

T = TypeVar("T")

_WATCH_SECONDS = 0.5
_CLOCK = SystemClock()


class StoreThread:
    """Every method may be called from any thread.

    The thread ends when `close` is called, or by itself when the program's main thread has ended: an open store would
    keep the program alive.
    """

    def __init__(self, path: Path, options: StoreOptions, owner: str) -> None:
        self._path = path
        self._options = options
        self._owner = owner
        self._thread = threading.Thread(target=self._main, name="store")
        self._opened: Future[None] = Future()
        self._closed: Future[None] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._lpm: LocalPersistenceManager

    def open(self) -> Future[None]:
        """Done when the store is open; holds the error if it cannot be opened."""
        self._thread.start()
        return self._opened

    def submit(self, work: Callable[[LocalPersistenceManager], Coroutine[Any, Any, T]]) -> Future[T]:
        """Runs it on the store's loop. To be called only while the store is open."""
        return asyncio.run_coroutine_threadsafe(work(self._lpm), self._loop)

    def close(self) -> Future[None]:
        """Done when everything is closed; at once if it was never opened."""
        if self._thread.ident is not None:
            self._opened.add_done_callback(self._ask_to_stop)
        elif not self._closed.done():
            self._closed.set_result(None)
        return self._closed

    def _ask_to_stop(self, opened: Future[None]) -> None:
        if opened.exception() is None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except ParcelpostError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise
        else:
            self._closed.set_result(None)

    async def _serve(self) -> None:
        async with LocalPersistenceManager.open(self._path, options=self._options, worker=self._owner) as lpm:
            self._lpm, self._loop = lpm, asyncio.get_running_loop()
            self._opened.set_result(None)
            while threading.main_thread().is_alive():
                if await _CLOCK.wait(self._stop, _WATCH_SECONDS):
                    return

    def _fail(self, error: BaseException) -> None:
        self._closed.set_exception(error)
        if not self._opened.done():
            self._opened.set_exception(error)
