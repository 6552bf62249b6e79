"""Many rows in one statement are the same rows."""

from __future__ import annotations

import contextlib
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from parcelpost.storage.rows import insert_many


@given(st.lists(st.tuples(st.integers(0, 50), st.text()), max_size=300))
def test_rows_go_in_as_one_by_one(rows: list[tuple[int, str]]) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for table in ("many", "single"):
            db.execute(f"CREATE TABLE {table} (seq INTEGER PRIMARY KEY, n INTEGER UNIQUE, text TEXT)")
        changed = insert_many(db, "INSERT INTO many (n, text)", rows, "ON CONFLICT (n) DO NOTHING")
        for row in rows:
            db.execute("INSERT INTO single (n, text) VALUES (?, ?) ON CONFLICT (n) DO NOTHING", row)
        stored = db.execute("SELECT * FROM many ORDER BY seq").fetchall()
        assert stored == db.execute("SELECT * FROM single ORDER BY seq").fetchall()
        assert changed == len(stored)
