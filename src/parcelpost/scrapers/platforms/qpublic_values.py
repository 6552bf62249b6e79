"""The valuation module of `qpublic`: a grid with a row for each value and a column for each year."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.document import Element, label, text_of
from parcelpost.scrapers.record import Valuation

_HEADING = re.compile(
    r"(?:assessment |tax |payable )?(\d{4})\b\s*(certified|working|preliminary|proposed|final)?", re.IGNORECASE
)
_STATUSES = {"working": "working", "preliminary": "preliminary", "proposed": "preliminary"}
_SIGN = re.compile(r"^[\s+=\u2013-]+")

# For each value the names that rows have for it, the most telling first: the first one that the grid has is taken.
_ROWS: dict[str, tuple[str, ...]] = {
    "land_value": (
        "land value market value",
        "market land value",
        "land value",
        "assessed land value",
        "land market value",
    ),
    "building_value": (
        "building value",
        "improvement value",
        "improvements value",
        "assessed building value",
        "building market value",
    ),
    "extra_feature_value": (
        "extra features value",
        "yard items",
        "accessory value",
        "misc value",
        "obxf value",
        "extra feature value",
    ),
    "market_value": (
        "total just or market value",
        "just (market) value",
        "just market value",
        "just value",
        "total market value",
        "fair market value",
        "market value",
        "current value",
        "total value",
    ),
    "assessed_value": (
        "classified use or assessed value",
        "total assessed value",
        "assessed value",
        "net assessed value",
        "gross assessed value",
    ),
    "exemption_value": ("exempt value", "total exemptions", "exemption value", "exempt amount", "exemptions"),
    "taxable_value": (
        "total non school taxable value",
        "county taxable value",
        "taxable value",
        "total taxable value",
        "net taxable value",
    ),
    "taxable_value_school": ("school taxable value",),
}
_EXEMPTION_PARTS = ("school exemptions", "additional non school exemptions")


def valuations(module: Element | None) -> Iterator[Valuation]:
    """One for each year, in the page's order."""
    for table in module.iter("table") if module is not None else ():
        grid = [[text_of(cell) for cell in cells] for cells in tables.rows_of(table)]
        years = _years(grid[0]) if grid else []
        if not years:
            continue
        rows = {_name(row, len(years)): row[-len(years) :] for row in grid[1:] if len(row) > len(years)}
        for at, (year, status) in enumerate(years):
            yield _valuation(rows, at, year, status)
        return


def _years(cells: list[str]) -> list[tuple[int, str]]:
    """The columns' years; they stand at the end of the row, after empty cells."""
    found = [_HEADING.fullmatch(values.clean(cell).removesuffix(" values").removesuffix(" Values")) for cell in cells]
    headings = [match for match in found if match and values.year(match[1])]
    status = [_STATUSES.get((match[2] or "").lower(), "certified") for match in headings]
    return [(int(match[1]), one) for match, one in zip(headings, status, strict=True)]


def _name(row: list[str], years: int) -> str:
    before = [label(_SIGN.sub("", cell)) for cell in row[:-years]]
    return next((text for text in reversed(before) if text), "")


def _valuation(rows: dict[str, list[str]], at: int, year: int, status: str) -> Valuation:
    found: dict[str, Any] = {field: _first(rows, names, at) for field, names in _ROWS.items()}
    if found["exemption_value"] is None:
        parts = [values.money(rows[name][at]) for name in _EXEMPTION_PARTS if name in rows]
        found["exemption_value"] = sum((part for part in parts if part), Decimal(0)) if parts else None
    return Valuation(year=year, status=status, **found)


def _first(rows: dict[str, list[str]], names: tuple[str, ...], at: int) -> Decimal | None:
    return next((values.money(rows[name][at]) for name in names if name in rows), None)
