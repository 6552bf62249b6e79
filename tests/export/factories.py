"""Results with records in them, and whole exports of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parcelpost.export import Format
from parcelpost.export.exporter import ExportOptions, ExportResult, export, plan_export
from parcelpost.model import OutboxEntry, Source, TaskStatus

NOW = datetime(2026, 11, 16, 12, 30, 15, 250_000, tzinfo=UTC)
ANN = {
    "parcel_id": "001-02",
    "record_kind": "parcel",
    "owner_names": ["MÜLLER ANN", "MÜLLER BOB"],
    "situs_address": "1 MAIN ST",
    "latitude": 41.7637,
    "longitude": -72.6851,
    "mailing_zip": "06103",
    "year_built": 1925,
    "land_area_acres": 0.25,
    "market_value": 1234567.89,
    "tax_due": 0,
    "homestead": False,
    "last_sale_date": "1898-03-01",
    "delinquent_years": [2024, 2025],
    "liens": [
        {"certificate_number": "0042", "face_amount": 3214.5, "sale_date": "2025-06-01", "is_otc": True},
        {"certificate_number": "0043", "face_amount": 10, "interest_rate_pct": 18.25, "status": "open"},
    ],
    "sales": [{"date": "1898-03-01", "price": 100}],
}


def an_entry(data: dict[str, Any] | bytes | None = None, parcel_id: str = "001-02", **fields: Any) -> OutboxEntry:
    """A record of Ann's parcel, unless told otherwise."""
    stored = data if isinstance(data, bytes) else json.dumps(ANN if data is None else data).encode()
    known: dict[str, Any] = {
        "seq": 1,
        "result_id": f"r-{parcel_id}",
        "task_id": f"t-{parcel_id}",
        "source": Source.CLI,
        "status": TaskStatus.COMPLETED,
        "success": True,
        "platform": "vgsi",
        "state": "CT",
        "county": "hartford",
        "parcel_id": parcel_id,
        "data": stored,
        "error": None,
        "execution_time_ms": 5,
        "idempotency_key": "key",
        "scraped_at": NOW,
        "created_at": NOW,
        "sync_attempts": 0,
    }
    absent = dict.fromkeys(set(OutboxEntry.__struct_fields__) - {*known, "retries", "page_shared"})
    return OutboxEntry(**{**absent, **known, **fields})


async def pages_of(*pages: Sequence[OutboxEntry]) -> AsyncIterator[Sequence[OutboxEntry]]:
    for page in pages:
        yield page


async def exported(
    output: Path | str, *entries: OutboxEntry, form: Format | None = None, tables: list[str] | None = None, **how: Any
) -> ExportResult:
    what = plan_export(str(output), form, tables)
    replace = how.pop("replace", False)
    options = ExportOptions(now=NOW, **how)
    return await export(pages_of(entries), what, options, replace=replace, progress=lambda done: None)
