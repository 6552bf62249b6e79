"""Every hot query is answered by an index, at any size. The SQL is what the code runs, taken down as it runs it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock, from_iso, iso
from parcelpost.model import DeliveryState, Lease, Signal, Site, TaskStatus
from parcelpost.storage import (
    LocalPersistenceManager,
    backup,
    cache,
    claims,
    health,
    history,
    learning_signals,
    leases,
    outbox,
    queries,
    results,
    retention,
    tasks,
)
from parcelpost.storage import operator_actions as actions
from parcelpost.storage.history import Sample, SyncRound
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import NOW, a_result, a_task, deliver, save_one

LATER = iso(NOW + timedelta(days=100))
LEASE = Lease(task_id="t1", lease_id="x", expires_at=NOW)
PLATFORMS = ("vgsi", "qpublic", "beacon")


class Noting(sqlite3.Connection):
    """Takes down the plan of every statement that it runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plan: set[str] = set()

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if re.match(r"\s*(SELECT|WITH|UPDATE|DELETE|INSERT)", sql):
            self.plan |= {row[3] for row in super().execute(f"EXPLAIN QUERY PLAN {sql}", parameters)}
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        parameters = list(parameters)
        for values in parameters[:1]:
            self.plan |= {row[3] for row in super().execute(f"EXPLAIN QUERY PLAN {sql}", values)}
        return super().executemany(sql, parameters)


async def _fill(store: Path) -> None:
    """Tasks, results and all the rest in every state, and enough of them for the planner to care."""
    clock = ManualClock()
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        if store.stem == "analyzed early":
            await save_one(lpm, "first")
            await lpm.maintenance.clean()
        await lpm.add_tasks(
            a_task(
                f"t{n}", platform=PLATFORMS[n % 3], lease_expires_at=NOW + timedelta(hours=1) if n % 5 == 0 else None
            )
            for n in range(400)
        )
        claims = await lpm.claim(200)
        saved = (lpm.save_result(claim, a_result(body=b"x" if claim.seq % 3 else None)) for claim in claims[:60])
        await asyncio.gather(*saved)
        await asyncio.gather(*(lpm.give_up(claim, "no") for claim in claims[60:90]))
        await asyncio.gather(*(lpm.retry_later(claim, "busy") for claim in claims[90:120]))
        waiting = await lpm.get_unsynced_results()
        await deliver(lpm, *(entry.result_id for entry in waiting[:20]))
        await lpm.mark_rejected([entry.result_id for entry in waiting[20:25]], "no")
        await lpm.pause_platform("beacon")
        upload = SyncRound(direction="upload", record_type="results", record_count=1, success=True)
        for n in range(100):
            await lpm.cache.put(f"k{n}", b"x", ttl=timedelta(minutes=n))
            await lpm.sync_log.record(upload)
            await lpm.metrics.record(Sample())
            clock.advance(1)
        await lpm.signals.append(
            Signal(platform="vgsi", field="f", selector=f"#{n % 9}", selector_type="css", success=True)
            for n in range(300)
        )
        if store.stem == "analyzed":
            await lpm.maintenance.clean()
    with contextlib.closing(sqlite3.connect(store)) as db:
        held = "UPDATE tasks SET status = 'processing', claim_token = 'x:1', claimed_by = 'x'"
        db.execute(f"{held} WHERE status = 'pending' AND seq % 20 = 19")
        db.commit()


@pytest.fixture(scope="module", params=["fresh", "analyzed", "analyzed early"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the planner's statistics, with them, and with what they were when the store was almost empty."""
    store = tmp_path_factory.mktemp("plans") / f"{request.param}.db"
    asyncio.run(_fill(store))
    return store


@pytest.fixture
def db(filled: Path) -> Iterator[Noting]:
    with contextlib.closing(sqlite3.connect(filled, isolation_level=None, factory=Noting)) as opened:
        opened.execute("BEGIN")
        yield opened


Run = Callable[[sqlite3.Connection], object]


def claim(db: sqlite3.Connection) -> None:
    request = tasks.ClaimRequest("me", "me:1", LATER, 5, claims.TaskFilter())
    tasks.claim_each(db, [request])


def claim_beside(db: sqlite3.Connection) -> None:
    wish = claims.TaskFilter(None, frozenset({Site("vgsi", "CT", "hartford")}))
    tasks.claim_each(db, [tasks.ClaimRequest("me", "me:1", LATER, 5, wish)])


def save(db: sqlite3.Connection) -> None:
    held = "SELECT seq, task_id FROM tasks WHERE status = 'processing' AND claimed_by = 'x' LIMIT 1"
    seq, task_id = db.execute(held).fetchone()
    row = results.ResultRow("r", task_id, 1, "", "", "", "", 0, "k", "n", "n", "{}", None, "p", None, None, "s", 1)
    assert results.save_each(db, [results.SaveRequest(seq, "x:1", row)]) == [[]]


def requeue(db: sqlite3.Connection) -> None:
    which = Selection(statuses=(TaskStatus.FAILED,), platform="vgsi")
    found = actions.find(db, actions.RETRY_TASKS, which, actions.Flags(include_completed=True), 3, 50)
    change = partial(actions._retry, now=from_iso(LATER))
    actions._apply(db, actions.RETRY_TASKS, which, found, actions.Flags(), change)


def delete(operation: actions.Operation, change: Any, which: Selection) -> Run:
    def run(db: sqlite3.Connection) -> None:
        flags = actions.Flags(force=True)
        found = actions.find(db, operation, which, flags, 3, 50)
        actions.counts(db, operation, which, flags)
        actions.records_lost(db, operation, which)
        actions._apply(db, operation, which, found, flags, lambda db, rows: change(db, rows, LATER))

    return run


def cache_put(db: sqlite3.Connection) -> None:
    cache._put(db, ("new", "html", 9, None, None, LATER, LATER, LATER, b"x"), 2_000)


REJECTED = Selection(delivery=DeliveryState.REJECTED)
UNSYNCED = Selection(delivery=DeliveryState.UNSYNCED)


# (what it is, how the code does it, the indexes it must use)
def _older(db: sqlite3.Connection, table: str, key: str, column: str) -> int:
    return retention._delete_older(db, table, key, column, LATER)


HOT: list[tuple[str, Run, set[str]]] = [
    ("claim in priority order", claim, {"tasks_ready", "tasks_delayed", "tasks_leased"}),
    ("claim beside a site", claim_beside, {"tasks_ready", "tasks_sites"}),
    ("is the task known", lambda db: tasks.get(db, "t1"), {"sqlite_autoindex_tasks_1"}),
    ("end a task", lambda db: tasks.end_with_report(db, 1, "x", "failed", LATER, "no"), {"INTEGER PRIMARY KEY"}),
    ("retry a task", lambda db: tasks.retry(db, 1, "x", LATER, LATER, "no"), {"INTEGER PRIMARY KEY"}),
    ("release tasks", lambda db: tasks.release(db, [(1, "x")], LATER, None), {"INTEGER PRIMARY KEY"}),
    ("release all of an owner", lambda db: tasks.release_owned(db, "x", LATER), {"tasks_processing"}),
    ("who holds claims", tasks.owners, {"tasks_processing"}),
    ("recover the dead", lambda db: tasks.recover(db, ["x"], NOW, 5), {"tasks_processing"}),
    ("extend leases", lambda db: leases.extend_all(db, LATER, "", iso(NOW)), {"tasks_leased", "tasks_processing"}),
    ("leases with names", lambda db: leases.list_leases(db, LATER),
     {"tasks_named_leases", "sqlite_autoindex_results_2"}),
    ("extend leases with names", lambda db: leases.extend(db, [LEASE], LATER), {"sqlite_autoindex_tasks_1"}),
    ("expire by lease", lambda db: tasks.expire_leases(db, LATER), {"tasks_leased"}),
    ("expire by age", lambda db: tasks.stored_before(db, LATER), {"tasks_ready", "tasks_delayed"}),
    ("count per status", lambda db: queries.counts(db, LATER),
     {"tasks_ready", "tasks_processing", "tasks_ended", "tasks_children"}),
    ("depth and ages", lambda db: queries.depth(db, NOW), {"tasks_ready", "results_outbox", "results_rejected"}),
    ("failures lately", lambda db: queries.failures_since(db, NOW), {"tasks_ended"}),
    ("sources of what waits", queries.sources, {"tasks_ready", "results_outbox", "sqlite_autoindex_tasks_1"}),
    ("requeue", requeue, {"INTEGER PRIMARY KEY", "sqlite_autoindex_results_2"}),
    ("delete tasks", delete(actions.DELETE_TASKS, actions._delete_tasks, Selection()),
     {"INTEGER PRIMARY KEY", "sqlite_autoindex_results_2", "tasks_children"}),
    ("delete results", delete(actions.DELETE_RESULTS, actions._delete_results, Selection()),
     {"INTEGER PRIMARY KEY", "sqlite_autoindex_tasks_1", "results_page_shared"}),
    ("delete rejected results", delete(actions.DELETE_RESULTS, actions._delete_results, REJECTED),
     {"results_rejected"}),
    ("list tasks", lambda db: actions.tasks_page(db, Selection(), 9, 3), {"INTEGER PRIMARY KEY"}),
    ("list tasks by id", lambda db: actions.tasks_page(db, Selection(task_ids=("t1",)), 9, 3),
     {"sqlite_autoindex_tasks_1"}),
    ("list unsynced results", lambda db: actions.results_page(db, UNSYNCED, 9, 3), {"results_outbox"}),
    ("list rejected results", lambda db: actions.results_page(db, REJECTED, 9, 3), {"results_rejected"}),
    ("what runs now", lambda db: queries.running(db, 60), {"tasks_processing"}),
    ("what was done lately", lambda db: queries.throughput_since(db, NOW), {"tasks_ended", "sync_log_created"}),
    ("what went wrong lately", lambda db: queries.recent_errors(db, 60),
     {"tasks_ended", "tasks_delayed", "results_rejected"}),
    ("save a result", save, {"INTEGER PRIMARY KEY"}),
    ("unsynced results in order", lambda db: outbox.unsynced(db, 50, None), {"results_outbox"}),
    ("one result", lambda db: outbox.get(db, "t1"), {"sqlite_autoindex_results_2"}),
    ("mark synced", lambda db: outbox.mark_synced(db, ["r"], LATER), {"sqlite_autoindex_results_1"}),
    ("mark raw synced", lambda db: outbox.mark_raw_synced(db, ["r"], LATER), {"sqlite_autoindex_results_1"}),
    ("mark rejected", lambda db: outbox.mark_rejected(db, ["r"], "", LATER), {"sqlite_autoindex_results_1"}),
    ("count an attempt", lambda db: outbox.count_attempt(db, ["r"], ""), {"sqlite_autoindex_results_1"}),
    ("note a refusal", lambda db: outbox.note_refusal(db, ["r"], ""), {"sqlite_autoindex_results_1"}),
    ("tasks to report again", lambda db: tasks.to_report_again(db, 50), {"tasks_to_report_again"}),
    ("mark reported again", lambda db: tasks.mark_reported_again(db, [1]), {"INTEGER PRIMARY KEY"}),
    ("files named by a result", lambda db: outbox.named_by_a_result(db, ["x"]),
     {"results_page_owner", "results_page_shared"}),
    ("what a task brought before", lambda db: outbox.remove_earlier(db, "x"),
     {"tasks_children", "sqlite_autoindex_results_2"}),
    ("list results", lambda db: actions.results_page(db, Selection(), 9, 3), {"INTEGER PRIMARY KEY"}),
    ("cache lookup", lambda db: cache._find(db, "k1", "html"), {"sqlite_autoindex_cache_1"}),
    ("cache access update", lambda db: cache._touch(db, "k1", LATER), {"sqlite_autoindex_cache_1"}),
    ("cache put and eviction", cache_put, {"cache_last_accessed"}),
    ("cache delete one", lambda db: cache._delete(db, "k1"), {"sqlite_autoindex_cache_1"}),
    ("clean delivered results", lambda db: retention._delivered_results(db, LATER),
     {"results_synced", "results_page_shared"}),
    ("clean ended tasks", lambda db: retention._ended_tasks(db, LATER, ("", 0)),
     {"tasks_ended", "sqlite_autoindex_results_2"}),
    ("clean expired cache", lambda db: _older(db, "cache", "cache_key", "expires_at"), {"cache_expires"}),
    ("clean old metrics", lambda db: _older(db, "agent_metrics", "metric_id", "timestamp"),
     {"agent_metrics_timestamp"}),
    ("clean old sync log", lambda db: _older(db, "sync_log", "seq", "created_at"), {"sync_log_created"}),
    ("clean old signals", lambda db: _older(db, "learning_signals", "seq", "created_at"), {"signals_created"}),
    ("recent syncs", lambda db: history._recent_rounds(db, 50, None, False), set()),
    ("metrics since", lambda db: history._since(db, iso(NOW), 10), {"agent_metrics_timestamp"}),
    ("metrics window", lambda db: history._window(db, iso(NOW)), {"tasks_ended"}),
    ("unsynced signals", lambda db: learning_signals._unsynced(db, 50), {"signals_unsynced"}),
    (
        "mark signals",
        lambda db: learning_signals._mark_synced(db, ["x"], LATER),
        {"sqlite_autoindex_learning_signals_1"},
    ),
    ("last change", backup.last_change, {"tasks_ended", "results_synced"}),
    ("sizes", health._sizes, set()),
    ("how the sites do", queries.sites, {"tasks_ended", "tasks_delayed"}),
]  # fmt: skip

# A scan of the whole table is right where it stops at once: the newest rows by their number.
NEWEST_ROWS = {
    "recent syncs": {"SCAN sync_log"},
    "what went wrong lately": {"SCAN sync_log"},
    "metrics window": {"SCAN results"},
    "last change": {"SCAN tasks", "SCAN results"},
}


def test_a_hot_query_uses_its_index(db: Noting, subtests: pytest.Subtests) -> None:
    """Each in a transaction of its own, which changes nothing for the next one."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")} | {"t", "r", "head"}
    small = {"SCAN platform_pauses", "SCAN storage_usage", "SCAN sqlite_schema"}
    for name, run, indexes in HOT:
        with subtests.test(name):
            db.rollback()
            db.execute("BEGIN")
            db.plan.clear()
            run(db)
            assert db.plan
            scans = {line for line in db.plan if re.fullmatch(r"SCAN (\w+)", line) and line.split()[1] in tables}
            assert scans - small <= NEWEST_ROWS.get(name, set())
            used = " ".join(sorted(db.plan))
            assert {index for index in indexes if not re.search(rf"\b{index}\b", used)} == set(), used


def test_the_plan_of_a_scan_is_found(db: Noting) -> None:
    """So that the test above can fail."""
    db.execute("SELECT count(*) FROM results WHERE county = 'x'")
    assert "SCAN results" in db.plan
