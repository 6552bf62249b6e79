"""Readers for CSV, JSON Lines and JSON arrays. An invalid row is reported and does not end the import."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from parcelpost.cli.importer.source import MAX_LINE_BYTES, Decoder, Lines, Source
from parcelpost.errors import InvalidInput
from parcelpost.model import Json

SHOWN_CHARS = 200


class Row(NamedTuple):
    number: int
    values: Mapping[str, Json]
    """By column."""


class BadRow(NamedTuple):
    """A row that cannot be imported."""

    number: int
    reason: str
    text: str = ""
    """The start of the row, if available."""


class Reader(Protocol):
    unit: str
    """What row numbers count: `line`, or `entry` of an array."""
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

    def __init__(self, source: Source) -> None:
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
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("nested too deeply") from None
    if not isinstance(found, dict):
        raise InvalidInput("not a JSON object")
    return found


def bad_row(number: int, error: Exception, text: str) -> BadRow:
    return BadRow(number, str(error), text.strip()[:SHOWN_CHARS])


_DELIMITERS = ",;\t|"
_MAX_RECORD_LINES = 1_000


class CsvRows:
    """Values separated by the most frequent delimiter in the header; quoted values may contain line breaks."""

    unit = "line"

    def __init__(self, source: Source, delimiter: str) -> None:
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
            found = self._again.popleft() if self._again else self._next_line()
        except StopIteration:
            if self._taken:
                raise InvalidInput("a quoted value is not closed") from None
            raise
        self._taken.append(found)
        return found[1]

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
    found: dict[str, None] = {}
    for position, name in enumerate(names, 1):
        wanted = name or f"column {position}"
        unique, number = wanted, 2
        while unique in found:
            unique, number = f"{wanted} {number}", number + 1
        found[unique] = None
    return tuple(found)


_READ_BYTES = 64 * 1024

# Each matches everything up to the next significant character (possibly nothing) and never backtracks.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BETWEEN_ENTRIES = re.compile(rb'(?:[^{}\[\]",]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_ENTRY = re.compile(rb'(?:[^{}\[\]"]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class JsonArray:
    unit = "entry"
    columns = ()

    def __init__(self, source: Source) -> None:
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
            "a closing bracket or quote is missing; nothing after it was read",
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
            reason = "there is an extra closing bracket before it; nothing after it was read"
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
