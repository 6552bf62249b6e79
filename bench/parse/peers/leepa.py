"""`leepa`: some ids, else the panel under a title and the cell under a heading."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from bs4 import BeautifulSoup, Tag

from bench.parse.peers.reading import day, lines, number, owner, place, rows, text, whole

_PARCEL = re.compile(r"STRAP: (\S+) Folio ID: (\d+)")


def read(soup: BeautifulSoup) -> dict[str, Any]:
    strap = _PARCEL.search(text(soup.find(id="parcelLabel")) or "")
    panels = {_title(one): one.find_next_sibling(class_="textPanel") for one in soup.find_all(class_="sectionSubTitle")}
    of_owner = next(panel for title, panel in panels.items() if title.startswith("Owner Of Record"))
    heads = soup.find_all("th")
    now = [one for one in heads if one.find_parent(id="PropertyDetails") is None]  # there they are once more
    latitude, longitude = soup.find(class_="appraisalDetailsLocation").find_all("td")[-2:]  # type: ignore[union-attr]
    land = next(one for one in heads if text(one) == "Use Code").find_parent("tr").find_next_sibling("tr")  # type: ignore[union-attr]
    code, desc, *_ = (text(cell) for cell in land.find_all("td"))  # type: ignore[union-attr]
    found: dict[str, Any] = {
        "parcel_id": strap[1] if strap else None,
        "tax_account": strap[2] if strap else None,
        "legal_description": text(panels["Property Description"]),
        "latitude": number(text(latitude)),
        "longitude": number(text(longitude)),
        "land_use_code": code,
        "land_use_desc": desc,
        "valuations": _valuations(soup.find(id="valueGrid")),
        "sales": _sales(heads),
        "buildings": [{"year_built": whole(year)} for year in _below(now, "Year Built")],
        "building_area_sqft": sum(number(area) or 0 for area in _below(now, "Heated Area")) or None,
    }
    return found | _site(panels["Site Address"]) | owner([line.rstrip("+ ") for line in lines(of_owner)])


def _title(element: Tag) -> str:
    return next(iter(lines(element)), "")


def _site(panel: Tag | None) -> dict[str, Any]:
    shown = list(takewhile(lambda line: not line.startswith("Site Address maintained"), lines(panel)))
    found = place(shown[-1]) if shown else None
    if found is None:
        return {"situs_address": None}
    return {"situs_address": " ".join(shown[:-1]), "situs_city": found[1], "situs_zip": found[3]}


def _below(heads: list[Tag], name: str) -> list[str | None]:
    return [_cell_below(one) for one in heads if text(one) == name]


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
    table = next((one.find_parent("table") for one in heads if text(one) == "Sale Price"), None)
    return [
        {
            "price": number(cells[0]),
            "date": day(cells[1]),
            "instrument": cells[2],
            "qualified": cells[3],
            "vacant_improved": cells[5],
        }
        for cells in rows(table)
        if len(cells) == 6
    ]
