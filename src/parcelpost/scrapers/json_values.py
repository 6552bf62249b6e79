"""Values out of foreign JSON: any member may be missing or of any type. None: it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from parcelpost.model import Json
from parcelpost.scrapers import values

_MOST = Decimal(10) ** 15


def at(found: Json, *path: str) -> Json:
    """What lies at the end of the path through objects; None where it ends early."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def objects(found: Json, *path: str) -> list[Mapping[str, Json]]:
    """The objects of the list there; what is no object is left out."""
    listed = at(found, *path)
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def words(found: Json) -> str | None:
    """Text, or a whole number written as one; control characters (a NUL stands for nothing here and there) go."""
    if isinstance(found, str):
        return values.words("".join(sign for sign in found if sign >= " " or sign in "\t\n"))
    number = _number(found)
    if number is None:
        return None
    return str(int(number)) if number == int(number) else str(number)


def money(found: Json) -> Decimal | None:
    """A number, or text that reads as an amount."""
    return values.money(found) if isinstance(found, str) else _number(found)


def some(found: Json) -> Decimal | None:
    """As `money`, but 0 stands for not known: sizes, counts and coordinates."""
    return money(found) or None


def year(found: Json) -> int | None:
    return values.year(words(found))


def day(found: Json) -> str | None:
    """A date as text, a moment in milliseconds since 1970, or a number that reads as `20140512`."""
    if isinstance(found, str):
        return values.day(found)
    number = _number(found)
    if not number:
        return None
    return values.day(words(found)) or values.day_of_epoch_ms(float(number))


def _number(found: Json) -> Decimal | None:
    """None also for one that is larger than any that a county has."""
    if isinstance(found, bool) or not isinstance(found, int | Decimal):
        return None
    number = Decimal(found)
    return number if number.is_finite() and abs(number) < _MOST else None
