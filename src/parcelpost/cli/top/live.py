"""The screen as long as it lives: looks, keys and signals, until one of them ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from parcelpost.cli.running import CLOCK
from parcelpost.cli.top.frame import frame
from parcelpost.cli.top.gather import watch
from parcelpost.cli.top.how import How
from parcelpost.cli.top.keys import LOOK, QUIT, changed, split
from parcelpost.cli.top.screen import Screen
from parcelpost.cli.top.seen import Seen

_ENDED_BY_SIGNAL = 128
_KEY_BYTES = 256


class Live:
    def __init__(self, store: Path, screen: Screen, keys: int | None, how: How) -> None:
        self._store = store
        self._screen = screen
        self._keys = keys
        self._how = how
        self._seen: Seen | None = None
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Until a key or a signal ends it; the terminal is then as it was. Answers the exit code."""
        loop = asyncio.get_running_loop()
        handlers = self._handlers()
        for number, handle in handlers.items():
            loop.add_signal_handler(number, handle)
        looking = loop.create_task(self._look())
        try:
            self._screen.enter()
            if self._keys is not None:
                loop.add_reader(self._keys, self._pressed)
            waited_for: list[asyncio.Future[Any]] = [looking, self._ended]
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._keys is not None:
                loop.remove_reader(self._keys)
            self._screen.leave()
            looking.cancel()
            await asyncio.wait({looking})
            for number in handlers:
                loop.remove_signal_handler(number)
        if not looking.cancelled():
            looking.result()  # it ends only by a bug of ours
        return self._ended.result()

    def _handlers(self) -> dict[int, Callable[[], None]]:
        return {
            signal.SIGINT: lambda: self._end(0),
            signal.SIGTERM: lambda: self._end(_ENDED_BY_SIGNAL + signal.SIGTERM),
            signal.SIGHUP: lambda: self._end(_ENDED_BY_SIGNAL + signal.SIGHUP),
            signal.SIGWINCH: self._draw,
            signal.SIGTSTP: self._suspend,
        }

    async def _look(self) -> None:
        async with aclosing(watch(self._store)) as looks:
            async for self._seen in looks:
                self._draw()
                await CLOCK.wait(self._wake, self._how.interval)
                while self._how.paused and not self._wake.is_set():
                    await self._wake.wait()
                self._wake.clear()

    def _draw(self) -> None:
        seen = self._seen or Seen(at=CLOCK.now(), store=str(self._store), start="")
        size = self._screen.size
        self._screen.draw(frame(seen, size.columns, size.lines, self._how))

    def _pressed(self) -> None:
        given = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            given = os.read(self._keys or 0, _KEY_BYTES)
        if not given:
            self._end(_ENDED_BY_SIGNAL + signal.SIGHUP)
        for key in split(given.decode(errors="replace")):
            if key in QUIT:
                self._end(0)
                return
            was_paused = self._how.paused
            self._how = changed(self._how, key)
            if key in LOOK or (was_paused and not self._how.paused):
                self._wake.set()
        self._draw()

    def _suspend(self) -> None:
        """Ctrl-Z: the shell has its terminal as it was. What follows runs when it is continued."""
        self._screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._screen.enter()
        self._draw()

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)
