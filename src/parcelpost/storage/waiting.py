"""What waits in the outbox, read in one step of SQLite.

Row by row, the reading thread would ask for Python's lock once a row, and wait for it wherever the event loop is busy.
So SQLite makes one JSON array of all the rows, and one text of all their records, while Python does something else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.json import Decoder
from msgspec.structs import force_setattr

from parcelpost.model import OutboxEntry
from parcelpost.storage import rows
from parcelpost.storage.sqlite_errors import UnreadableRow, primary_code

_MOST_BYTES = 1 << 62

_entries = Decoder(list[OutboxEntry]).decode
_sizes = Decoder(list[int | None]).decode


_COLUMNS = {column.partition(".")[2]: column for column in map(str.strip, rows.ENTRY_COLUMNS.split(","))}
_TRUTHS = {"success": "r.success", "page_shared": "r.page_shared", "listed": rows.LISTED}
_COLUMNS |= {name: f"json(iif({column}, 'true', 'false'))" for name, column in _TRUTHS.items()} | {"data": "NULL"}
_FIELDS = ", ".join(_COLUMNS[name] for name in OutboxEntry.__struct_fields__)
# The planner's statistics are from last night: what is hot names its index.
_NEXT = """SELECT min(seq) FROM results INDEXED BY results_outbox
    WHERE synced = 0 AND rejected_at IS NULL AND seq > walk.seq"""
# It goes from entry to entry and stops behind the one that fills the room: what follows may be large.
_ALL = f"""
WITH RECURSIVE walk (seq, room, places) AS (
    SELECT :after, :room, :places
    UNION ALL
    SELECT r.seq, room - coalesce(length(CAST(r.data AS BLOB)), 0), places - 1
    FROM walk CROSS JOIN results AS r NOT INDEXED ON r.seq = ({_NEXT})
    WHERE places > 0 AND room >= 0
)
SELECT CAST(json_group_array(json_array({_FIELDS})) AS BLOB), json_group_array(length(CAST(r.data AS BLOB))),
    CAST(group_concat(r.data, '') AS BLOB)
FROM walk CROSS JOIN results AS r NOT INDEXED ON r.seq = walk.seq CROSS JOIN tasks AS t ON t.task_id = r.task_id
WHERE walk.seq > :after
"""
_SEQS = """SELECT seq FROM results INDEXED BY results_outbox
    WHERE synced = 0 AND rejected_at IS NULL AND seq > ? ORDER BY seq"""
_ONE = f"SELECT {rows.ENTRY_COLUMNS} FROM results AS r JOIN tasks AS t ON t.task_id = r.task_id WHERE r.seq = ?"


def unsynced(
    db: sqlite3.Connection, limit: int, max_bytes: int | None, after: int = 0
) -> tuple[list[OutboxEntry], list[int], bool]:
    """The oldest first, in the order stored; at least one, then as many as fit into max_bytes of data.

    Beside them the seqs of entries that hold what nobody can read; and whether something was passed over that lies on
    a damaged page of the file, where nothing can be written either.
    """
    room = _MOST_BYTES if max_bytes is None else max_bytes
    try:
        row = db.execute(_ALL, {"after": after, "room": room, "places": limit}).fetchone()
        return _as_many_as_fit(_with_data(row), room), [], False
    except (sqlite3.OperationalError, sqlite3.DataError, UnreadableRow):
        return _one_by_one(db, limit, room, after)
    except sqlite3.DatabaseError as error:
        if primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
        return _one_by_one(db, limit, room, after)


@rows.readable
def _with_data(row: Sequence[Any]) -> list[OutboxEntry]:
    entries, data = _entries(row[0]), row[2] or b""
    if not data.isascii():
        data.decode()  # what is no text is found here, not by the gateway
    start = 0
    for entry, size in zip(entries, _sizes(row[1]), strict=True):
        if size is not None:
            force_setattr(entry, "data", data[start : start + size])  # frozen for all who come after
            start += size
    return entries


def _one_by_one(db: sqlite3.Connection, limit: int, room: int, after: int) -> tuple[list[OutboxEntry], list[int], bool]:
    """One damaged entry stops no other."""
    damaged: list[int] = []
    on_damaged_pages: list[int] = []

    def readable() -> Iterator[OutboxEntry]:
        for (seq,) in db.execute(_SEQS, (after,)).fetchall():
            try:
                yield rows.entry(db.execute(_ONE, (seq,)).fetchone())
            except (sqlite3.OperationalError, UnreadableRow):
                damaged.append(seq)
            except sqlite3.DatabaseError as error:
                if primary_code(error) != sqlite3.SQLITE_CORRUPT:
                    raise
                on_damaged_pages.append(seq)

    return _as_many_as_fit(islice(readable(), limit), room), damaged, bool(on_damaged_pages)


def _as_many_as_fit(entries: Iterable[OutboxEntry], room: int) -> list[OutboxEntry]:
    found: list[OutboxEntry] = []
    for entry in entries:
        room -= len(entry.data or b"")
        if found and room < 0:
            break
        found.append(entry)
    return found
