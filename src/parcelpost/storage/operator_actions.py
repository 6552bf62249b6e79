"""Operator actions on tasks and results: retry, reject and delete, with their filters and a plan of what they change.

Every action is planned first: SQL returns for each selected row what would happen to it (`PlannedAction`). The same SQL
runs again in the transaction that makes the change, because other processes may have written since.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from parcelpost.clock import Clock, iso
from parcelpost.model import REFRESH, DeliveryState, OutboxEntry, Priority, Source, TaskInfo, TaskStatus
from parcelpost.storage import artifacts, outbox, rows, tasks, validation
from parcelpost.storage.artifacts import Artifacts
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import RawFiles

# Filters


class StoredUntil(Struct, frozen=True, kw_only=True):
    """The newest rows at some time. Both seq and time, because SQLite reuses the seq of a deleted last row."""

    task_seq: int
    task_at: str
    result_seq: int
    result_at: str


class Selection(Struct, frozen=True, kw_only=True):
    """Selects rows that match every field. None, or an empty tuple of statuses, matches all."""

    task_ids: tuple[str, ...] | None = None
    statuses: tuple[TaskStatus, ...] = ()
    """Statuses of the task."""
    platform: str | None = None
    state: str | None = None
    """Case-insensitive, like the county."""
    county: str | None = None
    parcel_id: str | None = None
    source: Source | None = None
    priority: Priority | None = None
    delivery: DeliveryState | None = None
    """Delivery state of the result; a task without a result matches none."""
    error: str | None = None
    """Part of the error of the task, its result or its delivery. Case-insensitive for ASCII."""
    since: datetime | None = None
    """Tasks changed since, results stored since."""
    stored_until: StoredUntil | None = None
    """Rows stored by then."""


class Aliases(NamedTuple):
    """The names of the two tables in a statement."""

    task: str = "t"
    result: str = "r"


_CONDITIONS = {
    "statuses": "{t}.status IN (SELECT value FROM json_each(:statuses))",
    "platform": "{t}.platform = :platform",
    "source": "{t}.source = :source",
    "priority": "{t}.priority = :priority",
    "error": """instr(lower(coalesce({t}.error, '') || char(10) || coalesce({r}.error, '') || char(10)
                      || coalesce({r}.last_error, '')), lower(:error)) > 0""",
}
_TASK_CONDITIONS = _CONDITIONS | {
    "state": "{t}.state = :state COLLATE NOCASE",
    "county": "{t}.county = :county COLLATE NOCASE",
    "parcel_id": "{t}.parcel_id = :parcel_id",
    "since": "{t}.updated_at >= :since",
    "stored_until": "{t}.seq <= :task_seq AND {t}.created_at <= :task_at",
}
_RESULT_CONDITIONS = _CONDITIONS | {
    "state": "{r}.state = :state COLLATE NOCASE",
    "county": "{r}.county = :county COLLATE NOCASE",
    "parcel_id": "{r}.parcel_id = :parcel_id",
    "since": "{r}.created_at >= :since",
    "stored_until": "{r}.seq <= :result_seq AND {r}.created_at <= :result_at",
}
_DELIVERY = {
    DeliveryState.UNSYNCED: "{r}.synced = 0 AND {r}.rejected_at IS NULL",
    DeliveryState.SYNCED: "{r}.synced = 1",
    DeliveryState.REJECTED: "{r}.rejected_at IS NOT NULL",
}
_BY_ID = "{t}.task_id IN (SELECT value FROM json_each(:task_ids))"

# Ordered by seq from a given seq on, so that the last page of a million rows costs as much as the first.
_TASKS = "FROM tasks AS t NOT INDEXED LEFT JOIN results AS r ON r.task_id = t.task_id"
_TASKS_BY_ID = """FROM json_each(:task_ids) AS wanted CROSS JOIN tasks AS t ON t.task_id = wanted.value
    LEFT JOIN results AS r ON r.task_id = t.task_id"""
_RESULTS = "FROM results AS r {} CROSS JOIN tasks AS t ON t.task_id = r.task_id"
_RESULTS_BY_ID = """FROM json_each(:task_ids) AS wanted CROSS JOIN results AS r ON r.task_id = wanted.value
    CROSS JOIN tasks AS t ON t.task_id = r.task_id"""
_DELIVERY_INDEX = {
    DeliveryState.UNSYNCED: "INDEXED BY results_outbox",
    DeliveryState.REJECTED: "INDEXED BY results_rejected",
}

_TASK_PAGE = f"SELECT {rows.INFO_COLUMNS} FROM tasks WHERE seq IN ({{}}) ORDER BY seq"
_ENTRY_PAGE = f"{rows.ENTRY_SELECT} {{}} ORDER BY r.seq LIMIT :limit"
_ENTRY_PAGE_WITHOUT_DATA = _ENTRY_PAGE.replace("r.data", "NULL")


def stored_until(db: sqlite3.Connection) -> StoredUntil:
    newest = "SELECT coalesce(max(seq), 0), coalesce(max(created_at), '') FROM"
    task, result = db.execute(f"{newest} tasks").fetchone(), db.execute(f"{newest} results").fetchone()
    return StoredUntil(task_seq=task[0], task_at=task[1], result_seq=result[0], result_at=result[1])


def tasks_page(db: sqlite3.Connection, selection: Selection, limit: int, after: int) -> list[TaskInfo]:
    """Returns a page of tasks in the order stored."""
    query = _TASK_PAGE.format(f"SELECT t.seq {_from_tasks(selection)} ORDER BY t.seq LIMIT :limit")
    return [rows.info(row) for row in db.execute(query, _bound(selection) | {"limit": limit, "after": after})]


def results_page(
    db: sqlite3.Connection, selection: Selection, limit: int, after: int, *, with_data: bool = True
) -> list[OutboxEntry]:
    """Returns a page of results in the order stored. `with_data=False` omits the records, which can be large."""
    query = (_ENTRY_PAGE if with_data else _ENTRY_PAGE_WITHOUT_DATA).format(_from_results(selection))
    return [rows.entry(row) for row in db.execute(query, _bound(selection) | {"limit": limit, "after": after})]


def _task_condition(selection: Selection, aliases: Aliases = Aliases()) -> str:
    return _condition(selection, _TASK_CONDITIONS, aliases)


def _result_condition(selection: Selection, aliases: Aliases = Aliases()) -> str:
    return _condition(selection, _RESULT_CONDITIONS, aliases)


def _condition(selection: Selection, fragments: Mapping[str, str], aliases: Aliases) -> str:
    parts = [text for name, text in fragments.items() if getattr(selection, name) not in (None, ())]
    if selection.delivery is not None:
        parts.append(_DELIVERY[selection.delivery])
    if selection.task_ids is not None:
        parts.append(_BY_ID)
    return " AND ".join(parts).format(t=aliases.task, r=aliases.result) or "TRUE"


def _bound(selection: Selection) -> dict[str, Any]:
    return {
        "task_ids": None if selection.task_ids is None else encode(list(dict.fromkeys(selection.task_ids))).decode(),
        "statuses": encode(selection.statuses).decode(),
        "platform": selection.platform,
        "state": selection.state,
        "county": selection.county,
        "parcel_id": selection.parcel_id,
        "source": selection.source and str(selection.source),
        "priority": selection.priority and int(selection.priority),
        "error": selection.error,
        "since": selection.since and iso(selection.since),
        **({name: getattr(selection.stored_until, name, None) for name in StoredUntil.__struct_fields__}),
    }


def _from_tasks(selection: Selection) -> str:
    """Returns FROM and WHERE for tasks `t` with their results `r`, whose `seq` is greater than `:after`."""
    source = _TASKS if selection.task_ids is None else _TASKS_BY_ID
    return f"{source} WHERE t.seq > :after AND {_task_condition(selection)}"


def _from_results(selection: Selection) -> str:
    """Returns FROM and WHERE for results `r` with their tasks `t`, whose `seq` is greater than `:after`."""
    index = _DELIVERY_INDEX.get(selection.delivery, "NOT INDEXED") if selection.delivery else "NOT INDEXED"
    source = _RESULTS.format(index) if selection.task_ids is None else _RESULTS_BY_ID
    return f"{source} WHERE r.seq > :after AND {_result_condition(selection)}"


# Plans


class PlannedAction(StrEnum):
    """What an operation does to a row: one of CHANGES, or why it skips the row."""

    APPLY = "apply"
    FAIL_AND_REPORT = "reported"
    """The upstream waits for this task, so it fails, and the failure is reported."""
    FAIL_AND_KEEP = "result_kept"
    """The upstream leased this task again, so it fails, and the result of its earlier run is kept."""
    REFRESH = "refresh"
    """The only copy of its record is here and stays: a task of its own scrapes the parcel again."""
    PROCESSING = "processing"
    CHILD = "child"
    """A further record of another task's page."""
    PENDING = "pending"
    ENDED = "ended"
    COMPLETED = "completed"
    SUPERSEDED = "superseded"
    """A newer task scraped the same parcel, or will."""
    UNDELIVERED = "undelivered"
    """The only copy of its record is here."""
    UNREPORTED = "unreported"
    """Its end was not reported upstream yet (I1)."""
    PAGE_SHARED = "page_shared"
    """Other results need its page."""
    DELIVERED = "delivered"
    WAITING = "waiting"
    REJECTED = "rejected"
    REJECTED_BY_OPERATOR = "rejected_by_operator"


CHANGES = frozenset(
    {PlannedAction.APPLY, PlannedAction.FAIL_AND_REPORT, PlannedAction.FAIL_AND_KEEP, PlannedAction.REFRESH}
)


class Operation(NamedTuple):
    """What an operator can do to tasks or results."""

    on_results: bool
    action: str
    """SQL over `t` and `r` that returns the planned action. {sharers}: condition on other results of the same page."""
    lost_records: str = "0"
    """SQL that returns how many undelivered records are lost with the row."""


class Flags(NamedTuple):
    force: bool = False
    """Delete records that were never delivered."""
    include_completed: bool = False
    """Scrape completed and not found tasks again. A local one whose record was not delivered gets a new task."""
    include_delayed: bool = False
    """Run tasks now that wait for a retry."""
    include_rejected_by_operator: bool = False
    """Send results that an operator rejected."""


_FROM_UPSTREAM = "(t.source IN ('gateway', 'firestore') AND t.parent_id IS NULL)"
_UNSYNCED_CHILDREN = """FROM tasks AS c INDEXED BY tasks_children
    JOIN results AS rc ON rc.task_id = c.task_id WHERE c.parent_id = t.task_id AND rc.synced = 0"""
_IS_UNDELIVERED = "(r.data IS NOT NULL AND r.synced = 0)"
# `force` deletes only records that existed when the operator confirmed, none that were stored later.
_IS_KEPT = "(NOT :force OR {0}.seq > :result_seq OR {0}.created_at > :result_at)"
_KEEPS_OWN = f"({_IS_UNDELIVERED} AND {_IS_KEPT.format('r')})"
_KEEPS_CHILDREN = f"EXISTS (SELECT 1 {_UNSYNCED_CHILDREN} AND {_IS_KEPT.format('rc')})"
# Each refresh is named after the task before it, so that a parcel is not scraped once for each of them.
_REFRESH_OF = f"{REFRESH}:"
_GETS_REFRESH = f"""{{0}}.source IN ('local_file', 'cli')
    AND ({{0}}.type <> '{REFRESH}' OR {{0}}.task_id >= '{_REFRESH_OF}' AND {{0}}.task_id < '{_REFRESH_OF}~')
    AND NOT EXISTS (SELECT 1 FROM tasks AS again WHERE again.task_id = '{_REFRESH_OF}' || {{0}}.seq)"""
_IS_SUPERSEDED = f"""EXISTS (SELECT 1 FROM tasks AS newer INDEXED BY tasks_refreshes
    WHERE newer.type = '{REFRESH}' AND newer.platform = t.platform AND newer.state = t.state
        AND newer.county = t.county AND newer.parcel_id = t.parcel_id AND newer.seq > t.seq
        AND newer.target_json = t.target_json AND newer.status NOT IN ('failed', 'expired')
        AND (NOT EXISTS (SELECT 1 FROM results AS rn WHERE rn.task_id = newer.task_id AND rn.synced = 0)
            OR {_GETS_REFRESH.format("newer")}))"""
_IS_UNREPORTED = f"({_FROM_UPSTREAM} AND r.synced = 0 AND r.data IS NULL AND r.rejected_at IS NULL)"

RETRY_TASKS = Operation(
    on_results=False,
    action=f"""CASE WHEN t.parent_id IS NOT NULL THEN 'child'
        WHEN t.status = 'processing' THEN 'processing'
        WHEN t.status = 'pending' THEN iif(:include_delayed AND t.available_at IS NOT NULL, 'apply', 'pending')
        WHEN t.status <> 'completed' AND t.status <> 'not_found' THEN 'apply'
        WHEN NOT :include_completed THEN 'completed'
        WHEN coalesce(r.synced, 1) = 1 AND NOT EXISTS (SELECT 1 {_UNSYNCED_CHILDREN})
            THEN iif({_IS_SUPERSEDED}, 'superseded', 'apply')
        WHEN {_GETS_REFRESH.format("t")} THEN 'refresh'
        ELSE 'undelivered' END""",
)
REJECT_TASKS = Operation(
    on_results=False,
    action="""CASE WHEN t.status = 'processing' THEN 'processing'
        WHEN t.status = 'pending' THEN 'apply' ELSE 'ended' END""",
)
DELETE_TASKS = Operation(
    on_results=False,
    action=f"""CASE WHEN t.parent_id IS NOT NULL THEN 'child'
        WHEN t.status = 'processing' THEN 'processing'
        WHEN t.status = 'pending' AND {_FROM_UPSTREAM} THEN iif(r.success = 1, 'result_kept', 'reported')
        WHEN {_KEEPS_OWN} OR {_KEEPS_CHILDREN} THEN 'undelivered'
        WHEN {_IS_UNREPORTED} THEN 'unreported'
        WHEN {_FROM_UPSTREAM} AND {_IS_UNDELIVERED} THEN 'reported'
        ELSE 'apply' END""",
    lost_records=f"""iif(t.status = 'pending' AND {_FROM_UPSTREAM}, 0,
        {_IS_UNDELIVERED} + (SELECT count(*) {_UNSYNCED_CHILDREN}))""",
)
RETRY_RESULTS = Operation(
    on_results=True,
    action="""CASE WHEN r.synced = 1 THEN 'delivered' WHEN r.rejected_at IS NULL THEN 'waiting'
        WHEN NOT :include_rejected_by_operator AND r.rejected_by = 'operator' THEN 'rejected_by_operator'
        ELSE 'apply' END""",
)
REJECT_RESULTS = Operation(
    on_results=True,
    action="CASE WHEN r.synced = 1 THEN 'delivered' WHEN r.rejected_at IS NULL THEN 'apply' ELSE 'rejected' END",
)
DELETE_RESULTS = Operation(
    on_results=True,
    action=f"""CASE WHEN {_IS_UNREPORTED} THEN 'unreported'
        WHEN {_KEEPS_OWN} THEN 'undelivered'
        WHEN r.json_path IS NOT NULL AND EXISTS (SELECT 1 FROM results AS s CROSS JOIN tasks AS u
            ON u.task_id = s.task_id WHERE s.html_path = r.html_path AND s.json_path IS NULL AND {{sharers}})
            THEN 'page_shared'
        WHEN {_FROM_UPSTREAM} AND {_IS_UNDELIVERED} THEN 'reported'
        ELSE 'apply' END""",
    lost_records=_IS_UNDELIVERED,
)


def counts(
    db: sqlite3.Connection, operation: Operation, selection: Selection, flags: Flags
) -> dict[PlannedAction, int]:
    """Counts rows by planned action, without children that are deleted with a selected parent."""
    query = f"SELECT {operation.action.format(sharers=_remaining_sharers(selection))} {_from(operation, selection)}"
    if not operation.on_results:
        query += f""" AND NOT EXISTS (SELECT 1 FROM tasks AS p LEFT JOIN results AS rp ON rp.task_id = p.task_id
            WHERE p.task_id = t.parent_id AND {_task_condition(selection, Aliases("p", "rp"))})"""
    # Counted in Python, because SQLite would sort a million rows in memory to group them.
    planned = Counter(action for (action,) in db.execute(query, _values(selection, flags)))
    return {PlannedAction(action): count for action, count in planned.items()}


def records_lost(db: sqlite3.Connection, operation: Operation, selection: Selection) -> int:
    """Returns how many undelivered records the operation would delete with `force`."""
    action = operation.action.format(sharers=_remaining_sharers(selection))
    each = f"SELECT {action} AS action, {operation.lost_records} AS records {_from(operation, selection)}"
    query = f"SELECT coalesce(sum(records), 0) FROM ({each}) WHERE action IN ({_quoted(CHANGES)})"
    return int(db.execute(query, _values(selection, Flags(force=True))).fetchone()[0])


def planned_by_task(
    db: sqlite3.Connection, operation: Operation, selection: Selection, flags: Flags
) -> dict[str, tuple[PlannedAction, str | None]]:
    """Returns the planned action and the owner of the claim, by task id. For selections of a few tasks."""
    action = operation.action.format(sharers=_remaining_sharers(selection))
    query = f"SELECT t.task_id, {action}, t.claimed_by {_from(operation, selection)}"
    return {row[0]: (PlannedAction(row[1]), row[2]) for row in db.execute(query, _values(selection, flags))}


def find(
    db: sqlite3.Connection,
    operation: Operation,
    selection: Selection,
    flags: Flags,
    after: int,
    limit: int,
) -> list[int]:
    """Returns the seqs of the next rows that would change. May have to skip many rows."""
    seq = "r.seq" if operation.on_results else "t.seq"
    planned = f"SELECT {seq} AS seq, {operation.action.format(sharers='TRUE')} AS action {_from(operation, selection)}"
    query = f"SELECT seq FROM ({planned}) WHERE action IN ({_quoted(CHANGES)}) ORDER BY seq LIMIT :limit"
    return [row[0] for row in db.execute(query, _values(selection, flags) | {"after": after, "limit": limit})]


_TASKS_BY_SEQ = """FROM json_each(:seqs) AS wanted CROSS JOIN tasks AS t ON t.seq = wanted.value
    LEFT JOIN results AS r ON r.task_id = t.task_id"""
_RESULTS_BY_SEQ = """FROM json_each(:seqs) AS wanted CROSS JOIN results AS r ON r.seq = wanted.value
    CROSS JOIN tasks AS t ON t.task_id = r.task_id"""


class PlannedRow(NamedTuple):
    seq: int
    """From the task."""
    task_id: str
    status: str
    """From the task."""
    result_seq: int | None
    action: PlannedAction


def planned_now(
    db: sqlite3.Connection, operation: Operation, selection: Selection, seqs: str, flags: Flags
) -> list[PlannedRow]:
    """Plans rows again that still match the selection, in the transaction that makes the change."""
    if operation.on_results:
        matching = f"{_RESULTS_BY_SEQ} WHERE {_result_condition(selection)}"
    else:
        matching = f"{_TASKS_BY_SEQ} WHERE {_task_condition(selection)}"
    query = f"SELECT t.seq, t.task_id, t.status, r.seq, {operation.action.format(sharers='TRUE')} {matching}"
    planned = db.execute(query, _values(selection, flags) | {"seqs": seqs}).fetchall()
    return [PlannedRow(*row)._replace(action=PlannedAction(row[4])) for row in planned]


def _from(operation: Operation, selection: Selection) -> str:
    return _from_results(selection) if operation.on_results else _from_tasks(selection)


def _remaining_sharers(selection: Selection) -> str:
    """Returns a condition on other results of a page that the operation does not delete."""
    return f"NOT ({_result_condition(selection, Aliases('u', 's'))} AND (:force OR s.synced = 1))"


def _quoted(actions: Collection[PlannedAction]) -> str:
    return ", ".join(f"'{action}'" for action in sorted(actions))


def _values(selection: Selection, flags: Flags) -> dict[str, Any]:
    return _bound(selection) | flags._asdict() | {"after": 0}


# Changes

_BATCH = 200

Progress = Callable[[int], None]
"""Called with the number of rows done."""

_DELETE_REPORT = "DELETE FROM results WHERE task_id = ? AND success = 0 AND synced = 0"
_DELETE_RESULT = "DELETE FROM results WHERE seq = ? RETURNING json_path, iif(json_path IS NULL, NULL, html_path)"
_CHILDREN = "(SELECT task_id FROM tasks INDEXED BY tasks_children WHERE parent_id = ?)"
_SEND_AGAIN = "UPDATE results SET rejected_at = NULL, rejected_by = NULL, sync_attempts = 0 WHERE seq = ?"
_REJECT = "UPDATE results SET rejected_at = ?, rejected_by = 'operator', last_error = ? WHERE seq = ?"


class UnusedFiles(NamedTuple):
    """Files that no row names any more."""

    pages: list[str]
    artifacts: list[str]


Change = Callable[[sqlite3.Connection, Sequence[PlannedRow]], UnusedFiles]
_NO_FILES = UnusedFiles([], [])


class OperatorActions:
    """Methods return how many rows were changed, by planned action. Other rows are not changed."""

    def __init__(self, database: LocalDatabase, raw: RawFiles, task_artifacts: Artifacts, clock: Clock) -> None:
        self._db = database
        self._raw = raw
        self._artifacts = task_artifacts
        self._clock = clock

    async def retry_tasks(
        self, selection: Selection, flags: Flags = Flags(), progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Makes ended tasks pending again, as if new. With `include_delayed`, tasks that wait for a retry run now."""
        now = self._clock.now()
        return await self._each(RETRY_TASKS, selection, flags, lambda db, planned: _retry(db, planned, now), progress)

    async def reject_tasks(
        self, selection: Selection, reason: str, progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Fails pending tasks, with their reports (I1)."""
        now, error = iso(self._clock.now()), validation.message(reason)
        return await self._each(
            REJECT_TASKS, selection, Flags(), lambda db, planned: _fail(db, planned, now, error), progress
        )

    async def delete_tasks(
        self, selection: Selection, flags: Flags = Flags(), progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Deletes tasks with their results, children, pages and artifacts.

        If the upstream does not know the end of a task yet, the task fails instead, and its report is delivered (I1).
        """
        now = iso(self._clock.now())
        return await self._each(
            DELETE_TASKS, selection, flags, lambda db, planned: _delete_tasks(db, planned, now), progress
        )

    async def retry_results(
        self, selection: Selection, flags: Flags = Flags(), progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Sends rejected results again."""
        return await self._each(RETRY_RESULTS, selection, flags, _send_again, progress)

    async def reject_results(
        self, selection: Selection, reason: str, progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Rejects undelivered results (I2): they are kept, and sent only after `retry_results`."""
        now, error = iso(self._clock.now()), validation.message(reason)
        return await self._each(
            REJECT_RESULTS, selection, Flags(), lambda db, planned: _reject(db, planned, now, error), progress
        )

    async def delete_results(
        self, selection: Selection, flags: Flags = Flags(), progress: Progress | None = None
    ) -> Counter[PlannedAction]:
        """Deletes results with their pages, but not their tasks. A report replaces an undelivered record (I1)."""
        now = iso(self._clock.now())

        def change(db: sqlite3.Connection, planned: Sequence[PlannedRow]) -> UnusedFiles:
            return _delete_results(db, planned, now)

        # Results that share a page go first, then its owner.
        done: Counter[PlannedAction] = Counter()
        for _ in ("sharers", "owners"):
            await self._each(DELETE_RESULTS, selection, flags, change, progress, done)
        return done

    async def _each(
        self,
        operation: Operation,
        selection: Selection,
        flags: Flags,
        change: Change,
        progress: Progress | None,
        done: Counter[PlannedAction] | None = None,
    ) -> Counter[PlannedAction]:
        done = Counter() if done is None else done

        async def change_batch(seqs: Sequence[int]) -> None:
            actions, unused = await self._db.write(_apply, operation, selection, seqs, flags, change)
            await self._raw.discard(unused.pages)
            await self._artifacts.discard(unused.artifacts)
            done.update(actions)
            if progress is not None:
                progress(done.total())

        after = 0
        while seqs := await self._db.read(find, operation, selection, flags, after, _BATCH):
            after = seqs[-1]
            await _uninterrupted(change_batch(seqs))
        return done


async def _uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Finishes the work before a cancellation takes effect."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.result()
        raise


def _apply(
    db: sqlite3.Connection,
    operation: Operation,
    selection: Selection,
    seqs: Collection[int],
    flags: Flags,
    change: Change,
) -> tuple[list[PlannedAction], UnusedFiles]:
    planned = planned_now(db, operation, selection, encode(list(seqs)).decode(), flags)
    changing = [row for row in planned if row.action in CHANGES]
    return [row.action for row in changing], change(db, changing)


def _retry(db: sqlite3.Connection, planned: Sequence[PlannedRow], now: datetime) -> UnusedFiles:
    refreshed = [row.seq for row in planned if row.action is PlannedAction.REFRESH]
    tasks.add_refreshes(db, tasks.RefreshRun(_REFRESH_OF, now), refreshed)
    restarted = [row for row in planned if row.action is not PlannedAction.REFRESH]
    db.executemany(_DELETE_REPORT, [(row.task_id,) for row in restarted])
    tasks.restart(db, [row.seq for row in restarted], iso(now))
    return _NO_FILES


def _fail(db: sqlite3.Connection, planned: Sequence[PlannedRow], now: str, error: str) -> UnusedFiles:
    tasks.fail(db, [row.seq for row in planned], now, error)
    outbox.report(db, [row.seq for row in planned])
    return _NO_FILES


def _delete_tasks(db: sqlite3.Connection, planned: Sequence[PlannedRow], now: str) -> UnusedFiles:
    unused = UnusedFiles([], [])
    for row in planned:
        if row.action is PlannedAction.APPLY or row.status != "pending":  # the upstream has an earlier result
            _delete_result_and_children(db, row, unused)
    _fail(db, [row for row in planned if row.action is not PlannedAction.APPLY], now, "deleted here")
    deleted = [(row.seq,) for row in planned if row.action is PlannedAction.APPLY]
    db.executemany("DELETE FROM tasks WHERE seq = ?", deleted)
    return unused


def _delete_result_and_children(db: sqlite3.Connection, row: PlannedRow, unused: UnusedFiles) -> None:
    db.execute(f"DELETE FROM results WHERE task_id IN {_CHILDREN}", (row.task_id,))
    db.execute("DELETE FROM tasks WHERE parent_id = ?", (row.task_id,))
    unused.artifacts.extend(artifacts.delete(db, row.task_id))
    if row.result_seq is not None:
        unused.pages.extend(_delete_result(db, row.result_seq))


def _delete_result(db: sqlite3.Connection, seq: int) -> list[str]:
    return [path for row in db.execute(_DELETE_RESULT, (seq,)).fetchall() for path in row if path]


def _send_again(db: sqlite3.Connection, planned: Sequence[PlannedRow]) -> UnusedFiles:
    db.executemany(_SEND_AGAIN, [(row.result_seq,) for row in planned])
    return _NO_FILES


def _reject(db: sqlite3.Connection, planned: Sequence[PlannedRow], now: str, error: str) -> UnusedFiles:
    db.executemany(_REJECT, [(now, error, row.result_seq) for row in planned])
    return _NO_FILES


def _delete_results(db: sqlite3.Connection, planned: Sequence[PlannedRow], now: str) -> UnusedFiles:
    pages = [path for row in planned for path in _delete_result(db, row.result_seq or 0)]
    reported = [row for row in planned if row.action is PlannedAction.FAIL_AND_REPORT]
    _fail(db, reported, now, "its record was deleted here")
    return UnusedFiles(pages, [])
