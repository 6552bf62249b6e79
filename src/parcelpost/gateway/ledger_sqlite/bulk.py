"""Many rows in few statements: around each one the thread gives the interpreter away and has to wait to get it back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

_MOST_ROWS = 100


def write_rows(db: sqlite3.Connection, insert: str, rows: Sequence[Sequence[Any]], on_conflict: str = "") -> None:
    """`insert` is all that stands before VALUES."""
    for start in range(0, len(rows), _MOST_ROWS):
        part = rows[start : start + _MOST_ROWS]
        db.execute(_statement(insert, len(part), len(part[0]), on_conflict), list(chain.from_iterable(part)))


@cache
def _statement(insert: str, rows: int, columns: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{insert} VALUES {', '.join([row] * rows)} {on_conflict}"
