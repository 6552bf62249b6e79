"""The outbox: every result and report, until the gateway has it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from msgspec.json import encode

from parcelpost.clock import iso
from parcelpost.model import OutboxEntry, Result, Task
from parcelpost.storage import by_person, checks, multi_row, rows
from parcelpost.storage.raw_files import KeptPage

_COLUMNS = """result_id, task_id, success, parcel_id, platform, state, county, execution_time_ms, idempotency_key,
    scraped_at, created_at, data"""
_SAVE = f"INSERT INTO results ({_COLUMNS})"
_SAVE_WITH_FILES = f"""
INSERT INTO results ({_COLUMNS}, json_path, html_path, screenshot_path, log_path, raw_sha256, raw_bytes,
    content_type)
"""

_CLOSE = """
UPDATE tasks SET status = 'completed', completed_at = ?, updated_at = ?, error = NULL, claim_token = NULL,
    claimed_by = NULL, assigned_browser = NULL
"""
_COMPLETE_ONE = f"{_CLOSE} WHERE seq = ? AND claim_token = ?"
_COMPLETE = f"""
{_CLOSE}
FROM json_each(?) AS held
WHERE seq = CAST(held.key AS INTEGER) AND claim_token = held.value
"""

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


class ResultRow(NamedTuple):
    """The columns of a record's row, in the order of the statement that stores it."""

    result_id: str
    task_id: str
    success: int
    parcel_id: str
    platform: str
    state: str
    county: str
    execution_time_ms: int
    idempotency_key: str
    scraped_at: str
    created_at: str
    data: str
    json_path: str | None
    html_path: str | None
    screenshot_path: str | None
    log_path: str | None
    raw_sha256: str | None
    raw_bytes: int
    content_type: str | None = None


_NO_FILES = (None, None, None, None, None, 0, None)
_PLAIN_PAGE = "text/html"


def result_row(task: Task, result: Result, result_id: str, data: bytes, now: str) -> ResultRow:
    """Raises InvalidInput that names the field at fault."""
    target = task.target
    return ResultRow(
        result_id,
        task.task_id,
        1,
        checks.text("parcel_id", result.parcel_id) if result.parcel_id else target.parcel_id,
        task.platform,
        target.state,
        target.county or checks.text("county", result.county, may_be_empty=True),
        checks.whole("execution_time_ms", result.execution_time_ms),
        f"{task.task_id}:{sha256(data).hexdigest()}",
        iso(result.scraped_at),
        now,
        data.decode(),
        None,
        None,
        _path("screenshot_path", result.screenshot_path),
        _path("log_path", result.log_path),
        None,
        0,
    )


def with_page(row: ResultRow, kept: KeptPage, content_type: str) -> ResultRow:
    return row._replace(
        json_path=kept.json_path,
        html_path=kept.html_path,
        raw_sha256=kept.sha256,
        raw_bytes=kept.disk_bytes,
        content_type=None if content_type == _PLAIN_PAGE else checks.message(content_type, max_chars=200),
    )


def _path(field: str, value: str | None) -> str | None:
    return None if value is None else checks.text(field, value, max_chars=4_000)


class SaveRequest(NamedTuple):
    seq: int
    token: str
    row: ResultRow


def save_each(db: sqlite3.Connection, requests: list[SaveRequest]) -> list[list[str] | None]:
    """Closes each request's task and stores its record, all or nothing (I3). None: its claim is stale (I4).

    Otherwise the answer lists the files of an earlier, delivered result of the same task that this one replaces.
    """
    now = requests[0].row.created_at
    if len(requests) == 1:
        (only,) = requests
        return [insert(db, only.row) if complete_one(db, only.seq, only.token, now) else None]
    held = encode({str(request.seq): request.token for request in requests}).decode()
    if db.execute(_COMPLETE, (now, now, held)).rowcount < len(requests):
        raise _NotAllCurrent  # the writer then runs them one by one, and only the stale ones are told so
    saved = [request.row for request in requests]
    _store(db, saved)
    return [[] for _ in requests]


def complete_one(db: sqlite3.Connection, seq: int, token: str, now: str) -> bool:
    """False: the claim is stale (I4)."""
    return db.execute(_COMPLETE_ONE, (now, now, seq, token)).rowcount == 1


class _NotAllCurrent(Exception):
    """Somewhere in the group is a stale claim."""


class PathTaken(Exception):
    """Another result names that file, though it is gone from the disk: the page needs another name."""


def insert(db: sqlite3.Connection, row: ResultRow) -> list[str]:
    """Answers the files of an earlier, delivered result of the same task that this one replaces. Raises PathTaken."""
    replaced: list[str] = []
    try:
        _store(db, [row])
    except sqlite3.IntegrityError:
        if row.html_path and named_by_a_result(db, [row.html_path]):
            raise PathTaken from None
        replaced = remove_earlier(db, row.task_id)
        _store(db, [row])
    return replaced


def _store(db: sqlite3.Connection, saved: Sequence[ResultRow]) -> None:
    # A row without files does not name their columns: Python's sqlite3 takes three times as long over a NULL as over a
    # text, because it asks for an adapter first.
    plain = [row[: -len(_NO_FILES)] for row in saved if row[-len(_NO_FILES) :] == _NO_FILES]
    multi_row.insert(db, _SAVE, plain)
    if len(plain) == len(saved):
        return
    with_files = [row for row in saved if row[-len(_NO_FILES) :] != _NO_FILES]
    multi_row.insert(db, _SAVE_WITH_FILES, with_files)
    added = sum(row.raw_bytes for row in with_files)
    db.execute("UPDATE storage_usage SET bytes = bytes + ? WHERE kind = 'raw'", (added,))


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
