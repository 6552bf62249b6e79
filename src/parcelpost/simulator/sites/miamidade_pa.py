"""The server of `miamidade_pa`: one JSON object per folio."""

from __future__ import annotations

from typing import Any

from parcelpost.simulator.parcels import Building, Parcel, Sale, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, json_response, us_date

YEARS = 3


def parcel_id(number: int) -> str:
    return f"10-{number // 10_000_000:04}-{number // 10_000 % 1000:03}-{number % 10_000:04}"


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not request.path.lower().endswith("/paservicesproxy.ashx"):
        return NOT_FOUND
    query = {name.lower(): value for name, value in request.query.items()}
    plain = query.get("folionumber", "").replace("-", "")
    parcel = world.number(int(plain[2:])) if len(plain) == 13 and plain.isascii() and plain.isdecimal() else None
    return json_response(
        _record(parcel) if parcel else {"Completed": True, "Message": "Folio not found", "PropertyInfo": None}
    )


def _record(parcel: Parcel) -> dict[str, Any]:
    years = range(parcel.year, parcel.year - YEARS, -1)
    first = parcel.buildings[0] if parcel.buildings else None
    return {
        "Assessment": {"AssessmentInfos": [_assessment(parcel, year) for year in years], "Messages": []},
        "Benefit": {"BenefitInfos": [item for year in years for item in _benefits(parcel, year)], "Messages": []},
        "Building": {"BuildingInfos": [_building(*item, year) for year in years for item in _numbered(parcel)]},
        "Completed": True,
        "LegalDescription": {"Description": parcel.legal.replace(" UNIT", "|UNIT"), "Message": None},
        "MailingAddress": {
            "Address1": parcel.street,
            "Address2": "",
            "Address3": "",
            "City": parcel.city,
            "Country": "USA",
            "State": parcel.state,
            "ZipCode": parcel.zip_code,
        },
        "Message": "",
        "OwnerInfos": [{"Name": name, "Description": "Sole Owner", "PercentageOwn": 1} for name in parcel.owners],
        "RollYear1": parcel.year,
        "PropertyInfo": {
            "BathroomCount": 2 if first else 0,
            "BedroomCount": 3 if first else 0,
            "BuildingHeatedArea": sum(item.living_sqft for item in parcel.buildings),
            "DORCode": parcel.use_code,
            "DORDescription": parcel.use,
            "FolioNumber": parcel_id(parcel.number),
            "HalfBathroomCount": 1 if first else 0,
            "PrimaryZone": "9300",
            "Status": "AC Active",
            "SubdivisionDescription": "INVENTED ESTATES",
            "YearBuilt": str(first.year) if first else "0",
        },
        "SalesInfos": [_sale(item) for item in reversed(parcel.sales)],
        "SiteAddress": [_site(parcel)] if parcel.situs else [],
        "Taxable": {"Messages": [], "TaxableInfos": [_taxable(parcel, year) for year in years]},
    }


def _assessment(parcel: Parcel, year: int) -> dict[str, Any]:
    return {
        "AssessedValue": parcel.assessed,
        "BuildingOnlyValue": parcel.building,
        "ExtraFeatureValue": parcel.extra,
        "LandValue": parcel.land,
        "Message": None,
        "TotalValue": parcel.market,
        "Year": year,
    }


def _benefits(parcel: Parcel, year: int) -> list[dict[str, Any]]:
    cap = {"Description": "Save Our Homes Cap", "TaxYear": year, "Type": "Assessment Reduction", "Value": parcel.cap}
    home = {"Description": "Homestead", "TaxYear": year, "Type": "Exemption", "Value": parcel.exempt}
    return [cap, home] if parcel.exempt else []


def _numbered(parcel: Parcel) -> list[tuple[int, Building]]:
    return list(enumerate(parcel.buildings, 1))


def _building(number: int, building: Building, year: int) -> dict[str, Any]:
    return {
        "Actual": building.year,
        "ActualArea": building.actual_sqft,
        "BuildingNo": number,
        "DepreciatedValue": building.value,
        "HeatedArea": building.living_sqft,
        "RollYear": year,
        "SegNo": 1,
        "improvementModelDesc": "Single Family Residential",
    }


def _sale(sale: Sale) -> dict[str, Any]:
    return {
        "DateOfSale": us_date(sale.on),
        "OfficialRecordBook": str(sale.book),
        "OfficialRecordPage": str(sale.page),
        "GranteeName1": "TWO OAKS TRUST",
        "GranteeName2": "",
        "GrantorName1": "BLOOM CLARA",
        "GrantorName2": "BLOOM LOUIS",
        "QualificationDescription": "Deeds that include more than one parcel" if sale.is_of_several else "Qualified",
        "QualifiedFlag": "Q",
        "ReasonCode": "02" if sale.is_of_several else "00",
        "SaleInstrument": sale.deed,
        "SalePrice": sale.price,
        "VacantFlag": "\u0000",
    }


def _site(parcel: Parcel) -> dict[str, Any]:
    address = f"{parcel.situs}, {parcel.situs_city}, FL {parcel.zip_code}"
    return {"Address": address, "BuildingNumber": 1, "City": parcel.situs_city, "Unit": "", "Zip": parcel.zip_code}


def _taxable(parcel: Parcel, year: int) -> dict[str, Any]:
    return {
        "CountyExemptionValue": parcel.exempt,
        "CountyTaxableValue": parcel.taxable,
        "SchoolExemptionValue": parcel.exempt // 2,
        "SchoolTaxableValue": parcel.taxable_school,
        "Year": year,
    }
