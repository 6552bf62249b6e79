"""The bytes and lines of an import file or of standard input, read in bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import select
import stat
import threading
import zlib
from collections.abc import Iterator

from parcelpost.errors import InvalidInput

STDIN = "-"
MAX_LINE_BYTES = 1024 * 1024

_BUFFER_BYTES = 256 * 1024
_LOOK_SECONDS = 0.2
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Source:
    """The bytes of a file, gunzipped if needed. `done` and `total` are its progress in bytes on disk."""

    def __init__(self, raw: io.FileIO, name: str) -> None:
        facts = os.fstat(raw.fileno())
        is_file = stat.S_ISREG(facts.st_mode)
        self._raw = _CountingReader(raw, may_wait=not is_file)
        self.name = name
        self.total = facts.st_size if is_file else None
        packed = io.BufferedReader(self._raw, _BUFFER_BYTES)
        is_gzip = packed.peek(2)[:2] == _GZIP
        # A second buffer, so that lines are split in C and not by gzip's Python code.
        self.file = io.BufferedReader(gzip.GzipFile(fileobj=packed), _BUFFER_BYTES) if is_gzip else packed
        self._refuse_utf16()
        if self.file.peek(3)[:3] == _UTF8_MARK:
            self.file.read(3)

    @property
    def done(self) -> int:
        return self._raw.done

    def begins_with(self) -> bytes:
        """The first byte that is not whitespace, within the first few thousand."""
        return self.file.peek(4096).lstrip()[:1]

    def stop(self) -> None:
        """Makes a read that is waiting for input return as if at end of file. Called from another thread."""
        self._raw.stopped.set()

    def _refuse_utf16(self) -> None:
        if self.file.peek(2)[:2] in _UTF16_MARKS:
            raise InvalidInput(
                f"{self.name} is encoded in UTF-16",
                hint=f"save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8 {self.name}",
            )


class _CountingReader(io.RawIOBase):
    """Counts the bytes read. A read that waits for input can be stopped."""

    def __init__(self, raw: io.FileIO, *, may_wait: bool) -> None:
        self._raw = raw
        self._may_wait = may_wait
        self.stopped = threading.Event()
        self.done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # typeshed wants any buffer
        while self._may_wait and not select.select([self._raw], [], [], _LOOK_SECONDS)[0]:
            if self.stopped.is_set():
                return 0
        count = self._raw.readinto(buffer)
        self.done += count
        return count


@contextlib.contextmanager
def open_source(file: str) -> Iterator[Source]:
    """Raises InvalidInput if the file does not exist or cannot be read."""
    try:
        raw = io.FileIO(0, closefd=False) if file == STDIN else io.FileIO(file)
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    name = "standard input" if file == STDIN else file
    with raw:
        with read_errors(name):
            source = Source(raw, name)
        yield source


@contextlib.contextmanager
def read_errors(name: str) -> Iterator[None]:
    """Raises InvalidInput if the file is truncated, damaged, or on a failing disk."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(
            f"{name} is incomplete or damaged: {error}",
            hint="get a complete copy and import it again: stored rows are skipped",
        ) from error


class Lines:
    """The lines of a source as text. An invalid line raises InvalidInput; the next call continues after it."""

    def __init__(self, source: Source) -> None:
        self._file = source.file
        self.number = 0
        """Number of the last line returned, from 1."""
        self.bytes = 0
        self.text = Decoder()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        raw = self._file.readline(MAX_LINE_BYTES + 1)
        if not raw:
            raise StopIteration
        self.number += 1
        self.bytes += len(raw)
        if len(raw) > MAX_LINE_BYTES:
            self._skip(raw)
            raise InvalidInput(f"the line is longer than {MAX_LINE_BYTES:,} bytes")
        if b"\0" in raw:
            raise InvalidInput("the line contains a NUL byte")
        return self.text.of(raw, self.number)

    def _skip(self, raw: bytes) -> None:
        while raw and not raw.endswith(b"\n"):
            raw = self._file.readline(_BUFFER_BYTES)


class Decoder:
    """Decodes UTF-8, and falls back to Windows-1252."""

    def __init__(self) -> None:
        self.first_other = 0
        """Number of the first line or entry that was not UTF-8; 0 if all were."""

    def of(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.first_other = self.first_other or number
            return raw.decode("cp1252", errors="replace")
