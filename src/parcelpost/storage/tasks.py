"""Every change of a task's status, as functions that run in the caller's transaction.

    from        event                                 to
    (none)      add, add_leased                       pending
    (none)      add_refreshes, add_refresh_targets    pending             a known parcel is due again
    (none)      add_children                          completed           further records of a page
    pending     complete_new                          completed           just added, together with its record
    pending     claim_each                            processing
    processing  end, complete_each                    completed           with its result (I3)
    processing  end_with_report                       not_found, failed   with its report (I1)
    processing  retry                                 pending, failed     failed once its retries are used up
    processing  release, release_owned                pending             at no cost to its retries
    processing  recover                               pending, failed     failed after too many crashes (I9)
    pending     expire_leases, expire_stored_before   expired             with its report (I1)
    ended       add_leased                            pending             requested again by its upstream
    ended       restart                               pending             by an operator (operator_actions.py)
    not failed  fail                                  failed              by an operator (operator_actions.py)

`ended` is completed, not_found, failed or expired; `not failed` is pending or any other end. A salvaged store
(salvage.py) has lost some rows, and nobody works on its tasks (`release_owned`):

    (none)      add_ended                             completed, failed   its row is lost, its result is not
    pending     end_like_result                       completed, failed   its result came from a backup
    completed   repeat_lost                           pending             its result is lost

Only the token of the current claim can end it: any other token changes nothing (I4).
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import asdict

from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import REFRESH, Claim, Priority, Site, Target, Task, TaskInfo, TaskStatus
from parcelpost.storage import claims, outbox, rows
from parcelpost.storage.claims import TaskFilter
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import LONGEST_DELAY, StoreOptions

_TASK_COLUMNS = """task_id, source, type, platform, state, county, parcel_id, target_json, priority, max_retries,
    created_at, updated_at"""
_ADD = f"INSERT INTO tasks ({_TASK_COLUMNS})"
_ADD_LEASED = f"INSERT INTO tasks ({_TASK_COLUMNS}, lease_expires_at, lease_id)"
_ONCE = "ON CONFLICT (task_id) DO NOTHING"

_CLAIM = """
UPDATE tasks
SET status = 'processing', claim_token = :token, claimed_by = :owner, started_at = :now, updated_at = :now
WHERE seq IN (SELECT value FROM json_each(:seqs))
"""

# One row for all claims, because sqlite3 releases and takes the GIL for every row.
_CLAIMED = f"""
SELECT json_group_array(json_array({rows.CLAIM_COLUMNS}, task_id IN (SELECT task_id FROM artifacts))) FROM tasks
WHERE seq IN (SELECT value FROM json_each(:seqs))
"""

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
    """Returns how many were new. A known task is not changed."""
    if any(row[-2] for row in task_rows):
        return rows.insert_many(db, _ADD_LEASED, task_rows, _ONCE)
    return rows.insert_many(db, _ADD, [row[:-2] for row in task_rows], _ONCE)  # binding NULL is slower than text


def add_each(db: sqlite3.Connection, task_rows: list[tuple[Any, ...]]) -> list[bool]:
    """Adds one task per caller. Returns for each whether it was new."""
    last = db.execute("SELECT coalesce(max(seq), 0) FROM tasks").fetchone()[0]
    if add(db, task_rows) == len(task_rows):
        return [True] * len(task_rows)
    added = db.execute("SELECT json_group_array(task_id) FROM tasks WHERE seq > ?", (last,)).fetchone()[0]
    new = set(decode(added))
    were_new = []
    for row in task_rows:
        were_new.append(row[0] in new)
        new.discard(row[0])  # of two with the same id, only the first is new
    return were_new


class RefreshRun(NamedTuple):
    """Tasks that scrape known parcels again, `spacing` seconds apart."""

    prefix: str
    """What their ids begin with."""
    now: datetime
    spacing: float = 0.0


REFRESH_RETRIES = 3


def _refreshes(number: str, parcel: str, source: str) -> str:
    """Returns SQL that adds a task for each `wanted` row: `number` ends its id, `parcel` its place and target."""
    return f"""
        INSERT INTO tasks ({_TASK_COLUMNS}, available_at)
        SELECT :prefix || {number}, 'local_file', '{REFRESH}', {parcel}, {int(Priority.BATCH)}, {REFRESH_RETRIES},
            :now, :now, strftime('%Y-%m-%dT%H:%M:%fZ', :now,
                '+' || min({LONGEST_DELAY.total_seconds()}, (:first + wanted.key) * :spacing) || ' seconds')
        FROM {source} WHERE true {_ONCE}"""


_ADD_REFRESHES = _refreshes(
    "t.seq",
    "t.platform, t.state, t.county, t.parcel_id, t.target_json",
    "json_each(:seqs) AS wanted CROSS JOIN tasks AS t ON t.seq = wanted.value",
)
_ADD_REFRESH_TARGETS = _refreshes(
    "(:first + wanted.key)",
    ":platform, :state, :county, wanted.value ->> 0, wanted.value ->> 1",
    "json_each(:targets) AS wanted",
)


def add_refreshes(db: sqlite3.Connection, run: RefreshRun, seqs: Sequence[int], first: int = 0) -> int:
    """Adds a task for the parcel of each of these tasks. The first one is due after `first` times the spacing.

    Returns how many were new: a run that was interrupted may be added again.
    """
    values = {**run._asdict(), "now": iso(run.now), "first": first, "seqs": encode(seqs).decode()}
    return db.execute(_ADD_REFRESHES, values).rowcount


def add_refresh_targets(
    db: sqlite3.Connection, run: RefreshRun, site: Site, targets: Sequence[Target], first: int = 0
) -> int:
    """Like `add_refreshes`, for parcels of a site that the store need not know."""
    texts = encode([(target.parcel_id, encode(rows.target_fields(target)).decode()) for target in targets]).decode()
    values = {**run._asdict(), "now": iso(run.now), "first": first, "targets": texts, **asdict(site)}
    return db.execute(_ADD_REFRESH_TARGETS, values).rowcount


class ClaimRequest(NamedTuple):
    owner: str
    token: str
    now: str
    limit: int
    task_filter: TaskFilter


def claim_each(db: sqlite3.Connection, requests: list[ClaimRequest]) -> list[list[Claim]]:
    """Claims the next tasks for each caller in turn.

    Callers with the same filter are served by one statement, and share its claim token.
    """
    now = requests[0].now
    if claims.promote_due(db, now):
        expire_leases(db, now)
    platforms = claims.unpaused_platforms(db, now)
    limits: dict[TaskFilter, int] = {}
    for request in requests:
        limits[request.task_filter] = limits.get(request.task_filter, 0) + request.limit
    claimed: dict[TaskFilter, Iterator[Claim]] = {}
    answers = []
    for request in requests:
        task_filter = request.task_filter
        if task_filter not in claimed:
            claimed[task_filter] = iter(_claim(db, request._replace(limit=limits[task_filter]), platforms))
        answers.append(list(islice(claimed[task_filter], request.limit)))
    return answers


def _claim(db: sqlite3.Connection, request: ClaimRequest, platforms: list[str]) -> list[Claim]:
    seqs = claims.next_tasks(db, platforms, request.task_filter, request.now, request.limit)
    db.execute(_CLAIM, {"token": request.token, "owner": request.owner, "now": request.now, "seqs": seqs})
    claimed: list[list[Any]] = decode(db.execute(_CLAIMED, {"seqs": seqs}).fetchone()[0])
    claimed.sort(key=itemgetter(4, 8))  # priority, seq
    return [rows.claim(row, request.token) for row in claimed]


def end(db: sqlite3.Connection, seq: int, token: str, status: str, now: str, error: str | None) -> bool:
    """Returns False for a stale claim, which changes nothing (I4)."""
    return db.execute(_END, (status, now, now, error, seq, token)).rowcount == 1


def end_with_report(db: sqlite3.Connection, seq: int, token: str, status: str, now: str, error: str | None) -> bool:
    """Ends a task without a record, and adds its report to the outbox in the same transaction (I1, I3)."""
    if not end(db, seq, token, status, now, error):
        return False
    outbox.report(db, [seq])
    return True


def retry(db: sqlite3.Connection, seq: int, token: str, now: str, available_at: str, error: str) -> TaskStatus | None:
    """Returns PENDING, FAILED (with a report) if the retries are used up, or None for a stale claim."""
    if db.execute(_RETRY, (available_at, now, error, seq, token)).rowcount:
        return TaskStatus.PENDING
    return TaskStatus.FAILED if end_with_report(db, seq, token, TaskStatus.FAILED, now, error) else None


def retry_delay(retries: int, options: StoreOptions) -> timedelta:
    """Returns the delay before the next retry: doubling, with jitter."""
    longest = min(options.retry_max_seconds, options.retry_min_seconds * 2 ** min(retries, 20))
    return min(timedelta(seconds=longest), LONGEST_DELAY) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


def release(
    db: sqlite3.Connection,
    claims: Sequence[tuple[int, str]],
    now: str,
    available_at: str | None,
    reason: str | None = None,
) -> int:
    rows = [(available_at, now, reason, seq, token) for seq, token in claims]
    return db.executemany(_RELEASE, rows).rowcount if rows else 0


def release_owned(db: sqlite3.Connection, owner: str | None, now: str) -> int:
    """Releases all claims of a process that closes the store; of all processes if `owner` is None."""
    query = "SELECT seq, claim_token FROM tasks WHERE status = 'processing' AND claimed_by = coalesce(?, claimed_by)"
    return release(db, db.execute(query, (owner,)).fetchall(), now, None)


def expire_leases(db: sqlite3.Connection, now: str, limit: int = 500) -> int:
    due = "SELECT seq FROM tasks WHERE status = 'pending' AND lease_expires_at <= ? LIMIT ?"
    return _expire(
        db, [row[0] for row in db.execute(due, (now, limit))], now, "its lease expired before it was started"
    )


def stored_before(db: sqlite3.Connection, moment: str, limit: int = 500) -> list[int]:
    """Returns pending tasks stored before that time. May scan them all, because times do not follow the seq."""
    query = "SELECT seq FROM tasks WHERE status = 'pending' AND {} AND created_at < ? LIMIT ?"
    parts = (query.format("available_at IS NULL"), query.format("available_at IS NOT NULL"))
    return [row[0] for part in parts for row in db.execute(part, (moment, limit))]


def expire_stored_before(db: sqlite3.Connection, seqs: Sequence[int], moment: str, now: str) -> int:
    """Expires these tasks if they are still pending."""
    check = "SELECT 1 FROM tasks WHERE seq = ? AND status = 'pending' AND created_at < ?"
    pending = [seq for seq in seqs if db.execute(check, (seq, moment)).fetchone()]
    return _expire(db, pending, now, "it became too old before it was started")


def _expire(db: sqlite3.Connection, seqs: list[int], now: str, reason: str) -> int:
    change = "UPDATE tasks SET status = 'expired', completed_at = ?, updated_at = ?, error = ? WHERE seq = ?"
    db.executemany(change, [(now, now, reason, seq) for seq in seqs])
    outbox.report(db, seqs)
    return len(seqs)


def owners(db: sqlite3.Connection) -> list[str]:
    """Returns the owner ids of all claims."""
    return [row[0] for row in db.execute("SELECT DISTINCT claimed_by FROM tasks WHERE status = 'processing'")]


def get(db: sqlite3.Connection, task_id: str) -> TaskInfo | None:
    row = db.execute(f"SELECT {rows.INFO_COLUMNS} FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
    return None if row is None else rows.info(row)


_CHUNK = 1_000
_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_REFUSALS = 100


class Added(Struct, frozen=True, kw_only=True):
    """How many tasks were new, known or refused."""

    new: int = 0
    known: int = 0
    refused: int = 0
    refusals: tuple[tuple[str, str], ...] = ()
    """Task id and reason, the first hundred."""


async def add_in_chunks(
    store: Callable[[Sequence[tuple[Any, ...]]], Awaitable[int]],
    new_tasks: Iterable[Task],
    clock: Clock,
    max_target_bytes: int,
) -> Added:
    refusals: list[tuple[str, str]] = []
    refused = new = total = 0

    def stored_rows() -> Iterator[tuple[Any, ...]]:
        nonlocal refused
        for task in new_tasks:
            try:
                yield rows.task_row(task, now, max_target_bytes)
            except InvalidInput as error:
                refused += 1
                if refused <= _MAX_REFUSALS:
                    refusals.append((str(task.task_id), str(error)))

    now = iso(clock.now())
    source = stored_rows()
    while chunk := _next_chunk(source):
        new += await store(chunk)
        total += len(chunk)
        now = iso(clock.now())
    return Added(new=new, known=total - new, refused=refused, refusals=tuple(refusals))


def _next_chunk(source: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in source:
        chunk.append(row)
        size += len(row[7])
        if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
            break
    return chunk


_ROW_NAMES = (
    *("task_id", "source", "type", "platform", "state", "county", "parcel_id", "target", "priority", "max_retries"),
    *("created_at", "now", "lease", "lease_id"),
)
_IS_NEW_LEASE = "(lease_expires_at < :lease OR lease_id IS NOT :lease_id)"
"""A lease with another id is new, regardless of its end."""
# A task's delay starts at its `updated_at` (clock_changes.py), which a lease must not change.
_EXTEND = f"""
UPDATE tasks SET lease_expires_at = :lease, lease_id = :lease_id,
    updated_at = iif(available_at IS NULL, :now, updated_at)
WHERE task_id = :task_id AND status IN ('pending', 'processing') AND {_IS_NEW_LEASE}
"""
_DELETE_UNSENT_REPORT = f"""
DELETE FROM results WHERE task_id = :task_id AND success = 0 AND synced = 0
    AND EXISTS (SELECT 1 FROM tasks WHERE task_id = :task_id AND status = 'expired' AND {_IS_NEW_LEASE})
"""
_IS_NEW_REQUEST = "(status IN ('completed', 'not_found') AND :lease_id IS NOT NULL AND lease_id IS NOT :lease_id)"
"""With lease ids, an accepted result ends its task upstream, so a new lease means that the task is wanted again."""
_NO_RESULT = """
    NOT EXISTS (SELECT 1 FROM results AS r WHERE r.task_id = tasks.task_id AND {0})
    AND NOT EXISTS (SELECT 1 FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND {0})
"""
_IS_DELIVERED = _NO_RESULT.format("r.synced = 0 AND (r.rejected_at IS NULL OR r.data IS NOT NULL)")
"""A rejected record is kept for the operator, so another run must not replace it. It may replace a rejected report."""
_IS_SETTLED = _NO_RESULT.format("r.synced = 0 AND r.rejected_at IS NULL")
_REJECTION = f"""coalesce(
    (SELECT {rows.reason_text("r.rejected_by", "r.last_error")} FROM results AS r
        WHERE r.task_id = tasks.task_id AND r.rejected_at IS NOT NULL),
    (SELECT {rows.reason_text("r.rejected_by", "r.last_error")}
        FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND r.rejected_at IS NOT NULL ORDER BY r.seq LIMIT 1))"""
_REQUEST_AGAIN = f"""
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = :lease,
    lease_id = :lease_id, started_at = NULL, completed_at = NULL, error = NULL, ended_by = NULL, created_at = :now,
    updated_at = :now,
    type = :type, platform = :platform, state = :state, county = :county, parcel_id = :parcel_id,
    target_json = :target, priority = :priority, max_retries = :max_retries, skip_cache = 0
WHERE task_id = :task_id AND {_IS_DELIVERED}
    AND ((status IN ('failed', 'expired') AND (:lease IS NULL OR {_IS_NEW_LEASE})) OR {_IS_NEW_REQUEST})
"""
_REPORT_AGAIN = f"""
UPDATE tasks SET report_due_at = :now, lease_id = coalesce(:lease_id, lease_id),
    lease_expires_at = coalesce(:lease, lease_expires_at)
WHERE task_id = :task_id AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
"""


def add_leased(db: sqlite3.Connection, task_rows: Sequence[tuple[Any, ...]]) -> int:
    """Adds tasks that an upstream has just leased. Returns how many will run: new ones, and known ones that run again.

    - An open task gets the new lease.
    - A task that expired, or failed and was reported, becomes pending again: nobody else has its lease.
    - A completed task stays completed, and its end is reported again: as done if its result was delivered, as failed
      if it was rejected (`to_report_again`).
    - A completed task with a new lease id and without a rejected record runs again, with the new target.
    """
    new = add(db, task_rows)
    return new if new == len(task_rows) else new + sum(_lease_again(db, row) for row in task_rows)


def _lease_again(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    values = dict(zip(_ROW_NAMES, row, strict=True))
    if db.execute(_EXTEND, values).rowcount:
        return 0
    db.execute(_DELETE_UNSENT_REPORT, values)
    if again := db.execute(_REQUEST_AGAIN, values).rowcount:
        return again
    db.execute(_REPORT_AGAIN, values)
    return 0


def to_report_again(db: sqlite3.Connection, limit: int) -> list[tuple[TaskInfo, str | None]]:
    """Returns completed and not found tasks that were leased again after their end was delivered or rejected.

    Each with the reason of the rejection, None if its result was not rejected.
    """
    due = f"""SELECT {rows.INFO_COLUMNS}, {_REJECTION} FROM tasks INDEXED BY tasks_to_report_again
              WHERE report_due_at IS NOT NULL AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
              ORDER BY report_due_at LIMIT ?"""
    return [(rows.info(row), row[-1]) for row in db.execute(due, (limit,))]


def mark_reported_again(db: sqlite3.Connection, seqs: Sequence[int]) -> int:
    change = "UPDATE tasks SET report_due_at = NULL WHERE seq = ?"
    return db.executemany(change, [(seq,) for seq in seqs]).rowcount


async def expire(database: LocalDatabase, now: datetime, max_age: timedelta | None) -> int:
    """Expires tasks in batches, so that other writes can run in between. Returns how many."""
    total = 0
    while expired := await database.write(expire_leases, iso(now)):
        total += expired
    if max_age is None:
        return total
    before = iso(now - max_age)
    while seqs := await database.read(stored_before, before):
        total += await database.write(expire_stored_before, seqs, before, iso(now))
    return total


_ADD_CHILDREN = """
INSERT INTO tasks (task_id, source, type, platform, state, county, parcel_id, target_json, priority, status,
    max_retries, created_at, updated_at, completed_at, parent_id)
"""


class Child(NamedTuple):
    """The columns in which a child task differs from its parent."""

    task_id: str
    state: str
    county: str
    parcel_id: str


def add_children(db: sqlite3.Connection, parent_seq: int, children: Sequence[Child], now: str) -> None:
    parent = "SELECT source, type, platform, priority, max_retries, task_id FROM tasks WHERE seq = ?"
    source, kind, platform, priority, max_retries, parent_id = db.execute(parent, (parent_seq,)).fetchone()
    added = [
        (
            *(child.task_id, source, kind, platform, child.state, child.county, child.parcel_id, _target(child)),
            *(priority, "completed", max_retries, now, now, now, parent_id),
        )
        for child in children
    ]
    # A child may exist without a result if that was delivered and deleted.
    again = "ON CONFLICT (task_id) DO UPDATE SET completed_at = excluded.completed_at, updated_at = excluded.updated_at"
    rows.insert_many(db, _ADD_CHILDREN, added, again)


def _target(child: Child) -> str:
    return encode({"parcel_id": child.parcel_id, "state": child.state, "county": child.county}).decode()


_RESTART = """
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = NULL,
    lease_id = NULL, started_at = NULL, completed_at = NULL, error = NULL, ended_by = NULL, skip_cache = 1,
    was_delinquent = 0, updated_at = ?
WHERE seq = ? AND status <> 'pending'
"""
_COMPLETE_EACH = f"""
UPDATE tasks SET status = 'completed', completed_at = ?, updated_at = ?, error = NULL, {_LEAVE}
FROM json_each(?) AS claim
WHERE seq = CAST(claim.key AS INTEGER) AND claim_token = claim.value
"""


def complete_each(db: sqlite3.Connection, tokens: Mapping[int, str], now: str) -> bool:
    """Completes tasks (seq -> token) in one statement. If it returns False, a claim is stale (I4): roll back."""
    claims_json = encode({str(seq): token for seq, token in tokens.items()}).decode()
    return db.execute(_COMPLETE_EACH, (now, now, claims_json)).rowcount == len(tokens)


def complete_new(db: sqlite3.Connection, task_id: str, now: str) -> None:
    """Completes a task that was added together with its record."""
    change = """UPDATE tasks SET status = 'completed', started_at = ?1, completed_at = ?1
                WHERE task_id = ?2 AND status = 'pending'"""
    db.execute(change, (now, task_id))


def restart(db: sqlite3.Connection, seqs: Sequence[int], now: str) -> None:
    """By an operator: pending as if new, due now, without the page cache."""
    make_due = """UPDATE tasks SET available_at = NULL, skip_cache = 1, updated_at = ?
                 WHERE seq = ? AND status = 'pending'"""
    changes = [(now, seq) for seq in seqs]
    db.executemany(make_due, changes)
    db.executemany(_RESTART, changes)


def fail(db: sqlite3.Connection, seqs: Sequence[int], now: str, error: str) -> None:
    """By an operator, in any status but processing. The caller adds the reports."""
    change = """UPDATE tasks SET status = 'failed', completed_at = ?, updated_at = ?, error = ?, ended_by = 'operator'
                WHERE seq = ?"""
    db.executemany(change, [(now, now, error, seq) for seq in seqs])


_ADD_ENDED = """
INSERT INTO tasks (task_id, source, type, platform, state, county, parcel_id, target_json, priority, status,
    max_retries, created_at, updated_at, completed_at, error)
VALUES (?, ?, 'scrape', ?, ?, ?, ?, ?, 3, ?, 0, ?, ?, ?, 'its row was damaged: restored from its result')
"""
_END_LIKE_RESULT = """
UPDATE tasks SET status = iif(r.success, 'completed', 'failed'), completed_at = r.created_at, available_at = NULL
FROM results AS r WHERE tasks.task_id = ? AND r.task_id = tasks.task_id AND tasks.status = 'pending'
"""


def add_ended(db: sqlite3.Connection, source: str, platform: str, child: Child, ended_at: str, success: int) -> None:
    """Adds the lost task of a result."""
    status = "completed" if success else "failed"
    place = (platform, child.state, child.county, child.parcel_id)
    db.execute(_ADD_ENDED, (child.task_id, source, *place, _target(child), status, ended_at, ended_at, ended_at))


def end_like_result(db: sqlite3.Connection, task_id: str) -> None:
    db.execute(_END_LIKE_RESULT, (task_id,))


def repeat_lost(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Runs completed tasks again."""
    change = """UPDATE tasks SET status = 'pending', available_at = NULL, completed_at = NULL,
                    error = 'its result was damaged'
                WHERE seq = ? AND status = 'completed'"""
    db.executemany(change, [(seq,) for seq in seqs])


_FREE_RECOVERIES = 10
_FIRST_DELAY_SECONDS = 60


def recover(db: sqlite3.Connection, crashed: list[str], now: datetime, max_recoveries: int) -> tuple[int, int]:
    """Recovers the tasks of crashed processes (I9). Returns how many are pending again, and how many failed.

    A task that is claimed at every crash probably causes it. After ten crashes its delay doubles each time, with a
    spread that separates it from its neighbours; it fails after `max_recoveries`.
    """
    back = f"""UPDATE tasks SET status = 'pending', recoveries = recoveries + 1, available_at = ?, updated_at = ?,
                   started_at = NULL, {_LEAVE}
               WHERE seq = ?"""
    recovered = given_up = 0
    for owner in crashed:
        query = "SELECT seq, claim_token, recoveries FROM tasks WHERE status = 'processing' AND claimed_by = ?"
        for seq, token, recoveries in db.execute(query, (owner,)).fetchall():
            if recoveries >= max_recoveries:
                reason = f"its worker crashed {recoveries + 1} times while working on this task"
                given_up += end_with_report(db, seq, token, TaskStatus.FAILED, iso(now), reason)
            else:
                db.execute(back, (_delay_until(seq, recoveries, now), iso(now), seq))
                recovered += 1
    return recovered, given_up


def _delay_until(seq: int, recoveries: int, now: datetime) -> str | None:
    excess = recoveries - _FREE_RECOVERIES
    if excess < 0:
        return None
    spread = 0.5 + (seq * 0x9E3779B97F4A7C15 % 2**64) / 2**64  # constant for a task, different for its neighbours
    return iso(now + timedelta(seconds=min(_FIRST_DELAY_SECONDS * 2**excess, 3600) * spread))
