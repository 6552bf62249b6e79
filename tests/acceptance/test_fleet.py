"""Three gateways on one PostgreSQL, many workers, and some of them killed on the way: every task once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.acceptance.fleet import Fleet, Member
from tests.gateway.servers import address, postgres
from tests.lengths import short_and_long

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("fleet")]

WITH_PAGE = 50
"""One task in so many brings a page: what is tried here is the ledger."""

DONE = "SELECT count(*) FROM tasks WHERE state = 'done'"
RESULTS_OF_A_TASK = """
SELECT results, count(*) FROM (SELECT count(r.task_id) AS results FROM tasks t LEFT JOIN results r USING (task_id)
                               GROUP BY t.task_id) AS found
GROUP BY results
"""
OVERLAPS = """
WITH held AS (
    SELECT lease_id, task_id, worker_id, tstzrange(
        granted_at, greatest(granted_at, ended_at - interval '2 seconds')) AS period FROM leases
)
SELECT one.task_id, one.worker_id, other.worker_id FROM held one JOIN held other USING (task_id)
WHERE one.lease_id < other.lease_id AND one.period && other.period
"""
"""A moment is when a request came in: one that waited for the ledger meanwhile is dated before what it waited for. That
no two leases of a task are open at a time is what the ledger's index `leases_open` sees to."""
HELD = "SELECT count(*) FROM leases WHERE worker_id = $1 AND ended_at IS NULL"
ENDS = "SELECT ended_as, count(*) AS number FROM leases GROUP BY ended_as"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as server:
        yield address(server)


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[asyncpg.Connection]:
    """The tables themselves, beside every gateway."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


def write_tasks(file: Path, tasks: int) -> Path:
    with file.open("w") as out:
        for number in range(tasks):
            task = {"platform": "echo", "parcel_id": f"{number:06}", "state": "CT", "county": "hartford"}
            out.write(json.dumps({**task, "page": number % WITH_PAGE == 0}) + "\n")
    return file


async def until_done(ledger: asyncpg.Connection, tasks: int) -> None:
    while await ledger.fetchval(DONE) < tasks:
        await asyncio.sleep(0.1)


@short_and_long("tasks, workers, at_most", (400, 3, 100), (20_000, 8, 400))
async def test_every_task_has_one_result_and_no_two_workers_held_one_at_a_time(
    tmp_path: Path, database: str, ledger: asyncpg.Connection, tasks: int, workers: int, at_most: int
) -> None:
    async with Fleet(database, tmp_path, gateways=3, workers=workers, at_most=at_most) as fleet:
        await fleet.add(write_tasks(tmp_path / "tasks.jsonl", tasks))
        lost, restarted, *others = fleet.workers
        lost.start()  # alone at first: the others could take all tasks before it is killed
        await until_done(ledger, tasks // 10)
        await kill_while_it_holds_tasks(lost, ledger)  # never comes back: its tasks do, when their leases expire
        for worker in (restarted, *others):
            worker.start()
        await until_done(ledger, tasks // 5)
        await fleet.gateways[1].kill()
        await until_done(ledger, tasks * 3 // 10)
        await restarted.kill()
        restarted.start()
        fleet.gateways[1].start()  # the workers that call it have scraped on meanwhile
        assert [await worker.ended() for worker in (restarted, *others)] == [0] * (workers - 1)
        await finish(fleet, ledger, tasks)
    assert [tuple(row) for row in await ledger.fetch(RESULTS_OF_A_TASK)] == [(1, tasks)]
    assert await ledger.fetch(OVERLAPS) == []
    ends = {row["ended_as"]: row["number"] for row in await ledger.fetch(ENDS)}
    assert None not in ends
    assert ends["done"] + ends.get("superseded", 0) <= tasks
    assert ends["expired"] > 0, "nobody lost a lease: the test has tried nothing"


async def kill_while_it_holds_tasks(worker: Member, ledger: asyncpg.Connection) -> None:
    """Pauses the worker before looking, as it could otherwise deliver its last task between the look and the kill."""
    while True:
        worker.pause()
        await asyncio.sleep(0.5)  # a request that it has sent may still be at work
        if await ledger.fetchval(HELD, worker.worker_id):
            return await worker.kill()
        worker.resume()
        await asyncio.sleep(0.05)


async def finish(fleet: Fleet, ledger: asyncpg.Connection, tasks: int) -> None:
    """Leases that end after the others went home: one more worker takes what they held."""
    late = fleet.worker(len(fleet.workers))
    fleet.workers.append(late)
    while await ledger.fetchval(DONE) < tasks:
        late.start()
        assert await late.ended() == 0
