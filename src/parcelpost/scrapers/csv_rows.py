"""A CSV file by its columns' names, whatever their case and blanks, and whatever stands between them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

_MOST_ROWS = 1_000_000
_MOST_LINES_ABOVE = 10
_LOOK_CHARS = 4_096
_FEWEST_DELIMITERS = 3
"""In a line that stands in a cell, to be one of the table; an address has fewer."""
_END = "-- the end --"
_DELIMITERS = ",\t;|"
_PLAIN = re.compile(r"[^A-Z0-9]")


class Table:
    """`columns`: name -> position. Iterating gives each row's texts by name."""

    def __init__(self, columns: Mapping[str, int], width: int, lines: Iterator[list[str]], *, ends: bool) -> None:
        self.columns = columns
        self._width = width
        self._lines = lines
        self._ends = ends
        self.is_cut_off = False
        """Whether its last row lacks cells and its end; known when all rows were read."""

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        for count, line in enumerate(self._lines):
            if count >= _MOST_ROWS:
                return
            self.is_cut_off = not self._ends and len(line) < self._width
            if any(line):
                yield {name: line[at] for name, at in self.columns.items() if at < len(line)}


def rows(text: str, names: Mapping[str, Sequence[str]]) -> Table | None:
    """With the columns that any of their names is found for; a title may stand above them. None: there are no headings.

    The first line in which two columns are found (or all, if there are fewer) is that of the headings. Raises csv.Error
    where quotes do not match, as does going through the table.
    """
    lines = lines_of(text, max(_DELIMITERS, key=text[:_LOOK_CHARS].count))
    for cells, _ in zip(lines, range(_MOST_LINES_ABOVE), strict=False):
        heading = [plain(cell) for cell in cells]
        found = {name: heading.index(one) for name, known in names.items() for one in known[::-1] if one in heading}
        if len(found) >= min(2, len(names)):
            return Table(found, len(heading), lines, ends=text.endswith(("\n", "\r")))
    return None


def plain(heading: str) -> str:
    """Capitals and digits only."""
    return _PLAIN.sub("", heading.upper())


def lines_of(text: str, delimiter: str = ",") -> Iterator[list[str]]:
    """The cells of each. Raises csv.Error where one stray quote has made a cell of many lines."""
    ended = text if text.endswith(("\n", "\r")) else f"{text}\n"
    width = 0
    for line in csv.reader(StringIO(ended.replace("\0", "") + _END, newline=""), delimiter=delimiter):
        if line == [_END]:
            return
        width = max(width, len(line))
        if any(_holds_lines(cell, width, delimiter) for cell in line):
            raise csv.Error("a cell holds whole lines: a quote is missing or too many")
        yield line
    raise csv.Error("the file ends inside of quotes")


def _holds_lines(cell: str, width: int, delimiter: str) -> bool:
    fewest = max(_FEWEST_DELIMITERS, width - 1)
    return ("\n" in cell or "\r" in cell) and any(one.count(delimiter) >= fewest for one in cell.splitlines())
