"""Where the demonstration's files are, and the made-up county whose parcels it scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from parcelpost.cli.output import fields

_DELAY_MS = 50
_SURNAMES = ("Abbott", "Baker", "Castro", "Dubois", "Eriksen", "Fischer", "García", "Hughes", "Ivanova", "Jensen")
_STREETS = ("Main St", "Elm St", "Mill Rd", "Church Ln", "Harbor Ave")
_STATUSES = ("open", "sold", "redeemed")


class Files(Struct, frozen=True):
    folder: Path

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.jsonl"

    @property
    def ledger(self) -> Path:
        return self.folder / "gateway" / "gateway.db"

    @property
    def raw(self) -> Path:
        return self.folder / "gateway" / "raw"

    @property
    def store(self) -> Path:
        return self.folder / "worker" / "parcelpost.db"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def make(self) -> None:
        for part in (self.ledger, self.store):
            part.parent.mkdir(parents=True, exist_ok=True)

    def lines(self) -> list[str]:
        return fields(
            [
                ("worker's store", f"{self.store}, pages in {self.store.parent / 'data'}"),
                ("gateway's ledger", f"{self.ledger}, pages in {self.raw}"),
                ("logs", f"{self.log('gateway')}, {self.log('worker')}"),
            ]
        )


def write_county(files: Files, parcels: int) -> None:
    """A task for each parcel; the echo platform gives back as a record what stands in it."""
    with files.tasks.open("wb") as out:
        for parcel in _parcels(parcels):
            out.write(encode(parcel) + b"\n")


def _parcels(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        owes = number % 3 == 0
        due = 310 + number * 37 % 9_000
        yield {
            "platform": "echo",
            "parcel_id": f"{number // 100 + 1:03}-{number % 100:02}",
            "state": "CT",
            "county": "hartford",
            "priority": 2 if number % 10 == 0 else 3,
            "owner_names": [f"{_SURNAMES[number % 10]}, {'JKLM'[number % 4]}. {number}"],
            "situs_address": f"{number % 400 + 1} {_STREETS[number % 5]}",
            "situs_city": "Hartford",
            "delinquent": owes,
            "tax_due": f"{due}.50" if owes else "0.00",
            "liens": [_lien(number, due)] if owes and number % 2 else [],
            "delay_ms": _DELAY_MS,
        }


def _lien(number: int, due: int) -> dict[str, Any]:
    return {
        "certificate_number": f"2025-{number:05}",
        "certificate_year": 2025,
        "tax_year": 2024,
        "status": _STATUSES[number % 3],
        "holder_name": "",
        "face_amount": f"{due}.50",
        "sale_date": "2025-06-02",
    }
