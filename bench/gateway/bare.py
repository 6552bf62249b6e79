"""The bare driver: the rows that the gateway has written, once more, into the same tables, 100 results a commit.

One process, one connection, no HTTP, no JSON, nothing looked up: rows are made before the clock starts.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from bench.timing import Run

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""By table."""

_TABLES = ("parcels", "results", "liens")


def sqlite_rows(filled: Path) -> Rows:
    with closing(sqlite3.connect(filled)) as db:
        return {name: db.execute(f"SELECT * FROM {name} ORDER BY parcel_no").fetchall() for name in _TABLES}


def insert_sqlite(rows: Rows, empty: Path, batches: int) -> Run:
    with closing(sqlite3.connect(empty, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        parts = [_part(rows, batch, batches) for batch in range(batches)]
        start = time.perf_counter()
        for part in parts:
            db.execute("BEGIN IMMEDIATE")
            for name, values in part.items():
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values[0]))})", values)
            db.execute("COMMIT")
        return Run(len(rows["results"]), time.perf_counter() - start)


async def postgres_rows(filled: str) -> Rows:
    connection = await asyncpg.connect(filled)
    try:
        return {
            name: [tuple(row) for row in await connection.fetch(f"SELECT * FROM {name} ORDER BY parcel_no")]
            for name in _TABLES
        }
    finally:
        await connection.close()


async def insert_postgres(rows: Rows, empty: str, batches: int) -> Run:
    """With COPY, which asyncpg's documentation names as the fastest way in."""
    connection = await asyncpg.connect(empty)
    try:
        parts = [_part(rows, batch, batches) for batch in range(batches)]
        start = time.perf_counter()
        for part in parts:
            async with connection.transaction():
                for name, values in part.items():
                    await connection.copy_records_to_table(name, records=values)
        return Run(len(rows["results"]), time.perf_counter() - start)
    finally:
        await asyncio.shield(connection.close())


def _part(rows: Rows, batch: int, batches: int) -> Rows:
    """Every batch has as many rows of each table."""
    cut = {
        name: found[len(found) * batch // batches : len(found) * (batch + 1) // batches] for name, found in rows.items()
    }
    return {name: found for name, found in cut.items() if found}
