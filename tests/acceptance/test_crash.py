"""A gateway that comes and goes, a worker that is killed again and again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import json
import random
from hashlib import sha256
from pathlib import Path

import pytest

from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.leases import Leases
from tests.acceptance.processes import PATIENCE_SECONDS, worker
from tests.hostile import HostileGateway, a_task
from tests.lengths import short_and_long


@pytest.mark.slow
@short_and_long("count, kills", (150, 3), (2_000, 10))
async def test_tasks_survive_kills_and_a_gateway_that_comes_and_goes(tmp_path: Path, count: int, kills: int) -> None:
    tasks = [a_task(f"t{number:04}", target={"note": f"n{number}", "delay_ms": number % 7}) for number in range(count)]
    async with HostileGateway(many_at_once=True) as gateway:
        gateway.offer(*tasks)
        gateway.play("work", Leases(gateway, tasks, seconds=3), times=None)
        moods = asyncio.create_task(_come_and_go(gateway))
        try:
            for kill in range(kills):
                await _run_until_killed(tmp_path, gateway, wanted=(kill + 1) * count // (kills + 2))
        finally:
            moods.cancel()
            await asyncio.wait([moods])
        if not gateway.is_up:
            await gateway.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _run_until_all_are_upstream(tmp_path, gateway, count)
        await _check(tmp_path, gateway, count)


def _arguments(gateway: HostileGateway) -> list[str]:
    return ["--gateway", gateway.url, "--store", "store.db", "--slots", "8", "--until-empty"]


async def _come_and_go(gateway: HostileGateway) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.2, 0.6))
        await gateway.stop()
        await asyncio.sleep(random.uniform(0.1, 0.4))
        await gateway.start()


async def _run_until_killed(folder: Path, gateway: HostileGateway, wanted: int) -> None:
    """Killed when so many results are upstream, at a moment of chance after that."""
    async with worker(*_arguments(gateway), folder=folder, token=gateway.token) as process:
        await asyncio.wait_for(gateway.until(lambda: len(gateway.submissions) >= wanted), PATIENCE_SECONDS)
        await asyncio.sleep(random.uniform(0.0, 0.1))
        assert process.returncode is None, (folder / "worker.log").read_text()[-3000:]


async def _run_until_all_are_upstream(folder: Path, gateway: HostileGateway, count: int) -> None:
    """A worker that finds nothing to do may end while tasks of a lost answer are still leased: then another follows."""
    while len(gateway.submissions) < count:
        async with worker(*_arguments(gateway), folder=folder, token=gateway.token) as process:
            assert await process.ended() == 0, (folder / "worker.log").read_text()[-3000:]


async def _check(folder: Path, gateway: HostileGateway, tasks: int) -> None:
    assert len(gateway.submissions) == tasks
    assert gateway.failed == []
    assert gateway.named_too_early == []
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        depth = await lpm.queue_depth()
        assert (depth.pending, depth.processing, depth.completed) == (0, 0, tasks)
        assert (depth.unsynced, depth.rejected) == (0, 0)
        after = 0
        while entries := await lpm.list_results(limit=500, after=after):
            after = entries[-1].seq
            for entry in entries:
                sent = gateway.submissions[entry.task_id]
                assert {one["idempotency_key"] for one in sent} == {entry.idempotency_key}
                assert {_hash(one["data"]) for one in sent} == {_hash(json.loads(entry.data or b"null"))}
                assert gateway.raw_files[sent[0]["raw_file"]].sha256 == entry.raw_sha256


def _hash(data: object) -> str:
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
