"""CSV and JSONL that spreadsheets and programs read back as they were."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from parcelpost.export.text_formats import escape_formula
from parcelpost.gateway.downloads import LienCsv, LienJsonl, ParcelCsv, ParcelJsonl, format_dollars
from parcelpost.gateway.models import Lien, LienRow, ParcelKey, ParcelRecord, ParcelRow

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTILE = "O\"Neil, Ann;\r\n=cmd|' /C calc'!A0 🏠"


def a_parcel(data: bytes = b"{}", **changes: Any) -> ParcelRecord:
    given = {
        "parcel": ParcelKey("vgsi", "CT", "new haven", "12/3 4"),
        "owner": "ANN",
        "situs": "1 Elm St",
        "delinquent": None,
        "tax_due_cents": None,
        "lien_count": 0,
        "scraped_at": NOW,
        "first_seen_at": NOW,
        "received_at": NOW,
        "task_id": "t1",
        "raw_sha256": None,
        "parcel_no": 7,
    }
    return ParcelRecord(ParcelRow(**{**given, **changes}), data)


def a_lien(json_text: bytes = b"{}", amount: int | None = 1_050) -> LienRow:
    lien = Lien(
        certificate_number="7",
        certificate_year=2024,
        tax_year=2023,
        status="open",
        holder_name=None,
        amount_cents=amount,
        sale_date=None,
        json=json_text,
    )
    key = ParcelKey("vgsi", "CT", "", "7")
    return LienRow(parcel=key, position=0, owner="ANN", scraped_at=NOW, received_at=NOW, parcel_no=7, lien=lien)


def read(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode(), newline="")))


def test_every_cell_reads_back_and_lines_end_as_the_rfc_has_it() -> None:
    text = ParcelCsv().head() + ParcelCsv().lines([a_parcel(owner=HOSTILE), a_parcel(delinquent=True, tax_due_cents=5)])
    first, second = read(text)
    assert first["owner"] == HOSTILE
    assert (first["delinquent"], first["tax_due"]) == ("", "")
    assert (second["delinquent"], second["tax_due"], second["parcel_id"]) == ("true", "0.05", "12/3 4")
    assert text.split(b"\r\n")[0].startswith(b"platform,state,county,parcel_id,owner")
    assert text.endswith(b"\r\n")


def test_numbers_stay_as_they_were_written_and_lists_are_joined() -> None:
    data = b'{"tax_amount": 1234.50, "market_value": -7, "delinquent_years": [2023, 2024], "homestead": false}'
    (row,) = read(ParcelCsv().head() + ParcelCsv().lines([a_parcel(data)]))
    assert (row["tax_amount"], row["market_value"], row["delinquent_years"]) == ("1234.50", "-7", "2023; 2024")
    assert (row["homestead"], row["zoning"]) == ("false", "")


def test_fields_of_odd_kinds_are_written_as_json() -> None:
    data = b'{"tax_amount": {"a": 1}, "mailing_lines": [{"a": 1}], "zoning": "-1+2"}'
    (row,) = read(ParcelCsv().head() + ParcelCsv().lines([a_parcel(data)]))
    assert (row["tax_amount"], row["mailing_lines"], row["zoning"]) == ('{"a": 1}', '[{"a": 1}]', "'-1+2")


def test_what_a_spreadsheet_would_run_is_guarded(subtests: pytest.Subtests) -> None:
    for text in ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-", "=", "+1-2", "-\u0661"]:
        with subtests.test(text=text):
            assert escape_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-12", "+1.5", "-1e5", "A=1", "12-34", "'x", "O'Neil"])
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    assert escape_formula(text) == text


def test_a_formula_in_any_text_column_is_guarded() -> None:
    bad = "=1+1"
    parcel = a_parcel(b'{"zoning": "=1+1", "mailing_lines": ["=1+1", "x"]}', parcel=ParcelKey(bad, bad, bad, bad))
    (row,) = read(ParcelCsv().head() + ParcelCsv().lines([parcel]))
    assert not [cell for cell in row.values() if cell.startswith("=")]
    (lien,) = read(LienCsv().head() + LienCsv().lines([a_lien(b'{"holder_name": "@x", "certificate_number": "-7"}')]))
    assert (lien["holder_name"], lien["certificate_number"], lien["amount"]) == ("'@x", "-7", "10.50")


MONEY = [(None, ""), (0, "0.00"), (5, "0.05"), (-150, "-1.50"), (123_456, "1234.56")]


@pytest.mark.parametrize(("cents", "text"), MONEY)
def test_money_is_exact(cents: int | None, text: str) -> None:
    assert format_dollars(cents) == text


def test_a_line_of_jsonl_is_one_line_whatever_the_record_looks_like() -> None:
    text = ParcelJsonl().head() + ParcelJsonl().lines([a_parcel(b'{\r\n "a": 1.10,\n "b": "x\\ny"\n}'), a_parcel()])
    assert text.count(b"\n") == 2
    assert json.loads(text.splitlines()[0])["record"] == {"a": 1.10, "b": "x\ny"}
    (lien,) = LienJsonl().lines([a_lien(b'{"face_amount": 10.50}')]).splitlines()
    assert json.loads(lien)["lien"] == {"face_amount": 10.50}
    assert b"10.50" in lien
