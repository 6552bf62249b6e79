"""The table of transitions in `storage/tasks.py`, walked: every action on a task in every status."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from parcelpost.storage import migrations, rows, tasks
from parcelpost.storage.claims import TaskFilter
from parcelpost.storage.tasks import Child, ClaimRequest
from tests.storage.factories import a_task

START = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE, NOW, LATER = "2025-12-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-02-01T00:00:00.000Z"
OWNER, TOKEN = "worker-1-00000000", "worker-1-00000000:1"
MANY_BYTES = 100_000

Action = Callable[[sqlite3.Connection], Any]


def row(**more: Any) -> tuple[Any, ...]:
    return rows.task_row(a_task("t1", **more), BEFORE, MANY_BYTES)


def claim(db: sqlite3.Connection) -> object:
    return tasks.claim_each(db, [ClaimRequest(OWNER, TOKEN, NOW, 1, TaskFilter())])


def leased(db: sqlite3.Connection) -> int:
    return tasks.add_leased(db, [row(lease_expires_at=datetime(2026, 3, 1, tzinfo=UTC), lease_id="again")])


def lease_is_over(db: sqlite3.Connection) -> None:
    db.execute("UPDATE tasks SET lease_expires_at = ?", (BEFORE,))
    tasks.expire_leases(db, NOW)


def result_of_a_backup(db: sqlite3.Connection) -> None:
    db.execute(
        """INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, idempotency_key,
               scraped_at, created_at) VALUES ('r1', 't1', 1, 'p', 'echo', 'CT', 'c', 'k', ?1, ?1)""",
        (NOW,),
    )
    tasks.end_like_result(db, "t1")


MAKING: dict[str, list[Action]] = {
    "pending": [],
    "processing": [claim],
    "completed": [claim, lambda db: tasks.end(db, 1, TOKEN, "completed", NOW, None)],
    "not_found": [claim, lambda db: tasks.end_with_report(db, 1, TOKEN, "not_found", NOW, None)],
    "failed": [claim, lambda db: tasks.end_with_report(db, 1, TOKEN, "failed", NOW, "no")],
    "expired": [lease_is_over],
}
"""How a task gets into each status."""

TABLE: dict[str, tuple[Action, dict[str, str]]] = {
    "add": (lambda db: tasks.add(db, [row()]), {}),
    "complete_new": (lambda db: tasks.complete_new(db, "t1", NOW), {"pending": "completed"}),
    "claim_each": (claim, {"pending": "processing"}),
    "end": (lambda db: tasks.end(db, 1, TOKEN, "completed", NOW, None), {"processing": "completed"}),
    "complete_each": (lambda db: tasks.complete_each(db, {1: TOKEN}, NOW), {"processing": "completed"}),
    "end_with_report": (
        lambda db: tasks.end_with_report(db, 1, TOKEN, "not_found", NOW, None),
        {"processing": "not_found"},
    ),
    "retry": (lambda db: tasks.retry(db, 1, TOKEN, NOW, LATER, "slow"), {"processing": "pending"}),
    "release": (lambda db: tasks.release(db, [(1, TOKEN)], NOW, None), {"processing": "pending"}),
    "release_owned": (lambda db: tasks.release_owned(db, OWNER, NOW), {"processing": "pending"}),
    "recover": (lambda db: tasks.recover(db, [OWNER], START, 5), {"processing": "pending"}),
    "expire_leases": (lease_is_over, {"pending": "expired"}),
    "expire_stored_before": (lambda db: tasks.expire_stored_before(db, [1], NOW, NOW), {"pending": "expired"}),
    "add_leased": (leased, dict.fromkeys(("completed", "not_found", "failed", "expired"), "pending")),
    "restart": (
        lambda db: tasks.restart(db, [1], NOW),
        dict.fromkeys(("completed", "not_found", "failed", "expired"), "pending"),
    ),
    "fail": (
        lambda db: tasks.fail(db, [1], NOW, "no"),
        dict.fromkeys(("pending", "completed", "not_found", "expired"), "failed"),
    ),
    "add_ended": (lambda db: tasks.add_ended(db, "cli", "echo", Child("t2", "CT", "c", "p"), NOW, 1), {}),
    "end_like_result": (result_of_a_backup, {"pending": "completed"}),
    "repeat_lost": (lambda db: tasks.repeat_lost(db, [1]), {"completed": "pending"}),
}
"""Each action, and where it leads from each status; from the others it leads nowhere."""

REFUSED_BY_THE_SCHEMA = {("complete_new", "processing"), ("restart", "processing"), ("fail", "processing")}
"""A task that is held does not end, or start over, under whoever holds it (I4)."""
FOR_A_NEW_TASK = {"complete_new"}


@contextlib.contextmanager
def task_that_is(status: str, **more: Any) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrations.apply(db, migrations.load(), BEFORE)
        tasks.add(db, [row(**more)])
        for action in MAKING[status]:
            action(db)
        assert status_of(db) == status
        db.execute("DELETE FROM results")  # its end was delivered long ago
        yield db


def status_of(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT status FROM tasks").fetchone()[0])


def test_every_action_leads_where_the_table_says_and_nowhere_else(subtests: pytest.Subtests) -> None:
    for name, (action, leads) in TABLE.items():
        for status in MAKING:
            if name in FOR_A_NEW_TASK and status not in ("pending", "processing"):
                continue
            with subtests.test(action=name, status=status), task_that_is(status) as db:
                if (name, status) in REFUSED_BY_THE_SCHEMA:
                    with pytest.raises(sqlite3.IntegrityError):
                        action(db)
                else:
                    action(db)
                assert status_of(db) == leads.get(status, status)


def test_another_token_changes_nothing() -> None:
    stale = "worker-1-00000000:0"
    with task_that_is("processing") as db:
        assert not tasks.end(db, 1, stale, "completed", NOW, None)
        assert not tasks.complete_each(db, {1: stale}, NOW)
        assert not tasks.end_with_report(db, 1, stale, "failed", NOW, "no")
        assert tasks.retry(db, 1, stale, NOW, LATER, "slow") is None
        assert tasks.release(db, [(1, stale)], NOW, None) == 0
        assert status_of(db) == "processing"


def test_the_last_retry_and_the_last_recovery_fail_the_task() -> None:
    with task_that_is("processing", max_retries=0) as db:
        assert tasks.retry(db, 1, TOKEN, NOW, LATER, "slow") == "failed"
        assert db.execute("SELECT success, error FROM results").fetchall() == [(0, "slow")]
    with task_that_is("processing") as db:
        assert tasks.recover(db, [OWNER], START, 0) == (0, 1)
        assert status_of(db) == "failed"


def test_the_table_in_the_docstring_names_every_action_and_no_other() -> None:
    lines = [line for line in (tasks.__doc__ or "").splitlines() if re.match(r"    (\(none\)|[a-z]+) ", line)][1:]
    named = {
        word for line in lines for word in re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", line[16:54]) if hasattr(tasks, word)
    }
    assert named - {"add_children"} == set(TABLE)
