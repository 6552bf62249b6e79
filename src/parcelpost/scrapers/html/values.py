"""Text and JSON values from pages -> typed values. None if there is no such value; never a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from html import unescape

from msgspec import Struct

from parcelpost.model import Json

_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f\u200b\ud800-\udfff\ufeff\ufffe\uffff]")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,4}|#x[0-9a-f]{2,4});", re.IGNORECASE | re.ASCII)
_MONEY = re.compile(r"(\()?\s*(-)?\s*\$?\s*(-)?\s*(\d{1,3}(?:,\d{3})+|\d+)?(\.\d*)?\s*(\))?", re.ASCII)
_DOLLARS = re.compile(r"US(?:D|\$)?\s*(?=[$(\d-])|(?<=[\d)])\s*USD", re.ASCII)
_MINUS = str.maketrans("\u2212\u2013", "--")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?", re.ASCII)
_MAX_DIGITS = 18
_MAX_CACHED_CHARS = 40
_MAX_PLACE_CHARS = 200
_LEADING_NUMBER = re.compile(r"\s*(-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?)(?![\d/]|[.,]\d|\s+\d+/\d)", re.ASCII)
_FRACTION = re.compile(r"(?:(\d{1,6})[\s-])?\s*(\d{1,3})/(\d{1,3})(?=$|\D)(.*)", re.ASCII)
_ACRES = re.compile(r"\s*(?:\+\s*/?\s*-|\u00b1)?\s*(?:ac(?:re)?s?\b\.?.*|\(.*)?", re.IGNORECASE | re.ASCII)
_SHORT_CODE = re.compile(r"(?=[A-Z]{0,2}[0-9])([0-9A-Z]{1,3})(?= \(|$)", re.ASCII)
_YES_NO = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_MAX_MILLAGE = 500
_WORD = re.compile(r"[^\W_]+")
_FINAL_ROLL = frozenset({"certified", "final", "tax", "roll", "value", "values"})
_ZERO_DATES = frozenset({"1899-12-30", "1899-12-31", "1900-01-01"})
"""The zero dates of databases: nobody entered a date."""
_LAST_SHORT_YEAR = 2030
_NOTHING = frozenset(
    {
        *("", "-", "--", "---", "\u2013", "\u2014", "n/a", "n.a.", "na", "none", "null", "unknown"),
        *("not available", "not applicable", "no data"),
    }
)

_PLACEHOLDER = re.compile(
    r"[*?_.x]{2,}|loading\b.{0,20}|please wait.{0,20}|#(?:REF|N/A|VALUE|NAME\?|NULL|NUM|DIV/0)!?"
    r"|undefined|nan|\[object \w+\]",
    re.IGNORECASE,
)
"""Placeholders that pages, spreadsheets and scripts show instead of a missing value."""

_SLASHED = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})(?:[ T]+\d{1,2}:.*)?", re.ASCII)
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[ T]+\d{1,2}:.*)?", re.ASCII)
_COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
_MONTH_FIRST = re.compile(r"([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})(?: .*)?", re.ASCII)
_DAY_FIRST = re.compile(r"(\d{1,2})[ -]([A-Za-z]{3,9})\.?[ -](\d{4}|\d{2})(?: .*)?", re.ASCII)
_EPOCH_MS = re.compile(r"/Date\((-?\d{1,15})(?:[+-]\d{4})?\)/", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIRST_YEAR, _LAST_YEAR = 1600, 2100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_STATES = (
    " AL AK AZ AR CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK "
    "OR PA RI SC SD TN TX UT VT VA WA WV WI WY PR VI GU AS MP AA AE AP "
)
_PLACE = re.compile(r"(.*?)[,\s]+([A-Za-z]{2})\.?[,\s]+(\d{5})(?:[-\s]?(\d{4}))?-?[,\s]*(?:USA?)?", re.ASCII)
_NO_CITY = re.compile(r"\b(?:CEMETERY|LLC|INC|CORP|ASSN|ASSOCIATION|TRUSTEES?)\b|C/O", re.IGNORECASE)
_PLACE_NO_ZIP = re.compile(r"(.*?)[,\s]+([A-Za-z]{2})\.?", re.ASCII)


class CityStateZip(Struct, frozen=True):
    city: str
    state: str | None
    """Or the province of another country."""
    zip: str | None
    country: str | None = None
    """Another one than the United States, as written."""


def clean(text: str | None) -> str:
    """One line with single spaces; control and zero-width characters count as spaces."""
    if not text:
        return ""
    if "&" in text and _ENTITY.search(text):
        text = unescape(text)  # escaped once too often
    line = " ".join(text.split())
    return line if line.isprintable() else " ".join(_UNSEEN.sub(" ", text).split())


def text_or_none(text: str | None) -> str | None:
    """Cleaned text; None for placeholders such as '', '-', 'N/A', '***' and 'Loading...'."""
    cleaned = clean(text)
    return None if cleaned.lower() in _NOTHING or _PLACEHOLDER.fullmatch(cleaned) else cleaned


def is_nothing(text: str) -> bool:
    """Whether it says that there is no value: '', '-', 'N/A'."""
    return clean(text).lower() in _NOTHING


def is_placeholder(text: str) -> bool:
    """Whether it stands for a value that the page has but does not show: `***`, `Loading...`, `#REF!`."""
    return _PLACEHOLDER.fullmatch(clean(text)) is not None


def money(text: str | None) -> Decimal | None:
    """`$1,234.50`, `(1,234)`, `$(5)`, `-$5`, `1234`, `USD 5`. Zero is an amount, `1.234` is ambiguous."""
    return _cached_money(text) if text is not None and len(text) < _MAX_CACHED_CHARS else _money(text)


@lru_cache(maxsize=8_192)
def _cached_money(text: str) -> Decimal | None:
    return _money(text)


def _money(text: str | None) -> Decimal | None:
    amount = _amount(text)
    has_thousandths = amount is not None and "." in (text or "") and amount.as_tuple().exponent == -3
    return None if has_thousandths else amount


def _amount(text: str | None) -> Decimal | None:
    cleaned = clean(text)
    if "US" in cleaned:
        cleaned = _DOLLARS.sub("", cleaned)
    if not cleaned.isascii():
        cleaned = cleaned.translate(_MINUS)
    cleaned = cleaned.rstrip("* ")
    if cleaned.startswith(("$(", "$ (")):
        cleaned = cleaned[1:]
    match = _MONEY.fullmatch(cleaned)
    if not match or bool(match[1]) is not bool(match[6]):
        return None
    digits = (match[4] or "").replace(",", "") + (match[5] or "").removesuffix(".")
    if not digits or len(digits) > _MAX_DIGITS:
        return None
    amount = Decimal(digits)
    return -amount if match[1] or match[2] or match[3] else amount


def number(text: str | None) -> Decimal | None:
    """`1,012.5`, without any other text."""
    cleaned = clean(text)
    digits = cleaned.replace(",", "").removesuffix(".")
    if not _NUMBER.fullmatch(cleaned) or not digits.strip("-.") or len(digits) > _MAX_DIGITS:
        return None
    return Decimal(digits)


def leading_number(text: str | None) -> Decimal | None:
    """The number that a text begins with: `1.012 AC`, `1,756 sq ft`."""
    match = _LEADING_NUMBER.match(text or "")
    return number(match[1]) if match else None


def acres(text: str | None) -> Decimal | None:
    """`12.5`, `12.5 AC +/-`, `1 1/2 acres`: a number alone or in acres; None for another unit."""
    cleaned = clean(text)
    match = _FRACTION.fullmatch(cleaned)
    if match:
        return _fraction(match[1], match[2], match[3]) if _ACRES.fullmatch(match[4]) else None
    leading = _LEADING_NUMBER.match(cleaned)
    return number(leading[1]) if leading and _ACRES.fullmatch(cleaned[leading.end() :]) else None


def whole_number(text: str | None) -> int | None:
    """A whole number, `.00` allowed, without any other text."""
    value = number(text)
    return int(value) if value is not None and value == value.to_integral_value() else None


def year(text: str | None) -> int | None:
    """A plausible year of four digits; 0 and 9999 mean unknown."""
    is_plain = text is not None and len(text) == 4 and text.isascii() and text.isdigit()
    value = int(text) if text is not None and is_plain else whole_number(text)
    return value if value is not None and _FIRST_YEAR <= value <= _LAST_YEAR else None


def percent(text: str | None) -> Decimal | None:
    """`18%`, `5.25 %`, `0.25`, in percent."""
    return number(clean(text).removesuffix("%"))


def iso_date(text: str | None, *, newest: date | None = None) -> str | None:
    """A date as `2020-08-14`, from the formats of American pages; a time after it is ignored.

    A year of two digits is the latest one not after `newest` (default: 2030).
    """
    day = _iso_date(clean(text), newest)
    return None if day in _ZERO_DATES else day


def is_zero_date(text: str) -> bool:
    return written_date(text) in _ZERO_DATES


def written_date(text: str | None) -> str | None:
    """As `iso_date`, also for the zero dates of databases."""
    return _iso_date(clean(text), None)


def _iso_date(cleaned: str, newest: date | None) -> str | None:
    for pattern, order in (
        (_SLASHED, "mdy"),
        (_ISO, "ymd"),
        (_COMPACT, "ymd"),
        (_MONTH_FIRST, "mdy"),
        (_DAY_FIRST, "dmy"),
    ):
        if match := pattern.fullmatch(cleaned):
            parts = dict(zip(order, match.groups(), strict=True))
            return _date(parts["y"], parts["m"], parts["d"], newest)
    if match := _EPOCH_MS.fullmatch(cleaned):
        return iso_date_of_epoch_ms(int(match[1]))
    return None


def iso_date_of_epoch_ms(milliseconds: float) -> str | None:
    """From the timestamps of ArcGIS and ASP.NET; the date in UTC."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except (OverflowError, ValueError):
        return None
    day = moment.date().isoformat()
    return day if _FIRST_YEAR <= moment.year <= _LAST_YEAR and day not in _ZERO_DATES else None


def city_state_zip(line: str | None, *, is_last: bool = False) -> CityStateZip | None:
    """`LAKE CITY, FL 32038-1234`: city, state and zip of the last line of an address; None for any other line.

    A line that includes the street is not accepted, because the start of the city is unclear. Without a zip there must
    be a comma, unless it is known to be the last line.
    """
    cleaned = clean(line).replace("D.C.", "DC")
    if len(cleaned) > _MAX_PLACE_CHARS:
        return None
    match = _PLACE.fullmatch(cleaned)
    if match and _is_state(match[2]) and _is_city(match[1]):
        more = f"-{match[4]}" if match[4] and match[4] != "0000" else ""
        return CityStateZip(match[1].strip(" ,"), match[2].upper(), match[3] + more)
    match = _PLACE_NO_ZIP.fullmatch(cleaned)
    if match and ("," in cleaned or is_last) and _is_state(match[2]) and _is_city(match[1]):
        return CityStateZip(match[1].strip(" ,"), match[2].upper(), None)
    return None


def parcel_norm(parcel_id: str | None) -> str:
    """Only A-Z and 0-9: the same for a parcel, however its number is punctuated."""
    return re.sub(r"[^A-Z0-9]", "", (parcel_id or "").upper())


def yes_no(text: str | None) -> bool | None:
    return _YES_NO.get(clean(text).lower())


def party(text: str | None) -> str | None:
    """The name of a buyer or seller, without the comma of a missing first name: `SCOTT CORP ,`."""
    return text_or_none(clean(text).strip(" ,;"))


def short_code(text: str | None) -> str | None:
    """The code of up to three letters and digits that a text begins with: `05 (Multi-Parcel Sale)`.

    It has a digit: a single letter is another kind of mark, such as `Q` for qualified.
    """
    code = _SHORT_CODE.match(clean(text))
    return code[1] if code else None


def millage(text: str | None) -> Decimal | None:
    """A rate in dollars per $1,000; None for 0 and for what is too large to be one."""
    rate = number(text)
    return rate if rate is not None and 0 < rate < _MAX_MILLAGE else None


def roll_status(words: str) -> str:
    """`certified` for a roll that is called so, final, or nothing else; whatever else it is called, it may change."""
    return "certified" if _FINAL_ROLL.issuperset(_WORD.findall(words.lower())) else "preliminary"


def _fraction(whole_text: str | None, over: str, under: str) -> Decimal | None:
    """None if it is not a finite decimal."""
    if int(under) == 0 or 10_000 * int(over) % int(under):
        return None
    return Decimal(int(whole_text or 0)) + Decimal(int(over)) / Decimal(int(under))


def _date(year_text: str, month_text: str, day_text: str, newest: date | None) -> str | None:
    month = int(month_text) if month_text.isdigit() else _month(month_text)
    year_number = int(year_text)
    if len(year_text) == 2:
        last = newest.year if newest else _LAST_SHORT_YEAR
        year_number += last // 100 * 100
        if year_number > last:
            year_number -= 100
    try:
        day = date(year_number, month, int(day_text))
    except ValueError:
        return None
    return day.isoformat() if _FIRST_YEAR <= day.year <= _LAST_YEAR else None


def _is_city(text: str) -> bool:
    return bool(text.strip(" ,")) and not any(sign.isdigit() for sign in text) and not _NO_CITY.search(text)


def _is_state(text: str) -> bool:
    return f" {text.upper()} " in _STATES


def _month(name: str) -> int:
    short = name[:3].lower()
    return _MONTHS.index(short) + 1 if short in _MONTHS else 0


_MAX_NUMBER = Decimal(10) ** 15
_MILLISECONDS = re.compile(r"-?\d{11,13}", re.ASCII)
MIN_EPOCH_MS = 10**10
"""A smaller number of milliseconds may be one of seconds."""


def json_at(value: Json, *path: str) -> Json:
    """The value at a path of object keys; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def has_key(value: Json, *path: str) -> bool:
    """Whether there is something at a path of object keys, even if it is null."""
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


def json_objects(value: Json, *path: str) -> list[Mapping[str, Json]]:
    """The objects in the list at a path; other items are skipped."""
    items = json_at(value, *path)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def json_text(value: Json) -> str | None:
    """Text, or a number as text; control characters are removed (some sites write NUL for an empty value)."""
    if isinstance(value, str):
        return text_or_none("".join(sign for sign in value if sign >= " " or sign in "\t\n"))
    number = _json_number(value)
    if number is None:
        return None
    return str(int(number)) if number == int(number) else str(number)


def json_money(value: Json) -> Decimal | None:
    """A number, or text that reads as an amount."""
    return money(value) if isinstance(value, str) else _json_number(value)


def json_number(value: Json) -> Decimal | None:
    """A number, or text that reads as one, with any number of decimals."""
    return _amount(value) if isinstance(value, str) else _json_number(value)


def json_nonzero(value: Json) -> Decimal | None:
    """As `json_number`, but 0 means unknown: for sizes, counts and coordinates."""
    return json_number(value) or None


def json_year(value: Json) -> int | None:
    return year(json_text(value))


def json_date(value: Json) -> str | None:
    """A date from text, milliseconds since 1970, or a number such as 20140512. Moments near 1970 may be in seconds."""
    if isinstance(value, str):
        return iso_date(value) or (iso_date_of_epoch_ms(int(value)) if _MILLISECONDS.fullmatch(value) else None)
    number = _json_number(value)
    if not number:
        return None
    moment = float(number) if abs(number) >= MIN_EPOCH_MS else None
    return iso_date(json_text(value)) or (iso_date_of_epoch_ms(moment) if moment is not None else None)


def _json_number(value: Json) -> Decimal | None:
    """None also for numbers that are too large to be real."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    number = Decimal(value)
    return number if number.is_finite() and abs(number) < _MAX_NUMBER else None
