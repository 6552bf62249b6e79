"""Where an export is written: a folder, under temporary names until every file is complete, or stdout."""

from __future__ import annotations

import fcntl
import io
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from parcelpost.errors import InvalidInput, ParcelpostError
from parcelpost.files_and_sockets import make_private

_LOOK_SECONDS = 0.1


class WriteCancelled(Exception):
    """The export was cancelled while something was written."""


class _CancellableWrite:
    """A write that fails is the last one: what libraries still have to say while they let go is swallowed."""

    def __init__(self, has_to_stop: Callable[[], bool], write: Callable[[Any], int]) -> None:
        self._has_to_stop = has_to_stop
        self._write = write
        self._is_over = False

    def check(self) -> None:
        if self._has_to_stop():
            raise WriteCancelled

    def write(self, data: Any) -> int:
        if self._is_over:
            return memoryview(data).nbytes
        self._is_over = True
        self.check()
        written = self._write(data)
        self._is_over = False
        return written


class CancellableFile(io.FileIO):
    def __init__(self, path: Path, has_to_stop: Callable[[], bool]) -> None:
        super().__init__(path, "wb")
        self._ending = _CancellableWrite(has_to_stop, super().write)

    def write(self, data: Any) -> int:
        return self._ending.write(data)


class CancellablePipe(io.RawIOBase):
    """Whoever reads the other end may take their time: a write that waits for them can be ended too."""

    def __init__(self, handle: int, has_to_stop: Callable[[], bool]) -> None:
        self._handle = handle
        self._ending = _CancellableWrite(has_to_stop, self._write_some)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._ending.write(data)

    def _write_some(self, data: Any) -> int:
        while not select.select([], [self._handle], [], _LOOK_SECONDS)[1]:
            self._ending.check()
        return os.write(self._handle, memoryview(data)[: select.PIPE_BUF])  # no more is sure not to wait


_BUFFER_BYTES = 1 << 20


class Destination(Protocol):
    folder: Path

    def stream(self, name: str) -> BinaryIO: ...

    def path(self, name: str) -> Path: ...

    def stop(self) -> None:
        """The next write fails, once: for a thread that is to end soon."""

    def put(self) -> list[Path]:
        """All files get their names. Where they are then."""


class FolderDestination:
    """A hidden folder beside the files' places, so that a rename puts them there."""

    def __init__(self, target: Path, hidden: Path, names: Sequence[str], stack: ExitStack, *, replace: bool) -> None:
        self.folder = hidden
        self._target = target
        self._names = names
        self._replace = replace
        self._stack = stack
        self._stopped = False

    def path(self, name: str) -> Path:
        path = self.folder / name
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return path

    def stream(self, name: str) -> BinaryIO:
        file = CancellableFile(self.path(name), self._has_to_stop)
        return self._stack.enter_context(io.BufferedWriter(file, buffer_size=_BUFFER_BYTES))

    def stop(self) -> None:
        self._stopped = True

    def leave(self) -> None:
        """What is still here goes; what is written from now on goes nowhere."""
        self._stopped = False
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self) -> list[Path]:
        self._stack.close()
        for name in self._names:
            _sync(self.folder / name)
        placed = [self._target / name for name in self._names]
        refuse_existing(placed, replace=self._replace)  # once more: an export may take a while
        for path in placed:
            (self.folder / path.name).replace(path)
        _sync(self._target)
        return placed

    def _has_to_stop(self) -> bool:
        stopped, self._stopped = self._stopped, False
        return stopped


class StdoutDestination:
    folder = Path()

    def __init__(self) -> None:
        self._stopped = False
        self._stream: BinaryIO = sys.stdout.buffer

    def stream(self, name: str) -> BinaryIO:
        sys.stdout.flush()
        with suppress(io.UnsupportedOperation):  # some that stand in for it have no handle
            pipe = CancellablePipe(sys.stdout.fileno(), lambda: self._stopped)
            self._stream = io.BufferedWriter(pipe, buffer_size=_BUFFER_BYTES)
        return self._stream

    def path(self, name: str) -> Path:
        raise InvalidInput(f"{name} cannot be written to stdout")

    def stop(self) -> None:
        self._stopped = True

    def put(self) -> list[Path]:
        self._stream.flush()
        return []


@contextmanager
def open_destination(folder: Path, names: Sequence[str], *, replace: bool) -> Iterator[Destination]:
    """What is not put in its place when the block ends is removed. What was there before stays until then.

    Raises ParcelpostError where files are there already, unless they are to be replaced, or where another export is at
    work on them.
    """
    if STDOUT in names:
        yield StdoutDestination()
        return
    refuse_existing([folder / name for name in names], replace=replace)
    make_private(folder)
    hidden = folder / f".{names[0]}.partial"
    with _locked_folder(hidden), ExitStack() as streams:
        place = FolderDestination(folder, hidden, names, streams, replace=replace)
        try:
            yield place
        finally:
            place.leave()


def refuse_existing(paths: Sequence[Path], *, replace: bool) -> None:
    """Raises InvalidInput for the first that is there, unless it is a file that is to be replaced."""
    for path in paths:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise InvalidInput(f"{path} exists and is not a file", hint="choose another file, or - for stdout")
        if path.exists() and not replace:
            raise InvalidInput(f"{path} already exists", hint="choose another file, or add --force to replace it")


@contextmanager
def _locked_folder(hidden: Path) -> Iterator[None]:
    """The folder is there, empty, and nobody else's. One that a killed export left is taken over."""
    hidden.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise ParcelpostError(f"{hidden} belongs to another user", hint="choose a folder of your own")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in hidden.iterdir():
            left.unlink()
        yield
    except BlockingIOError:
        raise ParcelpostError(
            f"another export with the same name is writing to {hidden.parent}",
            hint="wait until it finishes, or stop it",
        ) from None
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    """Returns when a file's bytes, or a folder's names, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves them in the drive's cache
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    finally:
        os.close(handle)


STDOUT = "-"
