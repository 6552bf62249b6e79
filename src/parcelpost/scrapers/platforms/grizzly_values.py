"""The values of `grizzly_gis`: a column for each year, in tables of their own or side by side in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.document import Document, Element, Piece, beside, label, text_of
from parcelpost.scrapers.looking import Look, shown
from parcelpost.scrapers.record import Valuation
from parcelpost.scrapers.ways import Label

_TITLE = re.compile(r"\b(\d{4})\s+(Certified|Final|Working|Preliminary|Proposed|Tentative)\b", re.IGNORECASE)
_WHOLE_TITLE = re.compile(r"\d{4}\s+\w+(?:\s+values?\b.*)?$", re.ASCII)
"""A note that names a year among other words is none."""
_STATUSES = {"certified": "certified", "final": "certified", "working": "working"}
_CODE = re.compile(r"[A-Z0-9]{2,3}", re.ASCII)
_WHOSE = re.compile(
    r"(?<![a-z])(county|city|other|school)(?: taxable)?(?: value)?\s*:?\s*(\(?-?\$?\d[\d,]*(?:\.\d+)?\)?)",
    re.IGNORECASE | re.ASCII,
)
_VALUE = re.compile(r"\s*\bvalues?$")

JUST = Label("Just")
_ROWS = {
    "land_value": ("mkt land", "market land", "land"),
    "building_value": ("building", "buildings", "bldg"),
    "extra_feature_value": ("xfob", "extra features", "extra feature"),
    "market_value": ("just", "just market", "market"),
    "assessed_value": ("assessed",),
}
_EXEMPT, _TAXABLE = ("exempt",), ("total taxable", "taxable")
_SHOWN = {**_ROWS, "exemption_value": _EXEMPT, "taxable_value": _TAXABLE}

Title = tuple[int | None, str | None]
Rows = dict[str, list[Piece]]


def valuations(look: Look) -> list[Valuation]:
    """One for each column of values, with its year above it or in the page's title.

    Where a page shows one year only, its column is cut in two tables side by side.
    """
    found = list(_valuations(look.document))
    look.tries.note("valuations", JUST, bool(found))
    if found:
        look.tries.note_columns("valuations", _SHOWN, shown(found, _SHOWN))
    return found


def _valuations(document: Document) -> Iterator[Valuation]:
    assessed = {table for one in _labelled(document, "Assessed") for table in one.iterancestors("table")}
    around = (element.iterancestors("table") for element in _labelled(document, JUST.selector))
    innermost = (next((table for table in above if table in assessed), None) for above in around)
    tables_of_values = dict.fromkeys(table for table in innermost if table is not None)
    found = {table: _titles(" ".join(map(str, table.itertext()))) for table in tables_of_values}
    of_page = _title_of_page(document) if not any(found.values()) else [(None, None)]
    for table, own in found.items():
        titles = own or of_page
        rows = _rows(table)
        for at, title in enumerate(titles):
            yield _valuation(document, rows, title, at, len(titles))


def _labelled(document: Document, name: str) -> list[Element]:
    return [*document.labelled(name), *document.labelled(f"{name} Value")]


def _titles(text: str) -> list[Title]:
    found = (match for match in _TITLE.finditer(text) if values.year(match[1]))
    return [(int(match[1]), _STATUSES.get(match[2].lower(), "preliminary")) for match in found]


def _title_of_page(document: Document) -> list[Title]:
    found = (titles[0] for text in document.labels() if _WHOLE_TITLE.match(text) and (titles := _titles(text)))
    return [next(found, (None, None))]


def _rows(table: Element) -> Rows:
    """The cells behind each row's first one, by its text, in tables inside too."""
    found: Rows = {}
    for cells in (cells for one in table.iter("table") for cells in tables.rows_of(one)):
        name = _row_name(label(text_of(cells[0]).split("[", maxsplit=1)[0]))
        if name not in found:
            found[name] = [Piece(cell) for cell in cells[1:]]
    return found


@lru_cache(maxsize=1_024)
def _row_name(text: str) -> str:
    name = _VALUE.sub("", text)
    return "exempt" if name.startswith("exempt") else name


def _valuation(document: Document, rows: Rows, title: Title, at: int, columns: int) -> Valuation:
    def cell(names: Sequence[str]) -> Piece | None:
        cells = [one for one in next((rows[name] for name in names if name in rows), []) if one.text]
        return cells[at] if cells and columns in (1, len(cells)) else None

    found = ((name, cell(texts)) for name, texts in _ROWS.items())
    amounts: dict[str, Any] = {name: values.money(one.text) for name, one in found if one is not None}
    taxable = cell(_TAXABLE)
    exempt = rows.get("exempt", []) if columns == 1 else [cell(_EXEMPT)]
    words = [word for one in exempt if one is not None for word in one.text.split()]
    return Valuation(
        year=title[0],
        status=title[1],
        exemptions=_codes(words) if words else None,
        exemption_value=_last_money(words),
        taxable_value=_taxable(document, taxable, "county"),
        taxable_value_school=_taxable(document, taxable, "school"),
        **amounts,
    )


def _last_money(words: Sequence[str]) -> Decimal | None:
    """The amount behind the codes, which may be digits, too."""
    shown = [word for word in words if not _is_code(word)]
    return values.money(shown[-1]) if shown else None


def _codes(words: Sequence[str]) -> list[str]:
    return [word for word in words if _is_code(word)]


def _is_code(word: str) -> bool:
    return _CODE.fullmatch(word) is not None


def _taxable(document: Document, cell: Piece | None, name: str) -> Decimal | None:
    """`county: $1 city: $2` in one cell; a lone amount says not of whom."""
    around = cell.element if cell is not None else None
    if around is None:
        return None
    for element in around.iter():
        if element is not around and label(element.text or "") == name:
            piece = beside(element, document)
            return values.money(piece.text) if piece is not None else None
    found = [one[2] for one in _WHOSE.finditer(text_of(around)) if one[1].lower() == name]
    return values.money(found[0]) if len(found) == 1 else None
