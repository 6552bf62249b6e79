"""The server of `broward_bcpa`: one JSON object per folio, in an envelope."""

from __future__ import annotations

from typing import Any

import msgspec

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, cents, dollars, json_response, us_date

_SALES = 5
_YEARS = ("", "LastYear", "LastTwoYears")


def parcel_id(number: int) -> str:
    return f"49{number:010}"


def respond(request: Request, world: World, looks: Layout) -> Response:
    if "getparcelinformation" not in request.path.lower():
        return NOT_FOUND
    given = _folio(request)
    is_folio = len(given) == 12 and given.isascii() and given.isdecimal()
    parcel = world.number(int(given[2:])) if is_folio else None
    listed = [_parcel(parcel)] if parcel else []
    rates = [{"millageRate": "18.8172", "millageYear": "2023"}] if parcel else []
    envelope = {
        "__type": "PropertyGeneralInfo",
        "millageRatek__BackingField": rates,
        "parcelInfok__BackingField": listed,
    }
    return json_response({"d": envelope})


def _folio(request: Request) -> str:
    if not request.body:
        return request.query.get("folioNumber", "")
    try:
        asked = msgspec.json.decode(request.body)
    except msgspec.DecodeError:
        return request.form.get("folioNumber", "")
    return str(asked.get("folioNumber", "")) if isinstance(asked, dict) else ""


def _parcel(parcel: Parcel) -> dict[str, Any]:
    first = parcel.buildings[0] if parcel.buildings else None
    return {
        "__type": "ParcelInformationProps",
        "actualAge": str(first.year) if first else "",
        "baths": "",
        "beds": "",
        "bldgSqFT": str(sum(building.actual_sqft for building in parcel.buildings)) if first else "",
        "bldgUnderAirFootage": str(sum(building.living_sqft for building in parcel.buildings)) if first else "",
        "folioNumber": parcel_id(parcel.number),
        "homesteadFlag": ", Y" if parcel.exempt else ", N",
        "landCalcZoning": "M-3 - COUNTY",
        "legal": f"{parcel.legal}    ",
        "assessedLastTwoYearsValue": cents(parcel.tax_cents),
        "assessedLastYearValue": cents(parcel.tax_cents),
        "mailingAddress1": parcel.street,
        "mailingAddress2": f"{parcel.city}, {parcel.state} {parcel.zip_code}",
        "millageCode": "0312",
        "ownerName1": parcel.owners[0],
        "ownerName2": parcel.owners[1] if len(parcel.owners) > 1 else "",
        "situsAddress1": parcel.situs,
        "situsCity": parcel.situs_city,
        "situsZipCode": parcel.zip_code if parcel.situs else "",
        "taxableAmountCounty": dollars(parcel.taxable),
        "taxableAmountSchoolBoard": dollars(parcel.taxable_school),
        "useCode": f"{parcel.use_code[:2]}-{parcel.use_code[2:]} {parcel.use}",
        **_values(parcel),
        **_sales(parcel),
    }


def _values(parcel: Parcel) -> dict[str, str]:
    shown = {"land": parcel.land, "bldg": parcel.improved, "just": parcel.market, "soh": parcel.assessed}
    return {f"{name}{year}Value": dollars(amount) for year in _YEARS for name, amount in shown.items()}


def _sales(parcel: Parcel) -> dict[str, str]:
    fields = {}
    for at in range(1, _SALES + 1):
        sale = parcel.sales[at - 1] if at <= len(parcel.sales) else None
        fields[f"saleDate{at}"] = us_date(sale.on, zeros=True) if sale else ""
        fields[f"stampAmount{at}"] = dollars(sale.price) if sale else ""
        fields[f"bookAndPageOrCin{at}"] = f"{sale.book} / {sale.page}" if sale else ""
        fields[f"deedType{at}"] = "Warranty Deed" if sale else ""
        fields[f"saleVerification{at}"] = ""
    return fields
