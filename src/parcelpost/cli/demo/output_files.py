"""The files of the demo, and its two spreadsheets."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.commands.export_run import ExportOrder, run_export
from parcelpost.cli.options import StoreContext
from parcelpost.cli.output import count, fields, table
from parcelpost.errors import InvalidInput
from parcelpost.export import Format
from parcelpost.export.exporter import plan_export
from parcelpost.settings import Settings
from parcelpost.storage.export_queries import ExportFilter


class DemoFiles(Struct, frozen=True):
    folder: Path

    @property
    def counties(self) -> Path:
        return self.folder / "counties.toml"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.csv"

    @property
    def ledger(self) -> Path:
        return self.folder / "gateway" / "gateway.db"

    @property
    def raw(self) -> Path:
        return self.folder / "gateway" / "raw"

    @property
    def store(self) -> StoreContext:
        return StoreContext(self.folder / "worker" / "parcelpost.db", Settings())

    @property
    def parcels(self) -> Path:
        return self.folder / "parcels.csv"

    @property
    def liens(self) -> Path:
        return self.folder / "liens.csv"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def make(self) -> None:
        """Raises InvalidInput where there is something already, or nothing can be made."""
        hint = "name another folder with --dir"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.store.path.exists() or self.ledger.exists():
                raise InvalidInput(f"there is a demo in {self.folder} already", hint=hint)
            if any(self.folder.iterdir()):
                raise InvalidInput(f"there is something in {self.folder} already", hint=hint)
            for part in (self.ledger, self.store.path):
                part.parent.mkdir(mode=0o700)
        except FileExistsError:
            raise InvalidInput(f"{self.folder} is not a folder", hint=hint) from None
        except OSError as error:
            raise InvalidInput(f"{self.folder} cannot be used: {error.strerror or error}", hint=hint) from None

    def keep_spreadsheets_only(self) -> None:
        """Where there are none, the folder goes too."""
        for part in self.folder.iterdir():
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            elif part not in (self.parcels, self.liens):
                part.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def lines(self, *, all_stay: bool) -> list[str]:
        pairs = [("spreadsheets", f"{self.parcels}, {self.liens}")]
        if all_stay:
            logs = ", ".join(str(self.log(name)) for name in ("county", "add", "gateway", "worker"))
            pairs += [
                ("worker's store", f"{self.store.path}, pages in {self.store.path.parent / 'data'}"),
                ("gateway's ledger", f"{self.ledger}, pages in {self.raw}"),
                ("what it was given", f"{self.counties}, {self.tasks}"),
                ("logs", logs),
            ]
        return fields(pairs)


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


async def save_sheets(store: StoreContext, folder: Path) -> None:
    """parcels.csv and liens.csv. Raises ParcelpostError."""
    what = plan_export(f"{folder}/", Format.CSV, None)
    await run_export(store, ExportOrder(what=what, wanted=ExportFilter(), receiver="", replace=True))


def preview_sheet(sheet: Sheet, file: Path) -> list[str]:
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
