"""What people's parsers answer -> values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from parcelpost.model import Json


def plain(value: object) -> Json:
    """Decimals as numbers, dates as ISO text, sets as sorted lists, objects with fields as their fields.

    Raises TypeError for what has no such form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return str.__str__(value)  # text cut out of a parsed page may hold on to the whole of it
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return _of_many(value)


def fields(value: object) -> Mapping[Any, object] | None:
    """Of a mapping, a dataclass, a msgspec Struct or what has pydantic's `model_dump`; None: it is none of these."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    dump = getattr(value, "model_dump", None)
    found = dump() if callable(dump) else None
    return found if isinstance(found, Mapping) else None


def _of_many(value: object) -> Json:
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=lambda one: (str(type(one)), msgspec.json.encode(one)))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, UUID | PurePath):
        return str(value)
    found = value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else fields(value)
    if found is None:
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return {name if isinstance(name, str) else str(plain(name)): plain(one) for name, one in found.items()}
