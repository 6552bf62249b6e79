"""What can be asked for of a record. The record is foreign: any field may hold anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from parcelpost.gateway.words import Facts, Lien
from parcelpost.model import Json

_MAX_LIENS = 200
_MAX_TEXT = 500
_MAX_LIEN_BYTES = 16_384
_MAX_DOLLARS = 10**13
_MAX_MONEY_TEXT = 40


class _Liens(msgspec.Struct, frozen=True, gc=False):
    liens: list[msgspec.Raw]


_read_liens = msgspec.json.Decoder(_Liens).decode


def facts_of(record: Mapping[str, Json], data: bytes) -> Facts:
    """Of a record and the JSON that it was read from.

    Never raises: what is not as it should be is not said. At most 200 liens are told apart.
    """
    get = record.get
    liens, delinquent = get("liens"), get("delinquent")
    return Facts(
        owner="; ".join(_names(get("owner_names")))[:_MAX_TEXT],
        situs=", ".join(filter(None, map(_text, (get("situs_address"), get("situs_city"), get("situs_zip"))))),
        delinquent=delinquent if isinstance(delinquent, bool) else None,
        tax_due_cents=_cents(get("tax_due")),
        liens=_liens(liens, data) if isinstance(liens, list) and liens else (),
    )


def _names(value: Json) -> list[str]:
    names = value[:_MAX_TEXT] if isinstance(value, list) else [value]
    return [name for name in map(_text, names) if name]


def _liens(liens: Sequence[Json], data: bytes) -> tuple[Lien, ...]:
    """Each with the JSON that it was sent as."""
    found = zip(liens[:_MAX_LIENS], _read_liens(data).liens, strict=False)
    return tuple(_lien(lien, bytes(whole)) for lien, whole in found if isinstance(lien, dict))


def _lien(fields: dict[str, Any], whole: bytes) -> Lien:
    amount = _cents(fields.get("face_amount"))
    return Lien(
        certificate_number=_text_or_number(fields.get("certificate_number")),
        certificate_year=_year(fields.get("certificate_year")),
        tax_year=_year(fields.get("tax_year")),
        status=_said(_text(fields.get("status")).lower()),
        holder_name=_said(_text(fields.get("holder_name"))),
        amount_cents=_cents(fields.get("opening_bid")) if amount is None else amount,
        sale_date=_said(_text(fields.get("sale_date"))),
        json=whole if len(whole) <= _MAX_LIEN_BYTES else b"{}",
    )


def _text(value: Json) -> str:
    """One trimmed line; '' for what is no text."""
    return " ".join(value.replace("\0", " ").split())[:_MAX_TEXT].strip() if isinstance(value, str) else ""


def _said(text: str) -> str | None:
    return text or None


def _text_or_number(value: Json) -> str | None:
    """Ids are strings; a page's parser may have made a number of one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    return _said(_text(value))


def _year(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 4:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1000 <= value <= 9999:
        return value
    return None


def _cents(value: Json) -> int | None:
    """Exact: 0.1 is ten cents and '1234.50' is 123450. What has a fraction of a cent is rounded to the even one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
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
