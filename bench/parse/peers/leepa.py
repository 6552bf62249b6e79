"""`leepa`: some ids, else the panel under a title and the cell under a heading."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from bs4 import BeautifulSoup, Tag

from bench.parse.peers.values import day, lines, number, owner, place, rows, text, whole

_PARCEL = re.compile(r"STRAP: (\S+) Folio ID: (\d+)")


def read(soup: BeautifulSoup) -> dict[str, Any]:
    strap = _PARCEL.search(text(soup.find(id="parcelLabel")) or "")
    panels = {
        _title(title): title.find_next_sibling(class_="textPanel") for title in soup.find_all(class_="sectionSubTitle")
    }
    title, of_owner = next(panel for panel in panels.items() if panel[0].startswith("Owner Of Record"))
    updated = next(link for link in soup.find_all("a") if (text(link) or "").startswith("Property Details (Current"))
    heads = soup.find_all("th")
    authorities, permits = (
        next(head for head in heads if text(head) == name).find_parent("table")
        for name in ("Name / Code", "Permit Number")
    )
    current = [head for head in heads if head.find_parent(id="PropertyDetails") is None]  # which repeats them
    latitude, longitude = soup.find(class_="appraisalDetailsLocation").find_all("td")[-2:]  # type: ignore[union-attr]
    land = next(head for head in heads if text(head) == "Use Code").find_parent("tr").find_next_sibling("tr")  # type: ignore[union-attr]
    code, desc, *_ = (text(cell) for cell in land.find_all("td"))  # type: ignore[union-attr]
    record: dict[str, Any] = {
        "parcel_id": strap[1] if strap else None,
        "tax_account": strap[2] if strap else None,
        "ownership_type": title.partition(" - ")[2],
        "data_date": day((text(updated) or "").split()[-1].rstrip(")")),
        "tax_district": text(authorities.find_previous_sibling("div")),  # type: ignore[union-attr]
        "block": _below(heads, "Block")[0],
        "lot": _below(heads, "Lot")[0],
        "permit_count": len(rows(permits)),
        "legal_description": text(panels["Property Description"]),
        "latitude": number(text(latitude)),
        "longitude": number(text(longitude)),
        "land_use_code": code,
        "land_use_desc": desc,
        "valuations": _valuations(soup.find(id="valueGrid")),
        "sales": _sales(heads),
        "buildings": [{"year_built": whole(year)} for year in _below(current, "Year Built")],
        "building_area_sqft": sum(number(area) or 0 for area in _below(current, "Heated Area")) or None,
    }
    return record | _site(panels["Site Address"]) | owner([line.rstrip("+ ") for line in lines(of_owner)])


def _title(element: Tag) -> str:
    return next(iter(lines(element)), "")


def _site(panel: Tag | None) -> dict[str, Any]:
    shown = list(takewhile(lambda line: not line.startswith("Site Address maintained"), lines(panel)))
    city = place(shown[-1]) if shown else None
    if city is None:
        return {"situs_address": None}
    return {"situs_address": " ".join(shown[:-1]), "situs_city": city[1], "situs_zip": city[3]}


def _below(heads: list[Tag], name: str) -> list[str | None]:
    return [_cell_below(head) for head in heads if text(head) == name]


def _cell_below(head: Tag) -> str | None:
    row = head.find_parent("tr")
    at = row.find_all("th").index(head)  # type: ignore[union-attr]
    return text(row.find_next_sibling("tr").find_all("td")[at])  # type: ignore[union-attr]


def _valuations(table: Tag | None) -> list[dict[str, Any]]:
    return [
        {
            "year": whole((cells[1] or "")[:4]),
            "market_value": number(cells[2]),
            "land_value": number(cells[3]),
            "assessed_value": number(cells[5]),
            "exemption_value": number(cells[6]),
            "taxable_value": number(cells[8]),
        }
        for cells in rows(table)
    ]


def _sales(heads: list[Tag]) -> list[dict[str, Any]]:
    table = next((head.find_parent("table") for head in heads if text(head) == "Sale Price"), None)
    return [
        {
            "price": number(cells[0]),
            "date": day(cells[1]),
            "book_page" if "/" in (cells[2] or "") else "clerk_number": cells[2],
            "reason_code": cells[3],
            "vacant_improved": cells[5],
        }
        for cells in rows(table)
        if len(cells) == 6
    ]
