"""The table of transitions in `storage/tasks.py`: every event meets a task in every status."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from parcelpost.model import Site, Target
from parcelpost.storage import migrations, rows, tasks
from parcelpost.storage.claims import TaskFilter
from parcelpost.storage.tasks import Child, ClaimRequest
from tests.storage.factories import a_task

START = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE, NOW, LATER = "2025-12-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-02-01T00:00:00.000Z"
OWNER, TOKEN = "worker-1-00000000", "worker-1-00000000:1"
MANY_BYTES = 100_000
KNOWN, SEQ = 1, 2
"""Task `known` was completed before; `t1` is the task that the actions are about."""
SITE, TARGET = Site("echo", "CT", "c"), Target(parcel_id="p", state="CT", county="c")
RUN = tasks.RefreshRun("t", START)
"""Its first task is `t1`."""

Action = Callable[[sqlite3.Connection], Any]


def row(task_id: str = "t1", **more: Any) -> tuple[Any, ...]:
    return rows.task_row(a_task(task_id, **more), BEFORE, MANY_BYTES)


def claim(db: sqlite3.Connection) -> object:
    return tasks.claim_each(db, [ClaimRequest(OWNER, TOKEN, NOW, 1, TaskFilter())])


def leased(db: sqlite3.Connection) -> int:
    return tasks.add_leased(db, [row(lease_expires_at=datetime(2026, 3, 1, tzinfo=UTC), lease_id="again")])


def lease_is_over(db: sqlite3.Connection) -> None:
    db.execute("UPDATE tasks SET lease_expires_at = ?", (BEFORE,))
    tasks.expire_leases(db, NOW)


def retried_for_the_last_time(db: sqlite3.Connection) -> None:
    db.execute("UPDATE tasks SET max_retries = 0")
    tasks.retry(db, SEQ, TOKEN, NOW, LATER, "slow")


def result_of_a_backup(db: sqlite3.Connection, success: int) -> None:
    if status_of(db) == NONE:
        return
    db.execute(
        """INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, idempotency_key,
               scraped_at, created_at) VALUES ('r1', 't1', ?2, 'p', 'echo', 'CT', 'c', 'k', ?1, ?1)""",
        (NOW, success),
    )
    tasks.end_like_result(db, "t1")


NONE = "(none)"
MAKING: dict[str, list[Action]] = {
    NONE: [],
    "pending": [lambda db: tasks.add(db, [row()])],
    "processing": [lambda db: tasks.add(db, [row()]), claim],
    "completed": [lambda db: tasks.add(db, [row()]), lambda db: tasks.complete_new(db, "t1", NOW)],
    "not_found": [
        *(lambda db: tasks.add(db, [row()]), claim),
        lambda db: tasks.end_with_report(db, SEQ, TOKEN, "not_found", NOW, None),
    ],
    "failed": [lambda db: tasks.add(db, [row()]), lambda db: tasks.fail(db, [SEQ], NOW, "no")],
    "expired": [lambda db: tasks.add(db, [row()]), lease_is_over],
}
"""How a task gets into each status."""

EVENTS: dict[str, list[Action]] = {
    "add": [lambda db: tasks.add(db, [row()])],
    "add_leased": [leased],
    "add_refreshes": [lambda db: tasks.add_refreshes(db, RUN, [KNOWN])],
    "add_refresh_targets": [lambda db: tasks.add_refresh_targets(db, RUN, SITE, [TARGET], first=1)],
    "add_children": [lambda db: tasks.add_children(db, KNOWN, [Child("t1", "CT", "c", "p")], NOW)],
    "complete_new": [lambda db: tasks.complete_new(db, "t1", NOW)],
    "claim_each": [claim],
    "end": [lambda db: tasks.end(db, SEQ, TOKEN, "completed", NOW, None)],
    "complete_each": [lambda db: tasks.complete_each(db, {SEQ: TOKEN}, NOW)],
    "end_with_report": [
        lambda db: tasks.end_with_report(db, SEQ, TOKEN, "not_found", NOW, None),
        lambda db: tasks.end_with_report(db, SEQ, TOKEN, "failed", NOW, "no"),
    ],
    "retry": [lambda db: tasks.retry(db, SEQ, TOKEN, NOW, LATER, "slow"), retried_for_the_last_time],
    "release": [lambda db: tasks.release(db, [(SEQ, TOKEN)], NOW, None)],
    "release_owned": [lambda db: tasks.release_owned(db, OWNER, NOW)],
    "recover": [lambda db: tasks.recover(db, [OWNER], START, 5), lambda db: tasks.recover(db, [OWNER], START, 0)],
    "expire_leases": [lease_is_over],
    "expire_stored_before": [lambda db: tasks.expire_stored_before(db, [SEQ], NOW, NOW)],
    "restart": [lambda db: tasks.restart(db, [SEQ], NOW)],
    "fail": [lambda db: tasks.fail(db, [SEQ], NOW, "no")],
    "add_ended": [
        lambda db: tasks.add_ended(db, "cli", "echo", Child("t1", "CT", "c", "p"), NOW, 1),
        lambda db: tasks.add_ended(db, "cli", "echo", Child("t1", "CT", "c", "p"), NOW, 0),
    ],
    "end_like_result": [lambda db: result_of_a_backup(db, 1), lambda db: result_of_a_backup(db, 0)],
    "repeat_lost": [lambda db: tasks.repeat_lost(db, [SEQ])],
}
"""Everything that can happen to a task, in each of its ways."""

REFUSED_BY_THE_SCHEMA = {
    *(("restart", "processing"), ("fail", "processing")),  # a claimed task only ends under its claim (I4)
    *(("add_children", "pending"), ("add_children", "processing")),
    *(("add_ended", status) for status in MAKING if status != NONE),
}


@contextlib.contextmanager
def task_that_is(status: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrations.apply(db, migrations.load(), BEFORE)
        tasks.add(db, [row("known")])
        tasks.complete_new(db, "known", BEFORE)
        for action in MAKING[status]:
            action(db)
        assert status_of(db) == status
        db.execute("DELETE FROM results")  # its end was delivered long ago
        yield db


def status_of(db: sqlite3.Connection) -> str:
    found = db.execute("SELECT status FROM tasks WHERE task_id = 't1'").fetchone()
    return str(found[0]) if found else NONE


def transitions() -> set[tuple[str, str, str]]:
    """Returns the changes of status that happen if every event meets a task in every status."""
    happened = set()
    for (event, actions), status in itertools.product(EVENTS.items(), MAKING):
        for action in actions:
            with task_that_is(status) as db:
                if (event, status) in REFUSED_BY_THE_SCHEMA:
                    with pytest.raises(sqlite3.IntegrityError):
                        action(db)
                else:
                    action(db)
                happened.add((status, event, status_of(db)))
    return {(before, event, after) for before, event, after in happened if before != after}


def table() -> set[tuple[str, str, str]]:
    """Returns the tables in the docstring of `tasks.py`."""
    ended = ("completed", "not_found", "failed", "expired")
    groups = {"ended": ended, "not failed": ("pending", "completed", "not_found", "expired")}
    lines = [re.split(" {2,}", line.strip()) for line in (tasks.__doc__ or "").splitlines() if line.startswith("    ")]
    return {
        (before, event, after)
        for line in lines[1:]
        for before in groups.get(line[0], (line[0],))
        for event in line[1].split(", ")
        for after in line[2].split(", ")
    }


def test_every_event_leads_where_the_table_says_and_nowhere_else() -> None:
    assert transitions() == table()


def test_no_other_module_adds_tasks_or_changes_their_status() -> None:
    """But for a salvaged store, which gets rows as they were (`INSERT INTO {table}`)."""
    changes = re.compile(r"INSERT INTO (?:tasks|\{table\})|UPDATE tasks\s+SET (?:(?!WHERE)[^\"])*\bstatus =")
    modules = (Path(tasks.__file__).parent).glob("*.py")
    assert {module.name for module in modules if changes.search(module.read_text())} == {"salvage.py", "tasks.py"}


def test_another_token_changes_nothing() -> None:
    stale = "worker-1-00000000:0"
    with task_that_is("processing") as db:
        assert not tasks.end(db, SEQ, stale, "completed", NOW, None)
        assert not tasks.complete_each(db, {SEQ: stale}, NOW)
        assert not tasks.end_with_report(db, SEQ, stale, "failed", NOW, "no")
        assert tasks.retry(db, SEQ, stale, NOW, LATER, "slow") is None
        assert tasks.release(db, [(SEQ, stale)], NOW, None) == 0
        assert status_of(db) == "processing"


def test_the_last_retry_and_the_last_recovery_report_the_failure() -> None:
    for last in (retried_for_the_last_time, EVENTS["recover"][1]):
        with task_that_is("processing") as db:
            last(db)
            assert db.execute("SELECT task_id, success, error IS NOT NULL FROM results").fetchall() == [("t1", 0, 1)]
