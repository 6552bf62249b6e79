"""Numbered schema files: `0001.sql` is version 1. Applied in order, never edited once released."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from parcelpost.errors import LedgerError

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
VERSION = "SELECT coalesce(max(version), 0) FROM schema_version"
NOTE_VERSION = "INSERT INTO schema_version (version, applied_at) VALUES (?, ?)"


class Step(Struct, frozen=True):
    version: int
    sql: str


def load(folder: Path) -> list[Step]:
    return [Step(int(file.stem), file.read_text(encoding="utf-8")) for file in sorted(folder.glob("[0-9]*.sql"))]


def steps_after(version: int, folder: Path) -> list[Step]:
    """Returns what brings that version up to date. Raises LedgerError for one newer than this program knows."""
    steps = load(folder)
    newest = steps[-1].version
    if version > newest:
        raise LedgerError(
            f"the ledger has schema version {version}, this program knows {newest}", hint="upgrade this program"
        )
    return steps[version:]
