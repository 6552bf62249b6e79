"""Files and pipes whose writing can be ended from another thread."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOOK_SECONDS = 0.1


class Interrupted(Exception):
    """The export was cancelled while something was written."""


class _Ending:
    """A write that fails is the last one: what libraries still have to say while they let go is swallowed."""

    def __init__(self, has_to_stop: Callable[[], bool], write: Callable[[Any], int]) -> None:
        self._has_to_stop = has_to_stop
        self._write = write
        self._is_over = False

    def check(self) -> None:
        if self._has_to_stop():
            raise Interrupted

    def write(self, data: Any) -> int:
        if self._is_over:
            return memoryview(data).nbytes
        self._is_over = True
        self.check()
        written = self._write(data)
        self._is_over = False
        return written


class File(io.FileIO):
    def __init__(self, path: Path, has_to_stop: Callable[[], bool]) -> None:
        super().__init__(path, "wb")
        self._ending = _Ending(has_to_stop, super().write)

    def write(self, data: Any) -> int:
        return self._ending.write(data)


class Pipe(io.RawIOBase):
    """Whoever reads the other end may take their time: a write that waits for them can be ended too."""

    def __init__(self, handle: int, has_to_stop: Callable[[], bool]) -> None:
        self._handle = handle
        self._ending = _Ending(has_to_stop, self._write_some)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._ending.write(data)

    def _write_some(self, data: Any) -> int:
        while not select.select([], [self._handle], [], _LOOK_SECONDS)[1]:
            self._ending.check()
        return os.write(self._handle, memoryview(data)[: select.PIPE_BUF])  # no more is sure not to wait
