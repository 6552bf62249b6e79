"""A look at a file's first bytes, so that another program's file is never touched."""

from __future__ import annotations

from pathlib import Path

from parcelpost.storage.migrations import APPLICATION_ID

_MAGIC = b"SQLite format 3\x00"
_BYTES = 100


def problem(path: Path) -> str:
    """Why the file cannot be a store; empty if it can. An empty file can become one."""
    if not path.is_file():
        return "is not a file"
    with path.open("rb") as file:
        header = file.read(_BYTES)
    if not header:
        return ""
    if not header.startswith(_MAGIC):
        return "is not an SQLite database"
    page_bytes = int.from_bytes(header[16:18], "big")
    if _has_content(path.with_name(path.name + "-wal")) or path.stat().st_size <= page_bytes:
        return ""  # the WAL may hold a newer first page, or the file has no tables yet: SQLite itself has to look
    return "" if int.from_bytes(header[68:72], "big") == APPLICATION_ID else "is a database of another program"


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
