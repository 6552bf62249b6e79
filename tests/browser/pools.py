"""Pools with a real store and real browsers, and a look at what really runs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from parcelpost.clock import SystemClock
from parcelpost.events import Event
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.base import BrowserOptions
from parcelpost.scrapers.browser.chromium import ChromiumMissing, find
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.browser.processes import MARKER_SWITCH, Process
from parcelpost.storage import LocalPersistenceManager

T = TypeVar("T")

PATIENCE = 120.0
LOOK_SECONDS = 0.05
"""Between two looks at what runs: a look at all processes takes a while itself."""
PAST_THE_GUARD = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}
"""For pages that are to see this machine's sites without the guard's proxy: without one they see nothing."""
SCRIPT = Path(__file__).with_name("lender.py")

needs_chromium = pytest.mark.skipif(isinstance(find(), ChromiumMissing), reason="Chromium is not installed")


class Stage:
    """A pool on a store, and what both say."""

    def __init__(self, lpm: LocalPersistenceManager, pool: BrowserPool, events: list[Event]) -> None:
        self.lpm = lpm
        self.pool = pool
        self.events = events

    async def rows(self) -> list[BrowserState]:
        return [row for row in await self.lpm.browsers.all() if row.owner == self.lpm.owner_id]

    async def row(self) -> BrowserState:
        (row,) = await self.rows()
        return row

    async def disagreement(self) -> str:
        """Between the table and the processes that run; '': there is none."""
        rows = await self.rows()
        running = {marker for row in rows for marker in markers(row.marker.split("-")[0])}
        if unknown := running - {row.marker for row in rows}:
            return f"nobody wrote down {unknown}"
        for row in rows:
            alive = row.pid is not None and processes.is_running(row.pid, row.started)
            if row.status in ("idle", "busy") and not (alive and row.marker in running):
                return f"{row} does not run"
            if (row.status == "busy") != (row.current_task_id is not None):
                return f"{row} has the wrong task"
        return ""

    async def agrees(self) -> None:
        """The table and what runs agree, now or in a moment: a death is written down when it is seen."""
        async with asyncio.timeout(PATIENCE):
            while await self.disagreement():
                await asyncio.sleep(LOOK_SECONDS)

    async def none_left(self) -> None:
        """No browser is written down, now or in a moment: who waited is told before that is done."""
        async with asyncio.timeout(PATIENCE):
            while await self.rows():
                await asyncio.sleep(LOOK_SECONDS)

    async def until(self, is_so: Callable[[BrowserState], bool]) -> BrowserState:
        """The only browser, once that is true of it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = await self.rows()
                if len(rows) == 1 and is_so(rows[0]):
                    return rows[0]
                await asyncio.sleep(LOOK_SECONDS)

    def told(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def a_pool(store: Path, **options: Any) -> AsyncIterator[Stage]:
    """At the end nothing is left of it, in the table or in the system."""
    events: list[Event] = []
    before = drivers()
    async with LocalPersistenceManager.open(store) as lpm:
        opened = BrowserPool.open(
            BrowserOptions(**options), lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=events.append
        )
        tokens: set[str] = set()
        async with opened as pool:
            stage = Stage(lpm, pool, events)
            try:
                yield stage
            finally:
                tokens |= {row.marker.split("-")[0] for row in await stage.rows() if row.marker}
        assert await stage.rows() == []
        assert [marker for token in tokens for marker in markers(token)] == []
        assert drivers() <= before


def drivers() -> set[int]:
    """Playwright's, of this process."""
    return {one.pid for one in processes.all_processes() if one.parent == os.getpid() and "run-driver" in line(one)}


def markers(token: str) -> set[str]:
    """Of all browsers that run, of this pool."""
    found = (
        re.search(rf"{MARKER_SWITCH}({token}\S*)", line(one))
        for one in processes.leaders_with(f"{MARKER_SWITCH}{token}")
    )
    return {one[1] for one in found if one}


def line(process: Process) -> str:
    return processes.command_line(process.pid)


def group(row: BrowserState) -> list[Process]:
    assert row.pid is not None
    return processes.group_of(row.pid, row.started, row.executable)


def renderers(row: BrowserState) -> list[Process]:
    return [one for one in group(row) if "--type=renderer" in line(one)]


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def kill_if_there(pid: int | None) -> None:
    try:
        kill(pid)
    except ProcessLookupError:
        return  # another kill was first


async def gone(some: Callable[[], list[Process]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while some():
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def a_lender(store: Path, pages: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[BrowserState]]]:
    """Another process with a pool that has lent so many pages, and what it wrote down."""
    import sys

    child = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), str(store), str(pages), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(PATIENCE):
            owner = (await child.stdout.readline()).decode().strip()
        assert owner, "the lender has ended"
        async with LocalPersistenceManager.open(store) as lpm:
            yield child, [row for row in await lpm.browsers.all() if row.owner == owner]
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def a_stranger(folder: Path) -> AsyncIterator[Process]:
    """A Chromium of somebody else's, with a marker of its own."""
    found = find()
    assert not isinstance(found, ChromiumMissing)
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}")
    child = await asyncio.create_subprocess_exec(
        *(found.path, *words, f"{MARKER_SWITCH}of-a-stranger", "about:blank"),
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    process = processes.find_process(child.pid)
    assert process is not None
    try:
        yield process
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        shutil.rmtree(folder, ignore_errors=True)
