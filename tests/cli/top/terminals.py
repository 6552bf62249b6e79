"""The real command on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.support import COMMAND

_LIMIT_SECONDS = 60.0
_LEFT = b"\x1b[?25h\x1b[?1049l"
"""The cursor is shown, the alternate screen is left."""
_CODES = re.compile(rb"\x1b\[[?\d;]*[a-zA-Z]")


class Terminal:
    def __init__(self, ours: int, its: int, before: list[Any], process: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self._before = before
        self.its = its
        self.process = process
        self.written = b""

    def is_as_before(self) -> bool:
        """Neither the modes nor the screen are another's."""
        entered, left = self.written.count(b"\x1b[?1049h"), self.written.count(b"\x1b[?1049l")
        return self.modes() == self._before and entered == left and self.written.endswith(_LEFT)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.its)

    def resize(self, columns: int, lines: int) -> None:
        _resize(self.its, columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def screen(self) -> list[str]:
        """The last frame, as far as it is drawn."""
        last = self.written.rsplit(b"\x1b[H", 1)[-1]
        return _CODES.sub(b"", last).decode(errors="replace").split("\r\n")

    def until(self, text: str, lines: int | None = None) -> list[str]:
        """Waits for a screen with that text, of so many lines."""
        give_up_at = time.monotonic() + _LIMIT_SECONDS
        while not any(text in row for row in self.screen()) or lines not in (None, len(self.screen())):
            assert time.monotonic() < give_up_at, (text, self.screen())
            assert self.process.poll() is None, self.written
            self._read(0.1)
        return self.screen()

    def until_taken_over(self) -> None:
        give_up_at = time.monotonic() + _LIMIT_SECONDS
        while self.is_as_before():
            assert time.monotonic() < give_up_at, self.written
            self._read(0.1)

    def until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        self._read(0)

    def ended(self) -> int:
        give_up_at = time.monotonic() + _LIMIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < give_up_at, self.written
            self._read(0.05)
        self._read(0)
        return self.process.returncode

    def _read(self, seconds: float) -> None:
        while select.select([self._ours], [], [], seconds)[0]:
            self.written += os.read(self._ours, 65_536)
            seconds = 0


def _resize(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextlib.contextmanager
def terminal(store: Path, *options: str, columns: int = 80, lines: int = 24, **environment: str) -> Iterator[Terminal]:
    ours, its = pty.openpty()
    _resize(its, columns, lines)
    before = termios.tcgetattr(its)
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [COMMAND, "top", "--store", str(store), *options],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env=env | {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | environment,
    )
    try:
        yield Terminal(ours, its, before, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(its)
