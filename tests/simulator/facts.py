"""What the record of a simulated parcel must say, as each platform shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parcelpost.simulator.parcels import AUCTION_DAY, AuctionCase, Parcel
from parcelpost.simulator.sites import SITES, leepa, mygov_due, qpublic

Facts = dict[str, Any]


def of_parcel(platform: str, parcel: Parcel) -> Facts:
    number_as = SITES[platform].parcel_id
    assert number_as is not None
    return {"parcel_id": number_as(parcel.number), **_PARCELS[platform](parcel)}


def of_case(platform: str, case: AuctionCase) -> Facts:
    facts: Facts = {"parcel_id": case.parcel.parcel_id, "opening_bid": case.opening_cents / 100}
    if platform == "deedauction":
        return facts | {"parcel_id": None, "case_number": case.number, "auction_date": AUCTION_DAY.isoformat()}
    if platform == "govease":
        code = case.parcel.use_code
        district = {"tax_district": "001-001"}
        return facts | {
            "owner_names": [case.parcel.owners[0]],
            "land_use_code": code,
            **district,
            **_situs(case.parcel),
        }
    if platform == "realauction":
        number = case.certificate.number
        return facts | {"case_number": case.number, "certificate_number": number, **_situs(case.parcel, "city", "zip")}
    return facts | {
        "case_number": case.number,
        "certificate_number": case.certificate.number,
        "certificate_year": case.certificate.tax_year,
        "auction_date": AUCTION_DAY.isoformat(),
        "owner_names": list(dict.fromkeys(case.parcel.owners)),
        "is_otc": True,
        "high_bid": case.high_cents / 100,
        "surplus": 1_000,
    }


def of_register(parcel: Parcel) -> Facts:
    """Of all its lines in a register of liens."""
    return {
        "parcel_id": parcel.parcel_id,
        "record_kind": "lien",
        "liens.certificate_number": [one.number for one in parcel.certificates],
        "liens.tax_year": [one.tax_year for one in parcel.certificates],
        "liens.face_amount": [one.face_cents / 100 for one in parcel.certificates],
        "liens.sale_date": [one.sold_on.isoformat() for one in parcel.certificates],
        "liens.redemption_date": [one.redeemed_on and one.redeemed_on.isoformat() for one in parcel.certificates],
    }


def _grizzly(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_situs(parcel, "city"),
        **_land(parcel),
        **_values(parcel, parcel.year - 1),
        **_sales(parcel),
        **_buildings(parcel),
        "tax_account": parcel.account,
        "building_value": parcel.building,
        "extra_feature_value": parcel.extra,
        "exemptions": list(parcel.exemptions),
        "taxable_value_school": parcel.taxable_school,
        "sec_twp_rng": parcel.section,
        "building_count": len(parcel.buildings),
        "alternate_id": str(parcel.number),
        "data_date": "2024-07-25",
        "tax_district": "3",
        "homestead": bool(parcel.exemptions),
        "classified_land_value": 0,
        "classified_use_value": 0,
        "assessment_cap_value": parcel.cap,
        "sales.reason_code": ["05" if one.is_of_several else "01" for one in parcel.sales],
        "sales.multi_parcel": [one.is_of_several or None for one in parcel.sales],
    }


def _qpublic(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_situs(parcel),
        **_land(parcel),
        **_values(parcel, parcel.year),
        **_sales(parcel),
        **_buildings(parcel),
        "tax_account": parcel.account,
        "building_value": parcel.building,
        "extra_feature_value": parcel.extra,
        "taxable_value_school": parcel.taxable_school,
        "sec_twp_rng": parcel.section,
        "homestead": bool(parcel.exemptions),
        "building_count": len(parcel.buildings),
        "data_date": "2024-08-07",
        "tax_district": "UNINCORPORATED (01)",
        "millage_rate": 19.2923,
        "assessment_cap_value": parcel.cap,
        "permit_count": len(parcel.buildings),
        "sales.reason_code": ["01" for _ in parcel.sales],
        "sales.grantor": [qpublic.GRANTOR for _ in parcel.sales],
    }


def _vgsi(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_sales(parcel),
        **_buildings(parcel),
        "situs_address": parcel.situs or parcel.street,
        "situs_city": "INVENTED",
        "tax_account": parcel.account,
        "land_use_code": parcel.use_code,
        "land_use_desc": parcel.use,
        "zoning": "RD",
        "land_area_acres": float(parcel.acres),
        "value_year": parcel.year,
        "land_value": parcel.land,
        "building_value": parcel.improved,
        "market_value": parcel.market,
        "assessed_value": parcel.assessed,
        "building_count": len(parcel.buildings),
        "valuations.year": [parcel.year - 1, parcel.year - 2] * 2,
        "valuations.market_value": [parcel.market, parcel.market, None, None],
        "valuations.assessed_value": [None, None, parcel.assessed, parcel.assessed],
        "map_block_lot": f"{parcel.number}/ 1/ / /",
        "sales.grantee": [parcel.owners[0] for _ in parcel.sales],
    }


def _leepa(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_situs(parcel, "city", "zip"),
        **_values(parcel, parcel.year),
        **_sales(parcel),
        **_buildings(parcel),
        "tax_account": leepa.folio(parcel.number),
        "legal_description": parcel.legal,
        "land_use_code": parcel.use_code,
        "land_use_desc": parcel.use,
        "latitude": float(leepa.latitude(parcel.number)),
        "longitude": float(leepa.longitude(parcel.number)),
        "data_date": "2025-04-10",
        "ownership_type": "Sole Owner",
        "block": "1",
        "lot": str(parcel.number),
        "tax_district": "CITY OF MARIGOLD / 057",
        "exemptions": None if parcel.exempt else [],
        "homestead": None if parcel.exempt else False,
        "permit_count": len(parcel.buildings),
        "sales.reason_code": ["06" for _ in parcel.sales],
        "sales.multi_parcel": [one.is_of_several or None for one in parcel.sales],
    }


def _collier(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_situs(parcel, "city", "zip"),
        **_land(parcel),
        **_values(parcel, parcel.year),
        **_sales(parcel),
        **_buildings(parcel),
        "building_value": parcel.improved,
        "taxable_value_school": parcel.taxable_school,
        "tax_amount": parcel.tax_cents / 100,
        "subdivision": "INVENTED ESTATES",
        "alternate_id": "112000 8 54A16",
        "tax_district": "4",
        "exemptions": ["Homestead", "Additional Homestead"] if parcel.exempt else [],
        "permit_count": len(parcel.buildings),
    }


def _mygov(parcel: Parcel) -> Facts:
    late = [one for one in parcel.certificates if one.redeemed_on is None]
    return {
        "owner_names": [parcel.owners[0]],
        "mailing_lines": [parcel.street],
        "mailing_city": parcel.city,
        "mailing_zip": parcel.zip_code,
        "legal_description": parcel.legal,
        "market_value": parcel.market,
        "assessed_value": parcel.assessed,
        "exemption_value": parcel.exempt,
        "taxable_value": parcel.taxable,
        "taxable_value_school": parcel.taxable_school,
        "tax_amount": parcel.tax_cents / 100,
        "tax_due": len(late) * parcel.tax_cents / 100,
        "delinquent": bool(late),
        "delinquent_years": sorted(one.tax_year for one in late),
        "tax_bills.flags": [
            ["LITIGATION"] if any(one.tax_year == year for one in late) else [] for year in mygov_due.years(parcel)
        ],
        "tax_bills.tax_year": mygov_due.years(parcel),
        "liens.certificate_number": [one.number for one in parcel.certificates],
        "liens.face_amount": [one.face_cents / 100 for one in parcel.certificates],
        "liens.interest_rate_pct": [one.rate_hundredths / 100 for one in parcel.certificates],
        "liens.holder_name": [one.holder for one in parcel.certificates],
        "liens.redemption_date": [
            one.redeemed_on.isoformat() if one.redeemed_on else None for one in parcel.certificates
        ],
    }


def _miamidade(parcel: Parcel) -> Facts:
    return {
        **_owner(parcel),
        **_situs(parcel, "city", "zip"),
        **_values(parcel, parcel.year),
        **_sales(parcel),
        **_buildings(parcel),
        "legal_description": parcel.legal,
        "land_use_code": parcel.use_code,
        "land_use_desc": parcel.use,
        "building_value": parcel.building,
        "extra_feature_value": parcel.extra,
        "taxable_value_school": parcel.taxable_school,
        "homestead": bool(parcel.exempt),
        "mailing_country": "USA",
        "ownership_type": "Sole Owner",
        "assessment_cap_value": parcel.cap if parcel.exempt else None,
        "exemptions": ["Homestead"] if parcel.exempt else [],
        "sales.reason_code": ["02" if one.is_of_several else "00" for one in parcel.sales],
        "sales.multi_parcel": [one.is_of_several or None for one in parcel.sales],
        "sales.grantor": ["BLOOM CLARA; BLOOM LOUIS" for _ in parcel.sales],
        "sales.grantee": ["TWO OAKS TRUST" for _ in parcel.sales],
    }


def _broward(parcel: Parcel) -> Facts:
    first = parcel.buildings[0] if parcel.buildings else None
    return {
        **_owner(parcel),
        **_situs(parcel, "city", "zip"),
        **_sales(parcel),
        "legal_description": parcel.legal,
        "land_use_code": f"{parcel.use_code[:2]}-{parcel.use_code[2:]}",
        "land_use_desc": parcel.use,
        "land_value": parcel.land,
        "building_value": parcel.improved,
        "market_value": parcel.market,
        "assessed_value": parcel.assessed,
        "taxable_value": parcel.taxable,
        "taxable_value_school": parcel.taxable_school,
        "homestead": bool(parcel.exempt),
        "year_built": first.year if first else None,
        "building_area_sqft": sum(one.living_sqft for one in parcel.buildings) if first else None,
        "tax_district": "0312",
        "millage_rate": 18.8172,
        "valuations.tax_amount": [None, *[parcel.tax_cents / 100] * 2],
    }


def _arcgis(parcel: Parcel) -> Facts:
    first, sale = parcel.buildings[:1], parcel.sales[:1]
    return {
        **_owner(parcel),
        **_situs(parcel, "city", "zip"),
        "legal_description": parcel.legal,
        "land_use_desc": parcel.use,
        "land_area_acres": float(parcel.acres),
        "land_value": parcel.land,
        "building_value": parcel.improved,
        "market_value": parcel.market,
        "homestead": bool(parcel.exempt),
        "year_built": first[0].year if first else None,
        "building_area_sqft": sum(one.living_sqft for one in parcel.buildings) or None,
        "last_sale_date": sale[0].on.isoformat() if sale else None,
        "last_sale_price": sale[0].price or None if sale else None,
    }


def _socrata(parcel: Parcel) -> Facts:
    return {**_situs(parcel), "status": "noticed", "land_use_code": f"Z{parcel.number % 10}", "record_kind": "lien"}


def _owner(parcel: Parcel) -> Facts:
    return {
        "owner_names": list(parcel.owners),
        "mailing_lines": [parcel.street],
        "mailing_city": parcel.city,
        "mailing_state": parcel.state,
        "mailing_zip": parcel.zip_code,
    }


def _situs(parcel: Parcel, *parts: str) -> Facts:
    found: Facts = {"situs_address": parcel.situs or None}
    if "city" in parts:
        found["situs_city"] = parcel.situs_city or None
    if "zip" in parts:
        found["situs_zip"] = parcel.zip_code if parcel.situs else None
    return found


def _land(parcel: Parcel) -> Facts:
    return {
        "legal_description": parcel.legal,
        "land_use_code": parcel.use_code,
        "land_use_desc": parcel.use,
        "land_area_acres": float(parcel.acres),
    }


def _values(parcel: Parcel, year: int) -> Facts:
    return {
        "value_year": year,
        "value_status": "certified",
        "land_value": parcel.land,
        "market_value": parcel.market,
        "assessed_value": parcel.assessed,
        "exemption_value": parcel.exempt,
        "taxable_value": parcel.taxable,
    }


def _sales(parcel: Parcel) -> Facts:
    last = parcel.sales[0] if parcel.sales else None
    return {
        "sales.date": [one.on.isoformat() for one in parcel.sales],
        "sales.price": [one.price for one in parcel.sales],
        "last_sale_date": last.on.isoformat() if last else None,
        "last_sale_price": last.price if last else None,
    }


def _buildings(parcel: Parcel) -> Facts:
    first = parcel.buildings[0] if parcel.buildings else None
    return {
        "year_built": first.year if first else None,
        "building_area_sqft": sum(one.living_sqft for one in parcel.buildings) if first else None,
        "buildings.year_built": [one.year for one in parcel.buildings],
    }


_PARCELS: dict[str, Callable[[Parcel], Facts]] = {
    "arcgis": _arcgis,
    "beacon": _qpublic,
    "broward_bcpa": _broward,
    "collier_pa": _collier,
    "grizzly_gis": _grizzly,
    "leepa": _leepa,
    "miamidade_pa": _miamidade,
    "mygov_due": _mygov,
    "qpublic": _qpublic,
    "socrata": _socrata,
    "vgsi": _vgsi,
}
