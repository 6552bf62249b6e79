"""The queue of tasks: each function is one change or one look, run inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import DecodeError
from msgspec.json import decode, encode

from parcelpost.model import Claim, Site, TaskInfo, TaskStatus
from parcelpost.storage import multi_row, open_sites, outbox, rows

_COLUMNS = """task_id, source, type, platform, state, county, parcel_id, target_json, priority, max_retries,
    created_at, updated_at"""
_ADD = f"INSERT INTO tasks ({_COLUMNS})"
_ADD_LEASED = f"INSERT INTO tasks ({_COLUMNS}, lease_expires_at, lease_id)"
_ONCE = "ON CONFLICT (task_id) DO NOTHING"

# Each platform's next tasks come from its own part of the index; the best of those heads win. So nothing that is
# paused, delayed or finished is ever stepped over, and a claim costs the same at a million tasks as at ten.
_HEADS = """
SELECT json_group_array(seq) FROM (
    SELECT head.seq
    FROM json_each(:platforms) AS open
    JOIN tasks AS head ON head.seq IN (
        SELECT seq FROM tasks
        WHERE status = 'pending' AND available_at IS NULL AND platform = open.value
            AND (lease_expires_at IS NULL OR lease_expires_at > :now)
        ORDER BY priority, seq LIMIT :limit)
    ORDER BY head.priority, head.seq LIMIT :limit)
"""

_CLAIM = """
UPDATE tasks
SET status = 'processing', claim_token = :token, claimed_by = :owner, started_at = :now, updated_at = :now
WHERE seq IN (SELECT value FROM json_each(:seqs))
"""

# One row for all of them: a row each would be a handing over of Python's lock each.
_CLAIMED = f"""
SELECT json_group_array(json_array({rows.CLAIM_COLUMNS})) FROM tasks
WHERE seq IN (SELECT value FROM json_each(:seqs))
"""

# One probe of the index for each platform that has something ready, instead of a walk over all of it.
READY_PLATFORMS = """
WITH RECURSIVE ready (platform) AS (
    SELECT min(platform) FROM tasks WHERE status = 'pending' AND available_at IS NULL
    UNION ALL
    SELECT (SELECT min(platform) FROM tasks
            WHERE status = 'pending' AND available_at IS NULL AND platform > ready.platform)
    FROM ready WHERE ready.platform IS NOT NULL)
"""

_PLATFORMS = f"""
{READY_PLATFORMS}
SELECT platform FROM ready
WHERE platform IS NOT NULL
    AND platform NOT IN (SELECT platform FROM platform_pauses WHERE paused_until IS NULL OR paused_until > ?)
"""

_NEXT_MOMENTS = """
SELECT
    coalesce((SELECT min(available_at) FROM tasks
              WHERE status = 'pending' AND available_at IS NOT NULL), '9999'),
    coalesce((SELECT min(lease_expires_at) FROM tasks
              WHERE status = 'pending' AND lease_expires_at IS NOT NULL), '9999')
"""

_DAMAGE = (sqlite3.OperationalError, DecodeError, ValueError, KeyError, TypeError)

_PROMOTE = """
UPDATE tasks SET available_at = NULL WHERE seq IN (
    SELECT seq FROM tasks WHERE status = 'pending' AND available_at <= ? ORDER BY available_at LIMIT ?)
"""
_MAX_PROMOTED = 2_000

_LEAVE = "claim_token = NULL, claimed_by = NULL, assigned_browser = NULL"

_END = f"""
UPDATE tasks SET status = ?, completed_at = ?, updated_at = ?, error = ?, {_LEAVE}
WHERE seq = ? AND claim_token = ?
"""

_RETRY = f"""
UPDATE tasks SET status = 'pending', retries = retries + 1, available_at = ?, updated_at = ?, error = ?, {_LEAVE}
WHERE seq = ? AND claim_token = ? AND retries < max_retries
"""

_RELEASE = f"""
UPDATE tasks SET status = 'pending', available_at = ?, updated_at = ?, started_at = NULL, error = coalesce(?, error),
    {_LEAVE}
WHERE seq = ? AND claim_token = ?
"""


def add(db: sqlite3.Connection, task_rows: Sequence[tuple[Any, ...]]) -> int:
    """How many were new. A task that is known stays exactly as it is."""
    if any(row[-2] for row in task_rows):
        return multi_row.insert(db, _ADD_LEASED, task_rows, _ONCE)
    return multi_row.insert(db, _ADD, [row[:-2] for row in task_rows], _ONCE)  # a NULL takes longer than a text


def add_each(db: sqlite3.Connection, task_rows: list[tuple[Any, ...]]) -> list[bool]:
    """Of single tasks from many callers: whether each was new."""
    last = db.execute("SELECT coalesce(max(seq), 0) FROM tasks").fetchone()[0]
    if add(db, task_rows) == len(task_rows):
        return [True] * len(task_rows)
    added = db.execute("SELECT json_group_array(task_id) FROM tasks WHERE seq > ?", (last,)).fetchone()[0]
    new = set(decode(added))
    answers = []
    for row in task_rows:
        answers.append(row[0] in new)
        new.discard(row[0])  # of two alike, the first is the new one
    return answers


class Wish(NamedTuple):
    """Whose tasks are wanted."""

    platforms: frozenset[str] | None = None
    """None: of all."""
    but: frozenset[Site] = frozenset()
    """Sites that are passed over."""


class ClaimRequest(NamedTuple):
    owner: str
    token: str
    now: str
    limit: int
    wish: Wish


def claim_each(db: sqlite3.Connection, requests: list[ClaimRequest]) -> list[list[Claim]]:
    """Tasks for each caller in turn, by priority and then age: due, not paused, their leases not over.

    Callers that want the same are served by one statement, and share its claim token.
    """
    now = requests[0].now
    due, lease_over = db.execute(_NEXT_MOMENTS).fetchone()
    if due <= now:
        db.execute(_PROMOTE, (now, _MAX_PROMOTED))
    if lease_over <= now:
        expire_leases(db, now)
    open_platforms = [row[0] for row in db.execute(_PLATFORMS, (now,))]
    limits: dict[Wish, int] = {}
    for request in requests:
        limits[request.wish] = limits.get(request.wish, 0) + request.limit
    claims: dict[Wish, Iterator[Claim]] = {}
    answers = []
    for request in requests:
        wish = request.wish
        if wish not in claims:
            claims[wish] = iter(_claim(db, request._replace(limit=limits[wish]), open_platforms))
        answers.append(list(islice(claims[wish], request.limit)))
    return answers


def _claim(db: sqlite3.Connection, request: ClaimRequest, open_platforms: list[str]) -> list[Claim]:
    platforms, but = request.wish
    allowed = [name for name in open_platforms if platforms is None or name in platforms]
    if not allowed:
        return []
    claims: list[Claim] = []
    while True:
        wanted = request.limit - len(claims)
        if but:
            seqs = open_sites.heads(db, allowed, but, request.now, wanted)
        else:
            heads = {"now": request.now, "limit": wanted, "platforms": encode(allowed).decode()}
            seqs = db.execute(_HEADS, heads).fetchone()[0]
        db.execute(_CLAIM, {"token": request.token, "owner": request.owner, "now": request.now, "seqs": seqs})
        found, were_damaged = _claimed(db, seqs, request)
        claims += found
        if not were_damaged:
            return claims


def _claimed(db: sqlite3.Connection, seqs: str, request: ClaimRequest) -> tuple[list[Claim], bool]:
    """The claims on these tasks, and whether any was damaged and set aside."""
    try:
        found: list[list[Any]] = decode(db.execute(_CLAIMED, {"seqs": seqs}).fetchone()[0])
        found.sort(key=itemgetter(4, 8))  # priority, seq
        return [rows.claim(row, request.token) for row in found], False
    except _DAMAGE:
        return _claimed_one_by_one(db, decode(seqs), request), True


def _claimed_one_by_one(db: sqlite3.Connection, seqs: list[int], request: ClaimRequest) -> list[Claim]:
    """One damaged row stops no other: it fails, with its report, and the rest go on."""
    claims = []
    for seq in seqs:
        try:
            row = db.execute(f"SELECT {rows.CLAIM_COLUMNS} FROM tasks WHERE seq = ?", (seq,)).fetchone()
            claims.append(rows.claim(row, request.token))
        except _DAMAGE:
            end_with_report(db, seq, request.token, TaskStatus.FAILED, request.now, "its stored row cannot be read")
    return sorted(claims, key=lambda claim: (claim.task.priority, claim.seq))


def end(db: sqlite3.Connection, seq: int, token: str, status: str, now: str, error: str | None) -> bool:
    """False when the claim is no longer the current one: then nothing changed (I4)."""
    return db.execute(_END, (status, now, now, error, seq, token)).rowcount == 1


def end_with_report(db: sqlite3.Connection, seq: int, token: str, status: str, now: str, error: str | None) -> bool:
    """Ends a task that has no record; its end goes to the outbox in the same transaction (I1, I3)."""
    if not end(db, seq, token, status, now, error):
        return False
    outbox.report(db, [seq])
    return True


def retry(db: sqlite3.Connection, seq: int, token: str, now: str, available_at: str, error: str) -> TaskStatus | None:
    """PENDING, or FAILED with its report when the retries are used up, or None for a stale claim."""
    if db.execute(_RETRY, (available_at, now, error, seq, token)).rowcount:
        return TaskStatus.PENDING
    return TaskStatus.FAILED if end_with_report(db, seq, token, TaskStatus.FAILED, now, error) else None


def release(
    db: sqlite3.Connection,
    claims: Sequence[tuple[int, str]],
    now: str,
    available_at: str | None,
    reason: str | None = None,
) -> int:
    rows = [(available_at, now, reason, seq, token) for seq, token in claims]
    return db.executemany(_RELEASE, rows).rowcount if rows else 0


def release_owned(db: sqlite3.Connection, owner: str, now: str) -> int:
    """All that one opener holds, when it leaves."""
    held = "SELECT seq, claim_token FROM tasks WHERE status = 'processing' AND claimed_by = ?"
    return release(db, db.execute(held, (owner,)).fetchall(), now, None)


def heartbeat(db: sqlite3.Connection, claims: Sequence[tuple[int, str]], now: str, lease: str | None) -> list[int]:
    """Touches each claim and extends its lease where one is given. Answers which are lost, by their place."""
    touch = """UPDATE tasks SET updated_at = ?, lease_expires_at = coalesce(?, lease_expires_at)
               WHERE seq = ? AND claim_token = ?"""
    return [
        index for index, (seq, token) in enumerate(claims) if not db.execute(touch, (now, lease, seq, token)).rowcount
    ]


def extend_leases(db: sqlite3.Connection, until: str, granted_after: str, now: str) -> int:
    """Of what is not over yet and was stored after that moment. Answers how many leases are longer now."""
    extend = """UPDATE tasks SET lease_expires_at = :until
                WHERE {} AND lease_expires_at > :now AND lease_expires_at < :until AND created_at > :granted_after"""
    values = {"until": until, "granted_after": granted_after, "now": now}
    parts = ("status = 'pending'", "status = 'processing'")
    return sum(db.execute(extend.format(part), values).rowcount for part in parts)


def assign_browser(db: sqlite3.Connection, seq: int, token: str, browser_id: int | None) -> bool:
    change = "UPDATE tasks SET assigned_browser = ? WHERE seq = ? AND claim_token = ?"
    return db.execute(change, (browser_id, seq, token)).rowcount == 1


def expire_leases(db: sqlite3.Connection, now: str, limit: int = 500) -> int:
    due = "SELECT seq FROM tasks WHERE status = 'pending' AND lease_expires_at <= ? LIMIT ?"
    return _expire(db, [row[0] for row in db.execute(due, (now, limit))], now, "its lease ended before it was started")


def stored_before(db: sqlite3.Connection, moment: str, limit: int = 500) -> list[int]:
    """Pending tasks that are older. A look, since it may have to go over all of them: clocks are set back."""
    query = "SELECT seq FROM tasks WHERE status = 'pending' AND {} AND created_at < ? LIMIT ?"
    parts = (query.format("available_at IS NULL"), query.format("available_at IS NOT NULL"))
    return [row[0] for part in parts for row in db.execute(part, (moment, limit))]


def expire_stored_before(db: sqlite3.Connection, seqs: Sequence[int], moment: str, now: str) -> int:
    """Of these, what is still pending ends as expired."""
    check = "SELECT 1 FROM tasks WHERE seq = ? AND status = 'pending' AND created_at < ?"
    still = [seq for seq in seqs if db.execute(check, (seq, moment)).fetchone()]
    return _expire(db, still, now, "it was too old before it was started")


def _expire(db: sqlite3.Connection, seqs: list[int], now: str, why: str) -> int:
    change = "UPDATE tasks SET status = 'expired', completed_at = ?, updated_at = ?, error = ? WHERE seq = ?"
    db.executemany(change, [(now, now, why, seq) for seq in seqs])
    outbox.report(db, seqs)
    return len(seqs)


def owners(db: sqlite3.Connection) -> list[str]:
    """Who holds claims."""
    return [row[0] for row in db.execute("SELECT DISTINCT claimed_by FROM tasks WHERE status = 'processing'")]


def get(db: sqlite3.Connection, task_id: str) -> TaskInfo | None:
    row = db.execute(f"SELECT {rows.INFO_COLUMNS} FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
    return None if row is None else rows.info(row)
