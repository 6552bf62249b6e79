"""Records become rows: typed, and with nothing lost that does not fit."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from parcelpost.export.columns import CONVERTERS, Kind, clean_text
from parcelpost.export.tables import TABLES, read_parcel
from parcelpost.model import OutboxEntry, TaskStatus
from tests.export.factories import ANN, NOW, an_entry


def rows(table: str, entry: OutboxEntry) -> list[dict[str, Any]]:
    names = [column.name for column in TABLES[table].columns]
    return [dict(zip(names, row, strict=True)) for row in TABLES[table].rows(read_parcel(entry))]


def parcel(entry: OutboxEntry) -> dict[str, Any]:
    (row,) = rows("parcels", entry)
    return row


def test_a_parcel_is_one_row_of_typed_values() -> None:
    row = parcel(an_entry())
    key = {"platform": "vgsi", "state": "CT", "county": "hartford", "parcel_id": "001-02"}
    assert key.items() <= row.items()
    assert row["owner_names"] == "MÜLLER ANN; MÜLLER BOB"
    assert row["market_value"] == Decimal("1234567.89")
    assert (row["tax_due"], row["tax_amount"]) == (Decimal(0), None)
    assert row["last_sale_date"] == date(1898, 3, 1)
    assert (row["year_built"], row["homestead"], row["mailing_zip"]) == (1925, False, "06103")
    assert (row["delinquent_years"], row["lien_count"]) == ("2024; 2025", 2)
    assert (row["status"], row["error"], row["scraped_at"], row["task_id"]) == ("record", None, NOW, "t-001-02")
    assert row["other"] is None


def test_liens_carry_the_key_of_their_parcel() -> None:
    first, second = rows("liens", an_entry())
    for row, position in ((first, 1), (second, 2)):
        assert (row["platform"], row["county"], row["parcel_id"]) == ("vgsi", "hartford", "001-02")
        assert (row["position"], row["scraped_at"]) == (position, NOW)
    assert (first["certificate_number"], first["face_amount"]) == ("0042", Decimal("3214.5"))
    assert (first["sale_date"], first["is_otc"], first["status"]) == (date(2025, 6, 1), True, None)
    assert second["interest_rate_pct"] == Decimal("18.25")


def test_each_row_of_a_list_says_what_its_record_lacks() -> None:
    gaps = {"completeness": "missing: sales", "unreadable": ["liens.face_amount"]}
    entry = an_entry({**ANN, **gaps})
    for row in rows("liens", entry):
        assert (row["completeness"], row["unreadable"]) == ("missing: sales", "liens.face_amount")


def test_what_does_not_fit_its_column_is_kept_beside() -> None:
    bad = {
        "market_value": "a lot",
        "tax_due": 1.23456,
        "year_built": 1925.5,
        "homestead": "yes",
        "last_sale_date": "last year",
        "owner_names": [{"name": "ANN"}],
        "land_value": 1e300,
        "liens": ["none", {"face_amount": "free", "colour": "red"}],
        "sales": "none",
        "made_up": {"deep": [1.10]},
    }
    row = parcel(an_entry(bad))
    assert all(row[name] is None for name in bad if name in row)
    assert json.loads(row["other"]) == {**bad, "liens": ["none"]}
    assert "1.1]" in row["other"]
    (lien,) = rows("liens", an_entry(bad))
    assert json.loads(lien["other"]) == {"face_amount": "free", "colour": "red"}


def test_a_line_of_a_list_of_liens_has_its_lien_in_one_place() -> None:
    lien = {"certificate_number": "7", "face_amount": 5, "status": "open"}
    record = {"parcel_id": None, "record_kind": "lien", **lien, "liens": [lien]}
    row = parcel(an_entry(record))
    assert (row["other"], row["status"], row["parcel_id_shown"]) == (None, "record", None)
    assert len(rows("liens", an_entry(record))) == 1
    of_a_parcel = parcel(an_entry({**lien, "record_kind": "parcel"}))
    assert json.loads(of_a_parcel["other"]) == lien


@pytest.mark.parametrize("data", [b"[1, 2]", b'"text"', b"{broken", b"[" * 100_000])
def test_a_record_that_is_no_object_is_kept_as_it_is(data: bytes) -> None:
    row = parcel(an_entry(data))
    assert row["other"] == data.decode()
    assert rows("liens", an_entry(data)) == []


def test_ends_without_a_record_say_so() -> None:
    gone = an_entry(success=True)
    assert parcel(_without_data(gone))["status"] == "not_found"
    failed = _without_data(an_entry(success=False, status=TaskStatus.FAILED, error="no \x1b[31mtable"))
    assert (parcel(failed)["status"], parcel(failed)["error"]) == ("failed", "no \ufffd[31mtable")
    expired = _without_data(an_entry(success=False, status=TaskStatus.EXPIRED))
    assert parcel(expired)["status"] == "expired"


def _without_data(entry: OutboxEntry) -> OutboxEntry:
    from msgspec.structs import replace

    return replace(entry, data=None)


def test_other_lists_are_tables_too() -> None:
    (sale,) = rows("sales", an_entry())
    assert (sale["parcel_id"], sale["date"], sale["price"]) == ("001-02", date(1898, 3, 1), Decimal(100))
    assert rows("buildings", an_entry()) == []
    assert ANN["liens"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Kind.WHOLE, Decimal("2020.0"), 2020),
        (Kind.MONEY, Decimal("12.500000"), Decimal("12.5")),
        (Kind.MONEY, Decimal("-0.0125"), Decimal("-0.0125")),
        (Kind.MONEY, 99_999_999_999_999, Decimal(99_999_999_999_999)),
        (Kind.TEXT, 7, "7"),
        (Kind.TEXTS, [], None),
        (Kind.TEXT, "a\r\nb\tc\x00\x9b", "a\nb\tc\ufffd\ufffd"),
        (Kind.DATE, "2024-02-29", date(2024, 2, 29)),
    ],
)
def test_values_that_fit(kind: Kind, value: Any, expected: Any) -> None:
    assert CONVERTERS[kind](value) == expected


def test_values_that_do_not_fit(subtests: pytest.Subtests) -> None:
    for kind, value in [
        (Kind.WHOLE, True),
        (Kind.WHOLE, 10**15),
        (Kind.NUMBER, Decimal("1e-999999")),
        (Kind.NUMBER, Decimal("0e999999")),
        (Kind.NUMBER, "1"),
        (Kind.MONEY, 10**14),
        (Kind.MONEY, Decimal("0.00001")),
        (Kind.FLAG, 1),
        (Kind.DATE, "2023-02-29"),
        (Kind.DATE, "20230201"),
        (Kind.DATE, "\u0662\u0660\u0662\u0663-02-01"),
        (Kind.TEXT, {"a": 1}),
        (Kind.TEXT, True),
    ]:
        with subtests.test(kind=kind, value=value), pytest.raises(ValueError):
            CONVERTERS[kind](value)


def test_what_a_terminal_or_xml_cannot_take_is_replaced() -> None:
    assert clean_text("O'Brien, 東京 \U0001f600") == "O'Brien, 東京 \U0001f600"
    assert clean_text("\x1b]0;title\x07\ufffe") == "\ufffd]0;title\ufffd\ufffd"
    assert clean_text("a\u202egpj.exe\u2066\u200f\u061c") == "a\ufffdgpj.exe\ufffd\ufffd\ufffd", "nor read backwards"
