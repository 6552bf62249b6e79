"""SQLite's own check of a database, which can be broken off."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

DAMAGE_STATE = "damage"
_MOST = 20
_STEPS_BETWEEN_LOOKS = 100_000


class DamageNote(Struct, frozen=True, kw_only=True):
    """A worker came upon a damaged page of the file and goes on around it."""

    at: datetime


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
        if found != ["ok"]:
            return found
        broken = [f"{row[0]} row {row[1]} names a missing {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)
    return broken[:_MOST]
