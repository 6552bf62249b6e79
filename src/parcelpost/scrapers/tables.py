"""Tables by their headings: which column is which is read off the page, never taken for granted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lxml import etree

from parcelpost.scrapers.document import Document, Element, Piece, is_in, label, text_of

_MOST_ROWS = 10_000
_MOST_HEADING_ROWS = 5
_MOST_COLUMNS = 200
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
    for number, starting in enumerate(_grid(table)):
        if not columns:
            if number >= _MOST_HEADING_ROWS:
                return
            columns = _columns(starting, headings)
            continue
        if _may_be_heading(starting, columns, headings) and _columns(starting, headings) == columns:
            continue
        found = {name: Piece(starting[at]) for name, at in columns.items() if at in starting}
        if any(piece.text for piece in found.values()):
            yield found


def text(row: Mapping[str, Piece], name: str) -> str:
    """Of the cell of that name; empty where the row has none."""
    return row[name].text if name in row else ""


def with_headings(document: Document, headings: Mapping[str, Sequence[str]], *telling: str) -> Element | None:
    """The first table in whose first rows these headings are found, and among them one of the `telling` columns.

    Those are the ones that other tables do not have: a date and a type stand above permits, too.
    """
    looked_at: set[Element] = set()
    for text in (text for texts in headings.values() for text in texts):
        for element in document.labelled(text):
            table = next(element.iterancestors("table"), None)
            if table is None or table in looked_at:
                continue
            if _is_headed(table, headings, telling):
                return table
            looked_at.add(table)
    return None


def below(document: Document, text: str, within: Element | None = None) -> Iterator[Piece]:
    """What stands in the next row under a heading that reads so, where a table has several rows of headings."""
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
    """Its rows' cells by the columns in which they begin; a cell that spans several rows takes its place in each."""
    held: dict[int, int] = {}
    for cells in rows_of(table):
        starting = _starting(cells, held)
        yield starting
        held = {at: left - 1 for at, left in held.items() if left > 1}
        if any("rowspan" in cell.attrib for cell in cells):
            held |= _spanned(starting)


def _spanned(starting: Mapping[int, Element]) -> dict[int, int]:
    """The columns that a row's cells take in rows below, each with in how many."""
    return {
        at + more: _span(cell, "rowspan") - 1
        for at, cell in starting.items()
        for more in range(_span(cell, "colspan"))
        if at + more < _MOST_COLUMNS and _span(cell, "rowspan") > 1
    }


def _starting(cells: Iterable[Element], held: Mapping[int, int] = {}) -> dict[int, Element]:
    """The cells by the columns in which they begin; those that are held are taken from above."""
    found: dict[int, Element] = {}
    at = 0
    for cell in cells:
        while at in held:
            at += 1
        found[at] = cell
        at += _span(cell, "colspan")
    return found


def _is_headed(table: Element, headings: Mapping[str, Sequence[str]], telling: Sequence[str]) -> bool:
    first = (starting for _, starting in zip(range(_MOST_HEADING_ROWS), _grid(table), strict=False))
    columns = next((found for starting in first if (found := _columns(starting, headings))), {})
    return any(name in columns for name in telling or columns)


def _may_be_heading(
    starting: Mapping[int, Element], columns: Mapping[str, int], headings: Mapping[str, Sequence[str]]
) -> bool:
    """Whether the first column that was found reads as its heading; most rows need no closer look."""
    name, at = next(iter(columns.items()))
    return at in starting and label(text_of(starting[at])) in [label(text) for text in headings[name]]


def _columns(starting: Mapping[int, Element], headings: Mapping[str, Sequence[str]]) -> dict[str, int]:
    texts: dict[str, int] = {}
    for at, cell in starting.items():
        texts.setdefault(label(text_of(cell)), at)
    found: dict[str, int] = {}
    for name, names in headings.items():
        column = next((texts[label(text)] for text in names if label(text) in texts), None)
        if column is not None:
            found[name] = column
    return found if len(found) >= min(2, len(headings)) else {}


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
