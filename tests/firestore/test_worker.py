"""The worker's own heartbeat between its store and Firestore: what it holds there is what it believes to hold."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from parcelpost.clock import Clock
from parcelpost.model import TaskStatus
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.firestore.client import FirestoreClient
from parcelpost.worker.worker import Tools, Worker
from tests.firestore.conftest import Open, ServersClock
from tests.firestore.making import add_tasks, task
from tests.firestore.server import FirestoreServer
from tests.storage.factories import a_result
from tests.upstream.factories import an_end
from tests.worker.rig import SOON_BUSY, a_context

MINUTE = timedelta(minutes=1)


def _worker(lpm: LocalPersistenceManager, client: FirestoreClient, clock: Clock) -> Worker:
    return Worker(
        a_context(lpm, client, clock), Tools(progress_seconds=60, ranking=Ranking(), availability=SiteAvailability())
    )


async def test_what_the_store_believes_to_hold_is_held(
    server: FirestoreServer, open_worker: Open, tmp_path: Path
) -> None:
    add_tasks(server, "kept", "lost")
    clock = ServersClock(server)
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        async with open_worker("w-1") as client:
            await lpm.add_tasks((await client.get_work(5, ["echo"])).tasks, leased=True)
        async with open_worker("w-1") as client, open_worker("w-2") as other:  # it was started again
            heartbeat = _worker(lpm, client, clock).heartbeat
            lost = await lpm.get_task("lost")
            assert lost is not None
            await client.report_end(an_end("lost", TaskStatus.EXPIRED, lease_id=lost.task.lease_id))
            assert [one.task_id for one in (await other.get_work(5, ["echo"])).tasks] == ["lost"]
            server.documents.ahead = 8 * MINUTE
            await heartbeat.step()
            server.documents.ahead = 16 * MINUTE
            await lpm.expire_tasks()
            states = {name: await lpm.get_task(name) for name in ("kept", "lost")}
            found = {name: info.status for name, info in states.items() if info}
            assert found == {"kept": TaskStatus.PENDING, "lost": TaskStatus.EXPIRED}
            for end in await lpm.get_unsynced_results():
                await client.report_end(end)
            assert (task(server, "kept")["worker"], task(server, "lost")["worker"]) == ("w-1", "w-2")
            assert (await other.get_work(5, ["echo"])).tasks[0].task_id == "lost", "w-2 was silent for 16 minutes"


async def test_a_task_that_is_ordered_again_is_done_again(
    server: FirestoreServer, client: FirestoreClient, tmp_path: Path
) -> None:
    clock = ServersClock(server)
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        for order in range(2):
            server.documents.ahead = order * timedelta(days=1)
            add_tasks(server, "t1")
            await lpm.add_tasks((await client.get_work(5, ["echo"])).tasks, leased=True)
            (claim,) = await lpm.claim()
            await lpm.save_result(claim, a_result())
            (entry,) = await lpm.get_unsynced_results()
            await client.submit_results([entry])
            await lpm.mark_synced([entry.result_id])
            assert task(server, "t1")["status"] == "done", "though the record is the same as before"


async def test_a_task_that_the_store_refuses_is_failed_at_once(
    server: FirestoreServer, client: FirestoreClient, tmp_path: Path
) -> None:
    clock = ServersClock(server)
    large = {"parcel_id": "1", "state": "CT", "county": "x", "notes": "x" * 300_000}
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        add_tasks(server, "good")
        add_tasks(server, "large", target=large)
        await _worker(lpm, client, clock).collector.step()
        assert [claim.task.task_id for claim in await lpm.claim(2)] == ["good"]
    found = task(server, "large")
    assert (found["status"], found["attempts"]) == ("failed", 1)
    assert found["error"].startswith("the worker cannot store the task: target takes 300,")


async def test_what_the_store_cannot_take_yet_is_no_other_workers(
    server: FirestoreServer, open_worker: Open, tmp_path: Path
) -> None:
    add_tasks(server, "t1")
    clock = ServersClock(server)
    async with (
        LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=SOON_BUSY, waits=True) as lpm,
        open_worker("w-1") as client,
        open_worker("w-2") as other,
    ):
        worker = _worker(lpm, client, clock)
        with closing(sqlite3.connect(lpm.path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            collecting = asyncio.create_task(worker.collector.step())
            async with asyncio.timeout(60):
                while not lpm.backpressure.waiting:
                    await asyncio.sleep(0.01)
            server.documents.ahead = 2 * MINUTE
            await worker.heartbeat.step()
            assert not (await other.get_work(5, ["echo"])).tasks
            assert not await lpm.get_task("t1")
        await asyncio.wait_for(collecting, 60)
        assert [claim.task.task_id for claim in await lpm.claim()] == ["t1"]
