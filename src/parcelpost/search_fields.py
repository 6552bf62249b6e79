"""Extracts the searchable fields of a record, and its liens with the key that all sources of a lien share.

Records are foreign data: any field may hold anything.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct, structs

from parcelpost.model import Json

_MAX_LIENS = 200
_MAX_KEY = 200
_MAX_TEXT = 500
_MAX_LIEN_BYTES = 16_384
_MAX_DOLLARS = 10**13
_MAX_MONEY_TEXT = 40
_YEAR_AND_PADDED = 8
_PARTS = re.compile(r"[^\W_]+")


class Lien(Struct, frozen=True, kw_only=True, gc=False):
    """One of a record's liens, with the fields that can be searched."""

    certificate_number: str | None
    certificate_year: int | None
    tax_year: int | None
    status: str | None
    """As on the page, in lower case."""
    holder_name: str | None
    amount_cents: int | None
    """Its face amount, else its opening bid."""
    sale_date: str | None
    json: bytes
    """The complete lien."""
    key: str = ""
    """The same for the same lien of a parcel in another source. '': unknown, so that it is never merged."""


class SearchFields(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a record that can be searched."""

    owner: str = ""
    """All names, joined by `; `."""
    situs: str = ""
    delinquent: bool | None = None
    tax_due_cents: int | None = None
    liens: tuple[Lien, ...] = ()
    has_more_liens: bool = False
    """The record shows more liens than are extracted."""
    lacks_liens: bool = False
    """It says nothing about liens, not that there are none."""
    is_partial: bool = False
    """One of these was missing or could not be read: what is not here stays as it was known."""
    is_listed: bool = False
    """It is from a list of liens, which says nothing about the parcel's other liens."""

    @property
    def has_all_liens(self) -> bool:
        """Whether a lien that is not here is gone."""
        return not (self.is_partial or self.is_listed or self.lacks_liens)


class _Liens(Struct, frozen=True, gc=False):
    liens: list[msgspec.Raw]


_read_liens = msgspec.json.Decoder(_Liens).decode


def search_fields(record: Mapping[str, Json], data: bytes) -> SearchFields:
    """Extracts the fields that can be searched from a record and its JSON.

    Never raises: invalid values are left out. At most 200 liens are extracted.
    """
    get = record.get
    liens, delinquent = get("liens"), get("delinquent")
    completeness, unreadable = get("completeness"), get("unreadable")
    return SearchFields(
        owner="; ".join(_names(get("owner_names")))[:_MAX_TEXT],
        situs=", ".join(filter(None, map(one_line, (get("situs_address"), get("situs_city"), get("situs_zip"))))),
        delinquent=delinquent if isinstance(delinquent, bool) else None,
        tax_due_cents=cents(get("tax_due")),
        liens=_liens(liens, data) if isinstance(liens, list) and liens else (),
        has_more_liens=isinstance(liens, list) and len(liens) > _MAX_LIENS,
        lacks_liens=not isinstance(liens, list),
        is_partial=completeness not in (None, "complete") or any(map(_is_searched, _names(unreadable))),
        is_listed=get("record_kind") == "lien",
    )


def _is_searched(field: str) -> bool:
    return field.startswith(("owner", "situs", "delinquent", "tax_due", "tax_bills", "liens"))


def _names(value: Json) -> list[str]:
    names = value[:_MAX_TEXT] if isinstance(value, list) else [value]
    return [name for name in map(one_line, names) if name]


def _liens(liens: Sequence[Json], data: bytes) -> tuple[Lien, ...]:
    """Each lien with its JSON as sent. Liens with the same key are numbered, whatever order the record lists them in.
    A later tax on a certificate is not a lien of its own.
    """
    pairs = zip(liens[:_MAX_LIENS], _read_liens(data).liens, strict=False)
    extracted = [_lien(lien, bytes(sent)) for lien, sent in pairs if _is_lien(lien)]
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for place, lien in enumerate(extracted):
        if lien.key:
            by_key[lien.key].append(place)
    for key, places in by_key.items():
        in_order = sorted(places, key=lambda place: _content(extracted[place]))
        for number, place in enumerate(in_order[1:], 2):
            extracted[place] = structs.replace(extracted[place], key=f"{key} ({number})")
    return tuple(extracted)


def _content(lien: Lien) -> tuple[int, str, int, str, str, bytes]:
    """Orders liens by what changes least."""
    names = lien.holder_name or "", lien.status or ""
    return lien.tax_year or 0, lien.sale_date or "", lien.amount_cents or 0, *names, lien.json


def _is_lien(lien: Json) -> TypeGuard[dict[str, Any]]:
    return isinstance(lien, dict) and lien.get("subsequent_tax") is not True


def liens_of(record: Mapping[str, Json]) -> Sequence[Json]:
    liens = record.get("liens")
    return liens if isinstance(liens, list) else ()


def subsequent_taxes_of(liens: Iterable[Json]) -> Iterator[tuple[str, int | None]]:
    """The later taxes on certificates: the certificate's key and the day, and the amount in cents."""
    for lien in liens:
        if isinstance(lien, dict) and lien.get("subsequent_tax") is True:
            made = _lien(lien, b"{}")
            if made.key:
                yield f"{made.key} {made.sale_date or made.tax_year or ''}", made.amount_cents


def lien_keys(record: Mapping[str, Json], data: bytes) -> list[str]:
    """Returns the key of each of a record's liens, '' if unknown. A later tax has that of its certificate, which it may
    name without the certificate's year.
    """
    liens = liens_of(record)
    keys = [lien.key for lien in (_liens(liens, data) if liens else ())]
    by_number: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        by_number[_number(key)].append(key)
    in_order = iter(keys)
    return [next(in_order, "") if _is_lien(lien) else _certificate_key(lien_key(lien), by_number) for lien in liens]


def _certificate_key(key: str, by_number: Mapping[str, Sequence[str]]) -> str:
    same_number = by_number.get(_number(key), ())
    return same_number[0] if len(same_number) == 1 else key


def _number(key: str) -> str:
    """A certificate's number without its year, and whatever else identifies a lien as a whole."""
    return key.partition("/")[2] or key


def lien_key(lien: Json) -> str:
    """Returns the key of one lien as if it were the only one of its parcel, '' if unknown."""
    return _lien(lien, b"{}").key if isinstance(lien, dict) else ""


def _lien(fields: dict[str, Any], whole: bytes) -> Lien:
    amount = cents(fields.get("face_amount"))
    certificate = text_or_number(fields.get("certificate_number"))
    certificate_year, tax_year = _year(fields.get("certificate_year")), _year(fields.get("tax_year"))
    return Lien(
        certificate_number=certificate,
        certificate_year=certificate_year,
        tax_year=tax_year,
        status=_or_none(one_line(fields.get("status")).lower()),
        holder_name=_or_none(one_line(fields.get("holder_name"))),
        amount_cents=cents(fields.get("opening_bid")) if amount is None else amount,
        sale_date=_or_none(one_line(fields.get("sale_date"))),
        json=whole if len(whole) <= _MAX_LIEN_BYTES else b"{}",
        key=_lien_key(
            certificate,
            certificate_year or _year_of(fields.get("certificate_sale_date")) or tax_year,
            text_or_number(fields.get("case_number")),
        ),
    )


def _lien_key(certificate: str | None, year: int | None, case: str | None) -> str:
    """Numbers of certificates start again every year, or in some counties do not; cases have numbers of their own.

    `2023-000055`, `2023000055`, and `55` of 2023, are one certificate.
    """
    parts = _PARTS.findall((certificate or "").upper())
    if len(parts) == 1 and len(parts[0]) >= _YEAR_AND_PADDED and parts[0].startswith(str(year)):
        parts = [parts[0][:4], parts[0][4:]]
    first = _year(parts[0]) if len(parts) > 1 else None
    if first is not None and year in (None, first):
        year, parts = first, parts[1:]
    if parts:
        key = f"{year or ''}/{'-'.join(part.lstrip('0') or '0' for part in parts)}"
    else:
        number = letters_and_digits(case or "")
        key = f"case {number}" if number else ""
    return key if len(key) <= _MAX_KEY else ""


def one_line(value: Json) -> str:
    """Returns one trimmed line of at most 500 characters and without NULs, '' for what is not text."""
    return " ".join(value.replace("\0", " ").split())[:_MAX_TEXT].strip() if isinstance(value, str) else ""


def _or_none(text: str) -> str | None:
    return text or None


def text_or_number(value: Json) -> str | None:
    """Ids are strings; a parser may have turned one into a number."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    return _or_none(one_line(value))


def _year(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 4:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1000 <= value <= 9999:
        return value
    return None


def _year_of(day: Json) -> int | None:
    """Of `2023-06-01`."""
    return _year(day[:4]) if isinstance(day, str) and day[4:5] == "-" else None


def cents(value: Json) -> int | None:
    """Exact: 0.1 is ten cents and '1234.50' is 123450. Fractions of a cent are rounded half to even."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    text = repr(value) if isinstance(value, float) else value  # as it was written, up to 15 digits
    if isinstance(text, str) and len(text) > _MAX_MONEY_TEXT:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    if not amount.is_finite() or not -_MAX_DOLLARS <= amount <= _MAX_DOLLARS:  # abs() of 1e999999999 overflows
        return None
    return int((amount * 100).to_integral_value())


def letters_and_digits(number: str) -> str:
    return "".join(filter(str.isalnum, number)).upper()
