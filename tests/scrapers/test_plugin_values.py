"""Values of people's parsers, as JSON."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from parcelpost.scrapers.plugin_adapter import to_json


@dataclass
class Sale:
    price: Decimal
    day: date


class Bill(msgspec.Struct):
    due: Decimal


class Owner(pydantic.BaseModel):
    name: str
    since: date


class Kind(Enum):
    LIEN = "lien"


class Text(str):
    """As parsers of pages answer it."""


Point = namedtuple("Point", "x y")

CASES: list[tuple[Any, Any]] = [
    (Decimal("120.50"), 120.5),
    (Decimal("120"), 120),
    (Decimal("1E+3"), 1000),
    (date(2026, 1, 2), "2026-01-02"),
    (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
    (time(3, 4), "03:04:00"),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a", 1}), [1, "a", "b"]),
    ((1, (2,)), [1, [2]]),
    (Point(1, 2), {"x": 1, "y": 2}),
    (Sale(Decimal("9"), date(2026, 1, 2)), {"price": 9, "day": "2026-01-02"}),
    (Bill(Decimal("1.5")), {"due": 1.5}),
    (Owner(name="Ann", since=date(2026, 1, 2)), {"name": "Ann", "since": "2026-01-02"}),
    ([Owner(name="Ann", since=date(2026, 1, 2))], [{"name": "Ann", "since": "2026-01-02"}]),
    (Kind.LIEN, "lien"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Path("a/b"), "a/b"),
    ("é".encode(), "é"),
    (OrderedDict({2025: Decimal("1"), date(2026, 1, 2): True}), {"2025": 1, "2026-01-02": True}),
    (None, None),
]


def test_a_value_becomes_json(subtests: pytest.Subtests) -> None:
    for value, expected in CASES:
        with subtests.test(value=value, expected=expected):
            found = to_json(value)
            assert found == expected
            assert msgspec.json.decode(msgspec.json.encode(found)) == expected


def test_text_does_not_hold_on_to_what_it_was_cut_from() -> None:
    assert type(to_json(Text("a"))) is str


@pytest.mark.parametrize("value", [object(), {"a": {"b": object()}}, Sale, b"\xff"])
def test_what_has_no_such_form_is_an_error(value: object) -> None:
    with pytest.raises((TypeError, UnicodeDecodeError)):
        to_json(value)
