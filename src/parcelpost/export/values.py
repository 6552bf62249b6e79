"""A value of a record, as JSON has it, made to fit its column. What comes from a page may be anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from parcelpost.export.columns import Kind

Value = str | int | Decimal | bool | date | datetime | None

_MOST_DIGITS = 15
"""Before the point: what every format can hold."""
_PLACES = 20
_MONEY_PLACES = 4
_MONEY_DIGITS = 14

_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def clean(text: str) -> str:
    """Without what would move a terminal's cursor, or what XML cannot hold; tabs and line ends stay."""
    if text.isprintable():
        return text
    return _UNSHOWABLE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def fitted(kind: Kind, value: Any) -> Value:
    """Raises ValueError for what the column cannot hold as it is."""
    return _FITTED[kind](value)


def _text(value: Any) -> str:
    if type(value) is str:
        return clean(value)
    if type(value) is int:
        return str(value)
    raise ValueError("no text")


def _texts(value: Any) -> str:
    return "; ".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _whole(value: Any) -> int:
    number = _decimal(value, _MOST_DIGITS)
    if number != (whole := int(number)):
        raise ValueError("no whole number")
    return whole


def _number(value: Any) -> Decimal:
    return _decimal(value, _MOST_DIGITS)


def _money(value: Any) -> Decimal:
    number = _decimal(value, _MONEY_DIGITS)
    if _places(number) > _MONEY_PLACES and _places(number := number.normalize()) > _MONEY_PLACES:
        raise ValueError("more than four decimal places")
    return number


def _decimal(value: Any, most_digits: int) -> Decimal:
    if type(value) is int:
        value = Decimal(value)
    if type(value) is not Decimal or value.adjusted() >= most_digits or _places(value) > _PLACES:
        raise ValueError("no number that every format can hold")
    return value


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else _PLACES + 1


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("neither yes nor no")
    return value


def _date(value: Any) -> date:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise ValueError("no date")
    return date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError("no moment")
    return value


_FITTED: Mapping[Kind, Callable[[Any], Value]] = {
    Kind.TEXT: _text,
    Kind.TEXTS: _texts,
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.MONEY: _money,
    Kind.FLAG: _flag,
    Kind.DATE: _date,
    Kind.MOMENT: _moment,
}
