"""`python -m bench export`: every format compared with plain writers, each export in a fresh process."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.measure import MB, add_dir_option, fresh_folder, machine, peak_bytes, run_coroutines, scratch
from bench.report import Goal, Report, Table, at_most, progress
from bench.store.contenders import OPTIONS, SCRAPED_AT
from parcelpost.export import Format
from parcelpost.export.columns import KEY_COLUMNS, LIEN_COLUMNS, PARCEL_COLUMNS
from parcelpost.model import Result, Target, Task
from parcelpost.scrapers.records.record import Lien, Record
from parcelpost.storage.lpm import LocalPersistenceManager

COUNTIES = ("hartford", "litchfield", "tolland", "windham")
_CALLERS = 256


async def fill_store(store: Path, records: int) -> None:
    """Stores the records, a quarter of them in each county."""
    async with LocalPersistenceManager.open(store, options=OPTIONS) as lpm:

        async def add(number: int) -> None:
            target = Target(parcel_id=f"{number:08}-000", state="CT", county=COUNTIES[number % 4])
            task = Task(task_id=f"task-{number:08}", platform="vgsi", target=target)
            await lpm.add_result(task, Result(data=make_record(number, target), scraped_at=SCRAPED_AT))

        await run_coroutines(_CALLERS, records, float("inf"), add)


def make_record(number: int, target: Target) -> dict[str, Any]:
    """Forty fields and two liens."""
    value = Decimal(41_300 + number % 1000) + Decimal("0.50")
    return Record(
        parcel_id=target.parcel_id,
        parcel_id_norm=target.parcel_id.replace("-", ""),
        state=target.state,
        county=target.county,
        platform="vgsi",
        source_url=f"https://gis.example.org/parcel.aspx?pid={number}",
        scraped_at="2026-01-01T12:00:00.000Z",
        owner_names=[f"DOE JOHN {number}", "DOE JANE"],
        mailing_lines=[f"{number % 900} MAIN ST", "HARTFORD, CT 06103"],
        mailing_city="HARTFORD",
        mailing_state="CT",
        mailing_zip="06103",
        situs_address=f"{number % 900} MAIN ST",
        situs_city="HARTFORD",
        latitude=Decimal("41.5") + Decimal(number % 1000) / 10_000,
        longitude=Decimal("-72.6") - Decimal(number % 1000) / 10_000,
        legal_description="LOT 7 BLK 12 MAP 103 " * 8,
        land_use_code="0101",
        land_use_desc="SINGLE FAMILY",
        zoning="R-1",
        land_area_acres=Decimal("0.25"),
        building_area_sqft=Decimal(1_840),
        year_built=1950 + number % 70,
        bedrooms=Decimal(3),
        bathrooms=Decimal("2.5"),
        value_year=2025,
        value_status="certified",
        land_value=value,
        building_value=value * 3,
        market_value=value * 4,
        assessed_value=value * 4,
        taxable_value=value * 4,
        homestead=bool(number % 2),
        last_sale_date="2011-04-05",
        last_sale_price=Decimal(189_000),
        last_sale_book_page=f"1022/{number}",
        tax_year=2025,
        tax_amount=Decimal("3214.55"),
        tax_due=Decimal("3214.55"),
        delinquent=True,
        delinquent_years=[2024, 2025],
        liens=[_lien(number, 2024), _lien(number, 2025)],
    ).as_json()


def _lien(number: int, year: int) -> Lien:
    return Lien(
        certificate_number=f"{year}-{number:06}",
        certificate_year=year,
        tax_year=year - 1,
        face_amount=Decimal("3214.55"),
        interest_rate_pct=Decimal("18.25"),
        sale_date=f"{year}-06-01",
        holder_name="COUNTY",
        status="open",
    )


Export = Callable[[Path, Path, str], int]
"""(store, output folder, county or '' for all) -> number of exported records."""

_PARCEL_NAMES = [column.name for column in (*KEY_COLUMNS, *PARCEL_COLUMNS)]
_LIEN_NAMES = [column.name for column in LIEN_COLUMNS]


def ours(form: Format) -> Export:
    def run(store: Path, output: Path, county: str) -> int:
        from parcelpost.cli.commands import export
        from parcelpost.cli.settings_options import StoreContext
        from parcelpost.export.exporter import plan_export
        from parcelpost.settings import Settings
        from parcelpost.storage.export_queries import ExportFilter

        one_table = form is Format.GEOJSON
        plan = plan_export(str(output / f"all.{form}") if one_table else f"{output}/", form, None)
        filters = ExportFilter(counties=(county,) if county else ())
        order = export.ExportOrder(plan=plan, wanted=filters, receiver="", replace=False)
        return asyncio.run(export.run_export(StoreContext(store, Settings()), order)).rows["parcels"]

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
    parcels = [{name: record.get(name) for name in _PARCEL_NAMES} for record in records]
    liens = [{"parcel_id": record["parcel_id"], **lien} for record in records for lien in record["liens"]]
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
        for row in record["liens"]:
            lien([record["parcel_id"], *(row[name] for name in _LIEN_NAMES)])
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


@dataclass(frozen=True, slots=True)
class Measured:
    records: int
    seconds: float
    peak_mb: float

    @property
    def per_second(self) -> float:
        return self.records / self.seconds


def measure(contender: str, store: Path, output: Path, county: str = "") -> Measured:
    command = [sys.executable, "-m", "bench.export", contender, str(store), str(output), county]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Measured(**json.loads(printed))


def main() -> None:
    contender, store, output, county = sys.argv[1:]
    start = time.perf_counter()
    records = CONTENDERS[contender](Path(store), Path(output), county)
    print(json.dumps(asdict(Measured(records, time.perf_counter() - start, peak_bytes() / MB))))


NAME = "export"
HELP = "exporting a store in every format, compared with plain writers, with memory use"

_FULL, _QUICK = 100_000, 10_000
GROWTH_GOAL_MB = 40
"""How much more memory all records may take than a quarter of them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same export, of a quarter of the records and of all of them."""

    quarter: Measured
    all: Measured

    @property
    def growth_mb(self) -> float:
        return self.all.peak_mb - self.quarter.peak_mb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dir_option(parser)
    parser.add_argument("--only", nargs="+", choices=sorted(CONTENDERS), help="measure only these")


def run(arguments: argparse.Namespace) -> Report:
    records = _QUICK if arguments.quick else _FULL
    names = arguments.only or list(CONTENDERS)
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        store = folder / "store" / "parcelpost.db"
        progress(f"filling a store with {records:,} records")
        asyncio.run(fill_store(store, records))
        pairs = {name: _measure(name, store, folder) for name in names}
    figures = [{"name": name, **asdict(pair)} for name, pair in pairs.items()]
    return Report(NAME, _targets(pairs), [_table(pairs)], {"machine": where, "records": records, "figures": figures})


def _measure(name: str, store: Path, folder: Path) -> Pair:
    progress(name)
    measured = []
    for county in (COUNTIES[0], ""):
        with fresh_folder(folder) as output:
            measured.append(measure(name, store, output, county))
    return Pair(*measured)


def _targets(pairs: dict[str, Pair]) -> list[Goal]:
    return [
        at_most(
            f"{name}: extra MB for {pair.all.records:,} records over a quarter of them", GROWTH_GOAL_MB, pair.growth_mb
        )
        for name, pair in pairs.items()
        if name not in PEER_OF.values()
    ]


def _ratio(name: str, pairs: dict[str, Pair]) -> str:
    peer = pairs.get(PEER_OF.get(name, ""))
    return f"{pairs[name].all.per_second / peer.all.per_second:.2f} of {PEER_OF[name]}" if peer else ""


def _table(pairs: dict[str, Pair]) -> Table:
    rows = [
        [
            name,
            f"{pair.all.per_second:,.0f}",
            f"{pair.all.seconds:,.1f}",
            f"{pair.quarter.peak_mb:,.0f}",
            f"{pair.all.peak_mb:,.0f}",
            _ratio(name, pairs),
        ]
        for name, pair in pairs.items()
    ]
    header = ["format", "records/s", "seconds", "peak MB, a quarter", "peak MB, all", "rate"]
    return Table("Exporting parcels with two liens each", header, rows)


if __name__ == "__main__":
    main()
