"""How well a column's values fit each field of a record. A name alone never overrules the values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial

from parcelpost.model import Json
from parcelpost.places import state_or_text
from parcelpost.scrapers.html import values

DATE, NUMBER, TEXT, SYSTEM = "date", "number", "text", "system"
"""Kinds of columns as a layer declares them; SYSTEM: row numbers, geometry, attachments."""

_STATES = (
    " AL AK AZ AR CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK "
    "OR PA RI SC SD TN TX UT VT VA WA WV WI WY PR VI GU AS MP AA AE AP ON QC BC AB MB SK NS NB NL PE "
)
_ZIP = re.compile(r"\d{5}(?:[- ]?\d{0,4})?|\d{4}|[A-Z]\d[A-Z] ?\d[A-Z]\d", re.ASCII)
_PARCEL = re.compile(r"[A-Z0-9][A-Z0-9 ./:*#_-]{2,39}", re.ASCII)
_STREET_WORD = re.compile(
    r"\b(?:ST|STREET|AVE?|AVENUE|RD|ROAD|DR|DRIVE|LN|LANE|CT|COURT|CIR|CIRCLE|BLVD|WAY|PL|PLACE|HWY|HIGHWAY|TER|TERRACE"
    r"|TRL|TRAIL|PKWY|PIKE|LOOP|BOX|ROUTE|RTE|RR|COVE|CV|RUN|PATH|ROW|SQ|ALY|XING|PT|POINT|BND|BEND|EXT)\b"
)
_HOUSE = re.compile(r"\d+[A-Z]?(?:[ -]+\d*/?\d*)?\s+\S*[A-Z]", re.ASCII)
_HOUSE_NUMBER = re.compile(r"[NSEW]?\d{1,6}(?:[ -]?[A-Z0-9/]{1,5})?", re.ASCII)
_DIRECTION = re.compile(r"[NSEW]{1,2}|NORTH|SOUTH|EAST|WEST|(?:NORTH|SOUTH)(?:EAST|WEST)")
_CODE = re.compile(r"[A-Z0-9][A-Z0-9 ./_-]{0,9}", re.ASCII)
_CITY = re.compile(r"[A-Z][A-Z .,'()/-]{1,39}", re.ASCII)
_SECTION = re.compile(r"(?:[STR]?\d{1,3}[NSEW]?[ /-]+){1,2}[STR]?\d{1,3}[NSEW]?", re.ASCII)
_BOOK_PAGE = re.compile(r"(?=.{3,30}$)[A-Z]{0,3} ?\d+[A-Z]?\s?[-/:, ]\s?\D{0,4}\d+.*", re.ASCII)
_FLOOD_ZONE = re.compile(r"(?:ZONE )?(?:A(?:E|H|O|R|99|\d{1,2})?|VE?|V\d{1,2}|X500|[BCDX])\b.{0,40}", re.ASCII)
_LONG_CHARS = 40
_CITY_AFTER = re.compile(r"\d\D*,\s*[A-Z]{3}|[A-Z] \d{5}(?:-\d{4})?$", re.ASCII)
_MAX_ACRES = 2_000
"""Most parcels are smaller; a column in which they are not is in square feet."""
_MAX_MONEY = 10**10
"""Larger numbers are moments in milliseconds."""
_FIRST_ROLL = 1990
_MAX_ROOMS = 200
_MIN_VALUE = 500
"""A column of values that are all lower holds codes or rates."""

Shape = Callable[[Json], bool]


def is_empty(value: Json) -> bool:
    """Whether a value stands for nothing."""
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        return not value.strip()
    return values.json_text(value) is None


def fit(field: str, kind: str, given: Sequence[Json]) -> float | None:
    """The share of the values, none of them empty, that the field may have; None if there are no values to judge by."""
    if kind == SYSTEM or ((kind == DATE) != (field == "last_sale_date") and kind in (DATE,)):
        return 0.0
    if kind == DATE and field == "last_sale_date":
        return 1.0
    shape = _SHAPES.get(field)
    if shape is None:
        return 1.0
    if field in _NUMBERS:
        given = [value for value in given if values.json_number(value) != 0]
    if not given:
        return None
    share = sum(map(shape, given)) / len(given)
    if (
        field in (*_VALUES, "building_value")
        and share
        and max((values.json_money(value) or 0) for value in given) < _MIN_VALUE
    ):
        return 0.6
    return share


def has_shape(field: str, value: Json) -> bool:
    """Whether a value may be one of the field."""
    shape = _SHAPES.get(field)
    return shape is None or shape(value)


def looks_like_date(value: Json) -> bool:
    number = None if isinstance(value, str) else values.json_money(value)
    if number is not None and abs(number) < values.MIN_EPOCH_MS:
        return values.iso_date(values.json_text(value)) is not None
    return values.json_date(value) is not None


def has_house_number(value: Json) -> bool:
    return bool(_HOUSE.match(_text(value)))


def has_city(value: Json) -> bool:
    """Whether an address goes on after the street: `9 ELM ST, OCALA`, `9 ELM ST OCALA FL 34470`."""
    return bool(_CITY_AFTER.search(_text(value)))


def _text(value: Json) -> str:
    return (values.json_text(value) or "").upper()


def _matches(pattern: re.Pattern[str], value: Json) -> bool:
    return pattern.fullmatch(_text(value)) is not None


def _is_number(value: Json, low: Decimal | int = 0, high: Decimal | int = 10**12) -> bool:
    number = values.json_number(value)
    return number is not None and low <= number <= high


def _is_parcel(value: Json) -> bool:
    text = _text(value)
    return _PARCEL.fullmatch(text) is not None and any(sign.isdigit() for sign in text) and not _is_fraction(value)


def _is_fraction(value: Json) -> bool:
    return isinstance(value, Decimal) and value != value.to_integral_value()


def _is_name(value: Json) -> bool:
    text = _text(value)
    letters = sum(sign.isalpha() for sign in text)
    if _HOUSE.match(text) and _STREET_WORD.search(text):
        return False
    return letters >= 2 and letters * 2 > len(text.replace(" ", "")) and len(text) > 2


def _is_address(value: Json) -> bool:
    text = _text(value)
    return bool(_HOUSE.match(text) or _STREET_WORD.search(text)) and any(sign.isalpha() for sign in text)


def _is_street_name(value: Json) -> bool:
    text = _text(value)
    return (any(sign.isalpha() for sign in text) and not _HOUSE.match(text)) or bool(
        re.match(r"\d+(?:ST|ND|RD|TH)\b", text)
    )


def _is_state(value: Json) -> bool:
    text = _text(value).strip(". ")
    return f" {text} " in _STATES or (len(text) > 2 and len(state_or_text(text)) == 2)


def _is_city(value: Json) -> bool:
    return _matches(_CITY, value) and f" {_text(value)} " not in _STATES


def _is_words(value: Json) -> bool:
    return sum(sign.isalpha() for sign in _text(value)) >= 3


def _is_code(value: Json) -> bool:
    return _matches(_CODE, value)


def _is_year(value: Json) -> bool:
    return values.json_year(value) is not None


def _is_roll_year(value: Json) -> bool:
    return (values.json_year(value) or 0) >= _FIRST_ROLL


def _is_flag(value: Json) -> bool:
    return values.yes_no(values.json_text(value)) is not None


_money = partial(_is_number, low=-_MAX_MONEY, high=_MAX_MONEY)
_VALUES = frozenset(("land_value", "market_value", "assessed_value", "taxable_value", "taxable_value_school"))
_NUMBERS = _VALUES | {
    *("building_value", "extra_feature_value", "exemption_value", "tax_amount", "tax_due", "last_sale_price"),
    *("land_area_acres", "building_area_sqft", "year_built", "value_year", "tax_year", "building_count", "bedrooms"),
    *(
        "bathrooms",
        "latitude",
        "longitude",
        "mailing_zip",
        "situs_zip",
        "unqualified.zip",
        "situs.number",
        "last_sale_date",
    ),
}
_SHAPES: Mapping[str, Shape] = {
    "parcel_id": _is_parcel,
    "tax_account": _is_parcel,
    "owner_names": _is_name,
    "owner.last": _is_name,
    "owner.first": lambda value: any(sign.isalpha() for sign in _text(value)),
    "mailing.line": lambda value: _is_address(value) or _is_words(value),
    "mailing.place": _is_words,
    "mailing_city": _is_city,
    "mailing_state": _is_state,
    "mailing_zip": partial(_matches, _ZIP),
    "mailing_country": lambda value: any(sign.isalpha() for sign in _text(value)),
    "situs_address": _is_address,
    "situs_city": _is_city,
    "situs_zip": partial(_matches, _ZIP),
    "unqualified.address": _is_address,
    "unqualified.city": _is_city,
    "unqualified.state": _is_state,
    "unqualified.zip": partial(_matches, _ZIP),
    "situs.number": partial(_matches, _HOUSE_NUMBER),
    "situs.prefix": partial(_matches, _DIRECTION),
    "situs.street": _is_street_name,
    "situs.suffix": lambda value: len(_text(value)) <= 10 and any(sign.isalpha() for sign in _text(value)),
    "situs.post": partial(_matches, _DIRECTION),
    "situs.unit": lambda value: len(_text(value)) <= 20,
    "legal_description": lambda value: any(sign.isalpha() for sign in _text(value)) and len(_text(value)) > 3,
    "subdivision": _is_words,
    "sec_twp_rng": partial(_matches, _SECTION),
    "land_use_code": lambda value: _is_code(value) or _is_words(value),
    "land_use_desc": _is_words,
    "flood_zone": partial(_matches, _FLOOD_ZONE),
    "zoning": lambda value: len(_text(value)) <= 60 and any(sign.isalpha() for sign in _text(value)),
    "land_area_acres": partial(_is_number, high=_MAX_ACRES),
    "building_area_sqft": partial(_is_number, low=50, high=10**8),
    "year_built": _is_year,
    "value_year": _is_roll_year,
    "tax_year": _is_roll_year,
    "building_count": partial(_is_number, high=1_000),
    "bedrooms": partial(_is_number, high=_MAX_ROOMS),
    "bathrooms": partial(_is_number, high=_MAX_ROOMS),
    "homestead": _is_flag,
    "last_sale_book_page": partial(_matches, _BOOK_PAGE),
    "last_sale_date": looks_like_date,
    "latitude": partial(_is_number, low=13, high=72),
    "longitude": partial(_is_number, low=-180, high=-60),
    **dict.fromkeys(
        (
            *_VALUES,
            "building_value",
            "extra_feature_value",
            "exemption_value",
            "tax_amount",
            "tax_due",
            "last_sale_price",
        ),
        _money,
    ),
}
