"""What is read out of a record, whatever it holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from parcelpost.errors import InvalidInput
from parcelpost.protocol.server import BadEntry, read_batch
from parcelpost.search_fields import SearchFields
from tests.gateway.factories import facts_in
from tests.gateway.stage import a_result


def facts(**record: Any) -> SearchFields:
    return facts_in(encode(record))


def test_a_record_with_everything() -> None:
    found = facts_in(
        b'{"owner_names": [" SMITH  JANE ", "DOE JOHN", ""], "situs_address": "1 Main St", "situs_city": "Lake Butler",'
        b' "delinquent": true, "tax_due": 1234.10, "liens": [{"certificate_number": "2021-7", "certificate_year": 2021,'
        b' "tax_year": "2020", "status": "SOLD ", "holder_name": "FUND LLC", "face_amount": 1234.56,'
        b' "opening_bid": 9, "sale_date": "2021-06-01", "premium": 0.10}]}'
    )
    assert (found.owner, found.situs) == ("SMITH JANE; DOE JOHN", "1 Main St, Lake Butler")
    assert (found.delinquent, found.tax_due_cents) == (True, 123410)
    (lien,) = found.liens
    assert (lien.certificate_number, lien.certificate_year, lien.tax_year) == ("2021-7", 2021, 2020)
    assert (lien.status, lien.holder_name, lien.amount_cents) == ("sold", "FUND LLC", 123456)
    assert (lien.sale_date, lien.json[-16:]) == ("2021-06-01", b'"premium": 0.10}'), "as sent"


def test_money_is_exact_or_not_said(subtests: pytest.Subtests) -> None:
    for money, cents in [
        (b"0", 0),
        (b"0.1", 10),
        (b"1.005", 100),
        (b"1.015", 102),
        (b"-5.25", -525),
        (b'"1234.50"', 123450),
        (b'" 7 "', 700),
        (b'"$5"', None),
        (b'"NaN"', None),
        (b'"Infinity"', None),
        (b'"1e999999999"', None),
        (b"1e-400", 0),
        (b"1" * 400, None),
        (b'"' + b"1" * 5000 + b'"', None),
        (b"true", None),
        (b"null", None),
        (b"[1]", None),
        (b'""', None),
    ]:
        with subtests.test(money=money, cents=cents):
            assert facts_in(b'{"tax_due": ' + money + b"}").tax_due_cents == cents


ANYTHING: list[Any] = [None, True, 0, -1.5, "x\0y", [], [None], [[[]]], {}, {"a": 1}, ["a", 1, {}], 10**30]


def test_a_field_may_hold_anything(subtests: pytest.Subtests) -> None:
    for field in ["owner_names", "situs_address", "delinquent", "tax_due", "liens"]:
        for value in ANYTHING:
            with subtests.test(field=field, value=value):
                found = facts_in(encode({field: value}) if value != 10**30 else b'{"%s": 1%030d}' % (field.encode(), 0))
                assert "\0" not in found.owner + found.situs


def test_liens_are_bounded() -> None:
    assert len(facts(liens=[{"face_amount": 1}] * 10_000).liens) == 200
    (lien,) = facts(liens=["junk", {"status": "s" * 10_000, "pad": "x" * 50_000}, 7]).liens
    assert lien.status == "s" * 500
    assert lien.json == b"{}"


def test_a_certificate_has_one_key_however_it_is_written(subtests: pytest.Subtests) -> None:
    for number, year, key in [
        ("55", 2023, "2023/55"),
        ("000055", 2023, "2023/55"),
        ("2023-000055", 2023, "2023/55"),
        ("2023/55", None, "2023/55"),
        ("2023 000055", 2023, "2023/55"),
        ("2023000055", 2023, "2023/55"),
        (55, "2023", "2023/55"),
        ("20235", 2023, "2023/20235"),
        ("2022-55", 2023, "2023/2022-55"),
        ("55-A", 2023, "2023/55-A"),
        ("5-5", 2023, "2023/5-5"),
        ("0", 2023, "2023/0"),
        ("2023", 2023, "2023/2023"),
        ("55", None, "/55"),
    ]:
        with subtests.test(number=number, year=year):
            assert facts(liens=[{"certificate_number": number, "certificate_year": year}]).liens[0].key == key


def test_a_certificate_without_a_year_has_that_of_the_day_it_was_sold() -> None:
    sold = {"certificate_number": "55", "certificate_sale_date": "2023-06-01", "tax_year": 2022}
    assert facts(liens=[sold]).liens[0].key == "2023/55"
    assert facts(liens=[{**sold, "certificate_sale_date": "pending"}]).liens[0].key == "2022/55"


def test_a_zero_is_a_face_amount() -> None:
    assert facts(liens=[{"face_amount": 0, "opening_bid": 5}]).liens[0].amount_cents == 0
    assert facts(liens=[{"face_amount": None, "opening_bid": 5}]).liens[0].amount_cents == 500


@pytest.mark.parametrize(
    "junk", [b"", b"[]", b"{", b'{"a": "\\ud800"}', b'{"a": "\xff"}', b'{"a":' + b"[" * 100_000, b'{"tax_due": 1e400}']
)
def test_what_is_no_record_never_comes_so_far(junk: bytes) -> None:
    entry = encode(a_result(data={})).replace(b'"data":{}', b'"data":' + junk)
    try:
        (found,) = read_batch(b"[" + entry + b"]")
    except InvalidInput:
        return
    assert isinstance(found, BadEntry)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_lien = st.dictionaries(
    st.sampled_from(["status", "face_amount", "opening_bid", "tax_year", "certificate_number", "holder_name"]), _json
)
_record = st.fixed_dictionaries(
    {},
    optional={
        "owner_names": _json,
        "situs_address": _json,
        "tax_due": _json,
        "delinquent": _json,
        "liens": st.lists(_lien | _json, max_size=4) | _json,
    },
)


@given(_record)
def test_no_record_raises(record: dict[str, Any]) -> None:
    try:
        body = encode(record)
    except (OverflowError, UnicodeEncodeError):
        return
    found = facts_in(body)
    for text in (found.owner, found.situs, *(lien.status or "" for lien in found.liens)):
        assert text == text.strip()
