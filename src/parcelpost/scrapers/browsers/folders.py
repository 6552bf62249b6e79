"""The folders that Playwright and Chromium make for a browser, and leave when they are killed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from parcelpost.scrapers.browsers import processes

_PROFILE = "playwright_chromiumdev_profile-"
_SOCKETS = re.compile(r"\.?(org\.chromium|com\.google|com\.microsoft|com\.brave)\.")


def profile_of(pid: int) -> str:
    """Where the browser keeps what it has, by its command line; '' where that does not say."""
    found = re.search(r"--user-data-dir=(\S+)", processes.command_line(pid))
    return found[1] if found else ""


def of(profile: str) -> list[Path]:
    """The profile that Playwright made, and Chromium's own folder to which there is a link in it. None other."""
    folder = Path(profile)
    if not folder.name.startswith(_PROFILE) or folder.is_symlink():
        return []
    found = [folder]
    with suppress(OSError):
        sockets = (folder / "SingletonSocket").readlink().parent
        if sockets.parent == folder.parent and _SOCKETS.match(sockets.name):
            found.append(sockets)
    return found


def remove(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
