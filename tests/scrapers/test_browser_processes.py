"""The processes of a browser are found by its marker, and nothing else is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from parcelpost.clock import SystemClock
from parcelpost.events import BrowserOrphansRemoved, Event
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.processes import MARKER_SWITCH
from parcelpost.storage import LocalPersistenceManager
from tests.scrapers.users import as_nobody, needs_root

_PR_SET_DUMPABLE = 4

# Each has memory of its own; the child says when both are ready.
_MEMORY = "import subprocess, sys, time; memory = b'x' * 20_000_000"
_CHILD = f"{_MEMORY}; print(flush=True); time.sleep(600)"
_LEADER = f"{_MEMORY}; subprocess.Popen([sys.executable, '-c', {_CHILD!r}, 'child']); time.sleep(600)"


@contextmanager
def a_group(marker: str) -> Iterator[int]:
    """The leader of a group of two processes."""
    command = [sys.executable, "-c", _LEADER, f"{MARKER_SWITCH}{marker}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            processes.kill(child.pid)


async def test_orphans_are_found_by_their_marker_whether_or_not_their_process_was_recorded(tmp_path: Path) -> None:
    emitted: list[Event] = []
    now = SystemClock().now()
    with a_group("lost-1") as orphan, a_group("xyz-1") as other:
        assert processes.find_browsers("lost") == [orphan]
        assert len(processes.members(orphan)) == 2
        async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
            for number, (marker, pid) in enumerate((("lost-1", None), ("of-nobody", other), ("", other)), 1):
                state = BrowserState(
                    browser_id=number,
                    status="busy",
                    last_health_check=now,
                    created_at=now,
                    pid=pid,
                    owner="worker-1-01234567",
                    marker=marker,
                )
                await lpm.browsers.put(state)
            await processes.remove_orphans(lpm.browsers, SystemClock(), emitted.append)
            assert await lpm.browsers.all() == []
        assert emitted == [BrowserOrphansRemoved(owner="worker-1-01234567", processes=2)]
        assert processes.members(orphan) == []
        assert len(processes.members(other)) == 2


def test_a_group_is_found_without_its_leader() -> None:
    with a_group("abc") as leader:
        (child,) = [pid for pid in processes.members(leader) if pid != leader]
        os.kill(leader, signal.SIGKILL)
        os.waitpid(leader, 0)
        assert processes.members(leader) == [child]


@needs_root
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_the_memory_of_a_process_that_hides_its_maps_is_counted() -> None:
    """As a sandboxed renderer does, from everyone but root."""

    def measured() -> list[int]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_DUMPABLE, 0)
            os.write(writing, b"ready")
            signal.pause()
        os.read(reading, 5)
        try:
            with pytest.raises(psutil.AccessDenied):
                psutil.Process(child).memory_full_info()
            return [processes.memory([child])]
        finally:
            os.kill(child, signal.SIGKILL)

    assert as_nobody(measured)[0] > 0


def test_memory_is_counted_over_all_processes() -> None:
    with a_group("abc") as leader:
        members = processes.members(leader)
        each = [processes.memory([member]) for member in members]
        assert len(each) == 2 and min(each) > 20_000_000
        # What is shared is counted in parts, which change as other processes come and go.
        assert processes.memory(members) == pytest.approx(sum(each), rel=0.3)
    assert processes.memory([leader]) == 0
