"""`parcelpost status`: which tasks wait for a browser, for as long as they do, and what to do about it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import SystemClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.status import BrowserWait, BrowserWaits, publish
from tests.cli.support import Run, a_status, held_here, holder, publish_status, task
from tests.storage.factories import save_one

WHY = "no Chromium was found"
WAITS = task("t1", "grizzly_gis")


def told(run: Run, store: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("status", "--store", store, "--json").document["browser_waits"]
    return found


def put_off(*reasons: tuple[str, str]) -> tuple[BrowserWait, ...]:
    """What a worker publishes that had to put its task off for these reasons."""
    waits = BrowserWaits(SystemClock())
    for reason, remedy in reasons:
        waits.deferred(WAITS, reason, remedy)
    return tuple(waits.current)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A store with a task that waits; nobody has it open."""
    store = tmp_path / "parcelpost.db"

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(WAITS)
            await publish(lpm.state, a_status(browser_waits=put_off((WHY, ""))))

    asyncio.run(make())
    return store


def test_they_are_told_with_the_reason(waiting: Path, run: Run) -> None:
    out = run("status", "--store", waiting).out
    assert (
        "Error: tasks of grizzly_gis are waiting for a browser: no Chromium was found. "
        "Fix: run 'parcelpost browser doctor' to see what is missing.\n"
    ) in out
    (found,) = told(run, waiting)
    assert (found["platform"], found["reason"]) == ("grizzly_gis", WHY)


def test_the_newest_reason_is_told_with_its_own_remedy(waiting: Path, run: Run) -> None:
    waits = put_off(("it cannot start", ""), ("browser.most is 0", "set browser.most to 1 or more"))
    publish_status(waiting, a_status(browser_waits=waits))
    out = run("status", "--store", waiting).out
    assert "are waiting for a browser: browser.most is 0. Fix: set browser.most to 1 or more.\n" in out
    assert out.count("are waiting for a browser") == 1
    assert "doctor" not in out


def test_when_all_is_done_nothing_waits(waiting: Path, run: Run) -> None:
    async def finish() -> None:
        async with LocalPersistenceManager.open(waiting) as lpm:
            await save_one(lpm, WAITS)

    asyncio.run(finish())
    assert told(run, waiting) == []
    assert "are waiting for a browser" not in run("browser", "status", "--store", waiting).out


def test_what_is_old_is_not_told(waiting: Path, run: Run) -> None:
    long_ago = SystemClock().now() - timedelta(hours=1)
    over = BrowserWait(platform="grizzly_gis", reason="over", since=long_ago, at=long_ago)
    publish_status(waiting, a_status(browser_waits=(over,)))
    assert told(run, waiting) == []


def test_of_two_processes_the_one_that_put_a_task_off_last_gives_the_reason(waiting: Path, run: Run) -> None:
    first, second = put_off(("it cannot start", "")), put_off(("it crashed", ""))
    with held_here(waiting, claims=0) as one, held_here(waiting, claims=0) as other:
        for waits in ((first, second), (second, first)):
            for name, owner, wait in zip(("w1", "w1-2"), (one, other), waits, strict=True):
                publish_status(waiting, a_status(owner, name=name, browser_waits=wait))
            assert [found["reason"] for found in told(run, waiting)] == ["it crashed"]


def test_a_worker_that_says_nothing_counts_for_more_than_one_that_has_gone(waiting: Path, run: Run) -> None:
    with holder(waiting) as worker:
        assert told(run, waiting) == []
        worker.kill()
        worker.wait()
    assert [one["reason"] for one in told(run, waiting)] == [WHY]
