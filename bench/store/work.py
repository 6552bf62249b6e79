"""The same work for every contender, made before any clock starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from parcelpost.model import Result, Target, Task

TARGET_BYTES = 300
RESULT_BYTES = 2048
PLATFORM = "vgsi"
SCRAPED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Work:
    """Item i of each sequence belongs together. The peers get plain dicts, the store gets its own types."""

    tasks: Sequence[Task]
    results: Sequence[Result]
    targets: Sequence[Mapping[str, Any]]
    records: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.tasks)


def make_work(count: int) -> Work:
    tasks = list(make_tasks(count))
    records = [_make_record(number) for number in range(count)]
    return Work(
        tasks=tasks,
        results=[Result(data=record, scraped_at=SCRAPED_AT) for record in records],
        targets=[msgspec.to_builtins(task.target) for task in tasks],
        records=records,
    )


def make_tasks(count: int, prefix: str = "task") -> Iterator[Task]:
    """Tasks whose target is 300 bytes of compact JSON."""
    for number in range(count):
        yield Task(task_id=f"{prefix}-{number:08}", platform=PLATFORM, target=_make_target(number))


def _make_target(number: int) -> Target:
    parcel, url = f"{number:08}-000", f"https://gis.example.org/hartfordct/parcel.aspx?pid={number}"
    bare = Target(parcel_id=parcel, state="CT", county="hartford", url=url, extra={"note": ""})
    missing = TARGET_BYTES - len(msgspec.json.encode(bare))
    return Target(parcel_id=parcel, state="CT", county="hartford", url=url, extra={"note": "n" * missing})


def _make_record(number: int) -> dict[str, Any]:
    """What a scraper brings of one parcel, padded to 2 KB of compact JSON."""
    record: dict[str, Any] = {
        "parcel_id": f"{number:08}-000",
        "owner": {"name": f"DOE JOHN {number}", "mailing": f"{number % 900} MAIN ST, HARTFORD, CT 06103"},
        "assessed": {"land": 41_300 + number % 1000, "building": 128_900.5, "total": 170_200.5, "year": 2025},
        "bills": [
            {"year": year, "due": 3_214.55, "paid": 0.0 if year == 2025 else 3_214.55, "lien": year == 2025}
            for year in range(2016, 2026)
        ],
        "sales": [{"date": "2011-04-05", "price": 189_000, "book": "1022", "page": str(number)}],
        "legal": "",
    }
    missing = RESULT_BYTES - len(json.dumps(record, separators=(",", ":")))
    return {**record, "legal": ("LOT 7 BLK 12 MAP 103 " * 100)[:missing]}
