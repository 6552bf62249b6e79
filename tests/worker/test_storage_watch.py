"""The watch over the store's size: what may go on at the cap, and one event for each change (I8)."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.events import Event, StorageLevelChanged, StoreFound, StoreLost
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.health import Level
from tests.storage.factories import a_result, deliver, save_one, the_result
from tests.worker.rig import a_janitor

PAGE_BYTES = 50_000
CAP = 4_000_000


@asynccontextmanager
async def opened(
    folder: Path, *, max_bytes: int = CAP, min_free_bytes: int = 0
) -> AsyncIterator[LocalPersistenceManager]:
    options = StoreOptions(max_bytes=max_bytes, min_free_bytes=min_free_bytes)
    async with LocalPersistenceManager.open(folder / "store.db", clock=ManualClock(), options=options) as lpm:
        yield lpm


def levels(events: list[Event]) -> list[str]:
    return [event.level for event in events if isinstance(event, StorageLevelChanged)]


async def test_a_store_with_room_is_fine_and_says_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    async with opened(tmp_path) as lpm:
        janitor = a_janitor(lpm, ManualClock(), events.append)
        control = janitor.context.control
        assert control.level is Level.FINE, "before the first look"
        await janitor.watch_storage()
        assert control.level is Level.FINE
        usage = await lpm.maintenance.usage()
        assert control.usage is not None
        assert control.usage == replace(usage, disk_free=control.usage.disk_free, free_inodes=control.usage.free_inodes)
    assert events == []


async def test_the_level_follows_the_bytes_up_to_the_cap_and_back(tmp_path: Path) -> None:
    """I8: the collector stops first, then the executor; each change is told once, and nothing unsynced is dropped."""
    events: list[Event] = []
    async with opened(tmp_path) as lpm:
        janitor = a_janitor(lpm, ManualClock(), events.append)
        control = janitor.context.control
        waiting = await save_one(lpm, "waiting", a_result(body=os.urandom(PAGE_BYTES)))
        number = 0
        while control.level is not Level.EXECUTOR_STOPS:
            entry = await save_one(lpm, f"t{number}", a_result(body=os.urandom(PAGE_BYTES)))
            await deliver(lpm, entry.result_id)
            await janitor.watch_storage()
            await janitor.watch_storage()
            number += 1
            assert number < 100
        assert levels(events) == [Level.COLLECTOR_STOPS, Level.EXECUTOR_STOPS]
        await lpm.maintenance.relieve()
        await janitor.watch_storage()
        await janitor.watch_storage()
        assert levels(events) == [Level.COLLECTOR_STOPS, Level.EXECUTOR_STOPS, Level.FINE]
        assert await the_result(lpm, "waiting") == waiting
    for event in events:
        assert isinstance(event, StorageLevelChanged)
        assert event.max_bytes == CAP
        assert event.free_bytes > 0
    stops, full, fine = (event.bytes for event in events if isinstance(event, StorageLevelChanged))
    assert CAP * 0.9 <= stops < CAP <= full
    assert fine < CAP * 0.9


async def test_a_store_that_is_full_from_the_start_is_told_at_the_first_look(tmp_path: Path) -> None:
    async with opened(tmp_path) as lpm:
        await save_one(lpm, "t1", a_result(body=os.urandom(PAGE_BYTES)))
    events: list[Event] = []
    async with opened(tmp_path, max_bytes=PAGE_BYTES) as lpm:
        janitor = a_janitor(lpm, ManualClock(), events.append)
        control = janitor.context.control
        await janitor.watch_storage()
        assert control.level is Level.EXECUTOR_STOPS
    assert levels(events) == [Level.EXECUTOR_STOPS]


async def test_a_disk_without_room_counts_like_a_full_store(tmp_path: Path) -> None:
    events: list[Event] = []
    free = shutil.disk_usage(tmp_path).free
    async with opened(tmp_path, min_free_bytes=free * 3 // 4) as lpm:
        janitor = a_janitor(lpm, ManualClock(), events.append)
        control = janitor.context.control
        await janitor.watch_storage()
        assert control.level is Level.COLLECTOR_STOPS
        assert control.usage is not None
        assert control.usage.total < CAP * 0.9
    assert levels(events) == [Level.COLLECTOR_STOPS]


async def test_files_that_are_gone_stop_all_work_until_they_are_back(tmp_path: Path) -> None:
    events: list[Event] = []
    async with opened(tmp_path / "there") as lpm:
        janitor = a_janitor(lpm, ManualClock(), events.append)
        control = janitor.context.control
        (tmp_path / "there").rename(tmp_path / "away")
        for _ in range(2):
            await janitor.watch_storage()
            assert control.level is Level.EXECUTOR_STOPS
            assert control.fill_level is Level.FINE, "nothing is to be cleaned away for it"
        (tmp_path / "away").rename(tmp_path / "there")
        await janitor.watch_storage()
        assert control.level is Level.FINE
    lost, found = events
    assert isinstance(lost, StoreLost)
    assert "deleted or moved" in lost.reason
    assert isinstance(found, StoreFound)
