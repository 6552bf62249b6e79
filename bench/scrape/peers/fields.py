"""What all peers read from a page, with parsel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parsel import Selector

CONCURRENCY = 16

_TEXTS = {
    "parcel_id": "MainContent_lblPid",
    "tax_account": "MainContent_lblAcctNum",
    "map_block_lot": "MainContent_lblMblu",
    "situs_address": "MainContent_lblLocation",
    "owner": "MainContent_lblOwner",
    "co_owner": "MainContent_lblCoOwner",
    "land_use_code": "MainContent_lblUseCode",
    "land_use": "MainContent_lblUseCodeDescription",
    "zoning": "MainContent_lblZone",
    "sale_date": "MainContent_lblSaleDate",
}
_NUMBERS = {
    "building_count": "MainContent_lblBldCount",
    "acres": "MainContent_lblLndAcres",
    "market_value": "MainContent_lblGenAppraisal",
    "assessed_value": "MainContent_lblGenAssessment",
    "sale_price": "MainContent_lblPrice",
}


def read(page: Selector) -> dict[str, Any]:
    record: dict[str, Any] = {name: _text(page, ident) for name, ident in _TEXTS.items()}
    record |= {name: _number(_text(page, ident)) for name, ident in _NUMBERS.items()}
    record["mailing"] = [line.strip() for line in page.css("#MainContent_lblAddr1 ::text").getall()]
    record["valuations"] = [
        {"year": int(row[0]), "buildings": _number(row[1]), "land": _number(row[2]), "total": _number(row[3])}
        for table in ("CurrentValueAppr", "CurrentValueAsmt", "HistoryValuesAppr", "HistoryValuesAsmt")
        for row in _rows(page, f"MainContent_grd{table}")
    ]
    record["sales"] = [
        {"owner": row[0], "price": _number(row[1]), "book_page": row[3], "date": row[5]}
        for row in _rows(page, "MainContent_grdSales")
    ]
    return record


def urls_of(file: str) -> list[str]:
    return Path(file).read_text("utf-8").split()


def _text(page: Selector, ident: str) -> str | None:
    text = page.css(f"#{ident}::text").get()
    return text.strip() if text else None


def _number(text: str | None) -> float | None:
    return float(text.strip("$").replace(",", "")) if text else None


def _rows(page: Selector, ident: str) -> Iterator[list[str]]:
    for row in page.css(f"#{ident} tr"):
        cells = ["".join(cell.css("::text").getall()).strip() for cell in row.css("td")]
        if cells:
            yield cells
