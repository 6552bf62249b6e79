"""A value of a record, as JSON has it, made to fit its column. What comes from a page may be anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from parcelpost.export.columns import Kind

Value = str | int | Decimal | bool | date | datetime | None

_LEAST, _MOST_DIGITS = -20, 15
"""Where a number's first digit may stand: what every format can hold, and none takes a million zeros to write."""
_MOST_WHOLE = 10**15
_MOST_MONEY = Decimal(10) ** 14
_CENTS, _FINEST = Decimal("0.01"), Decimal("0.0001")

_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def clean(text: str) -> str:
    """Without what would move a terminal's cursor, make a text read backwards, or what XML cannot hold; tabs and line
    ends stay.
    """
    if text.isprintable():
        return text
    return _UNSHOWABLE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _text(value: Any) -> str:
    if type(value) is str:
        return value if value.isprintable() else clean(value)
    if type(value) is int:
        return str(value)
    raise ValueError("no text")


def _texts(value: Any) -> str | None:
    if isinstance(value, list):
        return "; ".join(map(_text, value)) if value else None
    return _text(value)


def _whole(value: Any) -> int:
    if type(value) is int and -_MOST_WHOLE < value < _MOST_WHOLE:
        return value
    number = _number(value)
    if number != (whole := int(number)):
        raise ValueError("no whole number")
    return whole


def _number(value: Any) -> Decimal:
    if type(value) is int:
        value = Decimal(value)
    if type(value) is not Decimal or not _LEAST <= value.adjusted() < _MOST_DIGITS:
        raise ValueError("no number that every format can hold")
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


FITTED: Mapping[Kind, Callable[[Any], Value]] = {
    Kind.TEXT: _text,
    Kind.TEXTS: _texts,
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.MONEY: _money,
    Kind.FLAG: _flag,
    Kind.DATE: _date,
    Kind.MOMENT: _moment,
}
"""By kind of column. Each raises ValueError for what the column cannot hold as it is."""
