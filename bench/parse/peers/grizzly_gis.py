"""`grizzly_gis`: nested tables with a value in the cell after its label."""

from __future__ import annotations

import re
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString

from bench.parse.peers.values import day, lines, number, owner, rows, text, whole

_TITLE = re.compile(r"(\d{4}) (Certified|Working|Preliminary) Values")
_TAX_LINK = re.compile(r"linkTax/\?PIN=([^&]+)&")
_VALUES = {
    "Mkt Land": "land_value",
    "Building": "building_value",
    "XFOB": "extra_feature_value",
    "Ag Land": "classified_land_value",
    "Just": "market_value",
    "Class": "classified_use_value",
    "SOH Cap": "assessment_cap_value",
    "Assessed": "assessed_value",
}


def read(soup: BeautifulSoup) -> dict[str, Any]:
    behind = {_label(cell): cell.find_next_sibling("td") for cell in reversed(soup.find_all("td"))}
    street, _, city = (text(behind["Site"]) or "").rpartition(",")
    use, _, code = (text(behind["Use Code"]) or "").rpartition(" (")
    links = (_TAX_LINK.search(script.string or "") for script in soup.find_all("script"))
    link = next(filter(None, links), None)
    parcel_id, alternate_id, *_ = (text(soup.find("table", class_="parcelIDtable").find("b")) or "").split()  # type: ignore[union-attr]
    record: dict[str, Any] = {
        "parcel_id": parcel_id,
        "alternate_id": alternate_id.strip("()"),
        "data_date": day((text(soup.find(class_="dbEffDate")) or "").removeprefix("updated: ")),
        "tax_district": text(behind["Tax District"]),
        "tax_account": link[1] if link else None,
        "situs_address": (street or city).strip() or None,
        "situs_city": city.strip() or None if street else None,
        "legal_description": (text(soup.find(id="Flegal")) or "").replace("<<<less", "").strip(),
        "land_area_acres": number((text(behind["Area"]) or "").removesuffix("AC")),
        "sec_twp_rng": text(behind["S/T/R"]),
        "land_use_desc": use,
        "land_use_code": code.rstrip(")"),
        "valuations": _valuations(soup),
        "sales": _sales(soup.find(id="parcelDetails_SalesTable")),
        "buildings": _buildings(soup.find(id="parcelDetails_BldgTable")),
    }
    return record | owner(lines(behind["Owner"]))


def _label(cell: Tag) -> str:
    """Returns the first text of the cell: the asterisk of a note may follow in another element."""
    first = next(iter(cell.contents), None)
    return first.strip() if isinstance(first, NavigableString) else ""


def _valuations(soup: BeautifulSoup) -> list[dict[str, Any]]:
    tables = soup.find_all("table", class_="parcelDetails_insideTable")
    return [_valuation(table, title) for table in tables if (title := _TITLE.fullmatch(text(table.find("td")) or ""))]


def _valuation(table: Tag, title: re.Match[str]) -> dict[str, Any]:
    valuation: dict[str, Any] = {"year": int(title[1]), "status": title[2].lower()}
    for row in table.find_all("tr"):
        shown = row.find_all("td")
        name = _VALUES.get(_label(shown[0]))
        if name:
            valuation[name] = number(text(shown[1]))
        elif _label(shown[0]) == "Exempt":
            *codes, amount = (text(row) or "").split()[1:]
            valuation |= {"exemptions": [code for code in codes if code.isalpha()], "exemption_value": number(amount)}
    for label in table.find_all("b", class_="TaxableValue_labels"):
        key = {"county:": "taxable_value", "school:": "taxable_value_school"}.get(label.get_text())
        if key:
            valuation[key] = number(str(label.next_sibling))
    return valuation


def _sales(frame: Tag | None) -> list[dict[str, Any]]:
    shown = [cells for cells in rows(frame) if len(cells) > 5]
    names = ("book_page", "instrument", "vacant_improved", "qualified")
    return [
        {
            "date": day(cells[0]),
            "price": number(cells[1]),
            "reason_code": (cells[6] or "").partition(" ")[0] or None,
            **dict(zip(names, cells[2:6], strict=True)),
        }
        for cells in shown
    ]


def _buildings(frame: Tag | None) -> list[dict[str, Any]]:
    shown = [cells for cells in rows(frame) if len(cells) > 5]
    return [
        {
            "desc": cells[1],
            "year_built": whole(cells[2]),
            "base_sqft": number(cells[3]),
            "actual_sqft": number(cells[4]),
            "value": number(cells[5]),
        }
        for cells in shown
    ]
