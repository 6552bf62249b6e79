"""Leasing pages in real browsers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from parcelpost import events
from parcelpost.clock import ManualClock
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import pool, processes
from parcelpost.scrapers.browser.chromium import ChromiumFound, find
from parcelpost.scrapers.browser.pool import BrowserSlot, why_retire
from parcelpost.scrapers.fetch.errors import BrowserUnavailable, HostBusy
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage import LocalPersistenceManager
from tests.browser.pools import (
    PAST_THE_GUARD,
    TIMEOUT,
    a_leaser,
    a_pool,
    a_stranger,
    drivers,
    gone,
    kill,
    members,
    needs_chromium,
)
from tests.storage.factories import claim_one, the_task
from tests.website import website

pytestmark = needs_chromium


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_page_is_leased_in_a_fresh_context_and_its_browser_retired_after_its_tasks(store: Path) -> None:
    async with a_pool(store, most=1, tasks_per_browser=3) as rig, website() as site:
        site.page("/", b"<p>hello</p>", Set_Cookie="seen=yes")
        await claim_one(rig.lpm, "t1")
        assert (rig.pool.figures.browsers, rig.pool.opens_in()) == (0, 0.0)
        for number, task_id in enumerate(("t1", "t2", "t3")):
            leasing = rig.pool.lease(task_id, timeout=TIMEOUT, agent="me/1", locale="de-DE", proxy=PAST_THE_GUARD)
            async with leasing as leased:
                await leased.call(leased.page.goto(f"{site.url}/"))
                assert await leased.call(leased.page.evaluate("navigator.language")) == "de-DE"
                row = await rig.row()
                assert (row.status, row.current_task_id, row.tasks_completed) == ("busy", task_id, number)
                assert row.browser_id == 1
                assert (await the_task(rig.lpm)).assigned_browser == (1 if task_id == "t1" else None)
                assert await rig.disagreement() == ""
                assert_nothing_is_enabled_again(row)
        asked = [asked for asked in site.asked if asked.path == "/"]
        assert [one.headers.get("cookie") for one in asked] == [None] * 3
        assert re.fullmatch(r"Mozilla.* Chrome/.* me/1", asked[0].headers["user-agent"].replace("Headless", ""))
        row = await rig.until(lambda row: row.launches == 2 and row.status == "idle")
        assert (row.browser_id, row.tasks_completed) == (1, 3)
        assert row.restarted_at is not None
        assert [event.reason for event in rig.emitted(events.BrowserRetired)] == ["it has done 3 tasks"]


async def test_an_old_browser_is_replaced_between_two_tasks(store: Path) -> None:
    async with a_pool(store, most=1, max_age_seconds=2.0, idle_seconds=TIMEOUT) as rig:
        await rig.use()
        await rig.until(lambda row: row.launches >= 2 and row.status == "idle")
        await rig.use()
        assert rig.emitted(events.BrowserRetired)[0].reason == "it is older than 2 s"


async def test_a_script_that_drops_switches_is_told_and_leaves_no_browser(store: Path) -> None:
    chromium, script, started = find(), store.parent / "chromium.sh", store.parent / "pids"
    assert isinstance(chromium, ChromiumFound)
    script.write_text(
        f"""#!/bin/bash
echo $$ >> {started}
for switch; do [[ $switch == {processes.MARKER_SWITCH}* ]] || kept+=("$switch"); done
exec {chromium.path} "${{kept[@]}}"
"""
    )
    script.chmod(0o755)
    async with a_pool(store, most=1, executable=str(script)) as rig:
        with pytest.raises(BrowserUnavailable, match=r"no process of .* has the switch"):
            await rig.use()
    pids = [int(pid) for pid in started.read_text().split()]
    await gone(lambda: [pid for pid in pids if processes.is_running(pid)])


def assert_nothing_is_enabled_again(row: BrowserState) -> None:
    """Of what Playwright disables: Chromium reads only the last of several lists."""
    lists = re.findall(r"--disable-features=(\S+)", processes.command_line(row.pid or 0))
    assert set(lists[0].split(",")) <= set(lists[-1].split(","))


def test_a_browser_is_retired_for_its_tasks_its_age_or_its_memory() -> None:
    clock = ManualClock()
    options = BrowserSettings(tasks_per_browser=3, max_age_seconds=60.0, max_browser_bytes=100 * 1024**2)
    slot = BrowserSlot(None, "me", clock)  # type: ignore[arg-type]
    slot.tasks, slot.memory = 2, 100 * 1024**2
    slot.started_at = clock.monotonic()
    clock.advance(60.0)
    assert why_retire(slot, options, clock) == ""
    slot.memory += 1
    assert why_retire(slot, options, clock) == "it uses 100 MiB of memory"
    clock.advance(1.0)
    assert why_retire(slot, options, clock) == "it is older than 60 s"
    slot.tasks = 3
    assert why_retire(slot, options, clock) == "it has done 3 tasks"


async def test_the_pool_grows_with_demand_and_shrinks_when_fewer_are_safe_or_nobody_needs_them(store: Path) -> None:
    async with a_pool(store, most=2, idle_seconds=TIMEOUT) as rig:
        async with AsyncExitStack() as stack:
            for number in (1, 2):
                await stack.enter_async_context(rig.pool.lease(f"t{number}", timeout=TIMEOUT))
            assert [row.browser_id for row in await rig.rows()] == [1, 2]
            assert rig.pool.opens_in() > 0
            with pytest.raises(HostBusy, match="2 of 2 browsers are busy"):
                await stack.enter_async_context(rig.pool.lease("t3", timeout=0.0))
            await rig.agrees()
            rig.pool.allow(1)
            assert len(await rig.rows()) == 2, "not under a task"
        await rig.until(lambda row: row.status == "idle")
        rig.pool.allow(0)
        await rig.none_left()
        with pytest.raises(BrowserUnavailable, match="not enough memory for a browser"):
            await rig.use()
        assert rig.pool.opens_in() > 0
        assert {event.reason for event in rig.emitted(events.BrowserRetired)} == {
            "there is not enough memory for this many browsers"
        }
    async with a_pool(store, idle_seconds=0.1) as rig:
        await rig.use()
        await rig.none_left()
        assert {event.reason for event in rig.emitted(events.BrowserRetired)} == {"it was idle"}


async def test_who_waits_longest_is_served_first(store: Path) -> None:
    served: list[int] = []

    async def want(number: int) -> None:
        async with rig.pool.lease(f"t{number}", timeout=TIMEOUT):
            served.append(number)

    async with a_pool(store, most=1) as rig:
        async with rig.pool.lease("first", timeout=TIMEOUT):
            waiting = [asyncio.create_task(want(number)) for number in range(3)]
            while rig.pool.figures.waiting < 3:
                await asyncio.sleep(0)
            waiting[1].cancel()
        await asyncio.wait(waiting)
        assert served == [0, 2]


async def test_a_browser_that_grew_too_large_is_retired_but_not_under_a_task(store: Path) -> None:
    async with a_pool(store, most=1, max_browser_bytes=1024, idle_seconds=1.0) as rig:
        async with rig.pool.lease("t1", timeout=TIMEOUT) as leased:
            row = await rig.until(lambda row: bool(row.memory_mb))
            assert row.status == "busy"
            assert rig.pool.figures.pss_per_browser == rig.pool.figures.pss_bytes > 50 * 1024**2
            assert await leased.call(leased.page.evaluate("1 + 1")) == 2
        async with asyncio.timeout(TIMEOUT):
            while not (retired := rig.emitted(events.BrowserRetired)):
                await asyncio.sleep(0.01)
        assert "MiB of memory" in retired[0].reason


async def test_a_chromium_that_cannot_start_is_reported_with_its_reason_and_tried_again_later(store: Path) -> None:
    async with a_pool(store, executable="false") as rig:
        for _ in range(2):
            with pytest.raises(BrowserUnavailable, match="starting Chromium failed") as caught:
                await rig.use()
            assert caught.value.after_seconds > 0
        assert len(rig.emitted(events.BrowsersUnavailable)) == 1
        await rig.none_left()


async def test_what_chromium_says_is_the_reason_it_cannot_start(store: Path, tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries: libnss3.so' >&2\nexit 127\n")
    program.chmod(0o755)
    async with a_pool(store, executable=str(program)) as rig:
        with pytest.raises(BrowserUnavailable, match=r"Chromium cannot start: error while loading .*libnss3\.so"):
            await rig.use()
        await rig.none_left()


async def test_a_browser_that_dies_before_it_was_used_is_not_started_again_at_once(store: Path) -> None:
    async with a_pool(store, most=1) as rig:
        with pytest.raises(HostBusy):
            async with rig.pool.lease("t1", timeout=0.0):
                pass
        kill((await rig.until(lambda row: row.status == "idle")).pid)
        await rig.none_left()
        assert rig.pool.opens_in() > 0.0
        assert [event.reason for event in rig.emitted(events.BrowsersUnavailable)] == ["the browser crashed"]


async def die_without_cleaning_up(worker: asyncio.subprocess.Process, rows: list[BrowserState]) -> None:
    (driver,) = drivers(worker.pid)
    worker.send_signal(signal.SIGSTOP)  # or it would clean up after its driver
    for row in rows:
        os.kill(row.pid or 0, signal.SIGSTOP)  # or it may end by itself when its driver does
    kill(driver)
    worker.kill()
    await worker.wait()


@pytest.mark.timeout(300)
async def test_the_next_start_ends_what_killed_workers_left_and_nothing_else(store: Path, tmp_path: Path) -> None:
    async with (
        a_stranger(tmp_path / "strange") as stranger,
        a_leaser(store, 1) as (_, peers),
        a_leaser(store, 1) as (killed, left),
    ):
        await die_without_cleaning_up(killed, left)
        async with a_pool(store) as rig:
            assert [pid for row in left for pid in members(row)] == []
            assert [row.browser_id for row in left if Path(row.profile).exists()] == []
            assert [row.marker for row in await rig.lpm.browsers.all()] == [peers[0].marker]
            (removed,) = rig.emitted(events.BrowserOrphansRemoved)
            assert removed.owner == left[0].owner
            assert removed.processes > 2
        assert len(members(peers[0])) > 1
        assert processes.is_running(stranger)
    await gone(lambda: members(peers[0]))


async def test_a_running_pool_ends_what_a_killed_peer_left(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ever start the peer again."""
    monkeypatch.setattr(pool, "_ORPHAN_SECONDS", 0.0)
    async with a_pool(store) as rig, a_leaser(store, 1) as (killed, left):
        await die_without_cleaning_up(killed, left)
        await gone(lambda: members(left[0]))
        async with asyncio.timeout(TIMEOUT):
            while not rig.emitted(events.BrowserOrphansRemoved):
                await asyncio.sleep(0.01)
        assert await rig.lpm.browsers.all() == []


async def test_a_health_check_that_fails_is_reported_and_done_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_ORPHAN_SECONDS", 0.0)
    async with a_pool(store, idle_seconds=0.1) as rig, asyncio.timeout(TIMEOUT):
        with sqlite3.connect(store) as other:
            other.execute("ALTER TABLE browser_pool_state RENAME TO lost")
        while not (failures := rig.emitted(events.LoopFailed)):
            await asyncio.sleep(0.01)
        assert failures[0].loop == "browsers"
        with sqlite3.connect(store) as other:
            other.execute("ALTER TABLE lost RENAME TO browser_pool_state")
        await rig.use()
        await rig.none_left()


async def test_the_driver_of_a_killed_worker_ends_by_itself(store: Path) -> None:
    async with a_leaser(store, 1) as (killed, left):
        found = drivers(killed.pid)
        assert len(found) == 1
        killed.kill()
        await killed.wait()
        await gone(lambda: [pid for pid in found if processes.is_running(pid)])
    async with LocalPersistenceManager.open(store) as lpm:
        assert [row.marker for row in await lpm.browsers.orphans()] == [row.marker for row in left]
