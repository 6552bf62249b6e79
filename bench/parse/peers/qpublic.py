"""`qpublic`: ids differ from county to county, so it goes by the modules' titles and the labels in them."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup, Tag

from bench.parse.peers.values import day, lines, number, owner, rows, text, whole

_VALUES = {
    "Land Value Market Value": "land_value",
    "Building Value": "building_value",
    "Yard Items": "extra_feature_value",
    "Total Just or Market Value": "market_value",
    "Classified Use or Assessed Value": "assessed_value",
    "Capped Differential": "assessment_cap_value",
    "Exempt Value": "exemption_value",
    "Total Non School Taxable Value": "taxable_value",
    "School Taxable Value": "taxable_value_school",
}


def read(soup: BeautifulSoup) -> dict[str, Any]:
    modules = {text(section.find(class_="title")): section for section in soup.find_all("section")}
    summary = _labelled(modules["Summary"])
    content = modules["Owners"].find(class_="module-content")
    land = rows(modules["Land"].find("table"))
    record: dict[str, Any] = {
        "parcel_id": summary["Parcel ID"],
        "tax_account": summary.get("Account Number"),
        "situs_address": summary.get("Property Address"),
        "sec_twp_rng": summary.get("Sec/Twp/Rng"),
        "legal_description": summary.get("Legal Description"),
        "land_area_acres": number(summary.get("Acres")),
        "land_use_desc": summary.get("Land Use"),
        "land_use_code": (land[0][0] or "").rpartition("(")[2].rstrip(")"),
        "homestead": summary.get("Homestead") == "Y",
        "tax_district": summary.get("Millage Group"),
        "millage_rate": number(summary.get("Millage Rate")),
        "data_date": day((text(soup.find(id="hlkLastUpdated")) or "").split()[3].rstrip(",")),
        "permit_count": len(rows(modules["Permits"].find("table"))) if "Permits" in modules else 0,
        "valuations": _valuations(modules["Valuation"]),
        "sales": _sales(modules.get("Sales")),
        "buildings": _buildings(modules.get("Building Information")),
    }
    return record | owner(lines(content)[1:])  # the first line is a heading


def _labelled(module: Tag) -> dict[str | None, str | None]:
    pairs = ((row.find("th"), row.find("td")) for row in module.find_all("tr"))
    return {text(name): text(value) for name, value in pairs if name is not None}


def _valuations(module: Tag) -> list[dict[str, Any]]:
    table = module.find("table")
    if table is None:
        return []
    years = [whole(text(heading)) for heading in table.find("thead").find_all("th")]  # type: ignore[union-attr]
    shown: list[dict[str, Any]] = [{"year": year} for year in years]
    for cells in rows(table):
        name = _VALUES.get(cells[1] or "")
        for valuation, value in zip(shown, cells[2:], strict=True) if name else ():
            valuation[name or ""] = number(value)
    return shown


def _sales(module: Tag | None) -> list[dict[str, Any]]:
    shown = rows(module.find("table")) if module is not None else []
    return [
        {
            "date": day(cells[0]),
            "price": number(cells[1]),
            "book_page": cells[2],
            "grantor": (cells[3] or "").rstrip(" ,").replace("UNKNOWN", "") or None,
            "instrument": cells[5],
            "reason_code": cells[6],
        }
        for cells in shown
    ]


def _buildings(module: Tag | None) -> list[dict[str, Any]]:
    tables = module.find_all("table") if module is not None else []
    shown = [_labelled(table) for table in tables]
    return [
        {"year_built": whole(building["Actual Year Built"]), "base_sqft": number(building["Heated Area"])}
        for building in shown
    ]
