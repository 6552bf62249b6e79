"""The columns of each table, and how a record's values are converted to fit them. See docs/export.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple


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


def _columns(kind: Kind, names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names.split())


_VALUE_COLUMNS = (
    *_columns(Kind.MONEY, "land_value building_value extra_feature_value classified_land_value market_value"),
    *_columns(Kind.MONEY, "classified_use_value assessment_cap_value assessed_value"),
    *_columns(Kind.TEXTS, "exemptions"),
    *_columns(Kind.MONEY, "exemption_value taxable_value taxable_value_school"),
)

KEY_COLUMNS = _columns(Kind.TEXT, "platform state county parcel_id")
"""Columns that every table starts with: the parcel."""

GAP_COLUMNS = (*_columns(Kind.TEXT, "completeness"), *_columns(Kind.TEXTS, "unreadable"))
"""What the record lacks, by name. A row of one of its lists says so too."""
PARCEL_COLUMNS = (
    *_columns(Kind.TEXTS, "owner_names owner_lines"),
    *_columns(Kind.TEXT, "ownership_type"),
    *_columns(Kind.TEXTS, "mailing_lines"),
    *_columns(Kind.TEXT, "mailing_city mailing_state mailing_zip mailing_country situs_address situs_city situs_zip"),
    *_columns(Kind.NUMBER, "latitude longitude"),
    *_columns(Kind.TEXT, "legal_description subdivision map_block_lot block lot sec_twp_rng"),
    *_columns(Kind.TEXT, "land_use_code land_use_desc zoning flood_zone"),
    *_columns(Kind.NUMBER, "land_area_acres building_area_sqft"),
    *_columns(Kind.WHOLE, "year_built building_count"),
    *_columns(Kind.NUMBER, "bedrooms bathrooms"),
    *_columns(Kind.WHOLE, "permit_count value_year"),
    *_columns(Kind.TEXT, "value_status"),
    *_VALUE_COLUMNS,
    *_columns(Kind.FLAG, "homestead"),
    *_columns(Kind.DATE, "last_sale_date"),
    *_columns(Kind.MONEY, "last_sale_price"),
    *_columns(Kind.TEXT, "last_sale_instrument last_sale_book_page"),
    *_columns(Kind.TEXT, "tax_district"),
    *_columns(Kind.NUMBER, "millage_rate"),
    *_columns(Kind.WHOLE, "tax_year"),
    *_columns(Kind.TEXT, "tax_status"),
    *_columns(Kind.MONEY, "tax_amount tax_due"),
    *_columns(Kind.FLAG, "delinquent"),
    *_columns(Kind.TEXTS, "delinquent_years"),
    *_columns(Kind.DATE, "data_date"),
    *GAP_COLUMNS,
    *_columns(Kind.TEXT, "tax_account alternate_id parcel_id_norm county_fips record_kind source_url raw_html_hash"),
    *_columns(Kind.TEXT, "parser_version field_map"),
)
"""Fields of the record."""

SHOWN_ID_COLUMN = Column("parcel_id_shown", Kind.TEXT)
"""The record's own parcel_id; the key's is what was asked for."""

RESULT_COLUMNS = (
    *_columns(Kind.WHOLE, "lien_count"),
    *_columns(Kind.TEXT, "status error"),
    *_columns(Kind.MOMENT, "scraped_at stored_at"),
    *_columns(Kind.TEXT, "task_id"),
)
"""How the record came to be."""

POSITION_COLUMN = Column("position", Kind.WHOLE)
SCRAPED_AT_COLUMN = Column("scraped_at", Kind.MOMENT)
OTHER_COLUMN = Column("other", Kind.TEXT)
"""Everything that fits no other column, as JSON: unknown fields, and values of the wrong type."""

LIEN_COLUMNS = (
    *_columns(Kind.TEXT, "certificate_number"),
    *_columns(Kind.WHOLE, "certificate_year tax_year"),
    *_columns(Kind.MONEY, "face_amount"),
    *_columns(Kind.NUMBER, "interest_rate_pct"),
    *_columns(Kind.MONEY, "premium interest_amount fees"),
    *_columns(Kind.DATE, "sale_date certificate_sale_date"),
    *_columns(Kind.FLAG, "subsequent_tax"),
    *_columns(Kind.TEXT, "holder_name holder_type status"),
    *_columns(Kind.DATE, "redemption_date"),
    *_columns(Kind.MONEY, "redemption_amount"),
    *_columns(Kind.DATE, "redemption_deadline"),
    *_columns(Kind.TEXT, "case_number"),
    *_columns(Kind.DATE, "auction_date"),
    *_columns(Kind.MONEY, "opening_bid high_bid surplus"),
    *_columns(Kind.FLAG, "is_otc"),
)
SALE_COLUMNS = (
    *_columns(Kind.DATE, "date"),
    *_columns(Kind.MONEY, "price"),
    *_columns(Kind.TEXT, "book_page clerk_number instrument qualified reason_code reason_desc"),
    *_columns(Kind.FLAG, "multi_parcel"),
    *_columns(Kind.TEXT, "vacant_improved grantor grantee"),
)
TAX_BILL_COLUMNS = (
    *_columns(Kind.WHOLE, "tax_year"),
    *_columns(Kind.TEXT, "bill_number installment"),
    *_columns(Kind.MONEY, "tax_amount tax_due"),
    *_columns(Kind.TEXT, "status"),
    *_columns(Kind.FLAG, "delinquent"),
    *_columns(Kind.DATE, "paid_date"),
    *_columns(Kind.MONEY, "paid_amount"),
    *_columns(Kind.TEXTS, "flags"),
)
VALUATION_COLUMNS = (
    *_columns(Kind.WHOLE, "year"),
    *_columns(Kind.TEXT, "status"),
    *_VALUE_COLUMNS,
    *_columns(Kind.MONEY, "tax_amount"),
)
BUILDING_COLUMNS = (
    *_columns(Kind.TEXT, "desc"),
    *_columns(Kind.WHOLE, "year_built"),
    *_columns(Kind.NUMBER, "base_sqft actual_sqft"),
    *_columns(Kind.MONEY, "value"),
)
CHANGE_COLUMNS = (
    *_columns(Kind.TEXT, "kind subject before after"),
    *_columns(Kind.MOMENT, "scraped_at stored_at"),
    *_columns(Kind.TEXT, "task_id"),
)


Value = str | int | Decimal | bool | date | datetime | None

_LEAST, _MOST_DIGITS = -20, 15
"""Limits on the position of a number's first digit, so that every format can hold it."""
_MOST_WHOLE = 10**15
_MOST_MONEY = Decimal(10) ** 14
_CENTS, _FINEST = Decimal("0.01"), Decimal("0.0001")

_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def clean_text(text: str) -> str:
    """Without what would move a terminal's cursor, make a text read backwards, or what XML cannot hold; tabs and line
    ends stay.
    """
    if text.isprintable():
        return text
    return _UNSHOWABLE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _text(value: Any) -> str:
    if type(value) is str:
        return value if value.isprintable() else clean_text(value)
    if type(value) is int:
        return str(value)
    raise ValueError("not text")


def _texts(value: Any) -> str | None:
    if isinstance(value, list):
        return "; ".join(map(_text, value)) if value else None
    return _text(value)


def _whole(value: Any) -> int:
    if type(value) is int and -_MOST_WHOLE < value < _MOST_WHOLE:
        return value
    number = _number(value)
    if number != (whole := int(number)):
        raise ValueError("not a whole number")
    return whole


def _number(value: Any) -> Decimal:
    if type(value) is int:
        value = Decimal(value)
    if type(value) is not Decimal or not _LEAST <= value.adjusted() < _MOST_DIGITS:
        raise ValueError("not a number that every format can represent")
    return value


def _money(value: Any) -> Decimal:
    """With two decimal places, or with four where that is not enough."""
    number = _number(value)
    if -_MOST_MONEY < number < _MOST_MONEY:
        for unit in (_CENTS, _FINEST):
            if (exact := number.quantize(unit)) == number:
                return exact
    raise ValueError("more than four decimal places")


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("not a yes or no value")
    return value


def _date(value: Any) -> date:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise ValueError("not a date")
    return date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError("not a date and time")
    return value


CONVERTERS: Mapping[Kind, Callable[[Any], Value]] = {
    Kind.TEXT: _text,
    Kind.TEXTS: _texts,
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.MONEY: _money,
    Kind.FLAG: _flag,
    Kind.DATE: _date,
    Kind.MOMENT: _moment,
}
"""Converters by kind of column. Each raises ValueError for a value that the column cannot hold unchanged."""
