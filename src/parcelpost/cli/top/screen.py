"""The terminal while the screen is shown on it: taken over, drawn on, and given back as it was."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from collections.abc import Sequence

from parcelpost.cli.top.text import Line, ansi, width_of

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
