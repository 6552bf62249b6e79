"""The live screen: the terminal, its keys and signals, and the loop that redraws it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live

from parcelpost.cli.context import CLOCK
from parcelpost.cli.settings_options import StoreContext
from parcelpost.cli.top.data import StoreFailure, TopData, watch
from parcelpost.cli.top.view import VIEWS, View, frame

_ASCII = str.maketrans("▁▂▃▄▅▆▇█·…→", "_-~=+*%#.~>")


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replaces each character that the terminal cannot show with one of the same width."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text), error.end


TO_ASCII = "parcelpost-ascii"
"""Name of a codec error handler that replaces what an ASCII terminal cannot show."""
codecs.register_error(TO_ASCII, _to_ascii)


def has_utf8(environment: Mapping[str, str], encoding: str) -> bool:
    """By the locale, not by Python's encoding alone: without a locale, Python uses UTF-8 and sets LC_CTYPE itself."""
    if encoding.lower().replace("-", "") != "utf8":
        return False
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    by_python = (
        locale == "C.UTF-8" and not environment.get("LC_ALL") and environment.get("LANG", "") in ("", "C", "POSIX")
    )
    return "utf8" in locale.lower().replace("-", "") and not by_python


def open_console() -> Console:
    """Writes to stdout, without colour if NO_COLOR is set, in ASCII if the locale has no UTF-8."""
    if not has_utf8(os.environ, sys.stdout.encoding or "") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="ascii", errors=TO_ASCII)
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def can_draw(environment: Mapping[str, str]) -> bool:
    return environment.get("TERM", "") not in ("", "dumb", "unknown")


QUIT_KEYS = frozenset({"q", "Q", "\x03", "\x04"})
REFRESH_KEYS = frozenset({"r", "R", "\x0c"})
_ESCAPES = {"\x1b[C": "\t", "\x1bOC": "\t", "\x1b[D": "back", "\x1bOD": "back", "\x1b[Z": "back"}


def split_keys(text: str) -> list[str]:
    """Splits the input into keys. Unknown escape sequences are dropped."""
    keys: list[str] = []
    while text:
        escape = next((code for code in _ESCAPES if text.startswith(code)), None)
        if escape is None and text[0] == "\x1b" and len(text) > 1:
            break  # another key, or what a terminal reports about itself
        keys.append(_ESCAPES[escape] if escape else text[0])
        text = text[len(escape) if escape else 1 :]
    return keys


def apply_key(view: View, key: str) -> View:
    if key in ("p", "P", " "):
        return replace(view, paused=not view.paused)
    if key in ("?", "h", "H"):
        return replace(view, shows_help=not view.shows_help)
    if key == "\x1b":
        return replace(view, shows_help=False)
    if step := {"\t": 1, "back": -1}.get(key, 0):
        return replace(view, shows_help=False, name=VIEWS[(VIEWS.index(view.name) + step) % len(VIEWS)])
    if key in [str(number) for number in range(1, len(VIEWS) + 1)]:
        return replace(view, shows_help=False, name=VIEWS[int(key) - 1])
    return view


_BY_SIGNAL = 128
"""Exit code of a process ended by a signal, minus the signal's number."""


class LiveScreen:
    def __init__(self, store: StoreContext, console: Console, interval: float) -> None:
        self._store = store
        self._console = console
        self._interval = interval
        self._keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._modes: list[Any] | None = None
        """The terminal's original modes, to restore on exit."""
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._view = View()
        self._data: TopData | None = None
        self._failure: StoreFailure | None = None
        self._wake = asyncio.Event()
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Runs until a key or a signal ends it, then restores the terminal. Returns the exit code."""
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGINT: lambda: self._end(0),
            signal.SIGTERM: lambda: self._end(_BY_SIGNAL + signal.SIGTERM),
            signal.SIGHUP: lambda: self._end(_BY_SIGNAL + signal.SIGHUP),
            signal.SIGWINCH: self._draw,
            signal.SIGTSTP: self._suspend,
        }
        for number, handle in handlers.items():
            loop.add_signal_handler(number, handle)
        watching = loop.create_task(self._watch())
        try:
            self._enter()
            if self._keyboard is not None:
                loop.add_reader(self._keyboard, self._read_keys)
            futures: list[asyncio.Future[Any]] = [watching, self._exit_code]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._keyboard is not None:
                loop.remove_reader(self._keyboard)
            self._leave()
            watching.cancel()
            await asyncio.wait({watching})
            for number in handlers:
                loop.remove_signal_handler(number)
        if not watching.cancelled():
            watching.result()  # it ends only by a bug
        return self._exit_code.result()

    async def _watch(self) -> None:
        async with aclosing(watch(self._store)) as states:
            async for state in states:
                self._failure = state if isinstance(state, StoreFailure) else None
                self._data = self._data if isinstance(state, StoreFailure) else state
                self._draw()
                await CLOCK.wait(self._wake, self._interval)
                while self._view.paused and not self._wake.is_set():
                    await self._wake.wait()
                self._wake.clear()

    def _draw(self) -> None:
        if not self._live.is_started:
            return
        with contextlib.suppress(OSError):  # the terminal is gone
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
            self._console.size = (columns or 80, lines or 24)
            self._live.update(frame(self._data, self._console, self._view, self._failure), refresh=True)

    def _enter(self) -> None:
        if self._keyboard is not None:
            with contextlib.suppress(termios.error):
                self._modes = termios.tcgetattr(self._keyboard)
                tty.setcbreak(self._keyboard, termios.TCSANOW)  # Ctrl-C and Ctrl-Z stay signals
                modes = termios.tcgetattr(self._keyboard)
                modes[0] &= ~termios.IXON  # Ctrl-S would block us
                termios.tcsetattr(self._keyboard, termios.TCSANOW, modes)
        with contextlib.suppress(OSError):
            self._live.start()
        self._draw()

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()
        if self._keyboard is not None and self._modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcflush(self._keyboard, termios.TCIFLUSH)  # late keys are not meant for the shell
                termios.tcsetattr(self._keyboard, termios.TCSANOW, self._modes)
        self._modes = None

    def _suspend(self) -> None:
        """Handles Ctrl-Z. The rest runs when the process is continued."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _read_keys(self) -> None:
        text = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            text = os.read(sys.stdin.fileno(), 256)
        if not text:
            self._end(_BY_SIGNAL + signal.SIGHUP)
        for key in split_keys(text.decode(errors="replace")):
            if key in QUIT_KEYS:
                self._end(0)
                return
            was_paused = self._view.paused
            self._view = apply_key(self._view, key)
            if key in REFRESH_KEYS or (was_paused and not self._view.paused):
                self._wake.set()
        self._draw()

    def _end(self, code: int) -> None:
        if not self._exit_code.done():
            self._exit_code.set_result(code)
