"""A CSV file by its columns' names, whatever their case and blanks, and whatever stands between them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

_MOST_ROWS = 1_000_000
_MOST_LINES_ABOVE = 10
_LOOK_CHARS = 4_096
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

    The first line in which two columns are found (or all, if there are fewer) is that of the headings.
    """
    lines = _lines(text)
    for cells, _ in zip(lines, range(_MOST_LINES_ABOVE), strict=False):
        heading = [plain(cell) for cell in cells]
        found = {name: heading.index(one) for name, known in names.items() for one in known[::-1] if one in heading}
        if len(found) >= min(2, len(names)):
            return Table(found, len(heading), lines, ends=text.endswith(("\n", "\r")))
    return None


def plain(heading: str) -> str:
    """Capitals and digits only."""
    return _PLAIN.sub("", heading.upper())


def _lines(text: str) -> Iterator[list[str]]:
    """Broken quoting ends the file early instead of failing."""
    reader = csv.reader(StringIO(text.replace("\0", ""), newline=""), delimiter=_delimiter(text))
    while True:
        try:
            yield next(reader)
        except (StopIteration, csv.Error):
            return


def _delimiter(text: str) -> str:
    return max(_DELIMITERS, key=text[:_LOOK_CHARS].count)
