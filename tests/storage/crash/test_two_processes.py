"""Several processes on one file: no task is given twice, and nobody's claims are touched while they live (I9)."""

from __future__ import annotations

import fcntl
import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from parcelpost.errors import StoreBusy
from parcelpost.events import Event, OwnerCrashed
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions, migrations
from parcelpost.storage.operator_actions import Selection
from tests.lengths import short_and_long
from tests.storage.crash.agreement import assert_whole
from tests.storage.crash.peer import Peer
from tests.storage.factories import a_task, list_tasks, look


async def fill(store: Path, count: int) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number:04}", platform=f"p{number % 3}") for number in range(count))


async def held(lpm: LocalPersistenceManager) -> list[str]:
    found = await list_tasks(lpm, Selection(statuses=(TaskStatus.PROCESSING,)), limit=10_000)
    return sorted(info.task.task_id for info in found)


@pytest.mark.slow
@short_and_long("tasks", (200,), (600,))
async def test_three_processes_share_the_tasks_and_none_is_given_twice(store: Path, tasks: int) -> None:
    await fill(store, tasks)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(store)) for _ in range(3)]
        for peer in peers:
            peer.tell("work")
        done = [task_id for peer in peers for task_id in peer.answer()]
        assert [peer.leave() for peer in peers] == [0, 0, 0]
    assert sorted(done) == [f"t{number:04}" for number in range(tasks)]
    assert look(store, "SELECT status, count(*) FROM tasks GROUP BY status") == [("completed", tasks)]
    assert look(store, "SELECT count(*) FROM results") == [(tasks,)]
    assert_whole(store)


@pytest.mark.slow
@short_and_long("tasks", (200,), (600,))
async def test_processes_that_are_killed_in_mid_work_leave_every_task_done_once(store: Path, tasks: int) -> None:
    await fill(store, tasks)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(store)) for _ in range(3)]
        for peer in peers:
            peer.tell("work")
        async with LocalPersistenceManager.open(store) as lpm:
            pick = random.Random()
            for peer in peers[1:]:
                level = pick.randrange(tasks // 4)
                while (await lpm.queue_depth()).completed < level:
                    pass
                peer.kill()
                await lpm.recover_abandoned()
            peers[0].answer()
            depth = await lpm.queue_depth()
    assert (depth.completed, depth.unsynced, depth.pending, depth.processing) == (tasks, tasks, 0, 0)
    assert_whole(store)


async def test_a_live_peers_claims_survive_openings_recoveries_and_the_death_of_a_third(store: Path) -> None:
    await fill(store, 20)
    with Peer(store) as live, Peer(store) as mortal:
        hers = sorted(live.ask("claim", "5"))
        lost = sorted(mortal.ask("claim", "3"))
        async with LocalPersistenceManager.open(store) as lpm:
            assert await held(lpm) == sorted(hers + lost)
            assert await lpm.recover_abandoned() == 0
            mortal.kill()
            assert await lpm.recover_abandoned() == len(lost)
            assert await held(lpm) == hers
            assert await lpm.recover_abandoned() == 0
        async with LocalPersistenceManager.open(store) as lpm:
            assert await held(lpm) == hers
        assert sorted(live.ask("save")) == hers
        assert live.leave() == 0


async def test_a_killed_processs_claims_come_back_to_the_living_without_a_restart(store: Path) -> None:
    await fill(store, 4)
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
        with Peer(store) as live, Peer(store) as mortal:
            mortal.ask("claim", "4")
            assert await lpm.claim() == []
            assert live.ask("claim", "1") == []
            mortal.kill()
            assert live.ask("recover") == ["4"]
            assert await lpm.recover_abandoned() == 0
            assert len(await lpm.claim(2)) == 2
            assert len(await held(lpm)) == 2
            assert len(live.ask("claim", "4")) == 2
    assert not any(isinstance(event, OwnerCrashed) for event in events)


async def test_a_suspended_process_is_alive_and_what_it_holds_when_it_leaves_is_pending_at_once(store: Path) -> None:
    await fill(store, 3)
    async with LocalPersistenceManager.open(store) as lpm:
        with Peer(store) as peer:
            hers = sorted(peer.ask("claim", "3"))
            peer.suspend()
            async with LocalPersistenceManager.open(store) as opened_meanwhile:
                assert await opened_meanwhile.recover_abandoned() == 0
                assert await held(opened_meanwhile) == hers
            assert await held(lpm) == hers
            peer.resume()
            assert peer.leave() == 0
        assert len(await lpm.claim(3)) == 3
        assert {info.recoveries for info in await list_tasks(lpm)} == {0}


async def test_a_store_is_busy_while_another_process_stands_in_the_gate(store: Path) -> None:
    await fill(store, 1)
    options = StoreOptions(busy_timeout_seconds=0.1)
    gate = os.open(store.with_name(store.name + "-live") / "gate", os.O_RDWR)
    async with LocalPersistenceManager.open(store, options=options) as lpm:
        fcntl.flock(gate, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy) as busy:
            async with LocalPersistenceManager.open(store, options=options):
                pass
        assert busy.value.retry_helps
        assert busy.value.hint
        with pytest.raises(StoreBusy):
            await lpm.recover_abandoned()
        assert len(await lpm.claim()) == 1  # who is inside goes on working
        os.close(gate)
        assert await lpm.recover_abandoned() == 0
    async with LocalPersistenceManager.open(store, options=options) as lpm:
        assert len(await lpm.claim()) == 1


async def test_looking_at_the_file_once_more_in_a_process_does_not_drop_the_locks_it_holds(store: Path) -> None:
    """POSIX locks go with the first handle that is closed: a peer would think that nobody needs the WAL any more."""
    await fill(store, 1)
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_task(a_task("second"))
        async with LocalPersistenceManager.open(store):
            pass
        await lpm.maintenance.backup()
        await lpm.maintenance.health()
        with Peer(store) as peer:
            assert peer.leave() == 0
        assert await lpm.add_task(a_task("third"))
        with Peer(store) as peer:
            assert sorted(peer.ask("claim", "10")) == ["second", "t0000", "third"]
            assert peer.leave() == 0
        assert len(await lpm.claim(10)) == 3
    assert_whole(store)
    assert look(store, "SELECT count(*) FROM tasks") == [(3,)]


@short_and_long("count", (4,), (6,))
async def test_many_processes_may_make_the_same_store_at_once(store: Path, count: int) -> None:
    with ExitStack() as stack:
        made = [Peer(store) for _ in range(count)]
        peers = [stack.enter_context(peer) for peer in made]
        assert [peer.leave() for peer in peers] == [0] * count
    known = [(migration.version,) for migration in migrations.load()]
    assert look(store, "SELECT version FROM schema_version ORDER BY version") == known
    assert_whole(store)
