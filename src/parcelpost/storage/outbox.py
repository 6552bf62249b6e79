"""The outbox: what waits for delivery, in order, and what became of it: receipts, attempts, rejections.

What waits is read in one step of SQLite, as one JSON array: row by row, the reading thread would ask for Python's lock
once a row, and wait for it wherever the event loop is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.json import Decoder, encode
from msgspec.structs import force_setattr

from parcelpost.model import OutboxEntry
from parcelpost.storage import by_person, rows
from parcelpost.storage.errors import UnreadableRow, primary_code

_MOST_BYTES = 1 << 62

_entries = Decoder(list[OutboxEntry]).decode
_sizes = Decoder(list[int | None]).decode


_ENTRY_COLUMNS = {column.partition(".")[2]: column for column in map(str.strip, rows.ENTRY_COLUMNS.split(","))}
_TRUTHS = {"success": "r.success", "page_shared": "r.page_shared", "listed": rows.LISTED}
_ENTRY_COLUMNS |= {name: f"json(iif({column}, 'true', 'false'))" for name, column in _TRUTHS.items()} | {"data": "NULL"}
_FIELDS = ", ".join(_ENTRY_COLUMNS[name] for name in OutboxEntry.__struct_fields__)
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


_REPORT = """
INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, error, idempotency_key,
    scraped_at, created_at, screenshot_path, log_path)
SELECT lower(hex(randomblob(16))), t.task_id, status = 'not_found', parcel_id, platform, state, county, error,
    t.task_id || ':' || status || ':' || completed_at, completed_at, completed_at, screenshot_path, log_path
FROM tasks AS t LEFT JOIN evidence AS e ON e.task_id = t.task_id WHERE seq = ?
"""

_ENTRIES = f"SELECT {rows.ENTRY_COLUMNS} FROM results AS r JOIN tasks AS t ON t.task_id = r.task_id"


# One statement for all of them: one each would be a handing over of Python's lock each.
_BY_ID = "results INDEXED BY sqlite_autoindex_results_1"
_AMONG = "result_id IN (SELECT value FROM json_each(?))"


def report(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """How tasks ended that have no record, from the tasks' own rows."""
    for seq in seqs:
        try:
            db.execute(_REPORT, (seq,))
        except sqlite3.IntegrityError:
            task_id = db.execute("SELECT task_id FROM tasks WHERE seq = ?", (seq,)).fetchone()[0]
            # A requeued task that had been delivered as a record keeps that record: a later failure does not undo it.
            if db.execute("SELECT success FROM results WHERE task_id = ?", (task_id,)).fetchone()[0] == 0:
                remove_earlier(db, task_id)
                db.execute(_REPORT, (seq,))


def reject_damaged(db: sqlite3.Connection, seqs: Sequence[int], now: str) -> int:
    """Set aside and kept, like what the gateway will not take."""
    change = (
        "UPDATE results SET rejected_at = ?, last_error = 'its stored row cannot be read' WHERE seq = ? AND synced = 0"
    )
    return db.executemany(change, [(now, seq) for seq in seqs]).rowcount


def mark_synced(db: sqlite3.Connection, result_ids: Sequence[str], now: str) -> int:
    """Receipts. An entry whose raw file is not upstream yet stays in the outbox (I6)."""
    change = f"""UPDATE {_BY_ID} SET synced = 1, synced_at = ?, rejected_at = NULL, last_error = NULL
                 WHERE {_AMONG} AND synced = 0 AND (html_path IS NULL OR raw_synced_at IS NOT NULL)"""
    return db.execute(change, (now, _json(result_ids))).rowcount


def mark_raw_synced(db: sqlite3.Connection, result_ids: Sequence[str], now: str) -> int:
    change = f"UPDATE {_BY_ID} SET raw_synced_at = ? WHERE {_AMONG} AND html_path IS NOT NULL"
    return db.execute(change, (now, _json(result_ids))).rowcount


def mark_rejected(db: sqlite3.Connection, result_ids: Sequence[str], reason: str, now: str) -> int:
    """Kept and visible, never sent again by itself. The attempt that decided it counts, too."""
    change = """UPDATE results SET rejected_at = ?, last_error = ?, sync_attempts = sync_attempts + 1
                WHERE result_id = ? AND synced = 0"""
    return db.executemany(change, [(now, by_person.by_others(reason), one) for one in result_ids]).rowcount


def count_attempt(db: sqlite3.Connection, result_ids: Sequence[str], error: str) -> int:
    change = "UPDATE results SET sync_attempts = sync_attempts + 1, last_error = ? WHERE result_id = ? AND synced = 0"
    return db.executemany(change, [(error, result_id) for result_id in result_ids]).rowcount


def note_refusal(db: sqlite3.Connection, result_ids: Sequence[str], error: str) -> int:
    change = "UPDATE results SET last_error = ? WHERE result_id = ? AND synced = 0"
    return db.executemany(change, [(error, result_id) for result_id in result_ids]).rowcount


def reset_rejected(db: sqlite3.Connection, result_ids: Sequence[str] | None) -> int:
    change = "UPDATE results SET rejected_at = NULL, sync_attempts = 0 WHERE rejected_at IS NOT NULL"
    if result_ids is None:
        return db.execute(change).rowcount
    return db.executemany(f"{change} AND result_id = ?", [(result_id,) for result_id in result_ids]).rowcount


def depth(db: sqlite3.Connection) -> tuple[int, int, str | None]:
    """How many wait, how many are rejected, and since when the oldest waits."""
    outbox = "FROM results INDEXED BY results_outbox WHERE synced = 0 AND rejected_at IS NULL"
    waiting = db.execute(f"SELECT count(*) {outbox}").fetchone()[0]
    aside = "SELECT count(*) FROM results INDEXED BY results_rejected WHERE rejected_at IS NOT NULL"
    rejected = db.execute(aside).fetchone()[0]
    oldest = db.execute(f"SELECT created_at {outbox} ORDER BY seq LIMIT 1").fetchone()
    return waiting, rejected, oldest and oldest[0]


def set_aside(db: sqlite3.Connection) -> int:
    """Of the rejected ones, those that a person has set aside."""
    aside = "SELECT count(*) FROM results INDEXED BY results_rejected WHERE rejected_at IS NOT NULL"
    return int(db.execute(f"{aside} AND {by_person.is_said('last_error')}").fetchone()[0])


def get(db: sqlite3.Connection, task_id: str) -> OutboxEntry | None:
    row = db.execute(f"{_ENTRIES} WHERE r.task_id = ?", (task_id,)).fetchone()
    return None if row is None else rows.entry(row)


def named_by_a_result(db: sqlite3.Connection, html_paths: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Of these raw files, those that a result names: path -> its hash, and the record that belongs beside it."""
    owner = "SELECT raw_sha256, data FROM results WHERE html_path = ? AND json_path IS NOT NULL"
    sharer = "SELECT raw_sha256, NULL FROM results WHERE html_path = ? AND json_path IS NULL LIMIT 1"
    found = {
        path: db.execute(owner, (path,)).fetchone() or db.execute(sharer, (path,)).fetchone() for path in html_paths
    }
    return {path: row for path, row in found.items() if row is not None}


def names_a_page(db: sqlite3.Connection) -> bool:
    """Whether any result of the store has a raw file."""
    return db.execute("SELECT 1 FROM results WHERE html_path IS NOT NULL LIMIT 1").fetchone() is not None


def awaits_pages(db: sqlite3.Connection) -> bool:
    """Whether a result that is to be delivered has a raw file that is not upstream yet."""
    query = """SELECT 1 FROM results INDEXED BY results_outbox WHERE synced = 0 AND rejected_at IS NULL
        AND html_path IS NOT NULL AND raw_synced_at IS NULL LIMIT 1"""
    return db.execute(query).fetchone() is not None


def remove_earlier(db: sqlite3.Connection, task_id: str) -> list[str]:
    """What the task and its children brought before gives way. Answers the files that went with it."""
    # Only what was delivered may give way (I2); an unsynced row here is a mistake, and the insert fails again.
    gone = "DELETE FROM results WHERE task_id = ? AND (synced = 1 OR success = 0) RETURNING json_path, html_path"
    children = """DELETE FROM results WHERE synced = 1 AND task_id IN
                      (SELECT task_id FROM tasks INDEXED BY tasks_children WHERE parent_id = ?)"""
    db.execute(children, (task_id,))
    return [path for row in db.execute(gone, (task_id,)).fetchall() for path in row if path]


def _json(result_ids: Sequence[str]) -> str:
    return encode(list(result_ids)).decode()
