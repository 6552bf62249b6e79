"""Many on one database: processes, connections, and those that are killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from datetime import datetime, timedelta

import pytest

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import ParcelFilter, StoreOutcome, TaskFilter, TaskState
from parcelpost.model import Priority
from tests.gateway.conftest import MAX_ATTEMPTS
from tests.gateway.factories import NOON, arrival, parcel, task
from tests.lengths import short_and_long


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


HOUR = timedelta(hours=1)


async def peer(database: str, duty: str, name: str) -> Process:
    command = ("-m", "tests.gateway.peer", database, duty, name)
    return await asyncio.create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=PIPE)


async def opened(one: Process) -> None:
    assert one.stdout is not None
    assert await one.stdout.readline() == b"open\n"


@short_and_long("number", (600,), (2_000,))
async def test_eight_processes_open_a_new_ledger_at_once_and_never_take_a_task_twice(
    database: str, now: datetime, number: int
) -> None:
    tasks = [task(str(n), ("echo", "other")[n % 2], Priority(1 + n % 4)) for n in range(number)]
    peers = [await peer(database, "grant", f"w{n}") for n in range(8)]
    for one in peers:
        await opened(one)
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await ledger.add_tasks(tasks, now)
        outputs = await asyncio.gather(*(one.communicate(b"go\n") for one in peers))
        assert [one.returncode for one in peers] == [0] * 8
        taken = [name for out, _ in outputs for name in out.decode().split()]
        left = await ledger.grant("last", ["echo", "other"], number, now, now + HOUR)  # all were locked: some went home
    assert sorted([*taken, *(one.task.task_id for one in left)]) == sorted(one.task_id for one in tasks)


async def test_what_was_answered_survives_a_kill_and_batches_are_whole(database: str, ledger: Ledger) -> None:
    one = await peer(database, "store", "w1")
    await opened(one)
    assert one.stdin is not None and one.stdout is not None
    one.stdin.write(b"go\n")
    last = -1
    while last < 5:
        last = int(await one.stdout.readline())
    one.send_signal(signal.SIGKILL)
    said = [int(line) for line in (await one.stdout.read()).split()]
    await one.wait()
    last = max([last, *said])
    rows = await ledger.parcels(ParcelFilter(), None, 1_000_000)
    batches = {int(row.sources[0].task_id.split("-")[1]) for row in rows}
    assert batches >= set(range(last + 1))
    assert len(rows) == 10 * len(batches)


async def test_grants_stores_beats_and_ends_at_once_leave_one_lease_and_one_result(
    database: str, ledger: Ledger, now: datetime
) -> None:
    """Four handles on one database, everything at the same tasks at the same time."""
    names = [str(n) for n in range(60)]
    await ledger.add_tasks([task(name) for name in names], now)
    handles = [open_ledger(database, MAX_ATTEMPTS, SystemClock()) for _ in range(4)]

    async def trouble(handle: Ledger, worker: str) -> None:
        for turn in range(25):
            grants = await handle.grant(worker, ["echo"], 5, now, now + timedelta(seconds=turn % 3))
            mine = [one.task.task_id for one in grants]
            shifted = [
                arrival(name, scraped_at=NOON + timedelta(seconds=turn)) for name in reversed(names[turn : turn + 9])
            ]
            await asyncio.gather(
                handle.store(shifted, worker, now),
                handle.expire_leases(now + timedelta(seconds=1), 7),
                *(handle.end_task(name, worker, error="x", again=True, now=now) for name in mine[:2]),
                handle.requeue(TaskFilter(states=[TaskState.FAILED, TaskState.DEAD])),
            )

    async with handles[0] as a, handles[1] as b, handles[2] as c, handles[3] as d:
        await asyncio.gather(*(trouble(handle, f"w{n}") for n, handle in enumerate((a, b, c, d))))
    for name in names:
        found = await ledger.task(name)
        assert found is not None
        is_open = [lease.ended_at is None for lease in found.leases]
        assert sum(is_open) == (found.state is TaskState.LEASED)
    stored = await ledger.parcels(ParcelFilter(), None, 1_000)
    assert len(stored) == (await ledger.counts())["results"] == len({row.sources[0].task_id for row in stored})


async def test_scrapes_of_one_parcel_from_all_sides_end_with_the_newest(database: str, ledger: Ledger) -> None:
    handles = [open_ledger(database, MAX_ATTEMPTS, SystemClock()) for _ in range(3)]

    async def scrapes(handle: Ledger, worker: int) -> list[StoreOutcome]:
        answers: list[StoreOutcome] = []
        for n in range(30):
            at = NOON + timedelta(seconds=(n * 7 + worker * 11) % 30)
            liens = [{"face_amount": n}] * ((n + worker) % 4)
            batch = [
                arrival(f"{worker}-{n}", key, at, owner_names=[f"{worker}-{n}"], liens=liens) for key in ("Q", "P")
            ]
            answers += await handle.store(batch, "w", NOON)
        return answers

    async with handles[0] as a, handles[1] as b, handles[2] as c:
        answers = await asyncio.gather(*(scrapes(handle, n) for n, handle in enumerate((a, b, c))))
    flat = [answer for some in answers for answer in some]
    assert flat.count(StoreOutcome.INSERTED) == 2
    assert StoreOutcome.DUPLICATE not in flat
    lien_count = 0
    for key in (parcel("P"), parcel("Q")):
        versions = await ledger.versions(key, 1_000)
        found = await ledger.parcel(key.parcel)
        assert found is not None
        assert len(versions) == 90
        assert (found.sources[0].task_id, found.owner) == (versions[0].task_id, versions[0].task_id)
        lien_count += found.lien_count
    liens = await ledger.liens(ParcelFilter(), None, 100)
    assert len(liens) == lien_count


async def test_two_platforms_at_once_from_two_gateways_give_one_parcel(database: str, ledger: Ledger) -> None:
    """Whoever comes second merges what the first has stored, also while that is not yet committed."""
    platforms = ("appraiser", "collector", "register")
    handles = [open_ledger(database, MAX_ATTEMPTS, SystemClock()) for _ in platforms]
    names = [f"P{number:03}" for number in range(20)]

    async def store(handle: Ledger, platform: str, turn: int) -> None:
        lien = {"certificate_number": f"{turn}", "certificate_year": 2024, platform: 1}
        batch = [
            arrival(f"{platform}-{name}", parcel(f"{turn}-{name}", platform), owner_names=[platform], liens=[lien])
            for name in names
        ]
        assert await handle.store(batch, platform, NOON) == [StoreOutcome.INSERTED] * len(names)

    async with handles[0] as a, handles[1] as b, handles[2] as c:
        for turn in range(10):
            pairs = zip((a, b, c), platforms, strict=True)
            await asyncio.gather(*(store(handle, platform, turn) for handle, platform in pairs))
    rows = await ledger.parcels(ParcelFilter(), None, 1_000)
    assert len(rows) == 10 * len(names)
    assert {(len(row.sources), row.owner, row.lien_count) for row in rows} == {(3, "register", 1)}
    liens = await ledger.liens(ParcelFilter(), None, 1_000)
    assert {len(row.sources) for row in liens} == {3}


async def test_a_cancelled_caller_harms_nobody(ledger: Ledger, now: datetime) -> None:
    batches = [[arrival(f"{n:02}-{m:02}") for m in range(20)] for n in range(20)]
    calls = [asyncio.ensure_future(ledger.store(batch, "w1", now)) for batch in batches]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert all(answer == [StoreOutcome.INSERTED] * 20 for answer in done[1::2])
    rows = await ledger.parcels(ParcelFilter(), None, 1_000)
    assert len(rows) % 20 == 0
