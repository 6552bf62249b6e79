"""A store of every earlier schema opens, migrates after a backup, keeps its rows, and goes on with its work."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from parcelpost.cli.working import working
from parcelpost.clock import ManualClock
from parcelpost.events import Event, StoreOpened
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from parcelpost.storage import LocalPersistenceManager, migrations
from parcelpost.worker.control import Control
from parcelpost.worker.runner_ondemand import OndemandRunner
from tests.acceptance.processes import FAST
from tests.hostile import HostileGateway
from tests.storage import old_stores
from tests.storage.making import look
from tests.storage.old_stores import OPEN, Rows

NEWEST = migrations.load()[-1].version
EARLIER = range(1, NEWEST)

RELEASED = {
    1: "b2898c2574312517",
    2: "d8de1a78e4afbe8d",
    3: "0c12c233dbd0ca16",
    4: "ff08036c29b17382",
    5: "052e4653e1845180",
    6: "a99f870af256a7a9",
    7: "53427393bb538935",
    8: "05c654a275e38a9b",
    9: "717bfe9bb443c990",
    10: "d762e95a6d6e5b09",
}
"""Checksums: a file that stores were made by is never changed again."""


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(old_stores.fill(tmp_path_factory.mktemp("today")))


@pytest.fixture(params=EARLIER)
def old(request: pytest.FixtureRequest, today: Path, tmp_path: Path) -> Path:
    store = tmp_path / "local_data" / "store.db"
    old_stores.build(today, store, request.param)
    return store


def test_no_migration_was_changed_since_stores_were_made_by_it() -> None:
    found = {one.version: hashlib.sha256(one.sql.encode()).hexdigest()[:16] for one in migrations.load()}
    assert found == RELEASED, "a change of the schema is a new file; add its checksum here"


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
    version, before = len(migrations_of(old)), old_stores.rows(old)
    assert all(before.values())
    events: list[Event] = []
    async with LocalPersistenceManager.open(old, clock=clock, emit=events.append, worker="worker") as lpm:
        (opened,) = [event for event in events if isinstance(event, StoreOpened)]
        assert (opened.schema_version, opened.migrated) == (NEWEST, list(range(version + 1, NEWEST + 1)))
        assert (await lpm.janitor.health(check=True)).problems == []
        assert shared(old_stores.rows(old), before) == shared(before, before)
        outbox = [entry.task_id for entry in await lpm.get_unsynced_results(100)]
        assert outbox == [row["task_id"] for row in in_order(before) if not row["synced"] and not row["rejected_at"]]
        clock.advance(86_400)
        assert [claim.task.task_id for claim in await lpm.claim(10)] == sorted(OPEN, key=order_of(before))
    (backup,) = (old.parent / "backups").iterdir()
    assert migrations_of(backup) == list(range(1, version + 1)), "made before anything was changed"
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
        async with working(settings(old, gateway), environment, Control(), progress_seconds=60) as worker:
            await OndemandRunner(worker, until_empty=True).run()
            depth = await worker.tools.lpm.queue_depth()
            assert (depth.pending, depth.processing, depth.unsynced, depth.rejected) == (0, 0, 0, 1)
            if "worker_state" in before:
                assert worker.tools.worker_id == "hartford-1"
        assert set(gateway.submissions) == waiting | set(OPEN)
        assert [task_id for task_id, _ in gateway.failed] == ["failing"]
        assert gateway.named_too_early == []
        assert gateway.beats[-1]["leaving"]


def settings(store: Path, gateway: HostileGateway) -> Settings:
    own = {"storage.path": str(store), "gateway.url": gateway.url, "log.level": "error"}
    return load(config=None, environment={}, flags={**FAST, **own}).settings
