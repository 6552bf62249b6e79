"""Which Chromium is installed, the switches it is started with, and whether its sandbox works."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from parcelpost.errors import extra_hint
from parcelpost.scrapers.browser.base import BrowserOptions

GUARD_SWITCHES: tuple[str, ...] = (
    # A page's context has our proxy; what belongs to no page (updates, experiments, reports) goes to nobody.
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # Names are resolved by our proxy only: not for a prefetch, and not to connect ahead of time.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--dns-prefetch-disable",
    # What would go by UDP does not go.
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-pings",
    "--no-first-run",
)
"""To be given to every Chromium that is lent."""


_NOT_NEEDED = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Pages of Chromium's own that nobody sees: two renderers for each of ours."""
_OF_PLAYWRIGHT = (
    *("AcceptCHFrame", "AimEnabled", "AutoDeElevate", "AvoidCorsURLLoaderRestartOnRedirect"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "DialMediaRouteProvider"),
    *("GlobalMediaControls", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "ImprovedCookieControls"),
    *("LazyFrameLoading", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "RenderDocument", "TcpPortRandomizationWin"),
    *("ThirdPartyStoragePartitioning", "Translate", "msEdgeUpdateLaunchServicesPreferredVersion"),
    "msForceBrowserSignIn",
)
"""Chromium takes only the last of several lists: what Playwright disables is said again."""

LEAN_SWITCHES = ("--disable-features=" + ",".join((*_NOT_NEEDED, *_OF_PLAYWRIGHT)), "--disable-gpu")
SWITCHES = (*LEAN_SWITCHES, *GUARD_SWITCHES)


_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("google-chrome-beta", "microsoft-edge", "brave-browser"),
)
_APPLICATIONS = (
    "Chromium.app/Contents/MacOS/Chromium",
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
_PLAYWRIGHTS_OWN = (
    "chromium_headless_shell-*/chrom*/*headless?shell",
    "chromium-*/chrome-*/chrome",
    "chromium-*/chrome-*/*.app/Contents/MacOS/*",
)
NOT_FOUND = "no Chromium was found"
_VERSION_SECONDS = 20.0
_TRIAL_SECONDS = 20.0
_NEW_USER_NAMESPACE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"


class ChromiumFound(Struct, frozen=True, kw_only=True):
    path: str
    source: Literal["settings", "playwright", "system"]


class ChromiumMissing(Struct, frozen=True, kw_only=True):
    reason: str
    hint: str


class SandboxCheck(Struct, frozen=True, kw_only=True):
    is_on: bool
    reason: str = ""
    """Why it is off."""


def find(options: BrowserOptions = BrowserOptions(), *, with_window: bool = False) -> ChromiumFound | ChromiumMissing:
    """The one that the settings name, else Playwright's own, else the system's. Starts nothing.

    `with_window`: one that people can use.
    """
    if importlib.util.find_spec("playwright") is None:
        return ChromiumMissing(reason="Playwright is not installed", hint=extra_hint("browser"))
    if options.executable:
        path = shutil.which(options.executable)
        if path is None:
            hint = "browser.executable names it; leave it empty to take the first that is found"
            return ChromiumMissing(reason=f"there is no program {options.executable}", hint=hint)
        return ChromiumFound(path=path, source="settings")
    for found in _all():
        if not with_window or "headless" not in Path(found.path).name:
            return found
    hint = (
        "install Chromium (the system's package, or `playwright install chromium`), or name one in browser.executable"
    )
    return ChromiumMissing(reason=NOT_FOUND, hint=hint)


def search_places(options: BrowserOptions = BrowserOptions()) -> list[str]:
    """Where `find` looks, in words."""
    if options.executable:
        return [f"browser.executable: {options.executable}"]
    applications = ["/Applications", "~/Applications"] if sys.platform == "darwin" else []
    return [*(f"Playwright's folder {folder}" for folder in _folders()), f"PATH: {', '.join(_NAMES)}", *applications]


def has_home() -> bool:
    """Many containers run as a user that has none."""
    try:
        Path.home()
    except RuntimeError:
        return False
    return True


async def version(path: str) -> str:
    """As the program itself says, such as `Chromium 140.0.7339.80`; '' where it does not."""
    try:
        asked = await asyncio.create_subprocess_exec(
            path, "--version", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_VERSION_SECONDS):
            answer, _ = await asked.communicate()
    except TimeoutError:
        asked.kill()
        await asked.wait()
        return ""
    lines = answer.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def sandbox(options: BrowserOptions, path: str) -> SandboxCheck:
    """Chromium's own walls around pages. "auto": on where they can be built. Takes a moment."""
    if options.sandbox == "on":
        return SandboxCheck(is_on=True)
    if options.sandbox == "off":
        return SandboxCheck(is_on=False, reason="the settings say so")
    if os.geteuid() == 0:
        return SandboxCheck(is_on=False, reason="Chromium has none for root")
    if sys.platform != "linux" or _has_setuid_sandbox(path):
        return SandboxCheck(is_on=True)
    if _file_says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return SandboxCheck(is_on=False, reason="AppArmor allows programs no user namespaces")
    if not _can_make_user_namespace():
        return SandboxCheck(is_on=False, reason="the system allows no user namespaces")
    return SandboxCheck(is_on=True)


def _all() -> Iterator[ChromiumFound]:
    yield from (ChromiumFound(path=path, source="playwright") for path in _of_playwright())
    yield from (ChromiumFound(path=path, source="system") for path in _of_the_system())


def _of_playwright() -> Iterator[str]:
    """The newest first, where Playwright's installer puts them."""
    for pattern in _PLAYWRIGHTS_OWN:
        found = [path for folder in _folders() for path in folder.glob(pattern) if os.access(path, os.X_OK)]
        yield from (str(path) for path in sorted(found, key=_revision, reverse=True))


def _folders() -> Iterator[Path]:
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if named == "0":
        spec = importlib.util.find_spec("playwright")
        for place in (spec.submodule_search_locations or []) if spec else []:
            yield Path(place) / "driver" / "package" / ".local-browsers"
    elif named:
        yield Path(named)
    else:
        cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
        named = os.environ.get("XDG_CACHE_HOME", "")
        yield from (folder / "ms-playwright" for folder in ([Path(named)] if named else _at_home(cache)))


def _at_home(folder: str) -> list[Path]:
    return [Path.home() / folder] if has_home() else []


def _revision(path: Path) -> int:
    numbers = re.findall(r"(?:chromium|shell)-(\d+)", str(path))
    return int(numbers[-1]) if numbers else 0


def _of_the_system() -> Iterator[str]:
    for name in _NAMES:
        if path := shutil.which(name):
            yield path
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), *_at_home("Applications")):
            yield from (str(folder / name) for name in _APPLICATIONS if os.access(folder / name, os.X_OK))


def _has_setuid_sandbox(path: str) -> bool:
    program = Path(path).resolve()
    for folder in (program.parent, Path("/usr/lib") / program.name):  # the second: what is found is a script
        try:
            found = (folder / "chrome-sandbox").stat()
        except OSError:
            continue
        if found.st_uid == 0 and found.st_mode & stat.S_ISUID:
            return True
    return False


def _file_says(file: str, word: str) -> bool:
    try:
        return Path(file).read_text(encoding="ascii").strip() == word
    except OSError:
        return False


def _can_make_user_namespace() -> bool:
    """Tried in a process of its own: what containers forbid is written in no file."""
    command = [sys.executable, "-I", "-S", "-c", _NEW_USER_NAMESPACE]
    try:
        return subprocess.run(command, timeout=_TRIAL_SECONDS, check=False).returncode == 0  # noqa: S603 - our own words
    except (OSError, subprocess.TimeoutExpired):
        return False
