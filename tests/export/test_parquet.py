"""Parquet, read back with pyarrow: the types are those of the file, not of its writer."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parcelpost.export import Format, parquet
from parcelpost.export.exporter import ExportOptions, export, plan_export
from tests.export.factories import NOW, an_entry, exported, pages_of


async def test_types_are_exact(tmp_path: Path) -> None:
    done = await exported(f"{tmp_path}/", an_entry(), an_entry({}, "2"), form=Format.PARQUET)
    assert [file.name for file in done.files] == ["parcels.parquet", "liens.parquet"]
    parcels, liens = (pq.read_table(file) for file in done.files)
    types = {field.name: field.type for field in parcels.schema}
    assert types["market_value"] == pa.decimal128(18, 4)
    assert types["last_sale_date"] == pa.date32()
    assert types["scraped_at"] == pa.timestamp("ms", tz="UTC")
    assert (types["parcel_id"], types["year_built"], types["homestead"]) == (pa.string(), pa.int64(), pa.bool_())
    first, second = parcels.to_pylist()
    assert (first["market_value"], first["last_sale_date"]) == (Decimal("1234567.89"), date(1898, 3, 1))
    assert (first["latitude"], first["scraped_at"]) == (41.7637, NOW)
    assert (second["parcel_id"], second["market_value"], second["lien_count"]) == ("2", None, 0)
    assert [row["face_amount"] for row in liens.to_pylist()] == [Decimal("3214.5"), Decimal(10)]


async def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    await exported(tmp_path / "none.parquet", an_entry({}), tables=["liens"])
    table = pq.read_table(tmp_path / "none.parquet")
    assert (table.num_rows, table.column_names[3]) == (0, "parcel_id")


async def test_rows_go_into_groups_of_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS_A_GROUP", 1)
    entries = [an_entry({}, f"{n}") for n in range(3)]
    what = plan_export(str(tmp_path / "p.parquet"), None, None)
    pages = pages_of(entries[:2], entries[2:])
    await export(pages, what, ExportOptions(now=NOW), replace=False, progress=lambda done: None)
    file = pq.ParquetFile(tmp_path / "p.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 1]
