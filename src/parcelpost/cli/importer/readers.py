"""Reads the rows of CSV, JSON Lines and JSON files in bounded memory. An invalid row does not end the import."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import select
import stat
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from parcelpost.cli.importer.options import Format
from parcelpost.errors import InvalidInput
from parcelpost.model import Json

STDIN = "-"
MAX_LINE_BYTES = 1024 * 1024

_BUFFER_BYTES = 256 * 1024
_LOOK_SECONDS = 0.2
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class InputFile:
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
def open_source(file: str) -> Iterator[InputFile]:
    """Raises InvalidInput if the file does not exist or cannot be read."""
    try:
        raw = io.FileIO(0, closefd=False) if file == STDIN else io.FileIO(file)
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    name = "standard input" if file == STDIN else file
    with raw:
        with read_errors(name):
            source = InputFile(raw, name)
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

    def __init__(self, source: InputFile) -> None:
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


SHOWN_CHARS = 200


class Row(NamedTuple):
    number: int
    values: Mapping[str, Json]
    """Values by column."""


class BadRow(NamedTuple):
    """A row that cannot be imported."""

    number: int
    reason: str
    text: str = ""
    """The start of the row, if available."""


class Reader(Protocol):
    unit: str
    """What row numbers refer to: `line`, or `entry` of an array."""
    text: Decoder

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the header; () if each row names its own."""

    @property
    def bytes(self) -> int:
        """Bytes read so far, after decompression."""

    def __iter__(self) -> Iterator[Row | BadRow]: ...


class JsonLines:
    """One object per line. Also used for .json files that are not an array: many are really JSON Lines."""

    unit = "line"
    columns = ()

    def __init__(self, source: InputFile) -> None:
        self._lines = Lines(source)
        self.text = self._lines.text

    @property
    def bytes(self) -> int:
        return self._lines.bytes

    def __iter__(self) -> Iterator[Row | BadRow]:
        while True:
            line = ""
            try:
                line = next(self._lines)
                if line.strip():
                    yield Row(self._lines.number, json_object(line))
            except StopIteration:
                return
            except InvalidInput as error:
                yield bad_row(self._lines.number, error, line)


def json_object(text: str) -> dict[str, Json]:
    """Raises InvalidInput if the text is not a JSON object."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("nested too deeply") from None
    if not isinstance(value, dict):
        raise InvalidInput("not a JSON object")
    return value


def bad_row(number: int, error: Exception, text: str) -> BadRow:
    return BadRow(number, str(error), text.strip()[:SHOWN_CHARS])


_DELIMITERS = ",;\t|"
_MAX_RECORD_LINES = 1_000


class CsvRows:
    """Values separated by the most frequent delimiter in the header; quoted values may contain line breaks."""

    unit = "line"

    def __init__(self, source: InputFile, delimiter: str) -> None:
        self._lines = Lines(source)
        self.text = self._lines.text
        self._records = _Records(self._lines)
        first = self._first_line()
        if first.lower().startswith("sep=") and len(first.strip()) == 5:  # a spreadsheet's way to name its separator
            delimiter = first[4]
            first = self._first_line()
        self._records.put_back(first)
        self._reader = csv.reader(self._records, delimiter=delimiter or _delimiter(first))
        self.columns = self._header()

    @property
    def bytes(self) -> int:
        return self._lines.bytes

    def __iter__(self) -> Iterator[Row | BadRow]:
        while True:
            try:
                self._records.begin()
                row = next(self._reader)
            except StopIteration:
                return
            except (InvalidInput, csv.Error) as error:
                yield bad_row(self._records.first, error, self._records.give_up())
                continue
            if any(row):
                yield self._named(row)

    def _named(self, row: list[str]) -> Row | BadRow:
        excess = any(value.strip() for value in row[len(self.columns) :])
        if excess or len(row) < self._fewest:
            reason = f"{len(row)} values for {len(self.columns)} columns"
            return BadRow(self._records.first, reason, ",".join(row)[:SHOWN_CHARS])
        return Row(self._records.first, dict(zip(self.columns, row, strict=False)))

    def _header(self) -> tuple[str, ...]:
        try:
            names = [name.strip() for name in next(self._reader)]
            self._fewest = max((number for number, name in enumerate(names, 1) if name), default=0)
            return _distinct(names)
        except csv.Error as error:
            raise InvalidInput(f"the header row cannot be read: {error}", hint="check the first line") from None

    def _first_line(self) -> str:
        for line in self._lines:
            if "\r" in line.rstrip("\r\n"):
                raise InvalidInput("lines end with CR only", hint="convert the file: tr '\\r' '\\n'")
            if line.strip():
                return line
        raise InvalidInput("there is no header row", hint="the first line must name the columns")


class _Records:
    """Lines for csv.reader. After an unclosed quote, all lines but the record's first are read again."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._again: deque[tuple[int, str]] = deque()
        self._taken: list[tuple[int, str]] = []

    def __iter__(self) -> _Records:
        return self

    @property
    def first(self) -> int:
        """The number of the record's first line."""
        return self._taken[0][0] if self._taken else self._lines.number

    def begin(self) -> None:
        self._taken.clear()

    def put_back(self, line: str) -> None:
        self._again.append((self._lines.number, line))

    def give_up(self) -> str:
        """Returns the record's first line; the other lines are read again as separate records."""
        self._again.extendleft(reversed(self._taken[1:]))
        return self._taken[0][1] if self._taken else ""

    def __next__(self) -> str:
        if len(self._taken) >= _MAX_RECORD_LINES:
            raise InvalidInput(f"a quoted value is not closed within {_MAX_RECORD_LINES:,} lines")
        try:
            line = self._again.popleft() if self._again else self._next_line()
        except StopIteration:
            if self._taken:
                raise InvalidInput("a quoted value is not closed") from None
            raise
        self._taken.append(line)
        return line[1]

    def _next_line(self) -> tuple[int, str]:
        try:
            line = next(self._lines)
        except InvalidInput as error:
            if self._taken:
                raise InvalidInput(f"{error} (on line {self._lines.number:,}, inside quotes)") from None
            raise
        return self._lines.number, line


def _delimiter(header: str) -> str:
    counts = {sign: _count_unquoted(header, sign) for sign in _DELIMITERS}
    return max(_DELIMITERS, key=lambda sign: counts[sign])


def _count_unquoted(header: str, sign: str) -> int:
    return sum(part.count(sign) for part in header.split('"')[::2])


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names unnamed columns by position and appends a number to duplicate names."""
    seen: dict[str, None] = {}
    for position, name in enumerate(names, 1):
        wanted = name or f"column {position}"
        unique, number = wanted, 2
        while unique in seen:
            unique, number = f"{wanted} {number}", number + 1
        seen[unique] = None
    return tuple(seen)


_READ_BYTES = 64 * 1024

# Each matches everything up to the next significant character (possibly nothing) and never backtracks.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BETWEEN_ENTRIES = re.compile(rb'(?:[^{}\[\]",]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_ENTRY = re.compile(rb'(?:[^{}\[\]"]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class JsonArray:
    unit = "entry"
    columns = ()

    def __init__(self, source: InputFile) -> None:
        self._file = source.file
        self._entries = _Entries()
        self._number = 0
        self.text = Decoder()
        self.bytes = 0

    def __iter__(self) -> Iterator[Row | BadRow]:
        self._file.read(self._file.peek(4096).index(b"[") + 1)
        while block := self._file.read1(_READ_BYTES):
            self.bytes += len(block)
            for entry in self._entries.of(block):
                yield self._row(entry)
            if self._entries.ended:
                yield from self._after_the_end()
                return
        yield BadRow(
            self._number + 1,
            "a closing bracket or quote is missing; nothing after this point was read",
        )

    def _row(self, entry: bytes | None) -> Row | BadRow:
        self._number += 1
        if entry is None:
            return BadRow(self._number, f"the entry is longer than {MAX_LINE_BYTES:,} bytes")
        text = self.text.of(entry, self._number)
        try:
            return Row(self._number, json_object(text))
        except InvalidInput as error:
            return bad_row(self._number, error, text)

    def _after_the_end(self) -> Iterator[BadRow]:
        rest = self._entries.rest + self._file.read1(_READ_BYTES)
        if rest.strip():
            reason = "an extra closing bracket comes before this entry; nothing after the bracket was read"
            yield bad_row(self._number + 1, InvalidInput(reason), self.text.of(rest, self._number + 1))


class _Entries:
    """Splits entries by their brackets only, so that a broken entry does not affect its neighbours."""

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""
        """Bytes after the end of the array; before that, a character that needs the next block."""
        self._depth = 0
        self._in_string = False
        self._entry = bytearray()
        self._is_too_long = False

    def of(self, block: bytes) -> Iterator[bytes | None]:
        """The entries that end in this block; None for one that is too long."""
        block, self.rest = self.rest + block, b""
        start = at = 0
        while (at := self._pattern().match(block, at).end()) < len(block):  # type: ignore[union-attr] # it always matches
            sign = block[at : at + 1]
            if sign == b"\\":
                self.rest = block[at:]
                break
            if sign == b'"':
                self._in_string = not self._in_string
            elif sign in (b",", b"]", b"}") and self._depth == 0:
                self.ended = sign != b","
                self._keep(block[start:at])
                if not self.ended or self._is_something():
                    yield self._take()
                start = at + 1
                if self.ended:
                    self.rest = block[start:]
                    return
            else:
                self._depth += 1 if sign in (b"{", b"[") else -1
            at += 1
        self._keep(block[start:at])

    def _pattern(self) -> re.Pattern[bytes]:
        if self._in_string:
            return _WITHIN_STRING
        return _WITHIN_ENTRY if self._depth else _BETWEEN_ENTRIES

    def _keep(self, piece: bytes) -> None:
        if len(self._entry) + len(piece) > MAX_LINE_BYTES:
            self._is_too_long = True
            self._entry.clear()
        elif not self._is_too_long:
            self._entry += piece

    def _is_something(self) -> bool:
        return self._is_too_long or bool(self._entry.strip())

    def _take(self) -> bytes | None:
        taken = None if self._is_too_long else bytes(self._entry)
        self._entry.clear()
        self._is_too_long = False
        return taken


def open_reader(source: InputFile, kind: Format) -> Reader:
    """Raises InvalidInput if the file is empty."""
    with read_errors(source.name):
        if not source.begins_with():
            raise InvalidInput(f"{source.name} is empty", hint="check the file")
        if kind in (Format.CSV, Format.TSV):
            return CsvRows(source, "\t" if kind is Format.TSV else "")
        if kind is Format.JSON and source.begins_with() == b"[":
            return JsonArray(source)
        return JsonLines(source)
