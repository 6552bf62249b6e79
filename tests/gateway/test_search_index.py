"""The search index ends as the ledger is, whoever keeps it and whenever they are killed."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import InvalidInput
from parcelpost.gateway.ledger import postgres
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.sqlite_connections import Readers, prepare
from parcelpost.gateway.models import IngestedResult, Schedule, Scope, SearchFilter
from parcelpost.model import Target
from parcelpost.schedule import make_timing
from tests.gateway.conftest import MAX_ATTEMPTS
from tests.gateway.factories import NOON, arrival

ROOT = Path(__file__).parents[2]

INDEX_SLOWLY = """
import asyncio, sys
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.factory import open_ledger
async def main():
    async with open_ledger(sys.argv[1], 3, SystemClock()) as ledger:
        while await ledger.update_search(SystemClock().now(), 2):
            print("a step", flush=True)
asyncio.run(main())
"""

CONTENT = {
    "parcels": "SELECT * FROM search_parcels",
    "liens": "SELECT * FROM search_liens",
    "groups": "SELECT * FROM search_parcels_groups WHERE number_of_rows > 0",
    "lien groups": "SELECT * FROM search_liens_groups WHERE number_of_rows > 0",
    "cells": "SELECT * FROM search_cells WHERE parcels > 0",
    "words": "SELECT rowid, words FROM search_parcels_words",
    "lien words": "SELECT rowid, words FROM search_liens_words",
    "queue": "SELECT * FROM search_queue",
}
NUMBERED = {"no", "group_no", "map_no", "rowid", "changed"}
"""Columns that depend on the order in which groups were first seen."""


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


async def rows(database: str, sql: str) -> list[dict[str, Any]]:
    if database.startswith("postgresql"):
        connection = await asyncpg.connect(database)
        try:
            return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()
    with closing(sqlite3.connect(database)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


async def execute(database: str, sql: str) -> None:
    if database.startswith("postgresql"):
        connection = await asyncpg.connect(database)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()
        return
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(sql)


async def content(database: str) -> Mapping[str, list[str]]:
    """All that the index holds, whichever numbers its groups have."""
    groups = {row["group_no"]: row for row in await rows(database, "SELECT * FROM search_parcels_groups")}
    places = {row["map_no"]: [row[name] for name in ("state", "county", "delinquent")] for row in groups.values()}
    found = {}
    for name, sql in CONTENT.items():
        lines = []
        for row in await rows(database, sql):
            kept = {key: value for key, value in row.items() if key not in NUMBERED}
            if name == "cells":
                kept["place"] = places[row["map_no"]]
            if "rowid" in row:
                kept["number"] = row["rowid"] & (1 << 40) - 1
            lines.append(str(sorted(kept.items(), key=lambda item: item[0])))
        found[name] = sorted(lines)
    return found


async def as_made_anew(database: str) -> Mapping[str, list[str]]:
    await execute(database, "DROP TABLE search_state")
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await index(ledger, NOON)
    return await content(database)


async def index(ledger: Ledger, now: datetime) -> None:
    while await ledger.update_search(now, 50):
        pass


def scrape(number: int, version: int) -> IngestedResult:
    liens = [
        {"certificate_number": f"{place}", "face_amount": number + version, "status": "open"}
        for place in range((number + version) % 3)
    ]
    return arrival(
        f"t{number}-{version}",
        f"P-{number}",
        NOON + timedelta(hours=version),
        owner_names=[f"OWNER {number % 7} {version}"],
        land_use_desc=f"use {number % 3}",
        delinquent=(number + version) % 2 == 0,
        tax_due=number,
        longitude=-82.5 + (number + version % 2) / 100,
        latitude=30 + number / 100,
        liens=liens,
    )


async def test_an_index_whose_keepers_are_killed_catches_up(database: str) -> None:
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        for version in range(4):
            await ledger.store([scrape(number, version) for number in range(20)], "w", NOON)
            process = subprocess.Popen(
                [sys.executable, "-c", INDEX_SLOWLY, database], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            with process:
                assert process.stdout is not None
                for _ in range(3):
                    assert process.stdout.readline() == "a step\n"
                process.kill()
        assert await ledger.left_to_index() > 0
        await index(ledger, NOON)
        assert await ledger.left_to_index() == 0
    kept = await content(database)
    assert len(kept["parcels"]) == 20
    assert kept == await as_made_anew(database)


async def test_several_that_keep_an_index_make_the_same(database: str) -> None:
    async with (
        open_ledger(database, MAX_ATTEMPTS, SystemClock()) as first,
        open_ledger(database, MAX_ATTEMPTS, SystemClock()) as second,
    ):
        for version in range(3):
            await first.store([scrape(number, version) for number in range(30)], "w", NOON)
            await asyncio.gather(*(drain(ledger) for ledger in (first, second)))
    kept = await content(database)
    assert kept["queue"] == []
    assert kept == await as_made_anew(database)


async def drain(ledger: Ledger) -> None:
    while await ledger.update_search(NOON, 3):
        pass


@pytest.mark.parametrize("lost", ["search_cells", "search_parcels", "search_liens_words", "search_queue"])
async def test_an_index_that_lost_a_table_is_made_again(database: str, lost: str) -> None:
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await ledger.store([scrape(number, 1) for number in range(5)], "w", NOON)
        await index(ledger, NOON)
    before = await content(database)
    await execute(database, f"DROP TABLE {lost}")
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        assert await ledger.left_to_index() > 0
        await ledger.store([scrape(number, 2) for number in range(3)], "w", NOON)
        await index(ledger, NOON)
        after = await content(database)
        assert len(after["parcels"]) == len(before["parcels"]) == 5
        assert (await ledger.search_facets("parcels", SearchFilter())).total == 5
    assert after == await as_made_anew(database)


async def test_a_parcel_is_fresh_then_due_then_overdue(database: str) -> None:
    async def freshness(now: datetime) -> dict[Any, int]:
        await index(ledger, now)
        return dict((await ledger.search_facets("parcels", SearchFilter())).facets["freshness"])

    def schedule(name: str, scope: Scope, every: str) -> Schedule:
        return Schedule(
            name=name,
            platform="echo",
            state="FL",
            county="union",
            timing=make_timing(every, "", "UTC", ""),
            scope=scope,
            window_seconds=3600,
            pace_seconds=1,
            created_at=NOON,
        )

    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await ledger.store([scrape(number, 0) for number in range(4)], "w", NOON)
        assert await freshness(NOON) == {"unscheduled": 4}
        await ledger.add_schedule(schedule("late", Scope.DELINQUENT, "1h"), [], NOON)
        assert await freshness(NOON) == {"unscheduled": 2, "fresh": 2}
        hour = timedelta(hours=1)
        assert await freshness(NOON + 3 * hour) == {"unscheduled": 2, "due": 2}
        assert await freshness(NOON + 5 * hour) == {"unscheduled": 2, "overdue": 2}
        target = Target(parcel_id="P-1", state="FL", county="union")
        await ledger.add_schedule(schedule("listed", Scope.FILE, "1d"), [target], NOON)
        assert await freshness(NOON + 5 * hour) == {"unscheduled": 1, "fresh": 1, "overdue": 2}
        for row in await ledger.schedules():
            await ledger.delete_schedule(row.schedule_no)
        assert await freshness(NOON + 5 * hour) == {"unscheduled": 4}


ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def test_a_search_that_takes_too_long_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    prepare(path, NOON)
    readers = Readers(path, 1, 0.2)
    try:
        with pytest.raises(InvalidInput, match="takes longer"):
            await readers.run(lambda db: db.execute(ENDLESS).fetchall())
        assert await readers.run(lambda db: db.execute("SELECT 1").fetchall()) == [(1,)]
    finally:
        await readers.close()


@pytest.mark.parametrize("new_database", ["postgres"], indirect=True)
async def test_a_search_that_postgres_takes_too_long_for_is_cut_off(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres._SEARCH_SETTINGS, "statement_timeout", "200ms")
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        assert isinstance(ledger, postgres.PostgresLedger)
        with pytest.raises(InvalidInput, match="takes longer"):
            await ledger._search_rows(ENDLESS, ())
        assert [tuple(row) for row in await ledger._search_rows("SELECT 1", ())] == [(1,)]
