"""The demonstration's two spreadsheets, as `parcelpost export` writes them, and a look at each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.export_run import Order, run
from parcelpost.cli.output import count, table
from parcelpost.export.format_names import Format
from parcelpost.export.planning import plan
from parcelpost.storage.export_queries import ExportFilter

_WIDEST = 22
"""Characters of a text that are shown."""


class Sheet(Struct, frozen=True, kw_only=True):
    """One of the tables."""

    what: str
    columns: Mapping[str, str]
    """Those that are shown, as many as fit 80 characters: the file's name of each, and ours."""
    money: frozenset[str]
    rows: int
    """How many of each platform are shown."""


PARCELS = Sheet(
    what="parcel",
    columns={
        "platform": "platform",
        "parcel_id": "parcel",
        "owner_names": "owner",
        "market_value": "market value",
        "lien_count": "liens",
    },
    money=frozenset({"market_value"}),
    rows=2,
)
LIENS = Sheet(
    what="lien",
    columns={
        "platform": "platform",
        "parcel_id": "parcel",
        "certificate_number": "number",
        "sale_date": "sold",
        "face_amount": "amount",
        "status": "status",
    },
    money=frozenset({"face_amount"}),
    rows=3,
)


async def save(store: Path, folder: Path) -> None:
    """parcels.csv and liens.csv. Raises ParcelpostError."""
    what = plan(f"{folder}/", Format.CSV, None)
    await run(store, Order(what=what, wanted=ExportFilter(), receiver="", replace=True))


def preview(sheet: Sheet, file: Path) -> list[str]:
    """How many rows it has, and the first ones of each platform."""
    shown: dict[str, list[Mapping[str, str]]] = {}
    rows = 0
    with file.open(encoding="utf-8", newline="") as opened:
        for row in csv.DictReader(opened):
            rows += 1
            of_platform = shown.setdefault(row["platform"], [])
            if len(of_platform) < sheet.rows:
                of_platform.append(row)
    first = [row for of_platform in shown.values() for row in of_platform]
    columns = [_column(sheet, name, [row[name] for row in first]) for name in sheet.columns]
    body = zip(*columns, strict=True)
    title = f"{file.name} has {count(rows, sheet.what)}. The first of each platform:"
    return [title, *table(list(sheet.columns.values()), body)]


def _column(sheet: Sheet, name: str, texts: list[str]) -> list[str]:
    """Money has its commas and stands to the right; what is long is cut."""
    if name not in sheet.money:
        return [text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…" for text in texts]
    amounts = [f"{Decimal(text):,.2f}" if text else "" for text in texts]
    width = max(map(len, [sheet.columns[name], *amounts]))
    return [amount.rjust(width) for amount in amounts]
