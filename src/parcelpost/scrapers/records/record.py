"""The record of one parcel, with the same fields for every platform. See docs/record.md."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.model import Json

LIEN = "lien"
COMPLETE = "complete"
MISSING = "missing: "
"""Prefix of `completeness` for an incomplete page."""


class Valuation(Struct, kw_only=True):
    year: int | None = None
    status: str | None = None
    """certified, working, preliminary, billed or current."""
    land_value: Decimal | None = None
    building_value: Decimal | None = None
    extra_feature_value: Decimal | None = None
    classified_land_value: Decimal | None = None
    """Value by use of the land that is assessed by use (agriculture, forest)."""
    market_value: Decimal | None = None
    classified_use_value: Decimal | None = None
    """Value of the whole parcel, with such land valued by use."""
    assessment_cap_value: Decimal | None = None
    """Reduction from a limit on yearly increases."""
    assessed_value: Decimal | None = None
    exemptions: list[str] | None = None
    exemption_value: Decimal | None = None
    taxable_value: Decimal | None = None
    taxable_value_school: Decimal | None = None
    tax_amount: Decimal | None = None
    """The tax of that year; proposed, if the values are preliminary."""


class Sale(Struct, kw_only=True):
    date: str | None = None
    price: Decimal | None = None
    book_page: str | None = None
    clerk_number: str | None = None
    """The number of the recorded document, where a county no longer counts books and pages."""
    instrument: str | None = None
    qualified: str | None = None
    reason_code: str | None = None
    reason_desc: str | None = None
    multi_parcel: bool | None = None
    vacant_improved: str | None = None
    grantor: str | None = None
    grantee: str | None = None


class TaxBill(Struct, kw_only=True):
    tax_year: int | None = None
    bill_number: str | None = None
    installment: str | None = None
    tax_amount: Decimal | None = None
    tax_due: Decimal | None = None
    status: str | None = None
    delinquent: bool | None = None
    paid_date: str | None = None
    paid_amount: Decimal | None = None
    flags: list[str] | None = None
    """The collector's remarks on the bill: litigation, bankruptcy, warrant."""


class Building(Struct, kw_only=True):
    desc: str | None = None
    year_built: int | None = None
    base_sqft: Decimal | None = None
    actual_sqft: Decimal | None = None
    value: Decimal | None = None


class Lien(Struct, kw_only=True):
    certificate_number: str | None = None
    certificate_year: int | None = None
    tax_year: int | None = None
    face_amount: Decimal | None = None
    interest_rate_pct: Decimal | None = None
    premium: Decimal | None = None
    interest_amount: Decimal | None = None
    fees: Decimal | None = None
    sale_date: str | None = None
    """For a subsequent tax, the day it was added to the certificate."""
    certificate_sale_date: str | None = None
    subsequent_tax: bool | None = None
    """A later tax that the holder paid on a certificate: not a lien of its own."""
    holder_name: str | None = None
    holder_type: str | None = None
    status: str | None = None
    redemption_date: str | None = None
    redemption_amount: Decimal | None = None
    redemption_deadline: str | None = None
    case_number: str | None = None
    auction_date: str | None = None
    opening_bid: Decimal | None = None
    high_bid: Decimal | None = None
    surplus: Decimal | None = None
    is_otc: bool | None = None


class Record(Struct, kw_only=True):
    """One parcel. A platform fills in what its page shows; its caller adds identity and provenance.

    A record of kind `lien` is one row of a list of liens or auctions: it has one lien, whose fields it repeats.
    """

    parcel_id: str | None
    """None if the list has only a case number."""
    parcel_id_norm: str = ""
    tax_account: str | None = None
    alternate_id: str | None = None
    """Another number of the parcel in its county, beside `parcel_id`."""
    map_block_lot: str | None = None
    state: str = ""
    county: str = ""
    county_fips: str | None = None
    platform: str = ""
    source_url: str | None = None
    scraped_at: str | None = None
    raw_html_hash: str | None = None
    parser_version: str | None = None
    field_map: str | None = None
    """The field map that read the row of a table; `proposed` if there was none that fits."""
    data_date: str | None = None
    """The day as of which the site has its data."""
    record_kind: str = "parcel"
    completeness: str = COMPLETE
    """Otherwise `missing: ` and the sections that the page lacks: what they show is not known."""
    unreadable: list[str] = []
    """Fields that could not be read, although such a page shows them: null and an empty list do not mean `none`."""

    owner_names: list[str] = []
    owner_lines: list[str] = []
    """Owners and mailing address as the page shows them, line by line."""
    ownership_type: str | None = None
    mailing_lines: list[str] = []
    mailing_city: str | None = None
    mailing_state: str | None = None
    mailing_zip: str | None = None
    mailing_country: str | None = None

    situs_address: str | None = None
    situs_city: str | None = None
    situs_zip: str | None = None
    latitude: Decimal | None = None
    longitude: Decimal | None = None

    legal_description: str | None = None
    subdivision: str | None = None
    block: str | None = None
    lot: str | None = None
    sec_twp_rng: str | None = None
    land_use_code: str | None = None
    land_use_desc: str | None = None
    zoning: str | None = None
    flood_zone: str | None = None
    land_area_acres: Decimal | None = None
    building_area_sqft: Decimal | None = None
    year_built: int | None = None
    building_count: int | None = None
    bedrooms: Decimal | None = None
    bathrooms: Decimal | None = None
    permit_count: int | None = None

    value_year: int | None = None
    value_status: str | None = None
    land_value: Decimal | None = None
    building_value: Decimal | None = None
    extra_feature_value: Decimal | None = None
    classified_land_value: Decimal | None = None
    market_value: Decimal | None = None
    classified_use_value: Decimal | None = None
    assessment_cap_value: Decimal | None = None
    assessed_value: Decimal | None = None
    exemptions: list[str] | None = None
    exemption_value: Decimal | None = None
    taxable_value: Decimal | None = None
    taxable_value_school: Decimal | None = None
    homestead: bool | None = None

    last_sale_date: str | None = None
    last_sale_price: Decimal | None = None
    last_sale_instrument: str | None = None
    last_sale_book_page: str | None = None

    tax_district: str | None = None
    millage_rate: Decimal | None = None
    tax_year: int | None = None
    tax_amount: Decimal | None = None
    tax_status: str | None = None
    """proposed or billed; None if the page does not say."""
    tax_due: Decimal | None = None
    delinquent: bool | None = None
    delinquent_years: list[int] | None = None

    valuations: list[Valuation] = []
    sales: list[Sale] = []
    tax_bills: list[TaxBill] = []
    buildings: list[Building] = []
    liens: list[Lien] = []

    def as_json(self) -> dict[str, Json]:
        """All fields, with Decimals as JSON numbers."""
        plain = msgspec.to_builtins(self, builtin_types=(Decimal,))
        if self.record_kind == LIEN and self.liens:
            plain |= plain["liens"][0]
        return {name: value if value is None or type(value) is str else _plain(value) for name, value in plain.items()}


_VALUES = tuple(name for name in Valuation.__struct_fields__ if name not in ("year", "status", "tax_amount"))
_FINAL = ("certified", "billed", "current")


def take_values(record: Record) -> None:
    """Copies the newest certified valuation, else the newest one, into the record's own fields."""
    shown = [valuation for valuation in record.valuations if valuation.year is not None] or record.valuations
    final = [valuation for valuation in shown if valuation.status in _FINAL]
    newest = max(final or shown, key=lambda valuation: valuation.year or 0, default=None)
    if newest is None:
        return
    record.value_year, record.value_status = newest.year, newest.status
    for name in _VALUES:
        setattr(record, name, getattr(newest, name))


def total_area(buildings: Sequence[Building]) -> Decimal | None:
    """The living area of all buildings; None if that of one is not known."""
    areas = [building.base_sqft for building in buildings if building.base_sqft is not None]
    return sum(areas, Decimal(0)) if areas and len(areas) == len(buildings) else None


def take_last_sale(record: Record) -> None:
    """Copies the newest dated sale into the record's own fields; of several on one day, the first."""
    newest = max((sale for sale in record.sales if sale.date), key=lambda sale: sale.date or "", default=None)
    if newest is None:
        return
    record.last_sale_date, record.last_sale_price = newest.date, newest.price
    record.last_sale_instrument, record.last_sale_book_page = newest.instrument, newest.book_page


def _plain(value: Any) -> Json:
    kind = type(value)
    if kind is Decimal:
        whole = int(value)
        return whole if whole == value else float(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        return {name: item if item is None or type(item) is str else _plain(item) for name, item in value.items()}
    return value
