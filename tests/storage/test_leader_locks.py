"""A duty belongs to one process of a store, as long as it lives."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from parcelpost.errors import StoreError, StoreFailed
from parcelpost.events import Event, PeerBack, PeerHung
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.locks import PeerWatch, live_folder
from tests.storage.crash.peer import Peer
from tests.storage.factories import a_result, a_task

HUNG_AFTER = 3.0


def has(peer: Peer, duty: str = "sync") -> bool:
    return peer.ask("duty", duty) == ["has"]


def test_of_several_processes_one_has_the_duty_and_leaves_it_to_another_when_it_is_killed(store: Path) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(store)) for _ in range(3)]
        for peer in peers:
            peer.tell("duty", "sync")
        first = [peer.answer() for peer in peers]
        assert sorted(first) == [["has"], ["has-not"], ["has-not"]]
        again = [peer.ask("duty", "sync") for peer in peers]
        assert again == first, "to ask again changes nothing"
        mortal = peers.pop(first.index(["has"]))
        mortal.kill()
        assert [has(peer) for peer in peers] == [True, False]


async def test_a_process_that_is_killed_leaves_its_duty_to_this_one(lpm: LocalPersistenceManager, store: Path) -> None:
    with Peer(store) as mortal:
        assert has(mortal)
        assert not lpm.leader_locks.take("sync")
        mortal.kill()
        assert lpm.leader_locks.take("sync")


async def test_a_process_that_gives_no_sign_of_life_loses_its_duties_and_its_tasks(store: Path) -> None:
    events: list[Event] = []
    options = StoreOptions(hung_after_seconds=HUNG_AFTER)
    async with LocalPersistenceManager.open(store, options=options, emit=events.append, worker="worker") as lpm:
        for number in range(3):
            await lpm.add_task(a_task(f"t{number}"))
        with Peer(store, hung_after=HUNG_AFTER) as hung, Peer(store, hung_after=HUNG_AFTER) as busy:
            assert has(hung)
            assert len(hung.ask("claim", "2")) == 2
            assert len(busy.ask("claim", "1")) == 1
            hung.suspend()
            assert not lpm.leader_locks.take("sync"), "it may only be slow"
            assert await lpm.recover_abandoned() == 0
            async with asyncio.timeout(60):
                while not lpm.hung_peers():
                    await asyncio.sleep(0.05)
            assert lpm.hung_peers() == [hung.process.pid]
            assert lpm.leader_locks.take("sync")
            assert await lpm.recover_abandoned() == 2, "those of the one that hangs, and of no other"
            taken = await lpm.claim(2)
            assert len(taken) == 2
            hung.resume()
            assert hung.ask("still", "sync") == ["has-not"]
            assert not has(hung)
            assert hung.ask("save") == [], "its claims are no longer current (I4)"
            assert lpm.leader_locks.has("sync")
            assert [await lpm.save_result(claim, a_result()) is not None for claim in taken] == [True, True]
            assert len(busy.ask("save")) == 1
            async with asyncio.timeout(60):
                while not any(isinstance(event, PeerBack) for event in events):
                    await asyncio.sleep(0.05)
            assert lpm.hung_peers() == []
    told = [event for event in events if isinstance(event, PeerHung | PeerBack)]
    assert [type(event) for event in told] == [PeerHung, PeerBack]
    assert {event.pid for event in told} == {hung.process.pid}


def test_of_several_that_find_a_process_hanging_one_takes_its_duty(store: Path) -> None:
    with ExitStack() as stack:
        hung, *others = [stack.enter_context(Peer(store, hung_after=HUNG_AFTER)) for _ in range(3)]
        assert has(hung)
        hung.suspend()
        having: list[Peer] = []
        give_up_at = time.monotonic() + 60
        while not having and time.monotonic() < give_up_at:
            time.sleep(0.05)
            having = [peer for peer in others if has(peer)]
        assert len(having) == 1
        hung.resume()
        assert [has(peer) for peer in (hung, *others)].count(True) == 1


async def test_signs_of_life_go_on_after_a_time_without_files_to_open(store: Path) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    options = StoreOptions(hung_after_seconds=HUNG_AFTER)
    async with LocalPersistenceManager.open(store, options=options, worker="worker") as lpm:
        lock = live_folder(store) / f"{lpm.owner_id}.lock"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        next_file = os.dup(0)
        os.close(next_file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, hard))
        try:
            await asyncio.sleep(HUNG_AFTER / 5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        before = lock.stat().st_mtime_ns
        async with asyncio.timeout(60):
            while lock.stat().st_mtime_ns == before:
                await asyncio.sleep(0.05)
    assert problems == []


async def test_a_watch_does_not_count_the_time_in_which_it_was_stopped_itself(tmp_path: Path) -> None:
    (tmp_path / "peer-1-00000000.lock").touch()
    now = 0.0
    watch = PeerWatch(tmp_path, "me-2-00000000", 60.0, lambda: now)
    watch.sample()
    now = 3_600.0
    watch.sample()
    assert not watch.is_hung("peer-1-00000000.lock"), "an hour in which the machine slept is one look"
    for _ in range(60):
        now += watch.beat_seconds
        watch.sample()
    assert watch.is_hung("peer-1-00000000.lock")
    os.utime(tmp_path / "peer-1-00000000.lock", (1, 1))
    assert not watch.is_hung("peer-1-00000000.lock"), "a sign of life, wherever its clock was set to"


def test_each_duty_stands_by_itself_and_one_that_is_given_up_can_be_taken_by_anybody(store: Path) -> None:
    with Peer(store) as first, Peer(store) as second:
        assert has(first, "sync")
        assert has(second, "janitor")
        assert not has(first, "janitor")
        assert first.ask("off-duty") == ["off"]
        assert not has(first, "janitor")
        assert has(second, "sync")
        assert not has(first, "sync")
        assert second.leave() == 0
        assert has(first, "sync"), "closing the store gave it up"


async def test_two_openers_in_one_process_are_two(lpm: LocalPersistenceManager, store: Path) -> None:
    async with LocalPersistenceManager.open(store) as other:
        assert lpm.leader_locks.take("sync")
        assert not other.leader_locks.take("sync")
        lpm.leader_locks.release()
        assert other.leader_locks.take("sync")
    assert lpm.leader_locks.take("sync"), "closing the store gave it up"


async def test_each_store_has_its_own_duties(lpm: LocalPersistenceManager, tmp_path: Path) -> None:
    async with LocalPersistenceManager.open(tmp_path / "another" / "store.db") as other:
        assert lpm.leader_locks.take("sync")
        assert other.leader_locks.take("sync")


async def test_a_lock_that_cannot_be_made_is_an_error_of_the_store(lpm: LocalPersistenceManager, store: Path) -> None:
    (live_folder(store) / "sync.leader").mkdir()
    with pytest.raises(StoreFailed, match=r"sync\.leader: Is a directory"):
        lpm.leader_locks.take("sync")
    (live_folder(store) / "janitor.leader").symlink_to(store)
    with pytest.raises(StoreError, match=r"janitor\.leader"):
        lpm.leader_locks.take("janitor")
    (live_folder(store) / "sync.leader").rmdir()
    assert lpm.leader_locks.take("sync")
