"""`broward_bcpa`: the property appraiser of Broward County, Florida; one JSON object per parcel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.model import Json, NotFound, Retry
from parcelpost.scrapers.html.addresses import is_care_of, joined_names, owners_and_mailing, take_mailing
from parcelpost.scrapers.html.values import (
    json_at,
    json_date,
    json_money,
    json_nonzero,
    json_objects,
    json_text,
    json_year,
    leading_number,
    millage,
)
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import Record, Sale, Valuation, take_last_sale

_FOLIO = re.compile(r"[0-9A-Z]{8,14}", re.ASCII)
_DISTRICT = re.compile(r"[0-9]{2,6}[A-Z]?", re.ASCII)
_BOOK_PAGE = re.compile(r"\d{3,6} ?/ ?\d{1,6}|\d{7,14}", re.ASCII)
_IN_WORDS = re.compile(r"[^\W\d_].*")
_WITH_LETTERS = re.compile(r".*[^\W\d_].*")
_USE = re.compile(r"([0-9]{1,3}(?:-[0-9]{1,3})?)\s+(?:-\s+)?(.+)", re.ASCII)
_LOT = re.compile(r"([\d,.]+)\s*(sq\.?\s?f(?:ee)?t|square (?:foot|feet)|acres?)\.?", re.ASCII | re.IGNORECASE)
_LOTS = 4
_SQUARE_FEET = 43_560
"""Of an acre."""
_USE_CODE = re.compile(r"[0-9]{1,3}(?:-[0-9]{1,3})?", re.ASCII)
_FLAG = re.compile(r"\b([YN])\b", re.ASCII)
_PARCELS = ("parcelInfok__BackingField", "parcelInfo")
_MILLAGES = ("millageRatek__BackingField", "millageRate")
_SALES_SHOWN = 5
_YEARS = ("", "LastYear", "LastTwoYears")
_SALE_KEYS = ("saleDate", "stampAmount", "bookAndPageOrCin", "deedType")
_KEYS = (
    *(f"{name}{number}" for name in _SALE_KEYS for number in range(1, _SALES_SHOWN + 1)),
    *(f"{name}{year}Value" for name in ("land", "bldg", "just", "soh") for year in _YEARS),
    *("folioNumber", "situsAddress1", "situsCity", "legal", "useCode", "ownerName1", "mailingAddress1"),
)
"""Keys of every response, with or without a value."""


def read(reader: PageReader) -> ReadResult:
    response = reader.json
    response = json_at(response, "d") or response
    listed = [item for name in _PARCELS for item in json_objects(response, name)]
    if not listed:
        is_answer = isinstance(response, Mapping) and any(response.get(name, 0) in ([], None) for name in _PARCELS)
        is_answer = (
            is_answer
            and isinstance(response, Mapping)
            and not any(isinstance(item, list) and item for item in response.values())
        )
        return NotFound("the site has no such parcel") if is_answer else Retry("the response has no parcel")
    parcel = listed[0]
    folio = json_text(parcel.get("folioNumber"))
    if folio is None or not _FOLIO.fullmatch(folio):
        return Retry("the response is incomplete: its folio is missing")
    if missing := [name for name in _KEYS if name not in parcel]:
        reader.problems.lacks(f"{len(missing)} fields ({', '.join(missing[:3])})")
    use_text = json_text(parcel.get("useCode"))
    use = _USE.fullmatch(use_text or "")
    is_code = use is None and _USE_CODE.fullmatch(use_text or "") is not None
    record = Record(
        parcel_id=folio,
        ownership_type=json_text(parcel.get("ownerShipType")),
        situs_address=json_text(parcel.get("situsAddress1")),
        situs_city=json_text(parcel.get("situsCity")),
        situs_zip=json_text(parcel.get("situsZipCode")),
        legal_description=json_text(parcel.get("legal")),
        land_use_code=use[1] if use else use_text if is_code else None,
        land_use_desc=use[2] if use else None if is_code else use_text,
        zoning=_of_form(_WITH_LETTERS, parcel.get("landCalcZoning"), "zoning", reader.problems),
        land_area_acres=_acres(parcel),
        year_built=json_year(parcel.get("actualAge")),
        building_area_sqft=json_nonzero(parcel.get("bldgUnderAirFootage")) or json_nonzero(parcel.get("bldgSqFT")),
        bedrooms=json_nonzero(parcel.get("beds")),
        bathrooms=json_nonzero(parcel.get("baths")),
        homestead=_homestead(parcel),
        tax_district=_of_form(_DISTRICT, parcel.get("millageCode"), "tax_district", reader.problems),
        millage_rate=_millage(response),
        sales=list(_sales(parcel, reader.problems)),
    )
    _take_owner(record, parcel)
    _take_values(record, parcel, reader.problems)
    take_last_sale(record)
    return record


def _acres(parcel: Mapping[str, Json]) -> Decimal | None:
    """Of all lots, in `136,749 SqFt` or `1.5 Acres`; None if one is measured otherwise."""
    shown = [text for at in range(1, _LOTS + 1) if (text := json_text(parcel.get(f"landCalcFact{at}")))]
    lots = [match for text in shown if (match := _LOT.fullmatch(text))]
    sizes = [(leading_number(lot[1]), _SQUARE_FEET if lot[2].lower().startswith("sq") else 1) for lot in lots]
    known = [size / per_acre for size, per_acre in sizes if size is not None]
    return round(sum(known, Decimal(0)), 4) or None if len(known) == len(shown) else None


def _of_form(form: re.Pattern[str], given: Json, field: str, problems: Problems) -> str | None:
    text = json_text(given)
    if text is not None and form.fullmatch(text) is None:
        problems.note(field, "its format differs from other pages of the site")
        return None
    return text


def _take_owner(record: Record, parcel: Mapping[str, Json]) -> None:
    """A second name that begins with `%` or `C/O` receives the mail."""
    names = [name for member in ("ownerName1", "ownerName2") if (name := json_text(parcel.get(member)))]
    record.owner_names = joined_names([name for name in names if not is_care_of(name)])
    record.owner_lines = names
    lines = [json_text(parcel.get(name)) or "" for name in ("mailingAddress1", "mailingAddress2", "mailingAddress3")]
    record.owner_lines += [line for line in lines if line]
    _, below, place = owners_and_mailing(lines, names=0)
    take_mailing(record, below, place)


def _take_values(record: Record, parcel: Mapping[str, Json], problems: Problems) -> None:
    """`assessedLastYearValue` is last year's tax; the assessed value is `soh`. The response does not name the years."""
    record.land_value, record.building_value = json_money(parcel.get("landValue")), json_money(parcel.get("bldgValue"))
    record.market_value, record.assessed_value = json_money(parcel.get("justValue")), json_money(parcel.get("sohValue"))
    record.taxable_value = json_money(parcel.get("taxableAmountCounty"))
    record.taxable_value_school = json_money(parcel.get("taxableAmountSchoolBoard"))
    if any(json_money(parcel.get(f"just{name}Value")) is None for name in _YEARS):
        problems.note("valuations", "a year has no just value")
    record.valuations = [
        Valuation(
            land_value=json_money(parcel.get(f"land{year_name}Value")),
            building_value=json_money(parcel.get(f"bldg{year_name}Value")),
            market_value=json_money(parcel.get(f"just{year_name}Value")),
            assessed_value=json_money(parcel.get(f"soh{year_name}Value")),
            tax_amount=json_money(parcel.get(f"assessed{year_name}Value")),
        )
        for year_name in _YEARS
        if json_money(parcel.get(f"just{year_name}Value")) is not None
    ]


def _millage(answer: Json) -> Decimal | None:
    """The rate of the newest year."""
    rates = [rate for name in _MILLAGES for rate in json_objects(answer, name)]
    newest = max(rates, key=lambda rate: json_year(rate.get("millageYear")) or 0, default=None)
    return millage(json_text(newest.get("millageRate"))) if newest is not None else None


def _homestead(parcel: Mapping[str, Json]) -> bool | None:
    """`Y` or `, N`; None for neither or both."""
    flags = set(_FLAG.findall((json_text(parcel.get("homesteadFlag")) or "").upper()))
    return flags == {"Y"} if len(flags) == 1 else None


def _sales(parcel: Mapping[str, Json], problems: Problems) -> Iterator[Sale]:
    """The parcel's own sales; `recentSales` are those of neighbors. The price is `stampAmount`."""
    for number in range(1, _SALES_SHOWN + 1):
        date = json_date(parcel.get(f"saleDate{number}"))
        if date is None and any(json_text(parcel.get(f"{name}{number}")) for name in _SALE_KEYS):
            problems.note("sales", "a sale has no date")
        if date is not None:
            yield Sale(
                date=date,
                price=json_money(parcel.get(f"stampAmount{number}")),
                book_page=_of_form(_BOOK_PAGE, parcel.get(f"bookAndPageOrCin{number}"), "sales.book_page", problems),
                instrument=_of_form(_IN_WORDS, parcel.get(f"deedType{number}"), "sales.instrument", problems),
                qualified=_of_form(_IN_WORDS, parcel.get(f"saleVerification{number}"), "sales.qualified", problems),
            )


PLATFORM = CountyPlatform(name="broward_bcpa", version=5, read=read)
