"""A store on a full disk that nobody has open: it can be looked at, and no byte of it changes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.chaos.disks import LoopDisk, why_not
from parcelpost.clock import SystemClock
from parcelpost.storage import StoreOptions, queries
from parcelpost.storage.db import LocalDatabase
from tests.cli.support import Run, leave_a_death, make_store


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if reason := why_not():
        pytest.skip(reason)
    disk = LoopDisk(tmp_path, megabytes=64)
    try:
        yield disk
    finally:
        disk.remove()


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("is_left_by_the_dead", [False, True])
async def test_without_room_the_store_is_read_as_it_is(tmp_path: Path, is_left_by_the_dead: bool) -> None:
    store = await _made(tmp_path, is_left_by_the_dead)
    before = contents(tmp_path)
    async with LocalDatabase.open_frozen(store, StoreOptions()) as database:
        depth = await database.read(queries.depth, SystemClock().now())
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing of it goes on"
    held = 2 if is_left_by_the_dead else 0
    assert (depth.pending, depth.processing) == (3 - held, held)
    assert contents(tmp_path) == before


async def _made(folder: Path, is_left_by_the_dead: bool) -> Path:
    def make() -> Path:
        store = make_store(folder / "parcelpost.db", tasks=3)
        if is_left_by_the_dead:
            leave_a_death(store, claims=2)
            store.with_name("parcelpost.db-shm").unlink()
        return store

    return await asyncio.to_thread(make)


def test_on_a_full_disk_it_can_be_looked_at_and_a_command_that_ends_says_what_to_do(disk: LoopDisk, run: Run) -> None:
    store = make_store(disk.path / "parcelpost.db", tasks=3)
    shutil.rmtree(store.with_name("parcelpost.db-live") / "reserve", ignore_errors=True)
    filler = disk.fill()
    ran = run("status", "--store", store)
    assert (ran.code, ran.err) == (0, "")
    assert (
        "free on the disk, so no tasks are started. Fix: free disk space; workers then resume on their own." in ran.out
    )
    assert "all          3 " in ran.out
    ran = run("top", "--once", "--store", store)
    assert (ran.code, ran.err) == (0, "")
    assert "3 pending" in ran.out
    assert run("store", "check", "--store", store).out.startswith("The store is intact.\n")
    ran = run("doctor", "--store", store)
    assert ran.code == 1
    assert "error    only " in ran.out
    assert "ok       the database file is intact" in ran.out
    assert run("doctor", "--bundle", disk.path / "b.tar.gz", "--store", store).code == 1
    assert not (disk.path / "b.tar.gz").exists()
    ran = run("store", "clean", "--store", store)
    assert ran.code == 1
    assert "the disk is full" in ran.err or "No space left on device" in ran.err
    assert "hint: free some disk space, then run it again" in ran.err
    filler.unlink()
    assert run("store", "clean", "--store", store).code == 0
