"""The outbox: results that wait for delivery, in order, with their receipts, attempts and rejections.

A batch is read as one JSON array, in one step of SQLite. Row by row, sqlite3 would release and take the GIL for every
row, and wait for it whenever the event loop is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.json import Decoder, encode
from msgspec.structs import force_setattr

from parcelpost.model import OutboxEntry
from parcelpost.storage import rows
from parcelpost.storage.errors import MAY_BE_DAMAGE, is_damage

_MAX_BYTES = 1 << 62

_decode_entries = Decoder(list[OutboxEntry]).decode
_decode_sizes = Decoder(list[int | None]).decode

_BOOLEANS = {
    name: f"json(iif({rows.ENTRY_COLUMNS[name]}, 'true', 'false'))"
    for name in ("success", "page_shared", "multi_record")
}
_FIELDS = ", ".join((rows.ENTRY_COLUMNS | _BOOLEANS | {"data": "NULL"}).values())
# Hot queries name their index, because the planner's statistics may be a day old.
_NEXT = """SELECT min(seq) FROM results INDEXED BY results_outbox
    WHERE synced = 0 AND rejected_at IS NULL AND seq > walk.seq"""
# Walks from entry to entry and stops at the one that fills the batch, because the next one may be large.
_BATCH = f"""
WITH RECURSIVE walk (seq, bytes_left, entries_left) AS (
    SELECT :after, :max_bytes, :limit
    UNION ALL
    SELECT r.seq, bytes_left - coalesce(length(CAST(r.data AS BLOB)), 0), entries_left - 1
    FROM walk CROSS JOIN results AS r NOT INDEXED ON r.seq = ({_NEXT})
    WHERE entries_left > 0 AND bytes_left >= 0
)
SELECT CAST(json_group_array(json_array({_FIELDS})) AS BLOB), json_group_array(length(CAST(r.data AS BLOB))),
    CAST(group_concat(r.data, '') AS BLOB)
FROM walk CROSS JOIN results AS r NOT INDEXED ON r.seq = walk.seq CROSS JOIN tasks AS t ON t.task_id = r.task_id
WHERE walk.seq > :after
"""
_SEQS = """SELECT seq FROM results INDEXED BY results_outbox
    WHERE synced = 0 AND rejected_at IS NULL AND seq > ? ORDER BY seq"""


def unsynced(
    db: sqlite3.Connection, limit: int, max_bytes: int | None, after: int = 0
) -> tuple[list[OutboxEntry], bool]:
    """Returns the oldest entries in the order stored: the first one, then as many as fit into `max_bytes` of data.

    Also returns whether entries were skipped because a page of the file is damaged.
    """
    max_bytes = _MAX_BYTES if max_bytes is None else max_bytes
    try:
        return _as_many_as_fit(_read(db, after, max_bytes, limit), max_bytes), False
    except MAY_BE_DAMAGE as error:
        if not is_damage(error):
            raise
        return _as_many_as_fit(islice(_readable(db, after), limit), max_bytes), True


def _read(db: sqlite3.Connection, after: int, max_bytes: int, limit: int) -> list[OutboxEntry]:
    row = db.execute(_BATCH, {"after": after, "max_bytes": max_bytes, "limit": limit}).fetchone()
    entries, data = _decode_entries(row[0]), row[2] or b""
    if not data.isascii():
        data.decode()  # finds a damaged record before it is sent
    start = 0
    for entry, size in zip(entries, _decode_sizes(row[1]), strict=True):
        if size is not None:
            force_setattr(entry, "data", data[start : start + size])  # nobody else has the entry yet
            start += size
    return entries


def _readable(db: sqlite3.Connection, after: int) -> Iterator[OutboxEntry]:
    """Yields entries one by one, except those on damaged pages."""
    for (seq,) in db.execute(_SEQS, (after,)).fetchall():
        try:
            yield from _read(db, seq - 1, _MAX_BYTES, 1)
        except MAY_BE_DAMAGE as error:
            if not is_damage(error):
                raise


def _as_many_as_fit(entries: Iterable[OutboxEntry], max_bytes: int) -> list[OutboxEntry]:
    batch: list[OutboxEntry] = []
    for entry in entries:
        max_bytes -= len(entry.data or b"")
        if batch and max_bytes < 0:
            break
        batch.append(entry)
    return batch


_REPORT = """
INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, error, idempotency_key,
    scraped_at, created_at, screenshot_path, log_path)
SELECT lower(hex(randomblob(16))), t.task_id, status = 'not_found', parcel_id, platform, state, county, error,
    t.task_id || ':' || status || ':' || completed_at, completed_at, completed_at, screenshot_path, log_path
FROM tasks AS t LEFT JOIN artifacts AS a ON a.task_id = t.task_id WHERE seq = ?
"""

_ENTRIES = f"{rows.ENTRY_SELECT} FROM results AS r JOIN tasks AS t ON t.task_id = r.task_id"


# One statement for many results, because sqlite3 releases and takes the GIL for each statement.
_BY_ID = "results INDEXED BY sqlite_autoindex_results_1"
_AMONG = "result_id IN (SELECT value FROM json_each(?))"


def report(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Adds a report of the end of each of these tasks to the outbox (I1)."""
    for seq in seqs:
        try:
            db.execute(_REPORT, (seq,))
        except sqlite3.IntegrityError:
            task_id = db.execute("SELECT task_id FROM tasks WHERE seq = ?", (seq,)).fetchone()[0]
            # The record of an earlier run is kept: a later failure does not replace it.
            if db.execute("SELECT success FROM results WHERE task_id = ?", (task_id,)).fetchone()[0] == 0:
                remove_earlier(db, task_id)
                db.execute(_REPORT, (seq,))


def mark_synced(db: sqlite3.Connection, result_ids: Sequence[str], now: str) -> int:
    """Records receipts. An entry whose raw file has no receipt yet stays in the outbox (I6)."""
    change = f"""UPDATE {_BY_ID} SET synced = 1, synced_at = ?, rejected_at = NULL, rejected_by = NULL,
                     last_error = NULL
                 WHERE {_AMONG} AND synced = 0 AND (html_path IS NULL OR raw_synced_at IS NOT NULL)"""
    return db.execute(change, (now, _json(result_ids))).rowcount


def mark_raw_synced(db: sqlite3.Connection, result_ids: Sequence[str], now: str) -> int:
    change = f"UPDATE {_BY_ID} SET raw_synced_at = ? WHERE {_AMONG} AND html_path IS NOT NULL"
    return db.execute(change, (now, _json(result_ids))).rowcount


def mark_rejected(db: sqlite3.Connection, result_ids: Sequence[str], reason: str, now: str) -> int:
    """Rejects results: they are kept and no longer sent. Counts as an attempt."""
    change = """UPDATE results SET rejected_at = ?, rejected_by = NULL, last_error = ?,
                    sync_attempts = sync_attempts + 1 WHERE result_id = ? AND synced = 0"""
    return db.executemany(change, [(now, reason, result_id) for result_id in result_ids]).rowcount


def count_attempt(db: sqlite3.Connection, result_ids: Sequence[str], error: str) -> int:
    change = "UPDATE results SET sync_attempts = sync_attempts + 1, last_error = ? WHERE result_id = ? AND synced = 0"
    return db.executemany(change, [(error, result_id) for result_id in result_ids]).rowcount


def note_refusal(db: sqlite3.Connection, result_ids: Sequence[str], error: str) -> int:
    change = "UPDATE results SET last_error = ? WHERE result_id = ? AND synced = 0"
    return db.executemany(change, [(error, result_id) for result_id in result_ids]).rowcount


class Depth(NamedTuple):
    waiting: int
    oldest: str | None
    """When the oldest waiting entry was stored."""
    rejected: int
    rejected_by_operator: int
    """How many of the rejected entries an operator rejected."""


def depth(db: sqlite3.Connection) -> Depth:
    outbox = "FROM results INDEXED BY results_outbox WHERE synced = 0 AND rejected_at IS NULL"
    waiting = db.execute(f"SELECT count(*) {outbox}").fetchone()[0]
    oldest = db.execute(f"SELECT created_at {outbox} ORDER BY seq LIMIT 1").fetchone()
    rejected = """SELECT count(*), count(rejected_by) FROM results INDEXED BY results_rejected
        WHERE rejected_at IS NOT NULL"""
    return Depth(waiting, oldest and oldest[0], *db.execute(rejected).fetchone())


def get(db: sqlite3.Connection, task_id: str) -> OutboxEntry | None:
    row = db.execute(f"{_ENTRIES} WHERE r.task_id = ?", (task_id,)).fetchone()
    return None if row is None else rows.entry(row)


def named_by_a_result(db: sqlite3.Connection, html_paths: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Returns those of the raw files that a result names: path -> hash, and the record stored next to it."""
    owner = "SELECT raw_sha256, data FROM results WHERE html_path = ? AND json_path IS NOT NULL"
    sharer = "SELECT raw_sha256, NULL FROM results WHERE html_path = ? AND json_path IS NULL LIMIT 1"
    named = {
        path: db.execute(owner, (path,)).fetchone() or db.execute(sharer, (path,)).fetchone() for path in html_paths
    }
    return {path: row for path, row in named.items() if row is not None}


def has_raw_files(db: sqlite3.Connection) -> bool:
    """Whether any result has a raw file."""
    return db.execute("SELECT 1 FROM results WHERE html_path IS NOT NULL LIMIT 1").fetchone() is not None


def has_unsynced_raw_files(db: sqlite3.Connection) -> bool:
    """Whether a raw file still has to be delivered."""
    query = """SELECT 1 FROM results INDEXED BY results_outbox WHERE synced = 0 AND rejected_at IS NULL
        AND html_path IS NOT NULL AND raw_synced_at IS NULL LIMIT 1"""
    return db.execute(query).fetchone() is not None


def remove_earlier(db: sqlite3.Connection, task_id: str) -> list[str]:
    """Deletes the delivered results of an earlier run of the task and its children. Returns their files."""
    # Only delivered results (I2): if one is not delivered, the following insert fails again.
    own = "DELETE FROM results WHERE task_id = ? AND (synced = 1 OR success = 0) RETURNING json_path, html_path"
    children = """DELETE FROM results WHERE synced = 1 AND task_id IN
                      (SELECT task_id FROM tasks INDEXED BY tasks_children WHERE parent_id = ?)"""
    db.execute(children, (task_id,))
    return [path for row in db.execute(own, (task_id,)).fetchall() for path in row if path]


def _json(result_ids: Sequence[str]) -> str:
    return encode(list(result_ids)).decode()
