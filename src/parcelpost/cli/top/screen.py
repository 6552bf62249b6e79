"""The terminal in full-screen mode, and the loop that redraws it until a key or signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from parcelpost.cli.context import CLOCK
from parcelpost.cli.top.data import ScreenData, watch
from parcelpost.cli.top.frame import frame
from parcelpost.cli.top.text import Line, ansi, width_of
from parcelpost.cli.top.view import QUIT_KEYS, REFRESH_KEYS, ViewState, apply_key, split_keys

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the alternate screen, no cursor, cleared
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
_SMALLEST = os.terminal_size((80, 24))


class Screen:
    """`enter` and `leave` may be called any number of times, in turn. That a terminal is gone is no error."""

    def __init__(self, output: int, keys: int | None, *, color: bool) -> None:
        self._output = output
        self._keys = keys
        self._color = color
        self._saved: list[int | list[bytes | int]] | None = None
        self._shown: list[str] = []
        self._size = _SMALLEST
        self.is_ours = False

    @property
    def size(self) -> os.terminal_size:
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._output)
            return found if found.columns and found.lines else _SMALLEST
        return _SMALLEST

    def enter(self) -> None:
        if self._keys is not None:
            with contextlib.suppress(termios.error):
                self._saved = termios.tcgetattr(self._keys)
                tty.setcbreak(self._keys, termios.TCSANOW)  # Ctrl-C and Ctrl-Z stay signals
                self._let_ctrl_s_through(self._keys)
        self.is_ours = True
        self._shown = []
        self._write(_ENTER)

    def leave(self) -> None:
        if not self.is_ours:
            return
        self.is_ours = False
        self._write(_LEAVE)
        if self._keys is not None and self._saved is not None:
            with contextlib.suppress(termios.error):
                termios.tcflush(self._keys, termios.TCIFLUSH)  # keys that came too late are not the shell's
                termios.tcsetattr(self._keys, termios.TCSANOW, self._saved)
        self._saved = None

    def draw(self, lines: Sequence[Line]) -> None:
        """Sends only the lines that differ from what is shown: a slow connection carries little."""
        if not self.is_ours:
            return
        size = self.size
        resized = size != self._size
        self._size = size
        texts = [ansi(line, color=self._color) for line in lines]
        sent = [_CLEAR] if resized else []
        before = [] if resized else self._shown
        for number, (line, text) in enumerate(zip(lines, texts, strict=True)):
            if number >= len(before) or before[number] != text:
                # Not behind a full line: there the cursor stands on its last cell, which would go.
                rest = "\x1b[K" if width_of(line) < size.columns else ""
                sent.append(f"\x1b[{number + 1};1H{text}{rest}")
        sent += [f"\x1b[{number + 1};1H\x1b[K" for number in range(len(texts), len(before))]
        self._shown = texts
        if sent:
            self._write("".join(sent))

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            left = memoryview(text.encode(errors="replace"))
            while left:
                left = left[os.write(self._output, left) :]

    @staticmethod
    def _let_ctrl_s_through(keys: int) -> None:
        """Or it would stop our writing, and us with it."""
        mode = termios.tcgetattr(keys)
        mode[0] &= ~termios.IXON
        termios.tcsetattr(keys, termios.TCSANOW, mode)


_ENDED_BY_SIGNAL = 128
_KEY_BYTES = 256


class LiveScreen:
    def __init__(self, store: Path, screen: Screen, keys: int | None, how: ViewState) -> None:
        self._store = store
        self._screen = screen
        self._keys = keys
        self._how = how
        self._seen: ScreenData | None = None
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
        seen = self._seen or ScreenData(at=CLOCK.now(), store=str(self._store), start="")
        size = self._screen.size
        self._screen.draw(frame(seen, size.columns, size.lines, self._how))

    def _pressed(self) -> None:
        given = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            given = os.read(self._keys or 0, _KEY_BYTES)
        if not given:
            self._end(_ENDED_BY_SIGNAL + signal.SIGHUP)
        for key in split_keys(given.decode(errors="replace")):
            if key in QUIT_KEYS:
                self._end(0)
                return
            was_paused = self._how.paused
            self._how = apply_key(self._how, key)
            if key in REFRESH_KEYS or (was_paused and not self._how.paused):
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
