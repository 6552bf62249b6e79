"""CSV, row by row."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

from parcelpost.cli.importing.readers import SHOWN_CHARS, Bad, Row, bad
from parcelpost.cli.importing.source import Lines, Source
from parcelpost.errors import InvalidInput

_DELIMITERS = ",;\t|"
_MAX_RECORD_LINES = 1_000


class CsvRows:
    """Values separated by the sign that is in the header most often; quoted ones may hold line breaks."""

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

    def __iter__(self) -> Iterator[Row | Bad]:
        while True:
            try:
                self._records.begin()
                row = next(self._reader)
            except StopIteration:
                return
            except (InvalidInput, csv.Error) as error:
                yield bad(self._records.first, error, self._records.give_up())
                continue
            if any(row):
                yield self._named(row)

    def _named(self, row: list[str]) -> Row | Bad:
        excess = any(value.strip() for value in row[len(self.columns) :])
        if excess or len(row) < self._fewest:
            reason = f"{len(row)} values for {len(self.columns)} columns"
            return Bad(self._records.first, reason, ",".join(row)[:SHOWN_CHARS])
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
                raise InvalidInput("the lines end with CR alone", hint="convert the file: tr '\\r' '\\n'")
            if line.strip():
                return line
        raise InvalidInput("there is no header row", hint="the first line names the columns")


class _Records:
    """Lines for csv.reader. What a quote without its end had swallowed is given again, but for the record's first."""

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
        """Answers the record's first line; the others will be records of their own."""
        self._again.extendleft(reversed(self._taken[1:]))
        return self._taken[0][1] if self._taken else ""

    def __next__(self) -> str:
        if len(self._taken) >= _MAX_RECORD_LINES:
            raise InvalidInput(f"a quoted value does not end within {_MAX_RECORD_LINES:,} lines")
        try:
            found = self._again.popleft() if self._again else self._next_line()
        except StopIteration:
            if self._taken:
                raise InvalidInput("a quoted value does not end") from None
            raise
        self._taken.append(found)
        return found[1]

    def _next_line(self) -> tuple[int, str]:
        try:
            line = next(self._lines)
        except InvalidInput as error:
            if self._taken:
                raise InvalidInput(f"{error} (in line {self._lines.number:,}, within quotes)") from None
            raise
        return self._lines.number, line


def _delimiter(header: str) -> str:
    counts = {sign: _count_unquoted(header, sign) for sign in _DELIMITERS}
    return max(_DELIMITERS, key=lambda sign: counts[sign])


def _count_unquoted(header: str, sign: str) -> int:
    return sum(part.count(sign) for part in header.split('"')[::2])


def _distinct(names: list[str]) -> tuple[str, ...]:
    """A column without a name is called by its number, one whose name is taken gets a number behind it."""
    found: dict[str, None] = {}
    for position, name in enumerate(names, 1):
        wanted = name or f"column {position}"
        unique, number = wanted, 2
        while unique in found:
            unique, number = f"{wanted} {number}", number + 1
        found[unique] = None
    return tuple(found)
