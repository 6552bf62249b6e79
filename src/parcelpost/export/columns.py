"""The columns of each table: in which order they stand, and what each may hold. See docs/export.md."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    TEXT = "text"
    TEXTS = "texts"
    """A list, as one text with `; ` in between."""
    WHOLE = "whole number"
    NUMBER = "number"
    MONEY = "money"
    """Dollars, exact, up to four decimal places."""
    FLAG = "yes or no"
    DATE = "date"
    MOMENT = "moment"
    """UTC."""


class Column(NamedTuple):
    name: str
    kind: Kind


def _are(kind: Kind, names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names.split())


_VALUES = (
    *_are(Kind.MONEY, "land_value building_value extra_feature_value market_value assessed_value"),
    *_are(Kind.TEXTS, "exemptions"),
    *_are(Kind.MONEY, "exemption_value taxable_value taxable_value_school"),
)

KEY = _are(Kind.TEXT, "platform state county parcel_id")
"""What every table begins with: the parcel."""

PARCEL = (
    *_are(Kind.TEXTS, "owner_names mailing_lines"),
    *_are(Kind.TEXT, "mailing_city mailing_state mailing_zip mailing_country situs_address situs_city situs_zip"),
    *_are(Kind.NUMBER, "latitude longitude"),
    *_are(Kind.TEXT, "legal_description subdivision sec_twp_rng land_use_code land_use_desc zoning"),
    *_are(Kind.NUMBER, "land_area_acres building_area_sqft"),
    *_are(Kind.WHOLE, "year_built building_count"),
    *_are(Kind.NUMBER, "bedrooms bathrooms"),
    *_are(Kind.WHOLE, "value_year"),
    *_are(Kind.TEXT, "value_status"),
    *_VALUES,
    *_are(Kind.FLAG, "homestead"),
    *_are(Kind.DATE, "last_sale_date"),
    *_are(Kind.MONEY, "last_sale_price"),
    *_are(Kind.TEXT, "last_sale_instrument last_sale_book_page"),
    *_are(Kind.WHOLE, "tax_year"),
    *_are(Kind.MONEY, "tax_amount tax_due"),
    *_are(Kind.FLAG, "delinquent"),
    *_are(Kind.TEXTS, "delinquent_years"),
    *_are(Kind.TEXT, "tax_account parcel_id_norm county_fips record_kind source_url raw_html_hash parser_version"),
)
"""Fields of the record."""

SHOWN_ID = Column("parcel_id_shown", Kind.TEXT)
"""The record's own parcel_id; the key's is what was asked for."""

RESULT = (
    *_are(Kind.WHOLE, "lien_count"),
    *_are(Kind.TEXT, "status error"),
    *_are(Kind.MOMENT, "scraped_at stored_at"),
    *_are(Kind.TEXT, "task_id"),
)
"""How the record came to be."""

POSITION = Column("position", Kind.WHOLE)
SCRAPED_AT = Column("scraped_at", Kind.MOMENT)
OTHER = Column("other", Kind.TEXT)
"""What no column holds, as JSON: fields of other names, and values that do not fit their column."""

LIEN = (
    *_are(Kind.TEXT, "certificate_number"),
    *_are(Kind.WHOLE, "certificate_year tax_year"),
    *_are(Kind.MONEY, "face_amount"),
    *_are(Kind.NUMBER, "interest_rate_pct"),
    *_are(Kind.MONEY, "premium"),
    *_are(Kind.DATE, "sale_date"),
    *_are(Kind.TEXT, "holder_name holder_type status"),
    *_are(Kind.DATE, "redemption_date"),
    *_are(Kind.MONEY, "redemption_amount"),
    *_are(Kind.DATE, "redemption_deadline"),
    *_are(Kind.TEXT, "case_number"),
    *_are(Kind.DATE, "auction_date"),
    *_are(Kind.MONEY, "opening_bid"),
    *_are(Kind.FLAG, "is_otc"),
)
SALE = (
    *_are(Kind.DATE, "date"),
    *_are(Kind.MONEY, "price"),
    *_are(Kind.TEXT, "book_page instrument qualified vacant_improved"),
)
TAX_BILL = (
    *_are(Kind.WHOLE, "tax_year"),
    *_are(Kind.TEXT, "bill_number installment"),
    *_are(Kind.MONEY, "tax_amount tax_due"),
    *_are(Kind.TEXT, "status"),
    *_are(Kind.FLAG, "delinquent"),
    *_are(Kind.DATE, "paid_date"),
    *_are(Kind.MONEY, "paid_amount"),
)
VALUATION = (*_are(Kind.WHOLE, "year"), *_are(Kind.TEXT, "status"), *_VALUES)
BUILDING = (
    *_are(Kind.TEXT, "desc"),
    *_are(Kind.WHOLE, "year_built"),
    *_are(Kind.NUMBER, "base_sqft actual_sqft"),
    *_are(Kind.MONEY, "value"),
)
