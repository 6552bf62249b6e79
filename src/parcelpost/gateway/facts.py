"""What can be asked for of a record. The record is foreign: any field may hold anything."""

from __future__ import annotations

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


class _Record(msgspec.Struct, frozen=True, gc=False):
    """What is looked at. The rest of a record, most of it, is passed over."""

    owner_names: Any = None
    situs_address: Any = None
    situs_city: Any = None
    situs_zip: Any = None
    delinquent: Any = None
    tax_due: Any = None
    liens: msgspec.Raw = msgspec.Raw(b"null")


_read_record = msgspec.json.Decoder(_Record, float_hook=Decimal).decode
_read_json = msgspec.json.Decoder(Json, float_hook=Decimal).decode
_read_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def facts_of(data: bytes) -> Facts:
    """Never raises: what is not as it should be is not said. At most 200 liens are told apart."""
    try:
        record = _read_record(data)
        liens = _liens(record.liens)
    except (msgspec.DecodeError, RecursionError, InvalidOperation):
        return Facts()
    return Facts(
        owner="; ".join(_names(record.owner_names))[:_MAX_TEXT],
        situs=_situs(record),
        delinquent=record.delinquent if isinstance(record.delinquent, bool) else None,
        tax_due_cents=_cents(record.tax_due),
        liens=liens,
    )


def _names(value: Json) -> list[str]:
    names = value[:_MAX_TEXT] if isinstance(value, list) else [value]
    return [name for name in map(_text, names) if name]


def _situs(record: _Record) -> str:
    parts = map(_text, (record.situs_address, record.situs_city, record.situs_zip))
    return ", ".join(filter(None, parts))


def _liens(sent: msgspec.Raw) -> tuple[Lien, ...]:
    if bytes(memoryview(sent)[:1]) != b"[":
        return ()
    found = ((_read_json(whole), bytes(whole)) for whole in _read_raw_list(sent)[:_MAX_LIENS])
    return tuple(_lien(fields, whole) for fields, whole in found if isinstance(fields, dict))


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
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    if isinstance(value, str) and len(value) > _MAX_MONEY_TEXT:
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return None
    if not amount.is_finite() or not -_MAX_DOLLARS <= amount <= _MAX_DOLLARS:  # abs() of 1e999999999 overflows
        return None
    return int((amount * 100).to_integral_value())
