"""An import that is interrupted says how many tasks are really stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parcelpost.cli.importer.importer import ChunkResult, ImportCounts, Importer, NumberedTask, StoreSink
from parcelpost.cli.importer.options import Format
from parcelpost.cli.importer.readers import open_reader, open_source
from parcelpost.cli.importer.task_rows import Columns
from parcelpost.clock import SystemClock
from parcelpost.storage import LocalPersistenceManager, StoreOptions


class Watched(StoreSink):
    """Says when a chunk begins to come in."""

    began: asyncio.Event

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        self.began.set()
        return await super().add(numbered)


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
async def test_what_had_begun_to_come_in_is_counted(tmp_path: Path, turns: int) -> None:
    file = tmp_path / "p.csv"
    rows = (f"{number},CT,hartford\n" for number in range(20_000))
    file.write_text("parcel_id,state,county\n" + "".join(rows))
    tally = ImportCounts(lambda bad: None)
    async with LocalPersistenceManager.open(tmp_path / "parcelpost.db") as lpm:
        sink = Watched(lpm, StoreOptions(), SystemClock())
        sink.began = asyncio.Event()
        with open_source(str(file)) as source:
            importer = Importer(source, open_reader(source, Format.CSV), Columns({}, {"platform": "echo"}))
            running = asyncio.create_task(importer.run(sink, tally, lambda done, total: None))
            await sink.began.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert tally.new == (await lpm.queue_depth()).pending > 0
