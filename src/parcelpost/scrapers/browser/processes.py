"""Processes of our browsers, found by the marker in their command line: listed, measured and killed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from parcelpost.clock import Clock
from parcelpost.events import BrowserOrphansRemoved, Emit
from parcelpost.model import BrowserState

MARKER_SWITCH = "--parcelpost-browser="
_GONE = (OSError, psutil.Error)
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.02
_PROFILE = "playwright_chromiumdev_profile-"
_SOCKETS = re.compile(r"\.?(org\.chromium|com\.google|com\.microsoft|com\.brave)\.")


def command_line(pid: int) -> str:
    """'' if the process is gone."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except _GONE:
        return ""


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False


def find_browsers(marker: str) -> list[int]:
    """Returns the main processes of the browsers whose marker starts with `marker`."""
    return [pid for pid in psutil.pids() if _session(pid) == pid and f"{MARKER_SWITCH}{marker}" in command_line(pid)]


def members(pid: int) -> list[int]:
    """Returns the running processes of a browser: those of the session that its main process leads or led."""
    return [other for other in psutil.pids() if _session(other) == pid and is_running(other)]


def memory(pids: Iterable[int]) -> int:
    """Returns the memory in bytes; shared memory is divided among the processes (PSS, or USS if there is no PSS)."""
    return sum(map(_memory, pids))


def kill(pid: int) -> None:
    """Kills all processes of a browser, without waiting."""
    for member in members(pid):
        with suppress(*_GONE):
            psutil.Process(member).kill()


async def kill_and_wait(pid: int, clock: Clock) -> None:
    """Kills all processes of a browser and waits until they are gone, 10 s at most."""
    give_up_at = clock.monotonic() + _KILL_SECONDS
    while members(pid) and clock.monotonic() < give_up_at:
        kill(pid)
        await clock.sleep(_POLL_SECONDS)


def profile_of(pid: int) -> str:
    """Returns the profile folder of a browser, or ''."""
    match = re.search(r"--user-data-dir=(\S+)", command_line(pid))
    return match[1] if match else ""


def profile_folders(profile: str) -> list[Path]:
    """Returns the profile that Playwright created and Chromium's socket folder that it links to; never any other."""
    folder = Path(profile)
    if not folder.name.startswith(_PROFILE) or folder.is_symlink():
        return []
    with suppress(OSError):
        sockets = (folder / "SingletonSocket").readlink().parent
        if sockets.parent == folder.parent and _SOCKETS.match(sockets.name):
            return [folder, sockets]
    return [folder]


def remove_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _session(pid: int) -> int:
    """0 if the process is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _memory(pid: int) -> int:
    with suppress(*_GONE):
        process = psutil.Process(pid)
        try:
            full = process.memory_full_info()
            return int(getattr(full, "pss", full.uss))
        except psutil.AccessDenied:  # a sandboxed process may hide its maps
            info = process.memory_info()
            return int(info.rss - getattr(info, "shared", 0))
    return 0


class BrowserStore(Protocol):
    """The store's `browsers`. Every method may raise a StoreError."""

    async def add(self, state: BrowserState) -> int:
        """Returns the id that the browser was given."""

    async def put(self, state: BrowserState) -> None: ...

    async def all(self) -> list[BrowserState]:
        """Returns the browsers of all pools on the store."""

    async def orphans(self) -> list[BrowserState]:
        """Returns the browsers of crashed processes."""

    async def remove(self, state: BrowserState) -> bool:
        """Deletes the row unless another browser has taken over its id."""

    async def assign(self, task_id: str, browser_id: int | None) -> None: ...


async def remove_orphans(store: BrowserStore, clock: Clock, emit: Emit) -> None:
    """Kills browsers left behind by killed workers. May raise a StoreError."""
    removed: Counter[str] = Counter()
    for state in await store.orphans():
        pids = find_browsers(state.marker) if state.marker else []
        count = sum(len(members(pid)) for pid in pids)
        profile = state.profile or next(map(profile_of, pids), "")
        folders = profile_folders(profile)
        for pid in pids:
            await kill_and_wait(pid, clock)
        await asyncio.to_thread(remove_folders, folders)
        if await store.remove(state):
            removed[state.owner] += count
    for owner, count in removed.items():
        emit(BrowserOrphansRemoved(owner=owner, processes=count))
