"""Downloads are written by the exporter: CSV and JSONL that spreadsheets and programs read back as they were."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from parcelpost.export import Format
from parcelpost.export.tables import TABLES
from parcelpost.export.text_formats import escape_formula
from parcelpost.gateway.downloads import exported_lien, exported_parcel, table_sink
from parcelpost.gateway.models import LienRow, LienSource, ParcelRecord, ParcelRow, SourceKey, SourceRow
from parcelpost.search_fields import Lien
from tests.gateway.factories import parcel

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = parcel("12/3 4", "vgsi", "CT", "new haven")
HOSTILE = "O\"Neil, Ann;\r\n=cmd|' /C calc'!A0 🏠"


def a_parcel(data: bytes = b"{}", key: SourceKey = KEY) -> ParcelRecord:
    times: dict[str, Any] = {"scraped_at": NOW, "first_seen_at": NOW, "received_at": NOW}
    row = ParcelRow(
        parcel=key.parcel,
        parcel_id="12/3 4",
        owner="ANN",
        situs="1 Elm St",
        delinquent=None,
        tax_due_cents=None,
        lien_count=0,
        parcel_no=7,
        sources=[SourceRow(source=key, parcel_id="12/3 4", is_partial=False, task_id="t1", raw_sha256=None, **times)],
        **times,
    )
    return ParcelRecord(row, data)


def a_lien(json_text: bytes = b"{}", position: int = 0) -> LienRow:
    lien = Lien(
        certificate_number="7",
        certificate_year=2024,
        tax_year=2023,
        status="open",
        holder_name=None,
        amount_cents=1_050,
        sale_date=None,
        json=json_text,
    )
    return LienRow(
        parcel=parcel("7", "vgsi", "CT", "").parcel,
        parcel_id="7",
        owner="ANN",
        received_at=NOW,
        parcel_no=7,
        lien_no=8,
        lien=lien,
        sources=[LienSource(platform="vgsi", parcel_id="7", position=position, partial=False, scraped_at=NOW)],
    )


def file(form: Format, *rows: ParcelRecord | LienRow) -> bytes:
    """What a download of these rows holds."""
    name = "liens" if isinstance(rows[0], LienRow) else "parcels"
    parcels = [exported_lien(row) if isinstance(row, LienRow) else exported_parcel(row) for row in rows]
    stream = io.BytesIO()
    table_sink(TABLES[name], form, stream).write(TABLES[name], parcels)
    return stream.getvalue()


def read(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode(), newline="")))


def test_a_download_has_the_columns_and_lines_of_an_export() -> None:
    for name, row in (("parcels", a_parcel()), ("liens", a_lien())):
        header = file(Format.CSV, row).split(b"\r\n")[0].decode()
        assert header.split(",") == [column.name for column in TABLES[name].columns]
    (line,) = file(Format.JSONL, a_parcel()).splitlines()
    assert list(json.loads(line)) == [
        *("platform", "state", "county", "parcel_id", "status", "error", "scraped_at", "stored_at", "task_id", "record")
    ]


def test_every_cell_reads_back_and_lines_end_as_the_rfc_has_it() -> None:
    text = file(
        Format.CSV,
        a_parcel(json.dumps({"zoning": HOSTILE}).encode()),
        a_parcel(b'{"tax_amount": 1234.50, "market_value": -7, "delinquent_years": [2023, 2024], "homestead": false}'),
        a_parcel(b'{"tax_amount": {"a": 1}, "odd": "x"}'),
    )
    first, second, third = read(text)
    assert first["zoning"] == HOSTILE.replace("\r\n", "\n")
    assert (second["tax_amount"], second["market_value"], second["delinquent_years"]) == (
        "1234.50",
        "-7.00",
        "2023; 2024",
    )
    assert (second["homestead"], second["zoning"], second["parcel_id"]) == ("false", "", "12/3 4")
    assert (third["tax_amount"], json.loads(third["other"])) == ("", {"tax_amount": {"a": 1}, "odd": "x"})
    assert text.endswith(b"\r\n")


def test_a_formula_in_any_text_column_is_guarded() -> None:
    bad = "=1+1"
    record = a_parcel(b'{"zoning": "=1+1", "mailing_lines": ["=1+1", "x"]}', parcel(bad, bad, bad, bad))
    (row,) = read(file(Format.CSV, record))
    assert not [cell for cell in row.values() if cell.startswith("=")]
    (lien,) = read(file(Format.CSV, a_lien(b'{"holder_name": "@x", "certificate_number": "-7"}')))
    assert (lien["holder_name"], lien["certificate_number"]) == ("'@x", "-7")


def test_a_line_of_jsonl_is_one_line_whatever_the_record_looks_like() -> None:
    text = file(Format.JSONL, a_parcel(b'{\r\n "a": 1.10,\n "b": "x\\ny"\n}'), a_parcel())
    assert text.count(b"\n") == 2
    assert json.loads(text.splitlines()[0])["record"] == {"a": 1.10, "b": "x\ny"}


def test_a_lien_keeps_its_position_and_its_exact_amount() -> None:
    row = a_lien(b'{"face_amount": 10.50}', position=6)
    (line,) = file(Format.JSONL, row).splitlines()
    assert (json.loads(line)["position"], json.loads(line)["lien"]) == (7, {"face_amount": 10.50})
    assert b"10.50" in line
    (cells,) = read(file(Format.CSV, row))
    assert (cells["position"], cells["face_amount"]) == ("7", "10.50")


def test_what_a_spreadsheet_would_run_is_guarded(subtests: pytest.Subtests) -> None:
    for text in ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-", "=", "+1-2", "-\u0661"]:
        with subtests.test(text=text):
            assert escape_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-12", "+1.5", "-1e5", "A=1", "12-34", "'x", "O'Neil"])
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    assert escape_formula(text) == text
