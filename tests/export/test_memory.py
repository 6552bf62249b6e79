"""Memory does not grow with the number of records."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from parcelpost.export import Format
from parcelpost.export.exporter import ExportOptions, export, plan_export
from parcelpost.model import OutboxEntry
from tests.export.factories import ANN, NOW, an_entry
from tests.lengths import short_and_long

PAGE = 25
DATA = json.dumps(ANN).encode()


async def exported(output: Path, form: Format, records: int) -> None:
    async def pages() -> AsyncIterator[Sequence[OutboxEntry]]:
        for start in range(0, records, PAGE):
            yield [an_entry(DATA, parcel_id=f"{n}") for n in range(start, start + PAGE)]

    what = plan_export(str(output / f"{records}.{form}"), None, ["parcels"])
    await export(pages(), what, ExportOptions(now=NOW), replace=False, progress=lambda done: None)


async def peak(output: Path, form: Format, records: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        await exported(output, form, records)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", list(Format))
@short_and_long("records", (100,), (200,))
async def test_four_times_the_records_take_no_more_memory(tmp_path: Path, form: Format, records: int) -> None:
    """Arrow's own memory is not Python's, and is bounded by its groups of rows."""
    await exported(tmp_path, form, PAGE)  # what is loaded once
    few, many = await peak(tmp_path, form, records), await peak(tmp_path, form, 4 * records)
    assert many < few * 1.3 + 1_000 * records, (few, many)
