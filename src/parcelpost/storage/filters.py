"""Which tasks or results are meant: what a person filters by, as SQL with bound values."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from parcelpost.clock import iso
from parcelpost.model import OutboxEntry, Priority, Source, TaskInfo, TaskStatus
from parcelpost.storage import rows


class Delivery(StrEnum):
    """Of a result."""

    UNSYNCED = "unsynced"
    SYNCED = "synced"
    REJECTED = "rejected"


class Known(Struct, frozen=True, kw_only=True):
    """The newest of a store at a moment. By place and by age: the place of a row that went is given to another."""

    task_seq: int
    task_at: str
    result_seq: int
    result_at: str


class Selection(Struct, frozen=True, kw_only=True):
    """Those that fit all that is said here. None, and an empty tuple of statuses: whatever it is."""

    task_ids: tuple[str, ...] | None = None
    statuses: tuple[TaskStatus, ...] = ()
    """Of the task."""
    platform: str | None = None
    state: str | None = None
    """As capitals or small letters, and so the county."""
    county: str | None = None
    parcel_id: str | None = None
    source: Source | None = None
    priority: Priority | None = None
    delivery: Delivery | None = None
    """Of the result; a task that has none fits none of them."""
    error: str | None = None
    """A part of what went wrong with the task, the result or its delivery; capitals of ASCII do not matter."""
    since: datetime | None = None
    """Tasks that have changed since, results that were stored since."""
    known: Known | None = None
    """Only what was stored by then."""


class Names(NamedTuple):
    """What a statement calls the two tables."""

    task: str = "t"
    result: str = "r"


_EITHER = {
    "statuses": "{t}.status IN (SELECT value FROM json_each(:statuses))",
    "platform": "{t}.platform = :platform",
    "source": "{t}.source = :source",
    "priority": "{t}.priority = :priority",
    "error": """instr(lower(coalesce({t}.error, '') || char(10) || coalesce({r}.error, '') || char(10)
                      || coalesce({r}.last_error, '')), lower(:error)) > 0""",
}
_OF_TASKS = _EITHER | {
    "state": "{t}.state = :state COLLATE NOCASE",
    "county": "{t}.county = :county COLLATE NOCASE",
    "parcel_id": "{t}.parcel_id = :parcel_id",
    "since": "{t}.updated_at >= :since",
    "known": "{t}.seq <= :task_seq AND {t}.created_at <= :task_at",
}
_OF_RESULTS = _EITHER | {
    "state": "{r}.state = :state COLLATE NOCASE",
    "county": "{r}.county = :county COLLATE NOCASE",
    "parcel_id": "{r}.parcel_id = :parcel_id",
    "since": "{r}.created_at >= :since",
    "known": "{r}.seq <= :result_seq AND {r}.created_at <= :result_at",
}
_DELIVERY = {
    Delivery.UNSYNCED: "{r}.synced = 0 AND {r}.rejected_at IS NULL",
    Delivery.SYNCED: "{r}.synced = 1",
    Delivery.REJECTED: "{r}.rejected_at IS NOT NULL",
}
_NAMED = "{t}.task_id IN (SELECT value FROM json_each(:task_ids))"

# By its order of arrival, from a place on: so a page of a million costs what a page of ten does.
_TASKS = "FROM tasks AS t NOT INDEXED LEFT JOIN results AS r ON r.task_id = t.task_id"
_NAMED_TASKS = """FROM json_each(:task_ids) AS named CROSS JOIN tasks AS t ON t.task_id = named.value
    LEFT JOIN results AS r ON r.task_id = t.task_id"""
_RESULTS = "FROM results AS r {} CROSS JOIN tasks AS t ON t.task_id = r.task_id"
_NAMED_RESULTS = """FROM json_each(:task_ids) AS named CROSS JOIN results AS r ON r.task_id = named.value
    CROSS JOIN tasks AS t ON t.task_id = r.task_id"""
_INDEX_OF = {Delivery.UNSYNCED: "INDEXED BY results_outbox", Delivery.REJECTED: "INDEXED BY results_rejected"}

_TASK_PAGE = f"SELECT {rows.INFO_COLUMNS} FROM tasks WHERE seq IN ({{}}) ORDER BY seq"
_ENTRY_PAGE = f"SELECT {rows.ENTRY_COLUMNS} {{}} ORDER BY r.seq LIMIT :limit"
_ROW_PAGE = _ENTRY_PAGE.replace("r.data", "NULL")


def of_tasks(which: Selection, names: Names = Names()) -> str:
    """A condition on both tables; `values` are its values."""
    return _condition(which, _OF_TASKS, names)


def of_results(which: Selection, names: Names = Names()) -> str:
    return _condition(which, _OF_RESULTS, names)


def values(which: Selection) -> dict[str, Any]:
    return {
        "task_ids": None if which.task_ids is None else encode(list(dict.fromkeys(which.task_ids))).decode(),
        "statuses": encode(which.statuses).decode(),
        "platform": which.platform,
        "state": which.state,
        "county": which.county,
        "parcel_id": which.parcel_id,
        "source": which.source and str(which.source),
        "priority": which.priority and int(which.priority),
        "error": which.error,
        "since": which.since and iso(which.since),
        **({name: getattr(which.known, name, None) for name in Known.__struct_fields__}),
    }


def known(db: sqlite3.Connection) -> Known:
    newest = "SELECT coalesce(max(seq), 0), coalesce(max(created_at), '') FROM"
    tasks, results = db.execute(f"{newest} tasks").fetchone(), db.execute(f"{newest} results").fetchone()
    return Known(task_seq=tasks[0], task_at=tasks[1], result_seq=results[0], result_at=results[1])


def from_tasks(which: Selection) -> str:
    """FROM and WHERE for tasks `t` with their results `r`, behind the `seq` that is bound as `after`."""
    source = _TASKS if which.task_ids is None else _NAMED_TASKS
    return f"{source} WHERE t.seq > :after AND {of_tasks(which)}"


def from_results(which: Selection) -> str:
    """FROM and WHERE for results `r` with their tasks `t`, behind the `seq` that is bound as `after`."""
    by_order = _RESULTS.format(_INDEX_OF.get(which.delivery, "NOT INDEXED") if which.delivery else "NOT INDEXED")
    source = by_order if which.task_ids is None else _NAMED_RESULTS
    return f"{source} WHERE r.seq > :after AND {of_results(which)}"


def tasks_page(db: sqlite3.Connection, which: Selection, limit: int, after: int) -> list[TaskInfo]:
    """In the order stored."""
    query = _TASK_PAGE.format(f"SELECT t.seq {from_tasks(which)} ORDER BY t.seq LIMIT :limit")
    return [rows.info(row) for row in db.execute(query, values(which) | {"limit": limit, "after": after})]


def results_page(
    db: sqlite3.Connection, which: Selection, limit: int, after: int, *, with_data: bool = True
) -> list[OutboxEntry]:
    """In the order stored; their records may be large, and can be left out."""
    query = (_ENTRY_PAGE if with_data else _ROW_PAGE).format(from_results(which))
    return [rows.entry(row) for row in db.execute(query, values(which) | {"limit": limit, "after": after})]


def _condition(which: Selection, fragments: Mapping[str, str], names: Names) -> str:
    said = [text for name, text in fragments.items() if getattr(which, name) not in (None, ())]
    if which.delivery is not None:
        said.append(_DELIVERY[which.delivery])
    if which.task_ids is not None:
        said.append(_NAMED)
    return " AND ".join(said).format(t=names.task, r=names.result) or "TRUE"
