"""Tabular sources: CSV files by column name, and query APIs that return their rows page by page."""

from __future__ import annotations

import csv
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from io import StringIO

from msgspec import Raw

from parcelpost.model import Page, Target
from parcelpost.scrapers.counties import County, parcel_number
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater

_MOST_CSV_ROWS = 1_000_000
_MOST_LINES_ABOVE = 10
_LOOK_CHARS = 4_096
_FEWEST_DELIMITERS = 3
"""In a line that stands in a cell, to be one of the table; an address has fewer."""
_END = "-- the end --"
_DELIMITERS = ",\t;|"
_PLAIN = re.compile(r"[^A-Z0-9]")


class CsvTable:
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
            if count >= _MOST_CSV_ROWS:
                return
            self.is_cut_off = not self._ends and len(line) < self._width
            if any(line):
                yield {name: line[at] for name, at in self.columns.items() if at < len(line)}


def read_csv(text: str, names: Mapping[str, Sequence[str]]) -> CsvTable | None:
    """With the columns that any of their names is found for; a title may stand above them. None: there are no headings.

    The first line in which two columns are found (or all, if there are fewer) is that of the headings. Raises csv.Error
    where quotes do not match, as does going through the table.
    """
    lines = csv_lines(text, max(_DELIMITERS, key=text[:_LOOK_CHARS].count))
    for cells, _ in zip(lines, range(_MOST_LINES_ABOVE), strict=False):
        heading = [plain_heading(cell) for cell in cells]
        found = {name: heading.index(one) for name, known in names.items() for one in known[::-1] if one in heading}
        if len(found) >= min(2, len(names)):
            return CsvTable(found, len(heading), lines, ends=text.endswith(("\n", "\r")))
    return None


def plain_heading(heading: str) -> str:
    """Capitals and digits only."""
    return _PLAIN.sub("", heading.upper())


def csv_lines(text: str, delimiter: str = ",") -> Iterator[list[str]]:
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


PAGE_ROWS = 1_000
_MOST_ROWS = 20_000
_MOST_WHERE_CHARS = 4_000
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}", re.ASCII)

Rows = list[Raw]
FetchRows = Callable[[int], Awaitable[tuple[Page, Rows | None, bool]]]
"""From which row on -> the answer, its rows (None: it holds none), and whether there are more."""


def where_clause(target: Target, county: County | None) -> str:
    """`where` in the target's extra values, else the one parcel. Raises CannotFetch."""
    where = target.extra.get("where")
    if where is not None:
        if not isinstance(where, str) or not where.strip() or len(where) > _MOST_WHERE_CHARS:
            raise CannotFetch(f"where must be text of at most {_MOST_WHERE_CHARS:,} characters")
        return where
    column = target.extra.get("parcel_column") or (county.ids.get("parcel_column") if county is not None else None)
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        raise CannotFetch("which column holds the parcel is not known: set ids.parcel_column in the county's entry")
    parcel = parcel_number(target, county) if county is not None else target.parcel_id.strip()
    if not parcel:
        raise CannotFetch("the task names neither a parcel nor a where")
    return f"{column}='{parcel.replace(chr(39), chr(39) * 2)}'"


async def fetch_all_rows(ask: FetchRows, join: Callable[[Page, Rows], bytes], *, distinct: bool) -> Page:
    """One page with the rows of all. An answer without rows is handed on as it is: the parser says what it means.

    `distinct`: no two rows of the table are the same. Raises CannotFetch where there are too many or the server does
    not give those after the first, and TryLater where they moved, so that nobody takes a part for the whole.
    """
    rows: Rows = []
    seen: set[bytes] = set()
    first: Page | None = None
    while True:
        page, found, more = await ask(len(rows))
        if found is None:
            return page
        _check_new(found, seen, distinct=distinct)
        is_last = not more or not found
        if is_last and first is None:
            return page
        first, rows = first or page, rows + found
        if is_last:
            return Page(body=join(first, rows), content_type=first.content_type, url=first.url)
        if len(rows) > _MOST_ROWS:
            raise CannotFetch(f"more than {_MOST_ROWS:,} rows match: ask for fewer at once")


def _check_new(found: Rows, seen: set[bytes], *, distinct: bool) -> None:
    """Adds them to what was seen."""
    given = {bytes(row) for row in found}
    if given and given <= seen:
        raise CannotFetch("the server gives the same rows again instead of the next: ask for fewer at once")
    if distinct and given & seen:
        raise RetryLater("some rows came twice: the table changed while it was read")
    seen |= given
