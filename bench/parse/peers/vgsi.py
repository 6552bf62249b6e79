"""`vgsi`: each value by its id."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup, Tag

from bench.parse.peers.values import day, lines, number, owner, rows, text, whole

_TEXTS = {
    "parcel_id": "MainContent_lblPid",
    "tax_account": "MainContent_lblAcctNum",
    "map_block_lot": "MainContent_lblMblu",
    "situs_address": "MainContent_lblLocation",
    "land_use_code": "MainContent_lblUseCode",
    "land_use_desc": "MainContent_lblUseCodeDescription",
    "zoning": "MainContent_lblZone",
}
_NUMBERS = {
    "building_count": "MainContent_lblBldCount",
    "land_area_acres": "MainContent_lblLndAcres",
    "market_value": "MainContent_lblGenAppraisal",
    "assessed_value": "MainContent_lblGenAssessment",
}


def read(soup: BeautifulSoup) -> dict[str, Any]:
    record: dict[str, Any] = {name: text(soup.find(id=ident)) for name, ident in _TEXTS.items()}
    record |= {name: number(text(soup.find(id=ident))) for name, ident in _NUMBERS.items()}
    names = [text(soup.find(id=f"MainContent_lbl{name}")) for name in ("Owner", "CoOwner")]
    known = [name for name in names if name]
    record |= owner([known[0], *lines(soup.find(id="MainContent_lblAddr1"))]) | {"owner_names": known}
    record["situs_city"] = (text(soup.find(id="lblTownName")) or "").partition(",")[0]
    current = rows(soup.find(id="MainContent_grdCurrentValueAppr"))[0]
    record |= {"value_year": whole(current[0]), "building_value": number(current[1]), "land_value": number(current[2])}
    record["valuations"] = [
        {"year": whole(year), "building_value": number(built), "land_value": number(land), name: number(total)}
        for name, kind in (("market_value", "Appr"), ("assessed_value", "Asmt"))
        for year, built, land, total, *_ in rows(soup.find(id=f"MainContent_grdHistoryValues{kind}"))
    ]
    record["sales"] = list(_sales(soup.find(id="MainContent_grdSales")))
    record["buildings"] = _buildings(soup)
    return record


def _sales(table: Tag | None) -> list[dict[str, Any]]:
    headings = [text(heading) for heading in table.find_all("th")] if table is not None else []
    shown = [dict(zip(headings, row, strict=False)) for row in rows(table)]
    return [
        {
            "date": day(row["Sale Date"]),
            "price": number(row["Sale Price"]),
            "book_page": row["Book & Page"],
            "instrument": row.get("Instrument"),
            "grantee": row["Owner"],
        }
        for row in shown
    ]


def _buildings(soup: BeautifulSoup) -> list[dict[str, Any]]:
    buildings = []
    count = 1
    while soup.find(id=(ident := f"MainContent_ctl{count:02}_") + "tblBldg") is not None:
        shown = {name: text(soup.find(id=ident + name)) for name in ("lblYearBuilt", "lblBldArea", "lblRcnld")}
        buildings.append(
            {
                "year_built": whole(shown["lblYearBuilt"]),
                "base_sqft": number(shown["lblBldArea"]),
                "value": number(shown["lblRcnld"]),
            }
        )
        count += 1
    return buildings
