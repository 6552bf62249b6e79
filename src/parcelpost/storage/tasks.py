"""Every change of a task's status, each a function that runs inside the caller's transaction.

    from        by                                    to
    (none)      add, add_leased, add_children         pending, or completed for a child
    (none)      add and complete_new                  completed   a record that nobody asked for
    pending     claim_each                            processing
    processing  complete, complete_each               completed   with its result (I3)
    processing  end_with_report                       not_found, failed   with its report (I1)
    processing  retry                                 pending, or failed once its retries are used up
    processing  release, release_owned, release_all   pending     at no cost to its retries
    processing  recover, recover_silent               pending, or failed after too many crashes (I9)
    pending     expire_leases, expire_stored_before   expired     with its report (I1)
    ended       add_leased                            pending     ordered again by its upstream
    not held    restart, fail                         pending, failed   by an operator (admin.py)

A claim ends only with the token it was given: with another one nothing changes (I4).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Task, TaskInfo, TaskStatus
from parcelpost.storage import claims, outbox, rows
from parcelpost.storage.claims import TaskFilter
from parcelpost.storage.db import LocalDatabase

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

# One row for all of them: a row each would be a handing over of Python's lock each.
_CLAIMED = f"""
SELECT json_group_array(json_array({rows.CLAIM_COLUMNS})) FROM tasks
WHERE seq IN (SELECT value FROM json_each(:seqs))
"""

_DAMAGE = (sqlite3.OperationalError, DecodeError, ValueError, KeyError, TypeError)

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
        return rows.insert_many(db, _ADD_LEASED, task_rows, _ONCE)
    return rows.insert_many(db, _ADD, [row[:-2] for row in task_rows], _ONCE)  # a NULL takes longer than a text


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


class ClaimRequest(NamedTuple):
    owner: str
    token: str
    now: str
    limit: int
    wanted: TaskFilter


def claim_each(db: sqlite3.Connection, requests: list[ClaimRequest]) -> list[list[Claim]]:
    """Returns the next tasks for each caller in turn, `processing` by this.

    Callers that want the same are served by one statement, and share its claim token.
    """
    now = requests[0].now
    if claims.promote_due(db, now):
        expire_leases(db, now)
    platforms = claims.unpaused_platforms(db, now)
    limits: dict[TaskFilter, int] = {}
    for request in requests:
        limits[request.wanted] = limits.get(request.wanted, 0) + request.limit
    claimed: dict[TaskFilter, Iterator[Claim]] = {}
    answers = []
    for request in requests:
        wanted = request.wanted
        if wanted not in claimed:
            claimed[wanted] = iter(_claim(db, request._replace(limit=limits[wanted]), platforms))
        answers.append(list(islice(claimed[wanted], request.limit)))
    return answers


def _claim(db: sqlite3.Connection, request: ClaimRequest, platforms: list[str]) -> list[Claim]:
    claimed: list[Claim] = []
    while True:
        seqs = claims.next_tasks(db, platforms, request.wanted, request.now, request.limit - len(claimed))
        db.execute(_CLAIM, {"token": request.token, "owner": request.owner, "now": request.now, "seqs": seqs})
        found, were_damaged = _claimed(db, seqs, request)
        claimed += found
        if not were_damaged:
            return claimed


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


_CHUNK = 1_000
_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_NAMED = 100


class Added(Struct, frozen=True, kw_only=True):
    """What became of tasks that were to be added."""

    new: int = 0
    known: int = 0
    refused: int = 0
    refusals: tuple[tuple[str, str], ...] = ()
    """Task id and reason of the first hundred."""


async def add_in_chunks(
    database: LocalDatabase, many: Iterable[Task], clock: Clock, max_target_bytes: int, *, granted: bool = False
) -> Added:
    """The next chunk is made ready while the writer stores the one before."""
    insert = add_leased if granted else add
    refusals: list[tuple[str, str]] = []
    refused = new = total = 0

    def stored_rows() -> Iterator[tuple[Any, ...]]:
        nonlocal refused
        for task in many:
            try:
                yield rows.task_row(task, now, max_target_bytes)
            except InvalidInput as error:
                refused += 1
                if refused <= _MAX_NAMED:
                    refusals.append((str(task.task_id), str(error)))

    now = iso(clock.now())
    source = stored_rows()
    under_way: asyncio.Future[int] | None = None
    while chunk := _next_chunk(source):
        new += await under_way if under_way else 0
        under_way = database.start(insert, chunk)
        total += len(chunk)
        await clock.sleep(0)  # lets the writer take it
        now = iso(clock.now())
    new += await under_way if under_way else 0
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


_OF_A_ROW = (
    *("task_id", "source", "type", "platform", "state", "county", "parcel_id", "target", "priority", "max_retries"),
    *("created_at", "now", "lease", "lease_id"),
)
_IS_NEW = "(lease_expires_at < :lease OR lease_id IS NOT :lease_id)"
"""A lease with another name is a new one, whatever our clock makes of its end."""
# The delay of a waiting task begins at its `updated_at` (future_times): a lease does not change when.
_LONGER = f"""
UPDATE tasks SET lease_expires_at = :lease, lease_id = :lease_id,
    updated_at = iif(available_at IS NULL, :now, updated_at)
WHERE task_id = :task_id AND status IN ('pending', 'processing') AND {_IS_NEW}
"""
_NOT_HEARD_OF = f"""
DELETE FROM results WHERE task_id = :task_id AND success = 0 AND synced = 0
    AND EXISTS (SELECT 1 FROM tasks WHERE task_id = :task_id AND status = 'expired' AND {_IS_NEW})
"""
_IS_ANOTHER_ORDER = "(status IN ('completed', 'not_found') AND :lease_id IS NOT NULL AND lease_id IS NOT :lease_id)"
"""Where leases have names, a result that was taken has ended its task: who hands it out again wants it anew."""
_NO_RESULT = """
    NOT EXISTS (SELECT 1 FROM results AS r WHERE r.task_id = tasks.task_id AND {0})
    AND NOT EXISTS (SELECT 1 FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND {0})
"""
_IS_DELIVERED = _NO_RESULT.format("r.synced = 0 AND (r.rejected_at IS NULL OR r.data IS NOT NULL)")
"""A rejected record is kept for a person: it is not replaced by another try. A rejected report can be."""
_IS_SETTLED = _NO_RESULT.format("r.synced = 0 AND r.rejected_at IS NULL")
_REJECTION = """coalesce(
    (SELECT coalesce(r.last_error, '') FROM results AS r
        WHERE r.task_id = tasks.task_id AND r.rejected_at IS NOT NULL),
    (SELECT coalesce(r.last_error, '') FROM tasks AS child CROSS JOIN results AS r ON r.task_id = child.task_id
        WHERE child.parent_id = tasks.task_id AND r.rejected_at IS NOT NULL ORDER BY r.seq LIMIT 1))"""
_ORDER_AGAIN = f"""
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = :lease,
    lease_id = :lease_id, started_at = NULL, completed_at = NULL, error = NULL, created_at = :now, updated_at = :now,
    type = :type, platform = :platform, state = :state, county = :county, parcel_id = :parcel_id,
    target_json = :target, priority = :priority, max_retries = :max_retries, ask_site = 0
WHERE task_id = :task_id AND {_IS_DELIVERED}
    AND ((status IN ('failed', 'expired') AND (:lease IS NULL OR {_IS_NEW})) OR {_IS_ANOTHER_ORDER})
"""
_ANSWER = f"""
UPDATE tasks SET answer_due_at = :now, lease_id = coalesce(:lease_id, lease_id),
    lease_expires_at = coalesce(:lease, lease_expires_at)
WHERE task_id = :task_id AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
"""


def add_leased(db: sqlite3.Connection, task_rows: Sequence[tuple[Any, ...]]) -> int:
    """How many there are to do by this: new ones, and known ones that are to be done once more.

    One that is open here has the new lease. One that expired, or failed and was reported, is pending as if new: the
    upstream would wait for it in vain, as nobody else has its lease. A completed one stays: its result says enough, or,
    where that was delivered already, the upstream is told once more that the task is done (`to_answer`), or, where it
    was rejected, that the task has failed. Only where the lease has another name, and no record was rejected, it is
    ordered again, perhaps with another target.
    """
    new = add(db, task_rows)
    return new if new == len(task_rows) else new + sum(_lease_again(db, row) for row in task_rows)


def _lease_again(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    values = dict(zip(_OF_A_ROW, row, strict=True))
    if db.execute(_LONGER, values).rowcount:
        return 0
    db.execute(_NOT_HEARD_OF, values)
    if again := db.execute(_ORDER_AGAIN, values).rowcount:
        return again
    db.execute(_ANSWER, values)
    return 0


def to_answer(db: sqlite3.Connection, limit: int) -> list[tuple[TaskInfo, str | None]]:
    """Tasks that were completed or not found, and handed out again after their end was delivered or rejected.

    With each the reason why a result of it was rejected, None where none was.
    """
    due = f"""SELECT {rows.INFO_COLUMNS}, {_REJECTION} FROM tasks INDEXED BY tasks_to_answer
              WHERE answer_due_at IS NOT NULL AND status IN ('completed', 'not_found') AND {_IS_SETTLED}
              ORDER BY answer_due_at LIMIT ?"""
    return [(rows.info(row), row[-1]) for row in db.execute(due, (limit,))]


def mark_answered(db: sqlite3.Connection, seqs: Sequence[int]) -> int:
    change = "UPDATE tasks SET answer_due_at = NULL WHERE seq = ?"
    return db.executemany(change, [(seq,) for seq in seqs]).rowcount


async def expire(database: LocalDatabase, now: datetime, max_age: timedelta | None) -> int:
    """Some at a time, so that others may write in between. Answers how many there were."""
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
    """The columns of a child task that are not its parent's."""

    task_id: str
    state: str
    county: str
    parcel_id: str


def add_children(db: sqlite3.Connection, parent_seq: int, children: Sequence[Child], now: str) -> None:
    parent = "SELECT source, type, platform, priority, max_retries, task_id FROM tasks WHERE seq = ?"
    source, kind, platform, priority, max_retries, parent_id = db.execute(parent, (parent_seq,)).fetchone()
    added = [
        (
            *(one.task_id, source, kind, platform, one.state, one.county, one.parcel_id, _target(one)),
            *(priority, "completed", max_retries, now, now, now, parent_id),
        )
        for one in children
    ]
    # A child whose result was delivered and removed may still be here.
    again = "ON CONFLICT (task_id) DO UPDATE SET completed_at = excluded.completed_at, updated_at = excluded.updated_at"
    rows.insert_many(db, _ADD_CHILDREN, added, again)


def _target(child: Child) -> str:
    return encode({"parcel_id": child.parcel_id, "state": child.state, "county": child.county}).decode()


_RESTART = """
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = NULL,
    lease_id = NULL, started_at = NULL, completed_at = NULL, error = NULL, ask_site = 1, updated_at = ?
WHERE seq = ? AND status <> 'pending'
"""
_CLOSE = """
UPDATE tasks SET status = 'completed', completed_at = ?, updated_at = ?, error = NULL, claim_token = NULL,
    claimed_by = NULL, assigned_browser = NULL
"""
_COMPLETE = f"{_CLOSE} WHERE seq = ? AND claim_token = ?"
_COMPLETE_EACH = f"""
{_CLOSE}
FROM json_each(?) AS held
WHERE seq = CAST(held.key AS INTEGER) AND claim_token = held.value
"""


def complete(db: sqlite3.Connection, seq: int, token: str, now: str) -> bool:
    """Returns False for a stale claim (I4)."""
    return db.execute(_COMPLETE, (now, now, seq, token)).rowcount == 1


def complete_each(db: sqlite3.Connection, tokens: Mapping[int, str], now: str) -> bool:
    """By `seq`, in one statement. Returns False where a claim is stale (I4): then roll back."""
    held = encode({str(seq): token for seq, token in tokens.items()}).decode()
    return db.execute(_COMPLETE_EACH, (now, now, held)).rowcount == len(tokens)


def complete_new(db: sqlite3.Connection, task_id: str, now: str) -> None:
    """A task that was added together with its record."""
    change = "UPDATE tasks SET status = 'completed', started_at = ?1, completed_at = ?1 WHERE task_id = ?2"
    db.execute(change, (now, task_id))


def restart(db: sqlite3.Connection, seqs: Sequence[int], now: str) -> None:
    """By an operator: pending as if new, due now, and the site is asked whatever the page cache has."""
    now_due = "UPDATE tasks SET available_at = NULL, ask_site = 1, updated_at = ? WHERE seq = ? AND status = 'pending'"
    changes = [(now, seq) for seq in seqs]
    db.executemany(now_due, changes)
    db.executemany(_RESTART, changes)


def fail(db: sqlite3.Connection, seqs: Sequence[int], now: str, error: str) -> None:
    """By an operator, whatever their status. Their reports are the caller's."""
    change = "UPDATE tasks SET status = 'failed', completed_at = ?, updated_at = ?, error = ? WHERE seq = ?"
    db.executemany(change, [(now, now, error, seq) for seq in seqs])


def release_all(db: sqlite3.Connection) -> None:
    """In a copy of a store, whose claims are nobody's."""
    db.execute("""UPDATE tasks SET status = 'pending', started_at = NULL, claim_token = NULL, claimed_by = NULL
                  WHERE status = 'processing'""")


_FREE_RECOVERIES = 10
_FIRST_DELAY_SECONDS = 60


def recover(db: sqlite3.Connection, dead: list[str], now: datetime, max_recoveries: int) -> tuple[int, int]:
    """Brings back what the dead held (I9). Answers how many are pending again, and how many were given up.

    A task that is there at every death is probably its cause: it waits longer each time, apart from its neighbours,
    and is failed after `max_recoveries`.
    """
    back = """UPDATE tasks SET status = 'pending', recoveries = recoveries + 1, available_at = ?, updated_at = ?,
                  started_at = NULL, claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
              WHERE seq = ?"""
    fail = """UPDATE tasks SET status = 'failed', error = ?, completed_at = ?, updated_at = ?,
                  claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
              WHERE seq = ?"""
    recovered, hopeless = 0, []
    for owner in dead:
        held = "SELECT seq, recoveries FROM tasks WHERE status = 'processing' AND claimed_by = ?"
        for seq, recoveries in db.execute(held, (owner,)).fetchall():
            if recoveries >= max_recoveries:
                why = f"its worker died {recoveries + 1} times while it held this task"
                db.execute(fail, (why, iso(now), iso(now), seq))
                hopeless.append(seq)
            else:
                db.execute(back, (_delay_until(seq, recoveries, now), iso(now), seq))
                recovered += 1
    outbox.report(db, hopeless)
    return recovered, len(hopeless)


def recover_silent(db: sqlite3.Connection, silent_since: str, now: datetime) -> int:
    """Claims without a sign of life are no longer current; their tasks are pending again."""
    change = """UPDATE tasks SET status = 'pending', recoveries = recoveries + 1, updated_at = ?, started_at = NULL,
                    claim_token = NULL, claimed_by = NULL, assigned_browser = NULL
                WHERE status = 'processing' AND updated_at < ?"""
    return db.execute(change, (iso(now), silent_since)).rowcount


def _delay_until(seq: int, recoveries: int, now: datetime) -> str | None:
    excess = recoveries - _FREE_RECOVERIES
    if excess < 0:
        return None
    spread = 0.5 + (seq * 0x9E3779B97F4A7C15 % 2**64) / 2**64  # the same for a task each time, unlike its neighbours'
    return iso(now + timedelta(seconds=min(_FIRST_DELAY_SECONDS * 2**excess, 3600) * spread))
