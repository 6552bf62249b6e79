"""`collier_pa`: each value by its id."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup

from bench.parse.peers.values import day, number, owner, text, whole

_AMOUNTS = {
    "land_value": "LandJustValue",
    "building_value": "ImprovementsJustValue",
    "market_value": "TotalJustValue",
    "taxable_value_school": "SchoolTaxableValue",
    "tax_amount": "TotalTaxes",
}
_ROWS = {"assessed_value": "TrCountyAssessedValue", "taxable_value": "TrCountyTaxableValue"}
_OTHERS = ("school", "municipal", "other")


def read(soup: BeautifulSoup) -> dict[str, Any]:
    def shown(ident: str) -> str:
        return text(soup.find(id=ident)) or ""

    site, _, place = shown("FullAddressUnit").rpartition(", ")
    code, _, use = shown("UCDescription").partition(" - ")
    year, status, *_ = shown("RollType").split()
    record: dict[str, Any] = {
        "parcel_id": shown("ParcelID"),
        "alternate_id": shown("StrapNumber"),
        "tax_district": shown("MillageArea"),
        "millage_rate": number(shown("TdDetailTotalMillage")),
        "permit_count": len(soup.find(id="PermitAdditional").find_all("tr")),  # type: ignore[union-attr]
        "situs_address": site or None,
        "situs_city": place.rpartition(" ")[0] or None,
        "situs_zip": place.rpartition(" ")[2] or None,
        "legal_description": shown("Legal"),
        "subdivision": shown("SCDescription").partition(" - ")[2],
        "land_use_code": code,
        "land_use_desc": use,
        "land_area_acres": number(shown("TotalAcres")),
        "tax_year": whole(year),
        "value_status": status.lower(),
        "assessment_cap_value": (number(shown("SohBenefit")) or 0) + (number(shown("NonSchool10PctBenefit")) or 0),
        "exemption_value": _exempt(soup),
        "sales": _sales(soup),
    }
    record |= {name: number(shown(ident)) for name, ident in _AMOUNTS.items()}
    record |= {name: number(text(soup.find(id=ident).find_all("td")[-1])) for name, ident in _ROWS.items()}  # type: ignore[union-attr]
    record |= owner([line for at in range(1, 6) if (line := shown(f"OwnerLine{at}"))])
    return record | {f"mailing_{name.lower()}": shown(f"Owner{name}") for name in ("City", "State", "Zip")}


def _exempt(soup: BeautifulSoup) -> float:
    total = 0.0
    for row in soup.find(id="PropertyTaxTable").find_all("tr"):  # type: ignore[union-attr]
        if str(row.get("id")).endswith("ExemptAmount"):
            cells = [text(cell) or "" for cell in row.find_all("td")]
            total += 0 if cells[1].lower().startswith(_OTHERS) else number(cells[-1]) or 0
    return total


def _sales(soup: BeautifulSoup) -> list[dict[str, Any]]:
    sales = []
    count = 1
    while (row := soup.find(id=f"TrSale{count}")) is not None:
        sold, book_page, price = (text(cell) for cell in row.find_all("td"))
        sales.append({"date": day(sold, "%m/%d/%y"), "book_page": book_page, "price": number(price)})
        count += 1
    return sales
