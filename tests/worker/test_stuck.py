"""A loop whose turn does not end is found; one that waits for the store is left in peace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from parcelpost.cli.worker_setup import open_worker
from parcelpost.clock import ManualClock
from parcelpost.events import Event
from parcelpost.settings.sources import load
from parcelpost.worker.control import Control
from parcelpost.worker.loop import Loop
from parcelpost.worker.worker import Worker
from tests.acceptance.processes import eventually


async def test_a_turn_that_lasts_too_long_is_overdue_and_a_rest_is_not() -> None:
    clock, begun, may_end = ManualClock(), asyncio.Event(), asyncio.Event()
    events: list[Event] = []

    async def step() -> float:
        begun.set()
        await may_end.wait()
        return 1e6

    loop = Loop("sync", step, clock, events.append, longest=60.0)
    overdue = [loop.is_overdue]
    turn = asyncio.create_task(loop._take_step())
    await begun.wait()
    for seconds in (60, 1):
        clock.advance(seconds)
        overdue.append(loop.is_overdue)
    may_end.set()
    await turn
    overdue.append(loop.is_overdue)
    assert overdue == [False, False, True, False], "though it rests for longer"


async def test_a_turn_that_fails_is_over() -> None:
    async def step() -> float:
        raise RuntimeError("a bug")

    events: list[Event] = []
    loop = Loop("sync", step, ManualClock(), events.append, longest=0.0)
    await loop._take_step()
    assert not loop.is_overdue


async def never_ends() -> float:
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def a_worker(folder: Path, *stuck: str, port: int = 0) -> AsyncIterator[Worker]:
    """At work, with no loops but those that hang."""
    flags = {"worker.mode": "standalone", "storage.path": str(folder / "store.db"), "http.port": str(port)}
    settings = load(config=None, environment={}, flags=flags).settings
    control = Control()
    async with open_worker(settings, {}, control, progress_seconds=60) as worker:
        for name in stuck:
            worker.supervisor.add(name, never_ends, longest=0.0)
        running = asyncio.create_task(worker.run("standalone"))
        yield worker
        control.leave("the end of the test", at_once=True)
        await running


async def same(one: list[str], other: list[str]) -> bool:
    return one == other


async def test_loops_that_hang_are_named_unless_chores_or_a_full_store_hold_them_up(tmp_path: Path) -> None:
    async with a_worker(tmp_path, "sync", "slot-1") as worker:
        await eventually(lambda: same(worker.stuck(), ["sync", "slot-1"]))
        worker.context.lpm.backpressure.waiting = 1
        assert worker.stuck() == [], "they may wait for the store"
        worker.context.lpm.backpressure.waiting = 0
        await eventually(lambda: same(worker.stuck(), ["sync", "slot-1"]))


async def test_the_health_page_names_the_loop_that_is_stuck(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with a_worker(tmp_path, "sync", port=port) as worker, httpx2.AsyncClient(trust_env=False) as client:
        await eventually(lambda: same(worker.stuck(), ["sync"]))
        async with asyncio.timeout(60):
            while True:
                answer = await client.get(f"http://127.0.0.1:{port}/healthz")
                if answer.status_code != 200:  # while chores run, nothing counts as stuck
                    break
    (finding,) = answer.json()["findings"]
    assert (answer.status_code, finding["id"], finding["message"]) == (503, "worker.stuck", "the sync loop is stuck")
