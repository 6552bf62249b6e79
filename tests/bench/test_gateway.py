"""The gateway's benchmark measures gateways and databases that do all the work they are measured for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gateway import ledgers
from bench.gateway.client import BATCH
from bench.gateway.command import processor_table
from tests.gateway.servers import postgres

BATCHES = 20


@pytest.mark.slow
def test_every_result_is_stored_compared_and_indexed_and_processor_time_is_measured(tmp_path: Path) -> None:
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "postgres").mkdir()
    on_sqlite = ledgers.store_on_sqlite(tmp_path / "sqlite", BATCHES, 1)
    with postgres() as server:
        on_postgres = ledgers.store_on_postgres(server.get_uri(), tmp_path / "postgres", BATCHES, 1)
    for trio in (on_sqlite, on_postgres):
        for metered in (trio.ours, trio.without_changes, trio.compared, trio.indexed):
            assert metered.run.done == BATCHES * BATCH
            assert metered.gateway_ms > 0
    assert on_postgres.ours.postgres_ms > 0
    assert on_postgres.compared.postgres_ms > 0
    table = processor_table({"SQLite": [on_sqlite], "PostgreSQL": [on_postgres]})
    assert on_postgres.several is not None
    assert on_postgres.several.postgres_ms > 0
    assert on_postgres.several_to_one > 0
    assert len(table.rows) == 9
