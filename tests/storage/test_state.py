"""Named values that outlive the process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import NOW, look


class Waiting(Struct, frozen=True):
    until: datetime
    failures: int


class Other(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


async def test_what_was_never_put_is_none(lpm: LocalPersistenceManager) -> None:
    assert await lpm.state.get("sync", Waiting) is None


async def test_a_value_comes_back_as_it_was_put_and_the_last_one_counts(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    await lpm.state.put("sync", Waiting(NOW, 1))
    clock.advance(60)
    await lpm.state.put("sync", Waiting(clock.now(), 2))
    await lpm.state.put("janitor", Other("ran"))
    assert await lpm.state.get("sync", Waiting) == Waiting(clock.now(), 2)
    assert await lpm.state.get("janitor", Other) == Other("ran")
    assert look(store, "SELECT name, updated_at FROM worker_state WHERE name <> 'store_id' ORDER BY name") == [
        ("janitor", "2026-01-01T00:01:00.000Z"),
        ("sync", "2026-01-01T00:01:00.000Z"),
    ]


async def test_a_value_outlives_the_process_that_put_it(store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.state.put("sync", Waiting(NOW, 3))
    async with LocalPersistenceManager.open(store) as lpm:
        assert await lpm.state.get("sync", Waiting) == Waiting(NOW, 3)


async def test_of_several_that_settle_a_value_at_once_all_have_the_first(store: Path) -> None:
    async with LocalPersistenceManager.open(store) as one, LocalPersistenceManager.open(store) as two:
        answers = await asyncio.gather(
            *(lpm.state.put_if_absent("name", Other(f"{n}")) for n, lpm in enumerate([one, two]))
        )
        assert len(set(answers)) == 1
        assert await one.state.put_if_absent("name", Other("later")) == answers[0]
        assert await two.state.get("name", Other) == answers[0]


async def test_a_value_that_means_something_else_is_settled_anew(lpm: LocalPersistenceManager) -> None:
    await lpm.state.put("sync", Other("ran"))
    assert await lpm.state.put_if_absent("sync", Waiting(NOW, 1)) == Waiting(NOW, 1)
    assert await lpm.state.get("sync", Waiting) == Waiting(NOW, 1)


async def test_a_value_that_means_something_else_is_none(lpm: LocalPersistenceManager) -> None:
    await lpm.state.put("sync", Other("ran"))
    assert await lpm.state.get("sync", Waiting) is None
    assert await lpm.state.get("sync", Other) == Other("ran")


DIES = """
import asyncio, os, signal, sys
from msgspec import Struct
from parcelpost.storage import LocalPersistenceManager

class Other(Struct):
    name: str

async def put() -> None:
    async with LocalPersistenceManager.open(sys.argv[1]) as lpm:
        await lpm.state.put("sync", Other("put"))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(put())
"""


async def test_a_value_survives_a_kill(store: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, store], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    async with LocalPersistenceManager.open(store) as lpm:
        assert await lpm.state.get("sync", Other) == Other("put")
