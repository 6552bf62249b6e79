"""An ordinary scraper of `vgsi`, written with BeautifulSoup: the same fields, each by its id."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup, Tag

_TEXTS = {
    "parcel_id": "MainContent_lblPid",
    "tax_account": "MainContent_lblAcctNum",
    "situs_address": "MainContent_lblLocation",
    "owner": "MainContent_lblOwner",
    "co_owner": "MainContent_lblCoOwner",
    "building_count": "MainContent_lblBldCount",
    "land_use_code": "MainContent_lblUseCode",
    "land_use_desc": "MainContent_lblUseCodeDescription",
    "zoning": "MainContent_lblZone",
    "land_area_acres": "MainContent_lblLndAcres",
    "market_value": "MainContent_lblGenAppraisal",
    "assessed_value": "MainContent_lblGenAssessment",
    "town": "lblTownName",
}
_GRIDS = (
    "MainContent_grdCurrentValueAppr",
    "MainContent_grdCurrentValueAsmt",
    "MainContent_grdHistoryValuesAppr",
    "MainContent_grdHistoryValuesAsmt",
    "MainContent_grdSales",
)
_BUILDING = ("lblYearBuilt", "lblBldArea", "lblRcnld")


def read(body: bytes, parser: str) -> dict[str, Any]:
    """`parser`: html.parser or lxml."""
    soup = BeautifulSoup(body, parser)
    found: dict[str, Any] = {name: _text(soup.find(id=ident)) for name, ident in _TEXTS.items()}
    address = soup.find(id="MainContent_lblAddr1")
    found["mailing_lines"] = list(address.stripped_strings) if isinstance(address, Tag) else []
    for name in _GRIDS:
        table = soup.find(id=name)
        rows = table.find_all("tr")[1:] if isinstance(table, Tag) else []
        found[name] = [[_text(cell) for cell in row.find_all("td")] for row in rows]
    found["buildings"] = []
    number = 1
    while soup.find(id=f"MainContent_ctl{number:02}_tblBldg") is not None:
        found["buildings"].append([_text(soup.find(id=f"MainContent_ctl{number:02}_{name}")) for name in _BUILDING])
        number += 1
    return found


def _text(element: object) -> str | None:
    return element.get_text(" ", strip=True) or None if isinstance(element, Tag) else None
