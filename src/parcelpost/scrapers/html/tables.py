"""Tables by their headings: the order of columns is read from the page, never assumed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from lxml import etree
from msgspec import Struct

from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, Piece, is_in, label, text_of
from parcelpost.scrapers.records.record import Sale

_MAX_ROWS = 10_000
_MAX_HEADING_ROWS = 5
_MAX_COLUMNS = 200
_CELLS = ("td", "th")

Row = Mapping[str, Piece]
"""Cells by column name."""


class Table(Struct, frozen=True):
    rows: list[Row]
    columns: Container[str]
    """The names of the columns that the table has."""


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
        found = [one for table in inside if (one := self.table(table)) is not None]
        if len(found) < 2 or (element is not None and element.tag == "table"):
            return found[0] if found else None
        parts = [found[0], *(one for one in found[1:] if self._is_distinctive(one))]
        names = {name for one in parts for name in self.headings if name in one.columns}
        return Table([row for one in parts for row in one.rows], names)

    def table(self, table: Element) -> Table | None:
        """Parses one table. Rows that repeat the headings, or have no cell for any, are skipped.

        Returns None if fewer than two columns are found (or not the only one).
        """
        rows = _grid(table)
        columns = self._heading(rows)
        return Table(list(self._rows_below(rows, columns)), columns) if columns else None

    def headed(self, document: Document, within: Element | None = None) -> Iterator[Piece]:
        """Tables with these headings in their first rows, a distinctive one among them."""
        seen: set[Element] = set()
        for element in (one for texts in self.headings.values() for text in texts for one in document.labelled(text)):
            table = next(element.iterancestors("table"), None)
            if table is None or table in seen:
                continue
            seen.add(table)
            found = self.table(table)
            if found is not None and self._is_distinctive(found) and is_in(table, within):
                yield _ParsedTable(table, found)

    def _is_distinctive(self, table: Table) -> bool:
        return any(name in table.columns for name in self._distinctive)

    def _heading(self, rows: Iterator[dict[int, Element]]) -> dict[str, int]:
        """Column positions, from the first row that names enough of them; consumes no further row."""
        for starting in islice(rows, _MAX_HEADING_ROWS):
            if columns := self._columns(starting):
                return columns
        return {}

    def _columns(self, starting: Mapping[int, Element]) -> dict[str, int]:
        texts: dict[str, int] = {}
        for at, cell in starting.items():
            texts.setdefault(label(text_of(cell)), at)
        found: dict[str, int] = {}
        for name, known in self._labels:
            for text in known:
                if text in texts:
                    found[name] = texts[text]
                    break
        return found if len(found) >= self._fewest else {}

    def _rows_below(self, rows: Iterator[dict[int, Element]], columns: Mapping[str, int]) -> Iterator[Row]:
        first = next(iter(columns))
        own = next(known for name, known in self._labels if name == first)
        for starting in rows:
            found = {name: Piece(starting[at]) for name, at in columns.items() if at in starting}
            if first in found and label(found[first].text) in own and self._columns(starting) == columns:
                continue
            if any(piece.text for piece in found.values()):
                yield found


class Headed:
    """Finds a table by its column headings, anywhere on the page."""

    type = "label"

    def __init__(self, columns: Columns) -> None:
        self.expression = f"columns {', '.join(texts[0] for texts in columns.headings.values())}"
        self._columns = columns

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return self._columns.headed(document, within)


class Numbered:
    """Finds rows whose cells have numbered ids: column -> id without the number. Every row has the first column."""

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
            if self._first not in row:
                break
            rows.append(row)
        if rows:
            yield _ParsedTable(None, Table(rows, set().union(*rows)))


def text(row: Row, name: str) -> str:
    """The text of a cell; '' if the row has none."""
    return row[name].text if name in row else ""


def lists_nothing(piece: Piece) -> bool:
    """`N O N E`, or nothing at all: a real row contains a digit somewhere."""
    return not any(sign.isdigit() for sign in piece.text)


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
            starts = {one: at for at, one in _starting(row.iterchildren(*_CELLS)).items()}
            columns[row] = starts, _starting(following.iterchildren(*_CELLS))
        above, under = columns[row]
        found = under.get(above.get(cell, -1))
        if found is not None and found.tag == "td":
            yield Piece(found)


def _grid(table: Element) -> Iterator[dict[int, Element]]:
    """The cells of each row by the column in which they start, with row spans taken into account."""
    occupied: dict[int, int] = {}
    for cells in rows_of(table):
        starting = _starting(cells, occupied)
        yield starting
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
    found: dict[int, Element] = {}
    at = 0
    for cell in cells:
        while at in occupied:
            at += 1
        found[at] = cell
        at += 1 if cell.get("colspan") is None else _span(cell, "colspan")
    return found


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


def read_sales(rows: Iterable[Row]) -> Iterator[Sale]:
    """Sales with a date, which may follow a `+` that opens details. Columns that a site lacks are None."""
    for row in rows:
        date = values.iso_date(text(row, "date").lstrip("+ "))
        if date is None:
            continue
        yield Sale(
            date=date,
            price=values.money(text(row, "price")),
            book_page=values.text_or_none(text(row, "book_page")),
            instrument=values.text_or_none(text(row, "instrument")),
            qualified=values.text_or_none(text(row, "qualified")),
            vacant_improved=values.text_or_none(text(row, "vacant_improved")),
        )
