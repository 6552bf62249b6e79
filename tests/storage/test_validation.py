"""Values from outside, made safe to store or refused by name."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.errors import InvalidInput
from parcelpost.storage import validation

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.text(min_size=1).filter(lambda value: "\0" not in value and len(value) <= 512))
def test_good_text_passes_as_it_is(value: str) -> None:
    assert validation.text("field", value) is value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "county is empty"),
        ("x" * 513, "county has 513 characters; at most 512 are allowed"),
        ("a\0b", "county contains a NUL byte"),
        ("a\udfffb", "county contains a lone surrogate, which is not valid text"),
        (7, "county must be text, not int"),
        (None, "county must be text, not NoneType"),
        (b"x", "county must be text, not bytes"),
    ],
)
def test_bad_text_is_refused_with_its_reason(value: object, why: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        validation.text("county", value)
    assert str(refusal.value) == why


def test_text_may_be_empty_or_longer_where_that_is_right() -> None:
    assert validation.text("county", "", may_be_empty=True) == ""
    assert len(validation.text("url", "x" * 8_000, max_chars=8_000)) == 8_000


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_message_can_always_be_kept(value: str) -> None:
    kept = validation.message(value)
    kept.encode()
    assert "\0" not in kept
    assert len(kept) <= 4_000


def test_a_good_message_is_kept_as_it_is() -> None:
    assert validation.message("Zürich: 503 🏠") == "Zürich: 503 🏠"
    assert validation.message("x" * 5_000) == "x" * 4_000


def as_json(value: Any, max_bytes: int = 10_000_000) -> bytes:
    return validation.json_bytes("data", value, max_bytes=max_bytes)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_json_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert json.loads(as_json(value)) == value


@given(st.dictionaries(st.text(), json_values, max_size=3), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_number_that_json_cannot_hold_is_found_wherever_it_is(value: dict[str, Any], bad: float) -> None:
    for hidden in (bad, [bad], {"a": (None, {"b": bad})}, {bad}):
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            as_json({**value, "bad": hidden})


def test_a_value_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert as_json({"a": "é"}, max_bytes=10) == '{"a":"é"}'.encode()
    with pytest.raises(InvalidInput, match="data takes 10 bytes as JSON; at most 9 are allowed"):
        as_json({"a": "é"}, max_bytes=9)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(InvalidInput, match="nested too deep"):
        as_json(value)
