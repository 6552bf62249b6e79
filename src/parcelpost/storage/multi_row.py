"""Many rows in one statement: one call into SQLite, and one handing over of Python's lock, instead of one a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

_MOST = 128


def insert(db: sqlite3.Connection, head: str, rows: Sequence[Sequence[Any]], tail: str = "") -> int:
    """Runs `head VALUES (...), (...) tail` for all rows, in order. Answers how many rows were changed."""
    changed, start = 0, 0
    while start < len(rows):
        size = min(_MOST, 1 << (len(rows) - start).bit_length() - 1)  # few different sizes: statements are cached
        part = rows[start : start + size]
        changed += db.execute(_statement(head, len(part[0]), size, tail), list(chain.from_iterable(part))).rowcount
        start += size
    return changed


@cache
def _statement(head: str, width: int, size: int, tail: str) -> str:
    row = f"({', '.join('?' * width)})"
    return f"{head} VALUES {', '.join([row] * size)} {tail}"
