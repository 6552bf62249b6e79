"""A store of an earlier schema opens, migrates after a backup, keeps its rows, and goes on with its work."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parcelpost.cli.worker_setup import open_worker
from parcelpost.clock import ManualClock
from parcelpost.events import Event, StoreOpened
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from parcelpost.storage import LocalPersistenceManager, migrations
from parcelpost.storage.snapshot import file_problems
from parcelpost.worker.control import Control
from parcelpost.worker.runner import OndemandRunner
from tests.acceptance.processes import FAST
from tests.hostile import HostileGateway
from tests.storage import old_stores
from tests.storage.factories import look
from tests.storage.old_stores import OPEN, Rows

SECOND = """-- A made-up second migration
ALTER TABLE tasks ADD COLUMN note TEXT NOT NULL DEFAULT 'upgraded';
CREATE INDEX tasks_noted ON tasks (note);
"""


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(old_stores.fill(tmp_path_factory.mktemp("today")))


@pytest.fixture
def old(today: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of schema version 1, for a program that has a second migration."""
    known = [*migrations.load(), migrations.Migration(2, "A made-up second migration", SECOND)]
    monkeypatch.setattr(migrations, "load", lambda: known)
    shutil.copytree(today.parent, tmp_path / "local_data")
    return tmp_path / "local_data" / today.name


def test_every_table_of_today_has_rows_to_lose(today: Path) -> None:
    assert [name for name, kept in old_stores.rows(today).items() if not kept] == []


def shared(rows: Rows, before: Rows) -> Rows:
    """What was there before, as it is now. A task that the dead held is open again, as it should be."""
    open_again = {row["seq"] for row in before["tasks"] if row["status"] == "processing"}
    return {
        table: [
            {column: row[column] for column in before[table][0]}
            for row in rows[table]
            if table != "tasks" or row["seq"] not in open_again
        ]
        for table in before
    }


async def test_an_earlier_store_is_copied_then_migrated_and_keeps_its_rows(old: Path, clock: ManualClock) -> None:
    before = old_stores.rows(old)
    assert all(before.values())
    events: list[Event] = []
    async with LocalPersistenceManager.open(old, clock=clock, emit=events.append, worker="worker") as lpm:
        (opened,) = [event for event in events if isinstance(event, StoreOpened)]
        assert (opened.schema_version, opened.migrated) == (2, [2])
        assert file_problems(old) == []
        assert shared(old_stores.rows(old), before) == shared(before, before)
        outbox = [entry.task_id for entry in await lpm.get_unsynced_results(100)]
        assert outbox == [row["task_id"] for row in in_order(before) if not row["synced"] and not row["rejected_at"]]
        clock.advance(86_400)
        assert [claim.task.task_id for claim in await lpm.claim(10)] == sorted(OPEN, key=order_of(before))
    (backup,) = (old.parent / "backups").iterdir()
    assert migrations_of(old) == [1, 2]
    assert migrations_of(backup) == [1], "made before anything was changed"
    assert old_stores.rows(backup) == before


def in_order(rows: Rows) -> list[dict[str, object]]:
    return sorted(rows["results"], key=lambda row: row["seq"])


def order_of(rows: Rows) -> Callable[[str], tuple[int, int]]:
    places = {row["task_id"]: (row["priority"], row["seq"]) for row in rows["tasks"]}
    return places.__getitem__


def migrations_of(store: Path) -> list[int]:
    return [version for (version,) in look(store, "SELECT version FROM schema_version ORDER BY version")]


async def test_a_worker_of_today_goes_on_with_an_earlier_store(old: Path) -> None:
    before = old_stores.rows(old)
    results = before["results"]
    waiting = {row["task_id"] for row in results if row["success"] and not row["synced"] and not row["rejected_at"]}
    async with HostileGateway() as gateway:
        environment = {"PARCELPOST_GATEWAY_TOKEN": gateway.token}
        async with open_worker(settings(old, gateway), environment, Control(), progress_seconds=60) as worker:
            await OndemandRunner(worker, until_empty=True).run()
            depth = await worker.context.lpm.queue_depth()
            assert (depth.pending, depth.processing, depth.unsynced, depth.rejected) == (0, 0, 0, 1)
            assert worker.context.worker_id == "hartford-1"
        assert set(gateway.submissions) == waiting | set(OPEN)
        assert [task_id for task_id, _ in gateway.failed] == ["failing"]
        assert gateway.named_too_early == []
        assert gateway.beats[-1]["leaving"]


def settings(store: Path, gateway: HostileGateway) -> Settings:
    own = {"storage.path": str(store), "gateway.url": gateway.url, "log.level": "error"}
    return load(config=None, environment={}, flags={**FAST, **own}).settings
