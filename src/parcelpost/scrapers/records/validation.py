"""Checks the values of a record: one that cannot belong to its field was read from the wrong place and becomes null."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, get_type_hints

from msgspec import Struct

from parcelpost.scrapers.html.addresses import is_named_street, settle_owners
from parcelpost.scrapers.html.document import is_label_text, label
from parcelpost.scrapers.records.record import Lien, Record, Sale, TaxBill, Valuation

Check = Callable[[str], bool]

_NAVIGATION = re.compile(
    r"(?:(?:search )?results?|page|records?|rows?|items?|parcels?)\s*:?\s*#?\d+(?: of \d+)?"
    r"|(?:click|tap) (?:here|to|on|for)\b.*|(?:back|return) to .*|go to .*|opens? in .*"
    r"|view (?:map|full|all|more|details)\b.*|show (?:more|less|all)\b.*|print\b.{0,20}|new (?:search|query)"
    r"|(?:previous|next)(?: parcel(?: number)?)?|close|home|loading\b.*|please wait.*|(?:log|sign) ?in\b.*|download\b.*"
    r"|https?:.*|www\..*|javascript:.*|no data\b.*|not available\b.*",
    re.IGNORECASE,
)
_STAMP = re.compile(r"(?:last )?(?:updated?|modified|revised|printed|as of)\b.{0,6}\d.*", re.IGNORECASE)
_WITHHELD = re.compile(
    r"(?:confidential|restricted|redacted|withheld|suppressed|undisclosed|not disclosed|protected|pending)"
    r"|see (?:deed|clerk|office|records?|document)|(?:contact|call) (?:the|our|us)\b.{0,30}",
    re.IGNORECASE,
)
"""Stands in the place of a value that the site does not show."""
_BROKEN = re.compile(
    r"\b(?:click here|use this link)\b|<[a-z/!]|\{\{|\}\}|\$\{|<%|\[object |^\d(?:\.\d+)?E\+\d+$|[^.]\.\.\.$|\u2026$",
    re.IGNORECASE,
)
"""A link of the page, markup, a template that was not filled in, or a text that was shortened."""
_SIGN_OF_BROKEN = re.compile(r"[<{}\[\u2026]|E\+|\.\.\.|l(?:ick|ink)|L(?:ICK|INK)")
"""A text without one of these is not searched."""
_AMOUNT = re.compile(r"\(?-?\$\s?[\d,.]+\)?|\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{1,2}[/-]\d{1,2}[/-]\d{2,4}|\d{4}-\d\d-\d\d", re.ASCII)
_BOOK_PAGE = re.compile(r"(?=(?:.*\d){3}|.*\d\D+\d)[A-Z0-9 .,:;#&/\\()|'-]{1,60}", re.ASCII | re.IGNORECASE)
_PLACE_IN_BOOKS = re.compile(r"\d{2,6}\s*[/-]\s*\d{2,6}", re.ASCII)
_SECTION = re.compile(r"(?=.*\d)[0-9NSEW /.,:;()-]{1,40}", re.ASCII | re.IGNORECASE)
_MEASURE = re.compile(
    r"0?\.\d+|[\d,.]+ (?:sq\.? ?ft|acres?|ac|m2|ha|thousand|million|eur|usd)\.?", re.ASCII | re.IGNORECASE
)
_ZIP = re.compile(r"(?=.*\d)[A-Z0-9][A-Z0-9 -]{2,11}", re.ASCII | re.IGNORECASE)
_STATE = re.compile(r"[^\W\d_][^\d]{1,40}")
_USE_CODE = re.compile(r"(?!\d{7})[A-Z0-9][A-Z0-9./_ -]{0,14}", re.ASCII | re.IGNORECASE)
_STATUS = re.compile(r"[^\W\d_][^\d$]{2,60}")
_VACANT = re.compile(r"[VI][A-Z /-]{0,24}", re.ASCII | re.IGNORECASE)
_NOT_QUALIFIED = re.compile(r"[VI]|vacant|improved", re.IGNORECASE)
_WORDS = re.compile(r".*[^\W\d_].*", re.DOTALL)
_NAME_OF_A_LOT = re.compile(
    r"[A-Z]{1,3}|.*\b(?:LOTS?|OUTLOTS?|BLOCKS?|BLK|TRACTS?|TR|PARCELS?|PARTS?|PT|ALL|UNITS?|COMMON|AREA|RESERVED?|PARK)\b.*",
    re.IGNORECASE,
)
_NUMBER_OF_NO_STREET = re.compile(
    r"\d\S* (?:[NSEW]{1,2} )?\d{6,}(?: |$)|.*(?<! UNIT)(?<! APT)(?<! STE)(?<! SUITE)(?<! #) \d{10,}(?: |$)",
    re.ASCII | re.IGNORECASE,
)
"""In the place of the street, or longer than that of a unit or a zip."""
_DISTRICT_IN_WORDS = re.compile(r"\bUN ?INCORPORATED\b", re.IGNORECASE)
_USE_IN_WORDS = re.compile(
    r"(?:VAC(?:ANT)?|SINGLE FAM\w*|MULTI[- ]?FAM\w*|MOBILE HOMES?|MANUFACTURED HOMES?)\b.*", re.IGNORECASE
)
_LONG_WORD, _MANY_WORDS = re.compile(r"[^\W\d_]{4,}"), 3
"""A text with so many is a description with a number in it."""
_MAX_NAME_CHARS, _MAX_SHORT_CHARS, _MAX_LOT_CHARS, _MAX_CODE_CHARS = 200, 80, 40, 4


_DATES = (
    *("data_date", "last_sale_date", "date", "paid_date", "sale_date", "certificate_sale_date", "redemption_date"),
    *("redemption_deadline", "auction_date"),
)
_LAST_SALES = ("last_sale_date", "last_sale_price", "last_sale_instrument", "last_sale_book_page")


def is_heading(text: str) -> bool:
    """Whether the text is a label, a heading or a link of the page rather than a value."""
    return is_label_text(label(text), "") or _NAVIGATION.fullmatch(text) is not None or text.endswith(":")


def _is_name(text: str) -> bool:
    """Florida lists owners that it protects as `CONFIDENTIAL`."""
    is_withheld = text != "CONFIDENTIAL" and _WITHHELD.fullmatch(text) is not None
    is_short = len(text) <= _MAX_NAME_CHARS and not is_withheld and not is_broken(text) and not _STAMP.fullmatch(text)
    return is_short and _WORDS.fullmatch(text) is not None and not is_other_kind(text)


def is_other_kind(text: str) -> bool:
    """Whether the text is an amount or a date: neither a name nor a description."""
    return _AMOUNT.fullmatch(text) is not None or _DATE.fullmatch(text) is not None


def _is_place(text: str) -> bool:
    """A number alone is half of an address."""
    is_short = len(text) <= _MAX_NAME_CHARS and _NUMBER_OF_NO_STREET.match(text) is None
    return is_short and any(map(str.isalpha, text)) and _is_text(text)


def _is_lot(text: str) -> bool:
    """A number, letters or words, but neither an amount nor an address. `5-12-45` may be a number in parts."""
    is_other = _AMOUNT.fullmatch(text) is not None or is_named_street(text)
    return len(text) <= _MAX_SHORT_CHARS and not is_other


def _is_usual_lot(text: str) -> bool:
    is_named = _NAME_OF_A_LOT.fullmatch(text) is not None or any(sign.isdigit() for sign in text)
    return is_named and len(text) <= _MAX_LOT_CHARS


def _is_line(text: str) -> bool:
    return len(text) <= _MAX_NAME_CHARS and _is_described(text) and not is_broken(text)


def _is_city(text: str) -> bool:
    return len(text) <= _MAX_SHORT_CHARS and _WORDS.fullmatch(text) is not None and _is_text(text)


def _is_short(text: str) -> bool:
    return len(text) <= _MAX_SHORT_CHARS and not is_other_kind(text)


def _is_text(text: str) -> bool:
    return not is_other_kind(text) and not _WITHHELD.fullmatch(text)


def _is_described(text: str) -> bool:
    return _is_text(text) and any(map(str.isalpha, text))


def _is_document(text: str) -> bool:
    """The kind of a document, which may be a code, not its number or place in the books."""
    is_number = len(text) > _MAX_CODE_CHARS and text.isdigit()
    return _is_short(text) and _PLACE_IN_BOOKS.fullmatch(text) is None and not is_number


def _is_use(text: str) -> bool:
    return _is_described(text) and _DISTRICT_IN_WORDS.fullmatch(text) is None


def _is_number_of_a_parcel(text: str) -> bool:
    """It may have letters, but neither only these nor those of an address, and parts like those of a date."""
    is_other = any(form.fullmatch(text) for form in (_AMOUNT, _MEASURE)) or is_named_street(text)
    return _NUMBER_TEXT(text) and not is_other


def _fits(pattern: re.Pattern[str]) -> Check:
    return lambda text: pattern.fullmatch(text) is not None and _is_text(text)


_NUMBER_TEXT: Check = lambda text: len(text) <= _MAX_SHORT_CHARS and any(sign.isdigit() for sign in text)  # noqa: E731
_FIELDS: Mapping[str, Check] = {
    "tax_account": _is_number_of_a_parcel,
    "alternate_id": _is_number_of_a_parcel,
    "mailing_city": _is_city,
    "mailing_state": _fits(_STATE),
    "mailing_zip": _fits(_ZIP),
    "situs_address": _is_place,
    "situs_city": _is_city,
    "situs_zip": _fits(_ZIP),
    "legal_description": _is_described,
    "subdivision": _is_described,
    "lot": _is_lot,
    "block": _is_lot,
    "ownership_type": lambda text: all(map(_is_described, text.split(", "))),
    "sec_twp_rng": lambda text: _SECTION.fullmatch(text) is not None,
    "land_use_code": _fits(_USE_CODE),
    "land_use_desc": _is_use,
    "tax_district": lambda text: _is_text(text) and _USE_IN_WORDS.fullmatch(text) is None,
    "zoning": _is_short,
}
_SALE: Mapping[str, Check] = {
    "book_page": _fits(_BOOK_PAGE),
    "instrument": _is_document,
    "qualified": lambda text: _is_document(text) and _NOT_QUALIFIED.fullmatch(text) is None,
    "vacant_improved": _fits(_VACANT),
    "reason_desc": _is_described,
    "grantor": _is_name,
    "grantee": _is_name,
}
_USUAL: Mapping[str, Check] = {
    "legal_description": lambda text: any(sign.isdigit() or sign.isspace() for sign in text),
    "lot": _is_usual_lot,
    "block": _is_usual_lot,
    "land_use_desc": lambda text: _DISTRICT_IN_WORDS.search(text) is None,
    "instrument": _is_described,
    "qualified": _is_described,
}
"""What most values of a field are like. Another one is null only if a second field shows that it is out of place."""
_LIEN: Mapping[str, Check] = {
    "certificate_number": _NUMBER_TEXT,
    "case_number": _NUMBER_TEXT,
    "holder_name": _is_name,
    "status": _fits(_STATUS),
}
_BILL: Mapping[str, Check] = {"bill_number": lambda text: _NUMBER_TEXT(text) and _is_text(text) and "." not in text}
_IDENTITY = frozenset(
    {"status", "parcel_id", "parcel_id_norm", "source_url", "completeness", "parser_version", "scraped_at"}
)
_LISTS = ("valuations", "sales", "tax_bills", "buildings", "liens")
_MAILING = ("mailing_city", "mailing_state", "mailing_zip", "mailing_country")
_NEVER_NEGATIVE, _ANY_SIGN = (0, 10**11), (-(10**11), 10**11)
_RANGES: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("exemption_value", "assessment_cap_value", "tax_amount", "tax_due", "paid_amount"), _ANY_SIGN),
    **dict.fromkeys(("building_area_sqft", "base_sqft", "actual_sqft"), (0, 10**8)),
    **dict.fromkeys(("bedrooms", "bathrooms", "building_count", "permit_count"), (0, 10_000)),
    **dict.fromkeys(("year", "value_year", "tax_year", "certificate_year", "year_built"), (1_600, 2_040)),
    "land_area_acres": (0, 100_000),
    "interest_rate_pct": (0, 50),
    "millage_rate": (0, 500),
    "latitude": (-15, 72),
    "longitude": (-180, -60),
}
"""What a number of the field can be; of the others, amounts, none is negative. Deductions, and what
somebody is owed, may be written with a minus."""
_WESTERN_PACIFIC = 144, 180
"""Longitudes of Guam, the Northern Marianas and the last of the Aleutians."""
_LAST_YEAR = 2_040
_YEARS_AHEAD, _YEARS_AHEAD_OF_REVALUATION = 2, 10
"""How many years after its newest values a parcel may have been sold; `current` values are those of a revaluation."""
_LAST_SALE = {"instrument": "last_sale_instrument", "book_page": "last_sale_book_page"}


def check_shapes(record: Record) -> None:
    """Sets values of another shape to null and names them in `unreadable`."""
    failed = _misfits(record, _FIELDS)
    if {"land_use_desc", "tax_district"} <= {*failed} and record.land_use_code is not None:
        failed.append("land_use_code")  # of the district: it has changed places with the use
    failed += [name for name in ("legal_description", "lot", "block") if _is_repeated(record, name)]
    for name in failed:
        setattr(record, name, None)
    has_owner = bool(record.owner_names)
    settle_owners(record)
    if has_owner and not record.owner_names:
        failed.append("owner_names")  # an address is in their place
    names = [name for name in record.owner_names if _passes(name, _is_name)]
    if len(names) < len(record.owner_names):
        failed.append("owner_names")
        if any(map(is_heading, record.owner_names)):  # another block of the page than that of the owner
            names, record.mailing_lines = [], []
            for name in _MAILING:
                setattr(record, name, None)
            failed += ("mailing_lines", *_MAILING)
        record.owner_names = names
    lines = [line for line in record.mailing_lines if _passes(line, _is_line)]
    if len(lines) < len(record.mailing_lines):
        record.mailing_lines = lines
        failed.append("mailing_lines")
    failed += _drop_broken(record)
    record.last_sale_book_page = _place_in_books(record.last_sale_book_page)
    for sale in record.sales:
        sale.book_page = _place_in_books(sale.book_page)
    failed += _drop_out_of_range(record)
    failed += _drop_late_dates(record)
    failed += _check_items("sales", record.sales, _SALE)
    failed += _check_items("liens", record.liens, _LIEN)
    failed += _check_items("tax_bills", record.tax_bills, _BILL)
    for name, copied in _LAST_SALE.items():
        value = getattr(record, copied)
        is_dropped = f"sales.{name}" in failed and all(value != getattr(sale, name) for sale in record.sales)
        if value is not None and (is_dropped or not _passes(value, _SALE[name])):
            setattr(record, copied, None)
            failed.append(copied)
    if failed:
        record.unreadable = sorted({*record.unreadable, *failed})


def _misfits(item: Struct, checks: Mapping[str, Check]) -> list[str]:
    """The fields with a value of another shape, and those that have changed places with one of them."""
    failed = [name for name, check in checks.items() if not _passes(getattr(item, name), check)]
    if not failed:
        return failed
    return failed + [name for name in checks.keys() & _USUAL.keys() if _is_swapped(item, name, checks, failed)]


def _is_swapped(item: Struct, name: str, checks: Mapping[str, Check], failed: Sequence[str]) -> bool:
    """Whether its value is unusual, and it and another one that failed each fit the field of the other."""
    value, is_usual = getattr(item, name), _USUAL[name]
    if value is None or name in failed or is_usual(value):
        return False
    others = [(other, getattr(item, other)) for other in failed]
    return any(_passes(value, checks[to]) and _passes(text, checks[name]) and is_usual(text) for to, text in others)


def _is_repeated(record: Record, name: str) -> bool:
    """Whether it is the record's state, or a word that is the value of another field."""
    text = getattr(record, name)
    if text is None or any(sign.isdigit() or sign.isspace() for sign in text):
        return False
    if text == record.state:
        return True
    others = (record.situs_city, record.mailing_city, record.tax_district, record.ownership_type, *record.owner_names)
    return len(text) > _MAX_CODE_CHARS and text.upper() in {other.upper() for other in others if other is not None}


def _place_in_books(text: str | None) -> str | None:
    """None for `0 / 0`: there is neither a book nor a page."""
    return text if text is None or any(sign.isalpha() or sign in "123456789" for sign in text) else None


def _drop_out_of_range(record: Record) -> set[str]:
    """Sets numbers to null that are too small or too large for their field."""
    failed = _out_of_range(record)
    for of in _LISTS:
        failed |= {f"{of}.{name}" for item in getattr(record, of) for name in _out_of_range(item)}
    if failed & {"latitude", "longitude"}:  # swapped, or of another grid
        record.latitude = record.longitude = None
        failed |= {"latitude", "longitude"}
    if "buildings.base_sqft" in failed:
        record.building_area_sqft = None  # their sum
        failed.add("building_area_sqft")
    return failed


def _out_of_range(item: Struct) -> set[str]:
    failed = set()
    for name, ranges in _ranges_of(type(item)):
        number = getattr(item, name)
        if number is None or ranges[0][0] <= number <= ranges[0][1]:
            continue
        if not any(least <= number <= most for least, most in ranges[1:]):
            failed.add(name)
    for name in failed:
        setattr(item, name, None)
    return failed


@cache
def _ranges_of(kind: type[Struct]) -> tuple[tuple[str, Sequence[tuple[int, int]]], ...]:
    numbers = [name for name, hint in get_type_hints(kind).items() if hint in (Decimal | None, int | None)]
    further = {"longitude": (_WESTERN_PACIFIC,)}
    return tuple((name, (_RANGES.get(name, _NEVER_NEGATIVE), *further.get(name, ()))) for name in numbers)


def _drop_late_dates(record: Record) -> set[str]:
    """Sets dates to null that lie in the future, and those of the last sale if it is not known which one that is."""
    failed = set()
    for item, name in _dates_of(record):
        day = getattr(item, name)
        is_sale = isinstance(item, Sale) or name == "last_sale_date"
        if day is not None and int(day[:4]) > (_last_year_of_sales(record) if is_sale else _LAST_YEAR):
            setattr(item, name, None)
            failed |= {"sales.date", *_LAST_SALES} if is_sale else {_path(item, name)}
    for name in failed & set(_LAST_SALES):
        setattr(record, name, None)
    return failed


def _path(item: Struct, name: str) -> str:
    of = {TaxBill: "tax_bills.", Lien: "liens."}.get(type(item), "")
    return f"{of}{name}"


def _last_year_of_sales(record: Record) -> int:
    years = [record.value_year, record.tax_year, *(one.year for one in record.valuations)]
    years += [bill.tax_year for bill in record.tax_bills]
    years += [int(record.data_date[:4])] if record.data_date else []
    newest = max((year for year in years if year is not None), default=_LAST_YEAR)
    ahead = _YEARS_AHEAD_OF_REVALUATION if record.value_status == "current" else _YEARS_AHEAD
    return min(newest + ahead, _LAST_YEAR)


def _drop_broken(record: Record) -> set[str]:
    """Sets texts that are no text of the site's data to null, in all fields."""
    failed = _drop_texts(record)
    for of in _LISTS:
        failed |= {f"{of}.{name}" for item in getattr(record, of) for name in _drop_texts(item)}
    listed: list[Record | Valuation] = [record, *record.valuations]
    for one in listed:
        if any(map(_is_no_text, one.exemptions or ())):
            one.exemptions = None
            failed.add("exemptions")
    return failed


def _drop_texts(item: Struct) -> set[str]:
    texts = ((name, getattr(item, name)) for name in _texts_of(type(item)))
    failed = {name for name, text in texts if text is not None and _is_no_text(text)}
    if isinstance(item, TaxBill) and any(map(_is_no_text, item.flags or ())):
        failed.add("flags")
    for name in failed:
        setattr(item, name, None)
    return failed


@cache
def _texts_of(kind: type[Struct]) -> tuple[str, ...]:
    hints = get_type_hints(kind)
    return tuple(name for name, hint in hints.items() if hint in (str, str | None) and name not in _IDENTITY)


def has_dates(record: Record) -> bool:
    return any(getattr(item, name) is not None for item, name in _dates_of(record))


def drop_dates(record: Record) -> None:
    """Sets all dates to null, and what depends on which sale is the last."""
    failed = {name for name in _LAST_SALES if getattr(record, name) is not None}
    for item, name in _dates_of(record):
        if getattr(item, name) is not None:
            setattr(item, name, None)
    for name in failed:
        setattr(record, name, None)
    record.unreadable = sorted({*record.unreadable, *failed})


def _dates_of(record: Record) -> Iterator[tuple[Struct, str]]:
    for item in (record, *record.sales, *record.tax_bills, *record.liens):
        yield from ((item, name) for name in _dates_in(type(item)))


@cache
def _dates_in(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in _DATES if name in kind.__struct_fields__)


def is_parcel_number(text: str) -> bool:
    is_described = len(_LONG_WORD.findall(text)) >= _MANY_WORDS or is_named_street(text)
    return any(map(str.isdigit, text)) and not is_broken(text) and not is_described


def _is_no_text(value: str | None) -> bool:
    return value is not None and (is_broken(value) or _WITHHELD.fullmatch(value) is not None)


def is_withheld(text: str) -> bool:
    return _WITHHELD.fullmatch(text) is not None


def is_broken(value: str | None) -> bool:
    return value is not None and _SIGN_OF_BROKEN.search(value) is not None and _BROKEN.search(value) is not None


def _check_items(of: str, items: list[Any], checks: Mapping[str, Check]) -> set[str]:
    failed = set()
    for item in items:
        for name in _misfits(item, checks):
            setattr(item, name, None)
            failed.add(f"{of}.{name}")
    return failed


def _passes(value: str | None, check: Check) -> bool:
    return value is None or _has_shape(value, check)


@lru_cache(maxsize=8_192)
def _has_shape(value: str, check: Check) -> bool:
    return check(value) and not is_heading(value)
