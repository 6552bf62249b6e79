"""Processes are told from later ones with the same id, and what is killed is only what is meant."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost.clock import SystemClock
from parcelpost.events import BrowserOrphansRemoved, Event
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes, slots
from parcelpost.scrapers.browser.processes import MARKER_SWITCH, Process, ProcessWatch
from parcelpost.storage import LocalPersistenceManager

_TWO = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', 'child'])"
_LEADER = f"{_TWO}; print(flush=True); time.sleep(600)"


@contextmanager
def a_group(*words: str) -> Iterator[Process]:
    """The leader of a group of two."""
    command = [sys.executable, "-c", _LEADER, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        leader = processes.find_process(child.pid)
        assert leader is not None
        try:
            yield leader
        finally:
            processes.kill(processes.group_of(leader.pid, leader.started, sys.executable))


def state_of(leader: Process, marker: str = "") -> BrowserState:
    now = SystemClock().now()
    return BrowserState(
        browser_id=1,
        status="busy",
        last_health_check=now,
        created_at=now,
        pid=leader.pid,
        owner="worker-1-01234567",
        boot=processes.current_boot(),
        marker=marker,
        started=leader.started,
        executable=sys.executable,
        driver_pid=leader.pid,
        driver_started=leader.started,
    )


async def clean_up(store: Path, state: BrowserState) -> list[Event]:
    told: list[Event] = []
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.browsers.put(state)
        await slots.remove_orphans(lpm.browsers, SystemClock(), told.append)
        assert await lpm.browsers.all() == []
    return told


async def test_a_group_is_found_with_its_leader_and_without() -> None:
    with a_group() as leader:
        found = processes.group_of(leader.pid, leader.started, sys.executable)
        assert {one.group for one in found} == {leader.pid}
        assert len(found) == 2
        os.kill(leader.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while processes.find_process(leader.pid) is not None:
                await asyncio.sleep(0.01)
        (child,) = processes.group_of(leader.pid, leader.started, sys.executable)
        assert child.group == leader.pid
        assert processes.group_of(leader.pid, leader.started, "/another/program") == []
        later = str(float(child.started) + 1_000_000)
        assert processes.group_of(leader.pid, later, sys.executable) == []


async def test_what_a_dead_owner_wrote_down_is_ended(tmp_path: Path) -> None:
    with a_group() as leader:
        told = await clean_up(tmp_path / "store.db", state_of(leader))
        assert told == [BrowserOrphansRemoved(owner="worker-1-01234567", processes=2)]
        assert processes.group_of(leader.pid, leader.started, sys.executable) == []


async def test_a_marker_is_enough(tmp_path: Path) -> None:
    with a_group(f"{MARKER_SWITCH}abc") as leader, a_group(f"{MARKER_SWITCH}xyz") as other:
        unknown = replace(state_of(leader, "abc"), pid=None, started="", driver_pid=None, driver_started="")
        await clean_up(tmp_path / "store.db", unknown)
        assert processes.find_process(leader.pid) is None
        assert processes.is_running(other.pid, other.started)


async def test_a_process_that_has_the_id_today_is_left_alone(tmp_path: Path) -> None:
    with a_group() as leader:
        state = state_of(leader)
        for stranger in (
            replace(state, started=f"{float(leader.started) - 1:.0f}", driver_started="1"),
            replace(state, boot="before the machine was started again"),
            replace(state, marker="of-nobody", pid=None, started=""),
        ):
            (told,) = await clean_up(tmp_path / "store.db", stranger)
            assert told == BrowserOrphansRemoved(owner="worker-1-01234567", processes=0)
            assert len(processes.group_of(leader.pid, leader.started, sys.executable)) == 2


async def test_a_death_is_heard_of_once_and_not_after_the_watch_has_stopped() -> None:
    heard: list[str] = []
    with a_group() as leader:
        died = asyncio.Event()
        ProcessWatch(leader, lambda: heard.append("first"), SystemClock())
        ProcessWatch(leader, died.set, SystemClock())
        stopped = ProcessWatch(leader, lambda: heard.append("second"), SystemClock())
        stopped.stop()
        stopped.stop()
        os.kill(leader.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await died.wait()
    assert heard == ["first"]


async def test_the_death_of_what_is_gone_already_is_told() -> None:
    with a_group() as leader:
        os.kill(leader.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while processes.find_process(leader.pid) is not None:
                await asyncio.sleep(0.01)
        died = asyncio.Event()
        ProcessWatch(leader, died.set, SystemClock())
        async with asyncio.timeout(60):
            await died.wait()


async def test_memory_is_counted_over_all_processes() -> None:
    with a_group() as leader:
        members = processes.group_of(leader.pid, leader.started, sys.executable)
        each = [processes.memory([member]) for member in members]
        assert len(each) > 1 and all(each)
        # What is shared is counted in parts, which change as other processes come and go.
        assert processes.memory(members) == pytest.approx(sum(each), rel=0.3)
    assert processes.memory([leader]) == 0
