"""`parcelpost status`: what is worth a person's attention, and what is only worth a line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from parcelpost.clock import SystemClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.orders import ORDERS_STATE, Orders
from tests.cli.support import Run, holder, make_store, task
from tests.storage.making import save_one


def status(run: Run, store: Path, *arguments: object) -> str:
    ran = run("status", *arguments, "--store", store)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def work(store: Path, *, done: int, failed: int) -> Path:
    """A store in which so many tasks were done and given up."""

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for number in range(done):
                await save_one(lpm, task(f"done{number}"))
            await lpm.add_tasks(task(f"failed{number}") for number in range(failed))
            for claim in await lpm.claim(failed) if failed else []:
                await lpm.give_up(claim, f"no table on page {claim.seq}")

    asyncio.run(make())
    return store


def test_when_every_task_fails_that_is_said_with_the_reason_and_the_next_step(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=0, failed=6)
    (line,) = [line for line in status(run, store).splitlines() if "failed, most often" in line and "Attention" in line]
    assert line.startswith("Attention: 6 of 6 tasks in the last 24 h failed, most often: no table on page ")
    assert f"'parcelpost store tasks --status failed --store {store}'" in line
    assert f"'parcelpost store requeue --failed --store {store}'" in line
    found = json.loads(status(run, store, "--json"))
    assert (found["well"], found["failures"]["failed"], found["failures"]["ended"]) == (False, 6, 6)
    assert "Attention: 6 of 6 tasks" in run("store", "status", "--store", store).out


def test_a_failure_among_many_is_told_without_an_alarm(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=30, failed=1)
    out = status(run, store)
    assert "Attention: 1 of" not in out
    assert "failed         1 of 31 tasks in the last 24 h failed, most often: no table on page 31\n" in out


def test_what_is_requeued_is_handled(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=0, failed=2)
    assert run("store", "requeue", "--failed", "--yes", "--store", store).code == 0
    assert "most often" not in status(run, store)


def test_nothing_failed_in_a_new_store(tmp_path: Path, run: Run) -> None:
    assert "most often" not in status(run, make_store(tmp_path / "parcelpost.db"))


def obey(store: Path, owner: str, *, paused: bool, platforms: tuple[str, ...] = ()) -> None:
    orders = Orders(worker_id="w 1", owner=owner, since=SystemClock().now(), paused=paused, platforms=platforms)

    async def note() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.state.put(f"{ORDERS_STATE}w 1", orders)

    asyncio.run(note())


def test_a_pause_by_the_gateway_is_told_with_how_to_end_it(store: Path, run: Run) -> None:
    with holder(store):
        (worker,) = json.loads(status(run, store, "--json"))["workers"]
        obey(store, worker["id"], paused=True, platforms=("vgsi",))
        out = status(run, store)
        assert out.startswith("Attention: the gateway has paused worker w 1, 0 s ago: it starts no task")
        assert "parcelpost gateway order resume --worker" in out
        assert "ordered        pause and only vgsi, by the gateway for w 1\n" in out
        found = json.loads(status(run, store, "--json"))
        assert (found["well"], found["orders"][0]["paused"]) == (False, True)
        obey(store, worker["id"], paused=False)
        assert "paused" not in status(run, store)


def test_an_order_ends_with_the_process_that_obeyed_it(store: Path, run: Run) -> None:
    obey(store, "worker-1-00000000", paused=True)
    with holder(store):
        assert "paused" not in status(run, store)
