"""A Firestore that is away half of the time, a worker that is killed again and again: one result for each task."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.processes import FAST, eventually, worker
from tests.firestore.server import FirestoreServer
from tests.lengths import short_and_long
from tests.storage.factories import list_results

LEASE_SECONDS = 4
COMMAND = ("--upstream", "firestore", "--store", "store.db")
ROOT = "projects/p/databases/(default)/documents/parcelpost/main"
SETTINGS = {
    **FAST,
    "firestore.project": "p",
    "firestore.raw": "upstream",
    "firestore.lease_seconds": str(LEASE_SECONDS),
    "firestore.max_attempts": "1000",
    "firestore.idle_seconds": "0.2",
    "firestore.timeout_seconds": "2",
    "executor.slots": "8",
    "log.level": "warning",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@short_and_long("tasks, kills", (100, 2), (1_000, 10))
async def test_tasks_survive_kills_and_a_firestore_that_is_away_half_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, kills: int
) -> None:
    async with FirestoreServer() as server:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.host)
        server.put({f"{ROOT}/tasks/t{number:04}": _task(number) for number in range(tasks)})
        moods = asyncio.create_task(_come_and_go(server))
        try:
            for kill in range(kills):
                async with worker(*COMMAND, folder=tmp_path, settings=SETTINGS) as process:
                    await _enough(server, wanted=(kill + 1) * tasks // (kills + 2))
                    assert process.returncode is None, _said(tmp_path)
        finally:
            moods.cancel()
            await asyncio.wait([moods])
        if not server.is_up:
            await server.start()
        server.documents.ahead = timedelta(seconds=LEASE_SECONDS)  # nobody need wait for the dead ones' leases
        while any(task["status"] != "done" for task in server.all(f"{ROOT}/tasks").values()):
            # It ends when nothing is offered: some may be under a lease still.
            async with worker(*COMMAND, "--until-empty", folder=tmp_path, settings=SETTINGS) as process:
                assert await process.ended() == 0, _said(tmp_path)
        await _check(tmp_path, server, tasks)


def _task(number: int) -> dict[str, Any]:
    target = {"parcel_id": f"p{number}", "state": "CT", "county": "hartford", "note": "n", "delay_ms": number % 7}
    moment = datetime(2026, 11, 15, tzinfo=UTC) + timedelta(seconds=number)
    return {"status": "queued", "platform": "echo", "target": target, "priority": 3, "created_at": moment}


async def _come_and_go(server: FirestoreServer) -> None:
    while True:
        for change in (server.stop, server.start):
            await asyncio.sleep(random.uniform(0.2, 0.6))
            await change()


async def _enough(server: FirestoreServer, wanted: int) -> None:
    """Until so many results are there, and a moment of chance after that."""

    async def are_there() -> bool:
        return sum(path.startswith(f"{ROOT}/results/") for path in server.documents.all) >= wanted

    await eventually(are_there)
    await asyncio.sleep(random.uniform(0.0, 0.1))


def _said(folder: Path) -> str:
    return "\n".join(log.read_text()[-3000:] for log in folder.glob("*.log"))


async def _check(folder: Path, server: FirestoreServer, count: int) -> None:
    assert "_transport.cc" not in (folder / "worker.log").read_text(), "gRPC writes nothing among our lines"
    results = server.all(f"{ROOT}/results")
    tasks = server.all(f"{ROOT}/tasks")
    assert {task["status"] for task in tasks.values()} == {"done"}
    assert sorted(results) == sorted(tasks)
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        depth = await lpm.queue_depth()
        assert (depth.pending, depth.processing, depth.completed) == (0, 0, count)
        assert (depth.unsynced, depth.rejected) == (0, 0)
        after = 0
        while entries := await list_results(lpm, limit=500, after=after):
            after = entries[-1].seq
            for entry in entries:
                result = results[entry.task_id]
                assert result["idempotency_key"] == entry.idempotency_key
                assert result["data"] == json.loads(entry.data or b"null")
                page = gzip.decompress((folder / "upstream" / result["page"]["key"]).read_bytes())
                assert hashlib.sha256(page).hexdigest() == result["page"]["sha256"] == entry.raw_sha256
        rounds = await lpm.sync_log.recent(1000)
        assert {(one.direction, one.record_type) for one in rounds} >= {
            ("download", "tasks"),
            ("upload", "results"),
        }
