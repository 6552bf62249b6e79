"""SQLite's own check of a database, which can be broken off."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

_MOST = 20
_STEPS_BETWEEN_LOOKS = 100_000


def never() -> bool:
    """A check is not broken off."""
    return False


def damage(db: sqlite3.Connection, *, deep: bool = False, is_over: Callable[[], bool] = never) -> list[str] | None:
    """What is wrong with the file and its references; empty when it is whole, None when it took too long.

    `deep`: every index is compared with its table, too.
    """
    db.set_progress_handler(lambda: int(is_over()), _STEPS_BETWEEN_LOOKS)
    try:
        found = [str(row[0]) for row in db.execute(f"PRAGMA {'integrity' if deep else 'quick'}_check({_MOST})")]
        broken = [f"{row[0]} row {row[1]} names a missing {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)
    return ([] if found == ["ok"] else found) + broken[:_MOST]
