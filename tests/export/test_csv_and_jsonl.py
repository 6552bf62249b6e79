"""CSV and JSONL, read back with the standard library."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from parcelpost.export import Format
from parcelpost.export.text_formats import escape_formula
from tests.export.factories import ANN, an_entry, exported


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened, strict=True))


async def test_a_folder_gets_a_file_for_each_table(tmp_path: Path) -> None:
    done = await exported(f"{tmp_path}/handover/", an_entry(), an_entry({}, "9"), form=Format.CSV)
    folder = tmp_path / "handover"
    assert done.files == [folder / "parcels.csv", folder / "liens.csv"]
    assert done.rows == {"parcels": 2, "liens": 2}
    first, second = rows(folder / "parcels.csv")
    assert (first["parcel_id"], first["mailing_zip"]) == ("001-02", "06103")
    assert (first["market_value"], first["tax_due"], first["tax_amount"]) == ("1234567.89", "0.00", "")
    assert (first["land_area_acres"], first["last_sale_date"], first["homestead"]) == ("0.25", "1898-03-01", "false")
    assert first["scraped_at"] == "2026-11-16T12:30:15.250Z"
    assert (second["parcel_id"], second["owner_names"], second["lien_count"]) == ("9", "", "0")
    assert [row["face_amount"] for row in rows(folder / "liens.csv")] == ["3214.50", "10.00"]


def test_what_a_spreadsheet_takes_for_a_formula_is_made_text(subtests: pytest.Subtests) -> None:
    for text, cell in [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("@SUM(1)", "'@SUM(1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-1+1", "'-1+1"),
        ("\t=1", "'\t=1"),
        ("＝1", "'＝1"),  # noqa: RUF001
        ("-12.50", "-12.50"),
        ("+7", "+7"),
        ("1-2", "1-2"),
        ("", ""),
    ]:
        with subtests.test(text=text, cell=cell):
            assert escape_formula(text) == cell


async def test_formulas_are_guarded_unless_told_otherwise(tmp_path: Path) -> None:
    hostile = an_entry({"owner_names": ["=1+1"], "tax_due": -5.5, "legal_description": 'a,"b"\r\nc'}, "-1-2")
    await exported(tmp_path / "safe.csv", hostile)
    (row,) = rows(tmp_path / "safe.csv")
    assert (row["owner_names"], row["tax_due"], row["parcel_id"]) == ("'=1+1", "-5.50", "'-1-2")
    assert row["legal_description"] == 'a,"b"\nc'
    await exported(tmp_path / "as_is.csv", hostile, guard=False)
    (row,) = rows(tmp_path / "as_is.csv")
    assert (row["owner_names"], row["parcel_id"]) == ("=1+1", "-1-2")


async def test_a_byte_order_mark_for_excel_is_asked_for(tmp_path: Path) -> None:
    await exported(tmp_path / "plain.csv", an_entry())
    await exported(tmp_path / "marked.csv", an_entry(), bom=True)
    plain, marked = ((tmp_path / name).read_bytes() for name in ("plain.csv", "marked.csv"))
    assert marked == b"\xef\xbb\xbf" + plain
    assert plain.startswith(b"platform,state,county,parcel_id,")
    assert plain.count(b"\r\n") == plain.count(b"\n") == 2


async def test_jsonl_has_whole_records_and_every_digit(tmp_path: Path) -> None:
    spread = json.dumps(ANN | {"made_up": [1]}, indent=2).encode().replace(b"1234567.89", b"0.1000000000000000055")
    await exported(f"{tmp_path}/", an_entry(spread), an_entry(b"{broken", "2"), form=Format.JSONL)
    first, second = (tmp_path / "parcels.jsonl").read_bytes().splitlines()
    assert b"0.1000000000000000055" in first
    line = json.loads(first)
    assert (line["parcel_id"], line["status"], line["stored_at"]) == ("001-02", "record", "2026-11-16T12:30:15.250000Z")
    assert line["record"]["made_up"] == [1]
    assert json.loads(second)["record"] == "{broken"
    liens = [json.loads(one) for one in (tmp_path / "liens.jsonl").read_bytes().splitlines()]
    assert [(one["parcel_id"], one["position"], one["lien"]["certificate_number"]) for one in liens] == [
        ("001-02", 1, "0042"),
        ("001-02", 2, "0043"),
    ]


async def test_no_text_can_give_a_terminal_an_order(tmp_path: Path) -> None:
    evil = "\x1b[2J\x9b2J\x7f é"
    data = json.dumps({"owner_names": [evil]}, ensure_ascii=False).encode()
    for name in ("out.csv", "out.jsonl"):
        await exported(tmp_path / name, an_entry(data, "\x9b1"))
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert not set("\x1b\x9b\x7f") & set(written)
        assert "é" in written
    assert json.loads((tmp_path / "out.jsonl").read_bytes())["record"]["owner_names"] == [evil]
