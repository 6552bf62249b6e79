"""The browser pool's state, as it was last seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.model import BrowserState
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import NOW, a_task, the_task

BROWSER = BrowserState(
    browser_id=1,
    status="busy",
    last_health_check=NOW,
    created_at=NOW - timedelta(hours=1),
    pid=4711,
    current_task_id="t1",
    tasks_completed=12,
    launches=2,
    memory_mb=380,
    restarted_at=NOW - timedelta(minutes=5),
    owner="worker-77-0123abcd",
    marker="a marker",
    profile="/tmp/a profile",
)


async def test_a_browser_comes_back_as_it_was(lpm: LocalPersistenceManager) -> None:
    fresh = BrowserState(browser_id=0, status="idle", last_health_check=NOW, created_at=NOW)
    await lpm.browsers.put(BROWSER)
    await lpm.browsers.put(fresh)
    assert await lpm.browsers.all() == [fresh, BROWSER]


@pytest.mark.parametrize("status", ["idle", "busy", "crashed", "restarting"])
async def test_a_browser_has_one_of_four_statuses(
    lpm: LocalPersistenceManager, status: Literal["idle", "busy", "crashed", "restarting"]
) -> None:
    await lpm.browsers.put(replace(BROWSER, status=status))
    (found,) = await lpm.browsers.all()
    assert found.status == status


async def test_what_is_known_of_a_browser_is_replaced(lpm: LocalPersistenceManager) -> None:
    await lpm.browsers.put(BROWSER)
    newer = replace(BROWSER, status="crashed", current_task_id=None, restarted_at=None)
    await lpm.browsers.put(newer)
    assert await lpm.browsers.all() == [newer]


async def test_a_browser_is_removed_once(lpm: LocalPersistenceManager) -> None:
    await lpm.browsers.put(BROWSER)
    assert await lpm.browsers.remove(BROWSER) is True
    assert await lpm.browsers.remove(BROWSER) is False
    assert await lpm.browsers.all() == []


async def test_the_pool_is_known_after_a_restart(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await lpm.browsers.put(BROWSER)
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        assert await lpm.browsers.all() == [BROWSER]


async def test_a_time_without_a_zone_is_refused(lpm: LocalPersistenceManager) -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        await lpm.browsers.put(replace(BROWSER, last_health_check=datetime(2026, 1, 1)))  # noqa: DTZ001 - the point
    assert await lpm.browsers.all() == []


async def test_a_new_browser_gets_the_lowest_id_that_is_free(lpm: LocalPersistenceManager) -> None:
    assert [await lpm.browsers.add(BROWSER) for _ in range(3)] == [1, 2, 3]
    await lpm.browsers.remove(replace(BROWSER, browser_id=2))
    assert await lpm.browsers.add(BROWSER) == 2
    assert await lpm.browsers.add(BROWSER) == 4


async def test_browsers_of_dead_owners_are_left_behind_and_those_of_live_ones_are_not(
    lpm: LocalPersistenceManager,
) -> None:
    await lpm.browsers.put(replace(BROWSER, browser_id=1, owner=lpm.owner_id))
    await lpm.browsers.put(replace(BROWSER, browser_id=2))
    await lpm.browsers.put(replace(BROWSER, browser_id=3, owner=""))
    assert [one.browser_id for one in await lpm.browsers.orphans()] == [2, 3]


async def test_a_browser_that_has_taken_the_id_since_is_not_removed(lpm: LocalPersistenceManager) -> None:
    await lpm.browsers.put(replace(BROWSER, owner=lpm.owner_id))
    assert await lpm.browsers.remove(BROWSER) is False
    await lpm.browsers.put(BROWSER)
    assert await lpm.browsers.remove(BROWSER) is True
    assert await lpm.browsers.all() == []


async def test_a_task_knows_its_browser_only_while_it_is_worked_on(lpm: LocalPersistenceManager) -> None:
    await lpm.add_task(a_task("t1"))
    await lpm.browsers.assign("t1", 3)
    assert (await the_task(lpm)).assigned_browser is None
    await lpm.claim()
    await lpm.browsers.assign("t1", 3)
    assert (await the_task(lpm)).assigned_browser == 3
    await lpm.browsers.assign("t1", None)
    assert (await the_task(lpm)).assigned_browser is None
