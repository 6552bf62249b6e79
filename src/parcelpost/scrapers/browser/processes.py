"""Processes of our browsers, found by the marker in their command line: listed, measured and killed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from parcelpost.clock import Clock

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
    return [pid for pid in psutil.pids() if _group(pid) == pid and f"{MARKER_SWITCH}{marker}" in command_line(pid)]


def members(pid: int) -> list[int]:
    """Returns the running processes of a browser: of the group and the session that its main process leads or led."""
    return [one for one in psutil.pids() if pid in (one, _group(one), _session(one)) and is_running(one)]


def memory(pids: Iterable[int]) -> int:
    """Returns bytes: what each process has for itself and its share of what several have (PSS, else USS)."""
    return sum(map(_memory, pids))


def kill(pid: int) -> None:
    """Kills all processes of a browser, without waiting."""
    for member in members(pid):
        with suppress(*_GONE):
            psutil.Process(member).kill()


async def kill_and_wait(pid: int, clock: Clock) -> None:
    """Kills all processes of a browser and waits until they are gone, 10 s at most."""
    give_up_at = clock.monotonic() + _KILL_SECONDS
    while (left := members(pid)) and clock.monotonic() < give_up_at:
        kill(pid)
        _reap(left)
        await clock.sleep(_POLL_SECONDS)


def _reap(pids: Iterable[int]) -> None:
    """Process 1 of a container inherits orphans, and they stay zombies until it waits for them."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def profile_of(pid: int) -> str:
    """Returns the profile folder of a browser, or ''."""
    found = re.search(r"--user-data-dir=(\S+)", command_line(pid))
    return found[1] if found else ""


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


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


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
