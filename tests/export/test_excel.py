"""Excel, read back with openpyxl, and the XML itself where that reads past what Excel would warn of."""

from __future__ import annotations

import io
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

from openpyxl import load_workbook
from openpyxl.utils import get_column_letter

from parcelpost.export.excel import MOST_CHARS, ExcelSink
from parcelpost.export.tables import TABLES, read_parcel
from tests.export.factories import an_entry, exported


def sheet(file: Path, name: str) -> list[dict[str, Any]]:
    book = load_workbook(file)
    heading, *rows = book[name].iter_rows()
    return [{title.value: cell for title, cell in zip(heading, row, strict=True)} for row in rows]


async def test_two_sheets_with_numbers_as_numbers_and_dates_as_dates(tmp_path: Path) -> None:
    file = tmp_path / "all.xlsx"
    done = await exported(file, an_entry({**RECORD, "parcel_id": "x"}, "00123"))
    assert (done.rows, done.notes) == ({"parcels": 1, "liens": 1}, [])
    (row,) = sheet(file, "parcels")
    assert (row["parcel_id"].value, row["parcel_id"].data_type) == ("00123", "s")
    assert (row["market_value"].value, row["market_value"].number_format) == (1234567.89, "#,##0.00")
    assert (row["last_sale_date"].value, row["last_sale_date"].is_date) == (datetime(2011, 4, 5), True)  # noqa: DTZ001
    assert row["scraped_at"].value == datetime(2026, 11, 16, 12, 30, 15, 250_000)  # noqa: DTZ001
    assert (row["homestead"].value, row["year_built"].value) == (True, 1925)
    assert row["tax_due"].value is None
    (lien,) = sheet(file, "liens")
    assert (lien["parcel_id"].value, lien["face_amount"].value) == ("00123", 3214.5)


RECORD: dict[str, Any] = {
    "market_value": 1234567.89,
    "last_sale_date": "2011-04-05",
    "homestead": True,
    "year_built": 1925,
    "liens": [{"face_amount": 3214.5}],
}


async def test_days_that_excel_does_not_know_are_text(tmp_path: Path) -> None:
    file = tmp_path / "old.xlsx"
    days = ["1898-03-01", "1900-02-28", "1900-03-01"]
    await exported(file, *(an_entry({"last_sale_date": day}, day) for day in days))
    cells = [row["last_sale_date"].value for row in sheet(file, "parcels")]
    assert cells[:2] == days[:2]
    assert cells[2].date() == date(1900, 3, 1)


async def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "hostile.xlsx"
    texts = ["=1+1", "http://example.org/", "{=SUM(1)}", "_x0041_", "a\x00\x1b\x0bb\ufffe", "<b>&amp;", " x\ny "]
    await exported(file, *(an_entry({"situs_address": text}, f"{n}") for n, text in enumerate(texts)))
    cells = [row["situs_address"] for row in sheet(file, "parcels")]
    assert {cell.data_type for cell in cells} == {"s"}
    assert all(cell.hyperlink is None for cell in cells)
    shown = [cell.value for cell in cells]
    assert shown[:3] == texts[:3]
    assert shown[4:] == ["a\ufffd\ufffd\ufffdb\ufffd", "<b>&amp;", " x\ny "]
    xml = _xml(file, "xl/worksheets/sheet1.xml")
    assert "_x005F_x0041_" in xml
    assert not {"<f>", "<hyperlink"} & {part for part in ("<f>", "<hyperlink") if part in xml}
    assert '<ignoredError sqref="A1:XFD1048576" numberStoredAsText="1"/>' in xml


async def test_a_text_too_long_for_a_cell_is_cut_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "long.xlsx"
    done = await exported(
        file,
        an_entry({"legal_description": "x" * MOST_CHARS}, "1"),
        an_entry({"legal_description": "\U0001f600" * (MOST_CHARS - 5)}, "2"),
    )
    fits, cut = (row["legal_description"].value for row in sheet(file, "parcels"))
    assert fits == "x" * MOST_CHARS
    assert cut.endswith("\U0001f600 ... (cut)")
    assert len(cut.encode("utf-16-le")) <= MOST_CHARS * 2
    assert done.notes == ["cells truncated to Excel's limit of 32,767 characters: 1"]


def test_a_full_sheet_goes_on_in_the_next(tmp_path: Path) -> None:
    stream = io.BytesIO()
    sink = ExcelSink(stream, tmp_path, [TABLES["parcels"], TABLES["liens"]], most_rows=3)
    for table in ("parcels", "liens"):
        assert sink.write(TABLES[table], [read_parcel(an_entry(RECORD, str(n))) for n in range(5)]) == 5
    sink.close()
    book = load_workbook(stream)
    assert book.sheetnames == ["parcels", "liens", "parcels 2", "parcels 3", "liens 2", "liens 3"]
    assert [[row[3] for row in book[name].values] for name in ("parcels", "parcels 2", "parcels 3")] == [
        ["parcel_id", "0", "1"],
        ["parcel_id", "2", "3"],
        ["parcel_id", "4"],
    ]
    last = get_column_letter(len(TABLES["liens"].columns))
    assert [book[name].auto_filter.ref for name in ("liens", "liens 3")] == [f"A1:{last}3", f"A1:{last}2"]
    assert list(tmp_path.iterdir()) == []


def _xml(file: Path, part: str) -> str:
    with zipfile.ZipFile(file) as book:
        assert book.testzip() is None
        return book.read(part).decode()
