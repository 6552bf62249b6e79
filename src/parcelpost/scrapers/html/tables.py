"""Tables by their headings: the order of columns is read from the page, never assumed."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from lxml import etree
from msgspec import Struct

from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, Piece, is_in, label, text_of
from parcelpost.scrapers.html.values import clean
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import Sale

_MAX_ROWS = 10_000
_MAX_HEADING_ROWS = 5
_MAX_COLUMNS = 200
_CELLS = ("td", "th")
_MULTI_PARCEL = re.compile(r"\bmulti[- ]?parcel|\b[1-9][0-9]* additional parcel", re.IGNORECASE | re.ASCII)
_NONE = re.compile(r"\bN ?O ?N ?E\b|\bno\b|\bnot? (?:available|found)\b|\bN/A\b", re.IGNORECASE)
_SAYS_NOTHING = re.compile(
    r"(?:[\W_]|there|are|is|were|was|currently|sorry)*(?:no (?:\w|matching )|none\b|n ?o ?n ?e\b|nothing\b|n/a\b)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"error|fail|load|server|connect|respon[sd]|script|access|permission|log ?in|sign ?in|try again|temporar|longer"
    r"|supported|unavailable|timed? ?out",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"(?:(?:(?:showing|displaying|rows?|items?|records?|entries)\s+)?\d{1,6}\s*(?:-|\u2013|to|through)\s*|page\s+)"
    r"(?P<last>\d{1,6})\s+of\s+(?P<total>[\d,]{1,9})\b.{0,40}"
    r"|(?:show|view|load|see)\s+(?:more|all\s+\d{1,6})\b.{0,40}",
    re.IGNORECASE | re.ASCII,
)
_MAX_NOTE_CHARS = 100
_MAX_EMPTY_CHARS = 300
_MAX_ENDED = 3
_TITLES = ("h1", "h2", "h3", "h4", "h5", "h6", "legend")

Row = Mapping[str, Piece]
"""Cells by column name."""


class Table(Struct, frozen=True):
    rows: list[Row]
    columns: Container[str]
    """The names of the columns that the table has."""
    dropped: int = 0
    """Rows with other cells than the headings: nobody knows which value belongs to which column."""
    unclear: frozenset[str] = frozenset()
    """The names of columns whose heading the table has twice."""
    is_part: bool = False
    """Whether a text in or below the table says that there are more rows."""

    @property
    def texts(self) -> list[list[str]]:
        return [[piece.text for piece in row.values()] for row in self.rows]


class _Line(Struct, frozen=True, gc=False):
    """The cells of a row by the column in which they start, and how many columns it covers."""

    starting: dict[int, Element]
    width: int
    is_wide: bool
    """Whether a cell covers several columns."""


class _ParsedTable(Piece):
    """A table that was parsed when it was found."""

    __slots__ = ("table",)

    def __init__(self, element: Element | None, table: Table) -> None:
        super().__init__(element)
        self.table = table


class Columns:
    """The headings of a table: column name -> possible texts, the most reliable first.

    `distinctive`: columns that other tables do not have. A date and a type, for example, are also columns of permits.
    """

    def __init__(self, headings: Mapping[str, Sequence[str]], *distinctive: str) -> None:
        self.headings = headings
        self._distinctive = distinctive or tuple(headings)
        self._labels = [(name, [label(text) for text in texts]) for name, texts in headings.items()]
        self._fewest = min(2, len(headings))

    def read(self, piece: Piece) -> Table | None:
        """Parses the piece if it is a table, else the first table in it and those that clearly continue it.

        Returns None if nothing has these headings.
        """
        if isinstance(piece, _ParsedTable):
            return piece.table
        element = piece.element
        inside = element.iter("table") if element is not None else iter(())
        tables = [(table, parsed) for table in inside if (parsed := self.table(table)) is not None]
        untitled = [parsed for table, parsed in tables if len(tables) > 1 and not _is_titled(table, element)]
        candidates = untitled or [parsed for _, parsed in tables]
        if len(candidates) < 2 or (element is not None and element.tag == "table"):
            return candidates[0] if candidates else None
        parts = [candidates[0]]
        for parsed in candidates[1:]:
            if self._is_distinctive(parsed) and all(parsed.texts != part.texts for part in parts):
                parts.append(parsed)
        names = {name for parsed in parts for name in self.headings if name in parsed.columns}
        unclear = frozenset(name for parsed in parts for name in parsed.unclear)
        dropped = sum(parsed.dropped for parsed in parts)
        is_part = any(parsed.is_part for parsed in parts)
        return Table([row for parsed in parts for row in parsed.rows], names, dropped, unclear, is_part)

    def table(self, table: Element) -> Table | None:
        """Parses one table. Rows that repeat the headings, or have no cell for any, are skipped.

        Returns None if fewer than two columns are found (or not the only one).
        """
        rows = _grid(table)
        heading = self._heading(rows)
        if heading is None:
            return None
        starting, width = heading.starting, heading.width
        columns, unclear = self._columns(starting)
        notes: list[str] = []
        below = list(self._rows_below(rows, columns, heading, notes))
        parsed = [row for row in below if row is not None]
        unread = [] if below else [text for text in notes if not says_nothing(text)]
        dropped = len(below) - len(parsed) + len(unread) + _rows_of_rest(table, width)
        return Table(parsed, columns, dropped, unclear, any(map(says_more, (*notes, *_texts_below(table)))))

    def headed(self, document: Document, within: Element | None = None) -> Iterator[Piece]:
        """Tables with these headings in their first rows, a distinctive one among them."""
        seen: set[Element] = set()
        for element in (cell for texts in self.headings.values() for text in texts for cell in document.labelled(text)):
            table = next(element.iterancestors("table"), None)
            if table is None or table in seen:
                continue
            seen.add(table)
            parsed = self.table(table)
            if parsed is not None and self._is_distinctive(parsed) and is_in(table, within):
                yield _ParsedTable(table, parsed)

    def _is_distinctive(self, table: Table) -> bool:
        return any(name in table.columns for name in self._distinctive)

    def _heading(self, rows: Iterator[_Line]) -> _Line | None:
        """The first row that names enough columns; consumes no further row."""
        return next((line for line in islice(rows, _MAX_HEADING_ROWS) if self._columns(line.starting)[0]), None)

    def _columns(self, starting: Mapping[int, Element]) -> tuple[dict[str, int], frozenset[str]]:
        """The positions of the columns, and the names of those whose heading occurs twice."""
        texts: dict[str, int] = {}
        twice = set()
        for at, cell in starting.items():
            text = label(text_of(cell))
            if texts.setdefault(text, at) != at:
                twice.add(text)
        columns: dict[str, int] = {}
        unclear = set()
        for name, known in self._labels:
            for text in known:
                if text in twice:
                    unclear.add(name)
                    break
                if text in texts:
                    columns[name] = texts[text]
                    break
        return (
            (columns, frozenset(unclear))
            if len(columns) + len(unclear) >= self._fewest and columns
            else ({}, frozenset())
        )

    def _rows_below(
        self, rows: Iterator[_Line], columns: Mapping[str, int], heading: _Line, notes: list[str]
    ) -> Iterator[Row | None]:
        """None for a row that has other cells than the headings. A single text in such a row is added to `notes`."""
        first, width = next(iter(columns)), heading.width
        own = next(known for name, known in self._labels if name == first)
        for line in rows:
            starting = line.starting
            is_merged = line.is_wide and len(starting) < len(heading.starting)
            if line.width != width or is_merged or (len(starting) == 1 and width > 1):
                texts = [text for cell in starting.values() if (text := text_of(cell))]
                if len(texts) > 1:
                    yield None
                else:
                    notes += texts
                continue
            pieces = {name: Piece(starting[at]) for name, at in columns.items() if at in starting}
            if first in pieces and label(pieces[first].text) in own and self._columns(starting)[0] == columns:
                continue
            if any(piece.text for piece in pieces.values()):
                yield pieces


def _rows_of_rest(table: Element, width: int) -> int:
    """The rows of a second table, directly behind it, that has as many columns and no headings."""
    rest = table.getnext()
    if rest is None or rest.tag != "table" or clean(table.tail) or next(rest.iter("th", "caption"), None) is not None:
        return 0
    rows = [line for line in _grid(rest) if line.width == width]
    texts = [text_of(cell) for line in rows[:1] for cell in line.starting.values()]
    is_of_values = sum(any(sign.isdigit() for sign in text) for text in texts) > 1
    return len(rows) if is_of_values and width > 2 else 0


def _texts_below(table: Element) -> Iterator[str]:
    """Short texts directly behind a table and behind the elements that it ends."""
    node: Element | None = table
    for _ in range(_MAX_ENDED):
        if node is None:
            return
        following = node.getnext()
        if following is not None:
            yield text_of(following) if following.tag not in ("table", *_TITLES) else ""
            return
        node = node.getparent()


def says_more(text: str) -> bool:
    """`Showing 1 to 5 of 12 entries`, `1 - 5 of 12`, `Page 1 of 3`, `Show more`, `View all 12`."""
    match = _MORE.fullmatch(text) if len(text) < _MAX_NOTE_CHARS else None
    if match is None:
        return False
    return match["total"] is None or int(match["last"]) < int(match["total"].replace(",", ""))


def _is_titled(table: Element, within: Element | None) -> bool:
    """Whether a title of its own is above the table: then it does not continue another one."""
    node: Element | None = table
    while node is not None and node is not within:
        previous = node.getprevious()
        if previous is not None:
            return previous.tag in _TITLES
        node = node.getparent()
    return False


class Headed:
    """Finds a table by its column headings, anywhere on the page."""

    type = "label"

    def __init__(self, columns: Columns) -> None:
        self.expression = f"columns {', '.join(texts[0] for texts in columns.headings.values())}"
        self._columns = columns

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return self._columns.headed(document, within)


class Below:
    """Finds the cell below a heading, for tables with several heading rows."""

    type = "label"

    def __init__(self, heading: str) -> None:
        self.expression = f"below {heading}"
        self._heading = heading

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return below(document, self._heading, within)


class Numbered:
    """Finds rows whose cells have numbered ids: column -> id without the number.

    They are read up to the first number that no column has.
    """

    type = "css"

    def __init__(self, ids: Mapping[str, str]) -> None:
        self._ids = ids
        self._first = next(iter(ids))
        self.expression = f"#{ids[self._first]}1"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        rows: list[Row] = []
        for number in range(1, _MAX_ROWS):
            cells = ((name, document.by_id(f"{ident}{number}")) for name, ident in self._ids.items())
            row = {name: Piece(cell) for name, cell in cells if cell is not None and is_in(cell, within)}
            if not row:
                break
            rows.append(row)
        if rows:
            yield _ParsedTable(None, Table(rows, set().union(*rows)))


def text(row: Row, name: str) -> str:
    """The text of a cell; '' if the row has none."""
    return row[name].text if name in row else ""


def lists_nothing(piece: Piece) -> bool:
    """`N O N E` or `No sales`, and no digit: a real row contains one somewhere. An empty frame says nothing."""
    text = piece.text
    is_short = len(text) < _MAX_EMPTY_CHARS
    return is_short and _NONE.search(text) is not None and not any(sign.isdigit() for sign in text)


def says_nothing(text: str) -> bool:
    """Whether a row with this single text says that the table is empty, rather than that it was not loaded."""
    return _SAYS_NOTHING.match(text) is not None and _FAILED.search(text) is None


def rows_of(table: Element) -> Iterator[list[Element]]:
    """The cells of each row, without rows of nested tables."""
    for count, row in enumerate(_own_rows(table)):
        if count >= _MAX_ROWS:
            return
        cells = [cell for cell in row.iterchildren(etree.Element) if cell.tag in _CELLS]
        if cells:
            yield cells


def below(document: Document, text: str, within: Element | None = None) -> Iterator[Piece]:
    """The cells below a heading, for tables with several heading rows."""
    columns: dict[Element, tuple[dict[Element, int], dict[int, Element]]] = {}
    for element in document.labelled(text):
        cell = element if element.tag in _CELLS else next(element.iterancestors(*_CELLS), None)
        row = cell.getparent() if cell is not None else None
        following = row.getnext() if row is not None else None
        if cell is None or row is None or following is None or not is_in(cell, within):
            continue
        if row not in columns:
            starts = {cell_below: at for at, cell_below in _starting(row.iterchildren(*_CELLS)).items()}
            columns[row] = starts, _starting(following.iterchildren(*_CELLS))
        above, under = columns[row]
        below_cell = under.get(above.get(cell, -1)) if set(above.values()) == set(under) else None
        if below_cell is not None and below_cell.tag == "td":
            yield Piece(below_cell)


def _grid(table: Element) -> Iterator[_Line]:
    """The rows of a table, with row spans taken into account."""
    occupied: dict[int, int] = {}
    for cells in rows_of(table):
        starting = _starting(cells, occupied)
        last = max(starting)
        width = last + _span(starting[last], "colspan")
        is_wide = any(cell.get("colspan") for cell in cells)
        yield _Line(starting, max(width, max(occupied) + 1) if occupied else width, is_wide)
        if occupied:
            occupied = {at: left - 1 for at, left in occupied.items() if left > 1}
        if any(cell.get("rowspan") for cell in cells):
            occupied |= _spanned(starting)


def _spanned(starting: Mapping[int, Element]) -> dict[int, int]:
    """Columns that cells of this row occupy below -> in how many rows."""
    return {
        at + more: _span(cell, "rowspan") - 1
        for at, cell in starting.items()
        for more in range(_span(cell, "colspan"))
        if at + more < _MAX_COLUMNS and _span(cell, "rowspan") > 1
    }


def _starting(cells: Iterable[Element], occupied: Mapping[int, int] = {}) -> dict[int, Element]:
    """The cells by the column in which they start; `occupied` columns are covered by row spans from above."""
    by_column: dict[int, Element] = {}
    at = 0
    for cell in cells:
        while at in occupied:
            at += 1
        by_column[at] = cell
        at += 1 if cell.get("colspan") is None else _span(cell, "colspan")
    return by_column


def _span(cell: Element, name: str) -> int:
    given = cell.get(name)
    if given is None:
        return 1
    return max(1, min(int(given), 100)) if given.isascii() and given.isdigit() and len(given) < 4 else 1


def _own_rows(table: Element) -> Iterator[Element]:
    for child in table.iterchildren(etree.Element):
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from child.iterchildren("tr")


def is_row_of_values(row: Row) -> bool:
    """Whether at least two of its columns have a value; otherwise it is a note, or says that there is nothing."""
    return sum(1 for piece in row.values() if values.text_or_none(piece.text)) > 1


SALE_KINDS: Mapping[str, Callable[[str], object | None]] = {
    "date": lambda text: values.written_date(text.lstrip("+ ")),
    "price": values.money,
}
_SALE_FIELDS: Mapping[str, Callable[[str], Any]] = {
    "price": values.money,
    "book_page": values.text_or_none,
    "instrument": values.text_or_none,
    "qualified": values.text_or_none,
    "reason_code": values.short_code,
    "vacant_improved": values.text_or_none,
    "grantor": values.party,
    "grantee": values.party,
}


def read_sales(rows: Iterable[Row], problems: Problems) -> Iterator[Sale]:
    """Sales with a date, which may follow a `+` that opens details. Columns that a site lacks are None."""
    for row in rows:
        date = values.iso_date(text(row, "date").lstrip("+ "))
        if date is None:
            if is_row_of_values(row) or "date" not in row:
                problems.note("sales", "a row has no date")
            continue
        fields = {name: convert(row[name].text) for name, convert in _SALE_FIELDS.items() if name in row}
        yield Sale(date=date, multi_parcel=_multi_parcel(row), **fields)


def _multi_parcel(row: Row) -> bool | None:
    """Yes or no in a column of its own, or a note; without a note the page does not say."""
    notes = [row[name].text for name in ("reason_code", "multi_parcel") if name in row]
    if any(_MULTI_PARCEL.search(note) for note in notes):
        return True
    return values.yes_no(row["multi_parcel"].text) if "multi_parcel" in row else None
