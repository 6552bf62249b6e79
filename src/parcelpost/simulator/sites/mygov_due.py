"""A server of `mygov_due`: an account's bills with their payments and certificates, as JSON."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from parcelpost.simulator.parcels import Certificate, Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, json_response

BILLS = 4
_PATH = "/api/v2/due/PPT/"


def respond(request: Request, world: World, looks: Layout) -> Response:
    _, separator, account = request.path.partition(_PATH)
    if not separator:
        return NOT_FOUND
    parcel = world.find(unquote(account))
    bills = [_bill(parcel, year) for year in years(parcel)] if parcel else []
    parcels = [_parcel(parcel, year) for year in years(parcel)] if parcel else []
    return json_response({"due": {"PPT": {"bills": bills, "parcels": parcels, "accounts": []}}, "status": 1})


def years(parcel: Parcel) -> list[int]:
    """Those of its certificates and the last ones, newest first."""
    last = range(parcel.year - 1, parcel.year - 1 - BILLS, -1)
    return sorted({*last, *(certificate.tax_year for certificate in parcel.certificates)}, reverse=True)


def certificate(parcel: Parcel, year: int) -> Certificate | None:
    return next((certificate for certificate in parcel.certificates if certificate.tax_year == year), None)


def _bill(parcel: Parcel, year: int) -> dict[str, Any]:
    sold = certificate(parcel, year)
    is_paid = sold is None or sold.redeemed_on is not None
    amount = parcel.tax_cents / 100
    paid_on = sold.redeemed_on if sold and sold.redeemed_on else f"{year + 1}-03-31"
    return {
        "id": f"{year}{parcel.number}",
        "bill_number": f"{year}{parcel.number:06}",
        "bill_type": "Real",
        "parcelId": f"{year}-{parcel.number}",
        "taxYear": str(year),
        "account_number": parcel.parcel_id,
        "owner": parcel.owners[0],
        "paid": is_paid,
        "delinquent": not is_paid,
        "flags": [] if is_paid else ["LITIGATION"],
        "hasInstallments": False,
        "certificate": _certificate(sold) if sold else {},
        "amount": amount,
        "due": 0 if is_paid else amount,
        "payments": [{"receipt": "1", "status": "COMPLETED", "amount": amount, "date": paid_on}] if is_paid else [],
        "charges": {"adValorem": {"total": amount, "charges": _charges(parcel)}, "nonAdValorem": {"charges": []}},
    }


def _certificate(sold: Certificate) -> dict[str, Any]:
    return {
        "info": {
            "number": sold.number,
            "year": str(sold.sold_on.year),
            "sold": sold.sold_on.isoformat(),
            "face": str(sold.face_cents),
            "bidPercentage": str(sold.rate_hundredths),
        },
        "holder": {"name": sold.holder, "email": "", "phone": ""},
    }


def _charges(parcel: Parcel) -> list[dict[str, Any]]:
    shared = {"just": str(parcel.market), "assessed": str(parcel.assessed), "millage": "1.20000", "amount": 1.0}
    county = {"exempt": str(parcel.exempt), "taxable": str(parcel.taxable)}
    school = {"exempt": str(parcel.exempt // 2), "taxable": str(parcel.taxable_school)}
    return [
        {"description": "S100 SCHOOL BOARD", **shared, **school},
        {"description": "C100 INVENTED COUNTY GENERAL", **shared, **county},
    ]


def _parcel(parcel: Parcel, year: int) -> dict[str, Any]:
    situs = f"{parcel.situs} {parcel.situs_city}, FL {parcel.zip_code}" if parcel.situs else ""
    latitude, longitude = parcel.coordinates
    return {
        "account_number": parcel.parcel_id,
        "parcel_id": f"{year}-{parcel.number}",
        "parcel_address_1": parcel.street,
        "parcel_address_2": "",
        "parcel_city": parcel.city,
        "parcel_state": parcel.state,
        "parcel_zip": parcel.zip_code,
        "parcel_details": {"property_type": "Real", "situs": situs, "parcel_legal": parcel.legal},
        "parcel_coordinates": {"latitude": f"{latitude:.6f}", "longitude": f"{longitude:.6f}"},
    }
