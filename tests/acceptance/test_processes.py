"""`run --processes`: real processes on one store, killed, drained and left alone."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from parcelpost.model import Target, Task
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.processes import FAST, WorkerProcess, eventually, worker

pytestmark = pytest.mark.slow

COUNT = 60


async def fill(folder: Path, delay_ms: int) -> None:
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        targets = [
            Target(state="CT", county="hartford", parcel_id=str(number), extra={"delay_ms": delay_ms})
            for number in range(COUNT)
        ]
        await lpm.add_tasks(Task(task_id=f"t{target.parcel_id}", platform="echo", target=target) for target in targets)


def arguments(*more: str) -> list[str]:
    return ["--mode", "standalone", "--store", "store.db", "--processes", "2", "--slots", "3", *more]


def children(process: WorkerProcess) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if child.status() != psutil.STATUS_ZOMBIE]


async def test_killed_processes_are_started_again_and_all_tasks_are_done(tmp_path: Path) -> None:
    await fill(tmp_path, delay_ms=300)
    async with worker(*arguments("--until-empty"), folder=tmp_path) as process:
        await process.said("WorkerStarted", times=2)
        children(process)[0].send_signal(signal.SIGKILL)
        await process.said('"ProcessEnded", "process"')
        assert await process.ended() == 0
    log = (tmp_path / "worker.log").read_text()
    assert "SIGKILL" in log
    assert log.count('"WorkerStarted"') == 3
    assert f"{COUNT} completed, 0 failed" in log
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        assert (await lpm.queue_depth()).completed == COUNT


async def test_one_port_shows_the_health_and_the_metrics_of_all(tmp_path: Path) -> None:
    await fill(tmp_path, delay_ms=100)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def ask(path: str) -> str:
        return await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{port}{path}", timeout=30).read().decode())

    async def both_counted() -> bool:
        counted = {
            sample.labels["process"]
            for family in text_string_to_metric_families(await ask("/metrics"))
            for sample in family.samples
            if sample.name == "parcelpost_attempts_total" and sample.value
        }
        return counted == {"1", "2"}

    async def reports_health() -> bool:
        try:
            return bool(json.loads(await ask("/healthz"))["status"] == "ok")
        except URLError:
            return False

    async with worker(*arguments(), folder=tmp_path, settings={**FAST, "http.port": str(port)}) as process:
        await eventually(reports_health)
        await eventually(both_counted)
        stopped = children(process)[1]
        stopped.suspend()
        try:

            async def is_reported() -> bool:
                try:
                    await ask("/healthz")
                except URLError as error:
                    return b"does not respond" in error.read()  # type: ignore[attr-defined]
                return False

            await eventually(is_reported)
        finally:
            stopped.resume()
        process.send_signal(signal.SIGTERM)
        assert await process.ended() == 0


async def test_a_drain_releases_the_tasks_of_all(tmp_path: Path) -> None:
    await fill(tmp_path, delay_ms=60_000)
    async with worker(*arguments(), folder=tmp_path, settings={**FAST, "worker.drain_seconds": "0.2"}) as process:
        await process.said("WorkerStarted", times=2)
        process.send_signal(signal.SIGTERM)
        assert await process.ended() == 0
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        depth = await lpm.queue_depth()
        assert (depth.pending, depth.processing) == (COUNT, 0)


async def test_processes_whose_parent_is_killed_drain(tmp_path: Path) -> None:
    await fill(tmp_path, delay_ms=100)
    async with worker(*arguments(), folder=tmp_path) as process:
        await process.said("WorkerStarted", times=2)
        left = children(process)
        process.kill()
        gone, alive = await asyncio.to_thread(psutil.wait_procs, left, 120)
        assert (len(gone), alive) == (2, [])
    assert "the process that started it has ended" in (tmp_path / "worker.log").read_text()


async def test_what_one_process_cannot_do_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a store" * 1_000)
    async with worker(*arguments(), folder=tmp_path) as process:
        assert await process.ended() == 1
    assert (tmp_path / "store.db").stat().st_size == 11_000
