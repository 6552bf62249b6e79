"""What to install where there is no browser."""

from __future__ import annotations

import platform
import sys

from parcelpost.cli.status_report import Problem
from parcelpost.scrapers.browsers import chromium
from parcelpost.scrapers.browsers.chromium import Found, Missing

_PACKAGES = {
    "fedora": "'sudo dnf install chromium'",
    "rhel": "'sudo dnf install chromium'",
    "alpine": "'sudo apk add chromium'",
    "arch": "'sudo pacman -S chromium'",
}


def missing_problems(found: Found | Missing) -> list[Problem]:
    if isinstance(found, Found):
        return []
    remedy = found.hint if found.reason != chromium.NOT_FOUND else _how_to_install()
    return [Problem(f"tasks that need a browser cannot run: {found.reason}", remedy, "browser")]


def _how_to_install() -> str:
    """On this system."""
    if sys.platform == "darwin":
        package = "'brew install --cask chromium'"
    else:
        package = next(filter(None, map(_PACKAGES.get, _kinds())), "'sudo apt-get install chromium'")
    return f"{package}, or 'playwright install chromium', or name one that is there in browser.executable"


def _kinds() -> list[str]:
    """Which Linux this is, and which it is like."""
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return []
    return [about.get("ID", ""), *about.get("ID_LIKE", "").split()]
