"""Tasks, results and looks into the file, for the tests of the store."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from parcelpost.clock import ManualClock
from parcelpost.model import (
    Claim,
    Json,
    OutboxEntry,
    Page,
    Priority,
    Result,
    Source,
    Target,
    Task,
    TaskInfo,
    TaskStatus,
)
from parcelpost.storage import LocalPersistenceManager, operator_actions, queries
from parcelpost.storage.operator_actions import Flags, Selection

NOW = ManualClock().now()
"""When every test begins."""


def a_task(
    task_id: str = "t1",
    *,
    platform: str = "vgsi",
    parcel_id: str = "1-2",
    state: str = "CT",
    county: str = "hartford",
    url: str = "",
    extra: Mapping[str, Json] | None = None,
    source: Source = Source.GATEWAY,
    type: str = "scrape",  # noqa: A002 - the field's name
    priority: Priority = Priority.NORMAL,
    max_retries: int = 3,
    lease_expires_at: datetime | None = None,
    lease_id: str = "",
) -> Task:
    return Task(
        task_id=task_id,
        platform=platform,
        target=Target(parcel_id=parcel_id, state=state, county=county, url=url, extra=extra or {}),
        source=source,
        type=type,
        priority=priority,
        max_retries=max_retries,
        lease_expires_at=lease_expires_at,
        lease_id=lease_id,
    )


def a_result(
    data: Mapping[str, Json] | None = None,
    *,
    body: bytes | None = None,
    scraped_at: datetime = NOW,
    execution_time_ms: int = 12,
) -> Result:
    page = None if body is None else Page(body=body)
    return Result(
        data={"owner": "Ann"} if data is None else data,
        page=page,
        scraped_at=scraped_at,
        execution_time_ms=execution_time_ms,
    )


async def claim_one(lpm: LocalPersistenceManager, task: Task | str = "t1") -> Claim:
    """Stores a task and claims it; nothing else of its platform may be pending."""
    task = a_task(task) if isinstance(task, str) else task
    await lpm.add_task(task)
    (claim,) = await lpm.claim(platforms=[task.platform])
    assert claim.task == task
    return claim


async def save_one(lpm: LocalPersistenceManager, task: Task | str = "t1", result: Result | None = None) -> OutboxEntry:
    """A task from its arrival to its stored result."""
    claim = await claim_one(lpm, task)
    assert await lpm.save_result(claim, result or a_result()) is not None
    return await the_result(lpm, claim.task.task_id)


async def the_task(lpm: LocalPersistenceManager, task_id: str = "t1") -> TaskInfo:
    found = await lpm.get_task(task_id)
    assert found is not None
    return found


async def the_result(lpm: LocalPersistenceManager, task_id: str = "t1") -> OutboxEntry:
    found = await lpm.get_result(task_id)
    assert found is not None
    return found


async def deliver(lpm: LocalPersistenceManager, *result_ids: str) -> None:
    """What a sync that meets no trouble does."""
    await lpm.mark_raw_synced(result_ids)
    assert await lpm.mark_synced(result_ids) == len(result_ids)


def look(store: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows as another program sees them."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(query, values).fetchall()


def everything(store: Path) -> list[tuple[Any, ...]]:
    """All tasks and all results, whole."""
    return [*look(store, "SELECT * FROM tasks ORDER BY seq"), *look(store, "SELECT * FROM results ORDER BY seq")]


async def requeue(
    lpm: LocalPersistenceManager,
    task_ids: Sequence[str] | None = None,
    *,
    status: TaskStatus | None = None,
    platform: str | None = None,
    completed: bool = False,
) -> int:
    """As an operator retries tasks. Returns how many."""
    ids, statuses = None if task_ids is None else tuple(task_ids), () if status is None else (status,)
    which = Selection(task_ids=ids, statuses=statuses, platform=platform)
    return (await lpm.operator.retry_tasks(which, Flags(include_completed=completed))).total()


async def list_tasks(
    lpm: LocalPersistenceManager, selection: Selection = Selection(), *, limit: int = 100, after: int = 0
) -> list[TaskInfo]:
    return await lpm._db.read(operator_actions.tasks_page, selection, limit, after)


async def list_results(
    lpm: LocalPersistenceManager, selection: Selection = Selection(), *, limit: int = 100, after: int = 0
) -> list[OutboxEntry]:
    return await lpm._db.read(operator_actions.results_page, selection, limit, after)


async def task_counts(lpm: LocalPersistenceManager) -> dict[str, dict[str, int]]:
    return await lpm._db.read(queries.counts, lpm._now())
