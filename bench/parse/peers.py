"""Ordinary scrapers for five platforms, written with BeautifulSoup: by id if the page has ids, else by label."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString

_NO_DIGITS = re.compile(r"[^\d.-]")
_PLACE = re.compile(r"(.*?),? ([A-Z]{2}) (\d{5}(?:-\d{4})?)")
_STREET = re.compile(r"\d|P\.? ?O\.? BOX", re.IGNORECASE)


def text(element: Tag | None) -> str | None:
    words = " ".join(element.get_text(" ").split()) if element is not None else ""
    return words or None


def lines(element: Tag | None) -> list[str]:
    return [" ".join(line.split()) for line in element.stripped_strings] if element is not None else []


def number(written: str | None) -> float | None:
    digits = _NO_DIGITS.sub("", written or "")
    return float(digits) if digits else None


def whole(written: str | None) -> int | None:
    value = number(written)
    return int(value) if value is not None else None


def day(written: str | None, form: str = "%m/%d/%Y") -> str | None:
    return datetime.strptime(written, form).date().isoformat() if written else None  # noqa: DTZ007


def rows(table: Tag | None) -> list[list[str | None]]:
    """Returns the rows below the headings."""
    body = table.find_all("tr")[1:] if table is not None else []
    return [[text(cell) for cell in row.find_all(["td", "th"])] for row in body]


def place(line: str) -> re.Match[str] | None:
    """Matches city, state and zip."""
    return _PLACE.fullmatch(line)


def owner(shown: list[str]) -> dict[str, Any]:
    """Splits lines into names, street or PO box, and city."""
    shown = [line for line in shown if line.strip(".")]
    last = place(shown[-1]) if shown else None
    if last:
        shown = shown[:-1]
    at = next((at for at, line in enumerate(shown) if at and _STREET.match(line)), len(shown))
    parts: dict[str, Any] = {"owner_names": shown[:at], "mailing_lines": shown[at:]}
    if last:
        parts |= {"mailing_city": last[1], "mailing_state": last[2], "mailing_zip": last[3]}
    return parts


_COLLIER_AMOUNTS = {
    "land_value": "LandJustValue",
    "building_value": "ImprovementsJustValue",
    "market_value": "TotalJustValue",
    "taxable_value_school": "SchoolTaxableValue",
    "tax_amount": "TotalTaxes",
}
_COLLIER_ROWS = {"assessed_value": "TrCountyAssessedValue", "taxable_value": "TrCountyTaxableValue"}
_COLLIER_OTHERS = ("school", "municipal", "other")


def read_collier_pa(soup: BeautifulSoup) -> dict[str, Any]:
    """Each value by its id."""

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
        "exemption_value": _collier_exempt(soup),
        "sales": _collier_sales(soup),
    }
    record |= {name: number(shown(ident)) for name, ident in _COLLIER_AMOUNTS.items()}
    record |= {name: number(text(soup.find(id=ident).find_all("td")[-1])) for name, ident in _COLLIER_ROWS.items()}  # type: ignore[union-attr]
    record |= owner([line for at in range(1, 6) if (line := shown(f"OwnerLine{at}"))])
    return record | {f"mailing_{name.lower()}": shown(f"Owner{name}") for name in ("City", "State", "Zip")}


def _collier_exempt(soup: BeautifulSoup) -> float:
    total = 0.0
    for row in soup.find(id="PropertyTaxTable").find_all("tr"):  # type: ignore[union-attr]
        if str(row.get("id")).endswith("ExemptAmount"):
            cells = [text(cell) or "" for cell in row.find_all("td")]
            total += 0 if cells[1].lower().startswith(_COLLIER_OTHERS) else number(cells[-1]) or 0
    return total


def _collier_sales(soup: BeautifulSoup) -> list[dict[str, Any]]:
    sales = []
    count = 1
    while (row := soup.find(id=f"TrSale{count}")) is not None:
        sold, book_page, price = (text(cell) for cell in row.find_all("td"))
        sales.append({"date": day(sold, "%m/%d/%y"), "book_page": book_page, "price": number(price)})
        count += 1
    return sales


_GRIZZLY_TITLE = re.compile(r"(\d{4}) (Certified|Working|Preliminary) Values")
_GRIZZLY_TAX_LINK = re.compile(r"linkTax/\?PIN=([^&]+)&")
_GRIZZLY_VALUES = {
    "Mkt Land": "land_value",
    "Building": "building_value",
    "XFOB": "extra_feature_value",
    "Ag Land": "classified_land_value",
    "Just": "market_value",
    "Class": "classified_use_value",
    "SOH Cap": "assessment_cap_value",
    "Assessed": "assessed_value",
}


def read_grizzly_gis(soup: BeautifulSoup) -> dict[str, Any]:
    """Nested tables with a value in the cell after its label."""
    behind = {_grizzly_label(cell): cell.find_next_sibling("td") for cell in reversed(soup.find_all("td"))}
    street, _, city = (text(behind["Site"]) or "").rpartition(",")
    use, _, code = (text(behind["Use Code"]) or "").rpartition(" (")
    links = (_GRIZZLY_TAX_LINK.search(script.string or "") for script in soup.find_all("script"))
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
        "valuations": _grizzly_valuations(soup),
        "sales": _grizzly_sales(soup.find(id="parcelDetails_SalesTable")),
        "buildings": _grizzly_buildings(soup.find(id="parcelDetails_BldgTable")),
    }
    return record | owner(lines(behind["Owner"]))


def _grizzly_label(cell: Tag) -> str:
    """Returns the first text of the cell: the asterisk of a note may follow in another element."""
    first = next(iter(cell.contents), None)
    return first.strip() if isinstance(first, NavigableString) else ""


def _grizzly_valuations(soup: BeautifulSoup) -> list[dict[str, Any]]:
    tables = soup.find_all("table", class_="parcelDetails_insideTable")
    return [
        _grizzly_valuation(table, title)
        for table in tables
        if (title := _GRIZZLY_TITLE.fullmatch(text(table.find("td")) or ""))
    ]


def _grizzly_valuation(table: Tag, title: re.Match[str]) -> dict[str, Any]:
    valuation: dict[str, Any] = {"year": int(title[1]), "status": title[2].lower()}
    for row in table.find_all("tr"):
        shown = row.find_all("td")
        name = _GRIZZLY_VALUES.get(_grizzly_label(shown[0]))
        if name:
            valuation[name] = number(text(shown[1]))
        elif _grizzly_label(shown[0]) == "Exempt":
            *codes, amount = (text(row) or "").split()[1:]
            valuation |= {"exemptions": [code for code in codes if code.isalpha()], "exemption_value": number(amount)}
    for label in table.find_all("b", class_="TaxableValue_labels"):
        key = {"county:": "taxable_value", "school:": "taxable_value_school"}.get(label.get_text())
        if key:
            valuation[key] = number(str(label.next_sibling))
    return valuation


def _grizzly_sales(frame: Tag | None) -> list[dict[str, Any]]:
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


def _grizzly_buildings(frame: Tag | None) -> list[dict[str, Any]]:
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


_LEEPA_PARCEL = re.compile(r"STRAP: (\S+) Folio ID: (\d+)")


def read_leepa(soup: BeautifulSoup) -> dict[str, Any]:
    """Some ids, else the panel under a title and the cell under a heading."""
    strap = _LEEPA_PARCEL.search(text(soup.find(id="parcelLabel")) or "")
    panels = {
        _leepa_title(title): title.find_next_sibling(class_="textPanel")
        for title in soup.find_all(class_="sectionSubTitle")
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
        "block": _leepa_below(heads, "Block")[0],
        "lot": _leepa_below(heads, "Lot")[0],
        "permit_count": len(rows(permits)),
        "legal_description": text(panels["Property Description"]),
        "latitude": number(text(latitude)),
        "longitude": number(text(longitude)),
        "land_use_code": code,
        "land_use_desc": desc,
        "valuations": _leepa_valuations(soup.find(id="valueGrid")),
        "sales": _leepa_sales(heads),
        "buildings": [{"year_built": whole(year)} for year in _leepa_below(current, "Year Built")],
        "building_area_sqft": sum(number(area) or 0 for area in _leepa_below(current, "Heated Area")) or None,
    }
    return record | _leepa_site(panels["Site Address"]) | owner([line.rstrip("+ ") for line in lines(of_owner)])


def _leepa_title(element: Tag) -> str:
    return next(iter(lines(element)), "")


def _leepa_site(panel: Tag | None) -> dict[str, Any]:
    shown = list(takewhile(lambda line: not line.startswith("Site Address maintained"), lines(panel)))
    city = place(shown[-1]) if shown else None
    if city is None:
        return {"situs_address": None}
    return {"situs_address": " ".join(shown[:-1]), "situs_city": city[1], "situs_zip": city[3]}


def _leepa_below(heads: list[Tag], name: str) -> list[str | None]:
    return [_leepa_cell_below(head) for head in heads if text(head) == name]


def _leepa_cell_below(head: Tag) -> str | None:
    row = head.find_parent("tr")
    at = row.find_all("th").index(head)  # type: ignore[union-attr]
    return text(row.find_next_sibling("tr").find_all("td")[at])  # type: ignore[union-attr]


def _leepa_valuations(table: Tag | None) -> list[dict[str, Any]]:
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


def _leepa_sales(heads: list[Tag]) -> list[dict[str, Any]]:
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


_QPUBLIC_VALUES = {
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


def read_qpublic(soup: BeautifulSoup) -> dict[str, Any]:
    """Ids differ from county to county, so it goes by the modules' titles and the labels in them."""
    modules = {text(section.find(class_="title")): section for section in soup.find_all("section")}
    summary = _qpublic_labelled(modules["Summary"])
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
        "valuations": _qpublic_valuations(modules["Valuation"]),
        "sales": _qpublic_sales(modules.get("Sales")),
        "buildings": _qpublic_buildings(modules.get("Building Information")),
    }
    return record | owner(lines(content)[1:])  # the first line is a heading


def _qpublic_labelled(module: Tag) -> dict[str | None, str | None]:
    pairs = ((row.find("th"), row.find("td")) for row in module.find_all("tr"))
    return {text(name): text(value) for name, value in pairs if name is not None}


def _qpublic_valuations(module: Tag) -> list[dict[str, Any]]:
    table = module.find("table")
    if table is None:
        return []
    years = [whole(text(heading)) for heading in table.find("thead").find_all("th")]  # type: ignore[union-attr]
    shown: list[dict[str, Any]] = [{"year": year} for year in years]
    for cells in rows(table):
        name = _QPUBLIC_VALUES.get(cells[1] or "")
        for valuation, value in zip(shown, cells[2:], strict=True) if name else ():
            valuation[name or ""] = number(value)
    return shown


def _qpublic_sales(module: Tag | None) -> list[dict[str, Any]]:
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


def _qpublic_buildings(module: Tag | None) -> list[dict[str, Any]]:
    tables = module.find_all("table") if module is not None else []
    shown = [_qpublic_labelled(table) for table in tables]
    return [
        {"year_built": whole(building["Actual Year Built"]), "base_sqft": number(building["Heated Area"])}
        for building in shown
    ]


_VGSI_TEXTS = {
    "parcel_id": "MainContent_lblPid",
    "tax_account": "MainContent_lblAcctNum",
    "map_block_lot": "MainContent_lblMblu",
    "situs_address": "MainContent_lblLocation",
    "land_use_code": "MainContent_lblUseCode",
    "land_use_desc": "MainContent_lblUseCodeDescription",
    "zoning": "MainContent_lblZone",
}
_VGSI_NUMBERS = {
    "building_count": "MainContent_lblBldCount",
    "land_area_acres": "MainContent_lblLndAcres",
    "market_value": "MainContent_lblGenAppraisal",
    "assessed_value": "MainContent_lblGenAssessment",
}


def read_vgsi(soup: BeautifulSoup) -> dict[str, Any]:
    """Each value by its id."""
    record: dict[str, Any] = {name: text(soup.find(id=ident)) for name, ident in _VGSI_TEXTS.items()}
    record |= {name: number(text(soup.find(id=ident))) for name, ident in _VGSI_NUMBERS.items()}
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
    record["sales"] = list(_vgsi_sales(soup.find(id="MainContent_grdSales")))
    record["buildings"] = _vgsi_buildings(soup)
    return record


def _vgsi_sales(table: Tag | None) -> list[dict[str, Any]]:
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


def _vgsi_buildings(soup: BeautifulSoup) -> list[dict[str, Any]]:
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


READERS: Mapping[str, Callable[[BeautifulSoup], dict[str, Any]]] = {
    "collier_pa": read_collier_pa,
    "grizzly_gis": read_grizzly_gis,
    "leepa": read_leepa,
    "qpublic": read_qpublic,
    "vgsi": read_vgsi,
}


def read(platform: str, text: str, parser: str) -> dict[str, Any]:
    """`parser`: html.parser or lxml. Takes text, because BeautifulSoup would first guess the encoding of bytes."""
    return READERS[platform](BeautifulSoup(text, parser))
