"""Values passed to and from plugins: pages in the form a parse function expects, and its return values as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from parcelpost.model import Json, Page
from parcelpost.scrapers.html.encoding import decode


def to_json(value: object) -> Json:
    """Decimals as numbers, dates as ISO text, sets as sorted lists, objects with fields as their fields.

    Raises TypeError for what has no such form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
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
    return _list_to_json(value)


def fields_of(value: object) -> Mapping[Any, object] | None:
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


def _list_to_json(value: object) -> Json:
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [to_json(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_json, value), key=lambda one: (str(type(one)), msgspec.json.encode(one)))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, UUID | PurePath):
        return str(value)
    found = value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else fields_of(value)
    if found is None:
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return {name if isinstance(name, str) else str(to_json(name)): to_json(one) for name, one in found.items()}


UNKNOWN_CONTENT_TYPE = "application/octet-stream"
"""The type of a page that came as bytes, of which nobody said what they are."""


class PageText(str):
    """The page's text, which can also be asked as a Page can."""

    body: bytes
    content_type: str
    url: str


class PageBytes(bytes):
    """The page's bytes, which can also be asked as a Page can."""

    body: bytes
    content_type: str
    url: str


def page_argument(page: Page, annotation: str) -> object:
    """As the function's first parameter is annotated. One that says nothing is given what answers to all of it."""
    if annotation == "Page":
        return page
    given: PageText | PageBytes
    if annotation == "bytes" or (annotation != "str" and page.content_type == UNKNOWN_CONTENT_TYPE):
        given = PageBytes(page.body)
    else:
        given = PageText(decode(page.body, page.content_type))
    given.body, given.content_type, given.url = page.body, page.content_type, page.url
    return given
