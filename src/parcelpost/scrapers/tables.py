"""Tables by their headings: which column is which is read off the page, never taken for granted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lxml import etree

from parcelpost.scrapers.document import Document, Element, Piece, label, text_of

_MOST_ROWS = 10_000
_MOST_HEADING_ROWS = 5
_CELLS = ("td", "th")


def rows_of(table: Element) -> Iterator[list[Element]]:
    """The cells of its own rows, not of tables inside."""
    for count, row in enumerate(_own_rows(table)):
        if count >= _MOST_ROWS:
            return
        cells = [cell for cell in row.iterchildren(etree.Element) if cell.tag in _CELLS]
        if cells:
            yield cells


def records(table: Element, headings: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Piece]]:
    """Its rows below the headings, as pieces by the names that `headings` gives to them.

    A column is found by any of its headings' texts. Nothing, if fewer than two columns (or than all, if there are
    fewer) are found. A row that repeats the headings, or has cells for none of them, is left out.
    """
    columns: dict[str, int] = {}
    for number, cells in enumerate(rows_of(table)):
        if not columns:
            if number >= _MOST_HEADING_ROWS:
                return
            columns = _columns(cells, headings)
            continue
        if _columns(cells, headings) == columns:
            continue
        starting = _starting(cells)
        found = {name: Piece(starting[at]) for name, at in columns.items() if at in starting}
        if any(piece.text for piece in found.values()):
            yield found


def with_headings(document: Document, headings: Mapping[str, Sequence[str]]) -> Element | None:
    """The first table in whose first rows these headings are found."""
    for texts in headings.values():
        for text in texts:
            for element in document.labelled(text):
                table = next(element.iterancestors("table"), None)
                if table is not None and _is_headed(table, headings):
                    return table
    return None


def below(document: Document, text: str, within: Element | None = None) -> Iterator[Piece]:
    """What stands in the next row under a heading that reads so, where a table has several rows of headings."""
    for element in document.labelled(text):
        cell = element if element.tag in _CELLS else next(element.iterancestors(*_CELLS), None)
        row = cell.getparent() if cell is not None else None
        following = row.getnext() if row is not None else None
        if cell is None or row is None or following is None or not _is_in(cell, within):
            continue
        cells = [one for one in following.iterchildren(etree.Element) if one.tag in _CELLS]
        starts = {id(one): at for at, one in _starting(row.iterchildren(*_CELLS)).items()}
        found = _starting(cells).get(starts.get(id(cell), -1))
        if found is not None and found.tag == "td":
            yield Piece(found)


def _is_in(element: Element, within: Element | None) -> bool:
    return within is None or any(above is within for above in element.iterancestors())


def _starting(cells: Iterable[Element]) -> dict[int, Element]:
    """The cells by the columns in which they begin."""
    found: dict[int, Element] = {}
    at = 0
    for cell in cells:
        found[at] = cell
        at += _width(cell)
    return found


def _is_headed(table: Element, headings: Mapping[str, Sequence[str]]) -> bool:
    return any(_columns(cells, headings) for _, cells in zip(range(_MOST_HEADING_ROWS), rows_of(table), strict=False))


def _columns(cells: Sequence[Element], headings: Mapping[str, Sequence[str]]) -> dict[str, int]:
    texts = [label(text_of(cell)) for cell in cells]
    found: dict[str, int] = {}
    for name, names in headings.items():
        at = next((texts.index(label(text)) for text in names if label(text) in texts), None)
        if at is not None:
            found[name] = _span(cells, at)
    return found if len(found) >= min(2, len(headings)) else {}


def _span(cells: Sequence[Element], at: int) -> int:
    """The column's number, with cells before it that span several."""
    return sum(_width(cell) for cell in cells[:at])


def _width(cell: Element) -> int:
    given = cell.get("colspan") or "1"
    return min(int(given), 100) if given.isascii() and given.isdigit() and len(given) < 4 else 1


def _own_rows(table: Element) -> Iterator[Element]:
    for child in table.iterchildren(etree.Element):
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from child.iterchildren("tr")
