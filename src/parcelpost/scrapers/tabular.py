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

_MAX_CSV_ROWS = 1_000_000
_MAX_LINES_ABOVE = 10
_SCANNED_CHARS = 4_096
_MIN_DELIMITERS = 3
"""A line inside a cell with so many delimiters is a row of the table; an address has fewer."""
_END = "-- the end --"
_DELIMITERS = ",\t;|"
_PLAIN = re.compile(r"[^A-Z0-9]")


class CsvTable:
    """`columns`: name -> position. Iterating yields the texts of each row by column name."""

    def __init__(
        self,
        columns: Mapping[str, int],
        width: int,
        lines: Iterator[list[str]],
        *,
        ends: bool,
        unclear: frozenset[str] = frozenset(),
    ) -> None:
        self.columns = columns
        self._width = width
        self._lines = lines
        self._ends = ends
        self.is_cut_off = False
        """Whether the last row is incomplete; known after iteration."""
        self.unclear = unclear
        """The names of columns whose heading the table has twice."""
        self.dropped = 0
        """Rows with another number of cells than the headings; known after iteration."""

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        for count, line in enumerate(self._lines):
            if count >= _MAX_CSV_ROWS:
                return
            self.is_cut_off = not self._ends and len(line) < self._width
            if sum(map(bool, line)) > 1 and len(line) != self._width:
                self.dropped += 1
            elif any(line):
                yield {name: line[at] for name, at in self.columns.items() if at < len(line)}


def read_csv(text: str, names: Mapping[str, Sequence[str]]) -> CsvTable | None:
    """Finds the columns by their possible headings, below an optional title. Returns None if there are no headings.

    The headings are the first line in which two columns are found (or the only one). This and iterating the table raise
    csv.Error if quotes do not match.
    """
    lines = csv_lines(text, max(_DELIMITERS, key=text[:_SCANNED_CHARS].count), is_even=False)
    for cells, _ in zip(lines, range(_MAX_LINES_ABOVE), strict=False):
        heading = [plain_heading(cell) for cell in cells]
        positions = {name: heading.index(s) for name, known in names.items() for s in known[::-1] if s in heading}
        if len(positions) >= min(2, len(names)):
            unclear = frozenset(name for name, at in positions.items() if heading.count(heading[at]) > 1)
            clear = {name: at for name, at in positions.items() if name not in unclear}
            return CsvTable(clear, len(heading), lines, ends=text.endswith(("\n", "\r")), unclear=unclear)
    return None


_NOT_A_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?\b(?:NaN|Infinity)\b', re.DOTALL)


def standard_json(body: bytes) -> bytes:
    """Replaces NaN and Infinity, which some servers write for missing numbers, with null."""
    return _NOT_A_NUMBER.sub(lambda match: match[0] if match[0].startswith(b'"') else b"null", body)


def plain_heading(heading: str) -> str:
    """Upper-case letters and digits only."""
    return _PLAIN.sub("", heading.upper())


def column_name(given: str) -> str:
    """The normalized name of a column: the last part of `DB.OWNER.TABLE.FIELD`."""
    return plain_heading(given.rpartition(".")[2])


def csv_lines(text: str, delimiter: str = ",", *, is_even: bool = True) -> Iterator[list[str]]:
    """The cells of each line. Raises csv.Error if a stray quote turned several lines into one cell.

    `is_even`: raises it also for a line with another number of cells than the first.
    """
    ended = text if text.endswith(("\n", "\r")) else f"{text}\n"
    width = 0
    headings: list[str] = []
    for line in csv.reader(StringIO(ended.replace("\0", "") + _END, newline=""), delimiter=delimiter):
        if line == [_END]:
            return
        if is_even and line == headings:
            continue  # repeated between two parts of the table
        headings = headings or line
        if is_even and width and any(line) and len(line) != width:
            raise csv.Error(f"a line has {len(line)} cells instead of {width}")
        width = max(width, len(line))
        if any(_holds_lines(cell, width, delimiter) for cell in line):
            raise csv.Error("a cell contains several lines: a quote is missing or extra")
        yield line
    raise csv.Error("the file ends inside quotes")


def _holds_lines(cell: str, width: int, delimiter: str) -> bool:
    fewest = max(_MIN_DELIMITERS, width - 1)
    return ("\n" in cell or "\r" in cell) and any(line.count(delimiter) >= fewest for line in cell.splitlines())


PAGE_ROWS = 1_000
_MAX_ROWS = 20_000
_MAX_WHERE_CHARS = 4_000
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}", re.ASCII)

Rows = list[Raw]
FetchRows = Callable[[int], Awaitable[tuple[Page, Rows | None, bool]]]
"""Start row -> the response, its rows (None if it has none), and whether there are more."""


def where_clause(target: Target, county: County | None) -> str:
    """The `where` of the target's extra fields, else a condition for its parcel. Raises CannotFetch."""
    where = target.extra.get("where")
    if where is not None:
        if not isinstance(where, str) or not where.strip() or len(where) > _MAX_WHERE_CHARS:
            raise CannotFetch(f"where must be text of at most {_MAX_WHERE_CHARS:,} characters")
        return where
    column = target.extra.get("parcel_column") or (county.ids.get("parcel_column") if county is not None else None)
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        raise CannotFetch("the parcel column is not known: set ids.parcel_column in the county's entry")
    parcel = parcel_number(target, county) if county is not None else target.parcel_id.strip()
    if not parcel:
        raise CannotFetch("the task has neither a parcel number nor a where clause")
    return f"{column}='{parcel.replace(chr(39), chr(39) * 2)}'"


async def fetch_all_rows(fetch_rows: FetchRows, join: Callable[[Page, Rows], bytes], *, distinct: bool) -> Page:
    """Fetches all pages of a result and returns them as one. A response without rows is returned for the parser.

    `distinct`: no two rows of the table are equal. Raises CannotFetch if there are too many rows or the server repeats
    the first page, and RetryLater if rows moved meanwhile: a partial result is never returned.
    """
    rows: Rows = []
    seen: set[bytes] = set()
    first: Page | None = None
    while True:
        page, new_rows, more = await fetch_rows(len(rows))
        if new_rows is None:
            return page
        _check_new(new_rows, seen, distinct=distinct)
        is_last = not more or not new_rows
        if is_last and first is None:
            return page
        first, rows = first or page, rows + new_rows
        if is_last:
            return Page(body=join(first, rows), content_type=first.content_type, url=first.url)
        if len(rows) > _MAX_ROWS:
            raise CannotFetch(f"more than {_MAX_ROWS:,} rows match: request fewer at a time")


def _check_new(rows: Rows, seen: set[bytes], *, distinct: bool) -> None:
    """Adds the rows to `seen`. Raises if they are repeated."""
    new = {bytes(row) for row in rows}
    if new and new <= seen:
        raise CannotFetch("the server repeats the same rows instead of the next page: request fewer at a time")
    if distinct and new & seen:
        raise RetryLater("some rows were returned twice: the table changed while it was being read")
    seen |= new
