"""What a killed worker leaves is ended by the next one, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost import events
from parcelpost.scrapers.browsers import processes
from parcelpost.storage import LocalPersistenceManager
from tests.browser.pools import a_lender, a_pool, a_stranger, gone, group, kill, needs_chromium

pytestmark = needs_chromium


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize("driver_too", [False, True])
async def test_the_next_start_ends_what_a_killed_worker_left_and_nothing_else(store: Path, driver_too: bool) -> None:
    async with (
        a_stranger(store.with_name("strange")) as stranger,
        a_lender(store, 1) as (_, (sisters,)),
        a_lender(store, 2) as (child, left),
    ):
        drivers = {(row.driver_pid or 0, row.driver_started) for row in left}
        child.kill()
        if driver_too:
            for pid, _ in drivers:
                os.kill(pid, 9)
        await child.wait()
        async with a_pool(store) as stage:
            assert [one for row in left for one in group(row)] == []
            assert not any(processes.is_running(pid, started) for pid, started in drivers)
            assert [row.browser_id for row in await stage.lpm.browsers.all()] == [sisters.browser_id]
            (told,) = stage.told(events.BrowserOrphansRemoved)
            assert told.owner == left[0].owner
            assert not any(Path(row.profile).exists() for row in left)
        assert len(group(sisters)) > 1
        assert processes.is_running(stranger.pid, stranger.started)
    await gone(lambda: group(sisters))


async def test_a_browser_whose_id_was_not_yet_written_down_is_found_by_its_marker(store: Path) -> None:
    async with a_lender(store, 1) as (child, (row,)):
        kill(row.driver_pid)  # or it would end the browser itself
        child.kill()
        await child.wait()
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.browsers.put(replace(row, status="restarting", pid=None, started="", profile=""))
        async with a_pool(store) as stage:
            assert (group(row), await stage.lpm.browsers.all()) == ([], [])
            assert not Path(row.profile).exists()
