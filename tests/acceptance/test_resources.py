"""A worker whose memory is full, as its settings see it: it takes nothing on, says so, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import httpx2

from parcelpost.files_and_sockets import free_port
from tests.acceptance.processes import FAST, worker
from tests.hostile import HostileGateway, a_task

STARTS_NOTHING = "is used: no tasks are started; running ones continue"


async def test_a_worker_under_pressure_starts_nothing_and_goes_on_when_it_may(tmp_path: Path) -> None:
    tasks = [f"t{number}" for number in range(5)]
    port = free_port()
    full = {
        **FAST,
        "heartbeat.seconds": "0.1",
        "http.port": str(port),
        "resources.slow_percent": "0.01",
        "resources.no_new_tasks_percent": "0.01",
        "resources.stop_browsers_percent": "100",
    }
    async with HostileGateway() as gateway:
        gateway.offer(*map(a_task, tasks))
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=full) as process:
            await process.said("no new tasks")
            await gateway.until(lambda: any(beat["queue"]["pending"] == 5 for beat in gateway.beats))
            beats = len(gateway.beats)
            await gateway.until(lambda: len(gateway.beats) >= beats + 3)
            last = gateway.beats[-1]
            assert (last["active_tasks"], last["queue"]["pending"], last["queue"]["failed"]) == (0, 5, 0)
            assert 0 < last["memory_percent"] <= 100
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                ready = await client.get("/readyz")
                metrics = (await client.get("/metrics")).text
        assert ready.status_code == 503
        assert [STARTS_NOTHING in one["message"] for one in ready.json()["findings"]] == [True]
        assert "parcelpost_memory_pressure 2.0" in metrics.splitlines()
        assert gateway.submissions == {}
        async with worker(*arguments, "--until-empty", folder=tmp_path, token=gateway.token) as process:
            assert await process.ended() == 0
        assert sorted(gateway.submissions) == tasks
        assert gateway.failed == []
