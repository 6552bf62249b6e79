"""What a killed worker leaves is ended by the next one, and nothing else is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost import events
from parcelpost.scrapers.browser import processes
from parcelpost.storage import LocalPersistenceManager
from tests.browser.pools import a_lender, a_pool, a_stranger, gone, group, kill, needs_chromium

pytestmark = needs_chromium


@pytest.mark.timeout(300)
async def test_the_next_start_ends_what_killed_workers_left_and_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with (
        a_stranger(tmp_path / "strange") as stranger,
        a_lender(store, 1) as (_, sisters),
        a_lender(store, 1) as (one, with_driver),
        a_lender(store, 2) as (other, without_driver),
    ):
        left = [*with_driver, *without_driver]
        other.send_signal(signal.SIGSTOP)  # or it would clean up after its driver
        for row in without_driver:
            os.kill(row.pid or 0, signal.SIGSTOP)  # or it may end by itself when its driver does
        kill(without_driver[0].driver_pid)
        for child in (one, other):
            child.kill()
            await child.wait()
        async with LocalPersistenceManager.open(store) as lpm:  # as if it had been killed while one started
            await lpm.browsers.put(replace(left[-1], status="restarting", pid=None, started="", profile=""))
        async with a_pool(store) as stage:
            assert [process for row in left for process in group(row)] == []
            assert not any(processes.is_running(row.driver_pid or 0, row.driver_started) for row in left)
            assert [row.browser_id for row in left if Path(row.profile).exists()] == []
            assert [row.marker for row in await stage.lpm.browsers.all()] == [sisters[0].marker]
            removed = {told.owner: told.processes for told in stage.told(events.BrowserOrphansRemoved)}
            assert set(removed) == {row.owner for row in left}
            assert removed[left[-1].owner] > 2
        assert len(group(sisters[0])) > 1
        assert processes.is_running(stranger.pid, stranger.started)
    await gone(lambda: group(sisters[0]))
