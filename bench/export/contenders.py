"""An export of ours in each format, and what a developer would write for some of them.

The peers read the rows as they come, without looking for a parcel's newest, and put values into cells as JSON has them.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from parcelpost.export import Format
from parcelpost.export.columns import KEY_COLUMNS, LIEN_COLUMNS, PARCEL_COLUMNS

Export = Callable[[Path, Path, str], int]
"""Of the store, into a file or folder, the records of one county, or of all where it is ''. How many they were."""

_PARCEL_NAMES = [column.name for column in (*KEY_COLUMNS, *PARCEL_COLUMNS)]
_LIEN_NAMES = [column.name for column in LIEN_COLUMNS]


def ours(form: Format) -> Export:
    def run(store: Path, output: Path, county: str) -> int:
        from parcelpost.cli.commands import export_run
        from parcelpost.cli.options import StoreContext
        from parcelpost.export.exporter import plan_export
        from parcelpost.settings import Settings
        from parcelpost.storage.export_queries import ExportFilter

        one_table = form is Format.GEOJSON
        what = plan_export(str(output / f"all.{form}") if one_table else f"{output}/", form, None)
        wanted = ExportFilter(counties=(county,) if county else ())
        order = export_run.ExportOrder(what=what, wanted=wanted, receiver="", replace=False)
        return asyncio.run(export_run.run_export(StoreContext(store, Settings()), order)).rows["parcels"]

    return run


def plain_csv(store: Path, output: Path, county: str) -> int:
    with (
        (output / "parcels.csv").open("w", newline="") as parcels,
        (output / "liens.csv").open("w", newline="") as liens,
    ):
        return _write_tables(store, county, csv.writer(parcels).writerow, csv.writer(liens).writerow)


def openpyxl_write_only(store: Path, output: Path, county: str) -> int:
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    written = _write_tables(store, county, book.create_sheet("parcels").append, book.create_sheet("liens").append)
    book.save(output / "all.xlsx")
    return written


def plain_jsonl(store: Path, output: Path, county: str) -> int:
    written = 0
    with (output / "parcels.jsonl").open("w") as parcels, (output / "liens.jsonl").open("w") as liens:
        for record in _records(store, county):
            parcels.write(json.dumps(record) + "\n")
            for lien in record["liens"]:
                liens.write(json.dumps({"parcel_id": record["parcel_id"], **lien}) + "\n")
            written += 1
    return written


def pyarrow_at_once(store: Path, output: Path, county: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = list(_records(store, county))
    parcels = [{name: one.get(name) for name in _PARCEL_NAMES} for one in records]
    liens = [{"parcel_id": one["parcel_id"], **lien} for one in records for lien in one["liens"]]
    pq.write_table(pa.Table.from_pylist(parcels), output / "parcels.parquet")
    pq.write_table(pa.Table.from_pylist(liens), output / "liens.parquet")
    return len(parcels)


def _write_tables(
    store: Path, county: str, parcel: Callable[[list[Any]], Any], lien: Callable[[list[Any]], Any]
) -> int:
    parcel(_PARCEL_NAMES)
    lien(["parcel_id", *_LIEN_NAMES])
    written = 0
    for record in _records(store, county):
        parcel([_cell(record.get(name)) for name in _PARCEL_NAMES])
        for one in record["liens"]:
            lien([record["parcel_id"], *(one[name] for name in _LIEN_NAMES)])
        written += 1
    return written


def _records(store: Path, county: str) -> Iterator[dict[str, Any]]:
    with closing(sqlite3.connect(store)) as db:
        query = "SELECT data FROM results WHERE data IS NOT NULL AND (? = '' OR county = ?)"
        for (data,) in db.execute(query, (county, county)):
            yield json.loads(data)


def _cell(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, list) else value


CONTENDERS: dict[str, Export] = {
    **{str(form): ours(form) for form in Format},
    "csv module": plain_csv,
    "json module": plain_jsonl,
    "pyarrow, all at once": pyarrow_at_once,
    "openpyxl, write-only": openpyxl_write_only,
}
PEER_OF = {
    "csv": "csv module",
    "jsonl": "json module",
    "parquet": "pyarrow, all at once",
    "xlsx": "openpyxl, write-only",
}
