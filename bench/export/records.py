"""A store full of records as county pages give them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.store.contenders import OPTIONS
from bench.store.work import SCRAPED_AT
from bench.timing import run_coroutines
from parcelpost.model import Result, Target, Task
from parcelpost.scrapers.records.record import Lien, Record
from parcelpost.storage.lpm import LocalPersistenceManager

COUNTIES = ("hartford", "litchfield", "tolland", "windham")
_CALLERS = 256


async def fill_store(store: Path, records: int) -> None:
    """A quarter of them in each county."""
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
