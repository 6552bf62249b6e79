"""When a browser has had its time."""

from __future__ import annotations

from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.events import ignore
from parcelpost.scrapers.browser.base import BrowserOptions
from parcelpost.scrapers.browser.slots import BrowserSlot, HealthChecks
from parcelpost.storage import LocalPersistenceManager


async def test_a_browser_is_retired_for_its_tasks_its_age_or_its_memory(tmp_path: Path) -> None:
    clock = ManualClock()
    options = BrowserOptions(tasks_per_browser=3, max_age_seconds=60.0, max_browser_bytes=100 * 1024**2)
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        tending = HealthChecks(options, lpm.browsers, clock, ignore)
        place = BrowserSlot(lpm.browsers, lpm.owner_id, clock)
    place.tasks, place.memory = 2, 100 * 1024**2
    clock.advance(60.0)
    assert tending.why_retire(place) == ""
    place.memory += 1
    assert tending.why_retire(place) == "it has 100 MiB of memory"
    clock.advance(1.0)
    assert tending.why_retire(place) == "it is older than 60 s"
    place.tasks = 3
    assert tending.why_retire(place) == "it has done 3 tasks"
