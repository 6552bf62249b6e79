"""A duty belongs to one process of a store, as long as it lives."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from parcelpost.errors import StoreError, StoreFailed
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.opening import live_folder
from tests.storage.crash.sister import Sister


def has(sister: Sister, duty: str = "sync") -> bool:
    return sister.ask("duty", duty) == ["has"]


def test_of_several_processes_one_has_the_duty(store: Path) -> None:
    with ExitStack() as stack:
        sisters = [stack.enter_context(Sister(store)) for _ in range(3)]
        for sister in sisters:
            sister.tell("duty", "sync")
        first = [sister.answer() for sister in sisters]
        assert sorted(first) == [["has"], ["has-not"], ["has-not"]]
        again = [sister.ask("duty", "sync") for sister in sisters]
        assert again == first, "to ask again changes nothing"


def test_a_process_that_is_killed_leaves_its_duty_to_another(store: Path) -> None:
    with Sister(store) as mortal, Sister(store) as heir:
        assert has(mortal)
        assert not has(heir)
        mortal.kill()
        assert has(heir)


async def test_a_process_that_is_killed_leaves_its_duty_to_this_one(lpm: LocalPersistenceManager, store: Path) -> None:
    with Sister(store) as mortal:
        assert has(mortal)
        assert not lpm.duties.take("sync")
        mortal.kill()
        assert lpm.duties.take("sync")


def test_a_process_that_lives_but_gives_no_sign_keeps_its_duty(store: Path) -> None:
    with Sister(store) as silent, Sister(store) as other:
        assert has(silent)
        silent.suspend()
        assert not has(other)


def test_a_process_that_closes_its_store_gives_up_its_duty(store: Path) -> None:
    with Sister(store) as first, Sister(store) as second:
        assert has(first)
        assert first.leave() == 0
        assert has(second)


def test_a_duty_that_is_given_up_can_be_taken_by_anybody(store: Path) -> None:
    with Sister(store) as first, Sister(store) as second:
        assert has(first)
        assert first.ask("off-duty") == ["off"]
        assert has(second)
        assert not has(first)


def test_each_duty_stands_by_itself(store: Path) -> None:
    with Sister(store) as first, Sister(store) as second:
        assert has(first, "sync")
        assert has(second, "janitor")
        assert not has(first, "janitor")
        assert first.ask("off-duty") == ["off"]
        assert not has(first, "janitor")


async def test_two_openers_in_one_process_are_two(lpm: LocalPersistenceManager, store: Path) -> None:
    async with LocalPersistenceManager.open(store) as other:
        assert lpm.duties.take("sync")
        assert not other.duties.take("sync")
        lpm.duties.leave()
        assert other.duties.take("sync")
    assert lpm.duties.take("sync"), "closing the store gave it up"


async def test_each_store_has_its_own_duties(lpm: LocalPersistenceManager, tmp_path: Path) -> None:
    async with LocalPersistenceManager.open(tmp_path / "another" / "store.db") as other:
        assert lpm.duties.take("sync")
        assert other.duties.take("sync")


async def test_a_lock_that_cannot_be_made_is_an_error_of_the_store(lpm: LocalPersistenceManager, store: Path) -> None:
    (live_folder(store) / "sync.duty").mkdir()
    with pytest.raises(StoreFailed, match=r"sync\.duty: Is a directory"):
        lpm.duties.take("sync")
    (live_folder(store) / "janitor.duty").symlink_to(store)
    with pytest.raises(StoreError, match=r"janitor\.duty"):
        lpm.duties.take("janitor")
    (live_folder(store) / "sync.duty").rmdir()
    assert lpm.duties.take("sync")
