"""Which Chromium is installed, the switches it is started with, and whether its sandbox works."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import extra_hint
from parcelpost.settings.schema import BrowserSettings

_GUARD_SWITCHES = (
    # Contexts use our proxy; requests that belong to no page (updates, experiments, reports) lead nowhere.
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # Names are resolved by our proxy only, not for prefetching or preconnecting.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--dns-prefetch-disable",
    # No UDP.
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
_UNUSED_FEATURES = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Chromium's own pages for the address bar: two more renderers for each of our pages."""
_PLAYWRIGHT_FEATURES = (
    *("AcceptCHFrame", "AimEnabled", "AutoDeElevate", "AvoidCorsURLLoaderRestartOnRedirect"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "DialMediaRouteProvider"),
    *("GlobalMediaControls", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "ImprovedCookieControls"),
    *("LazyFrameLoading", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "RenderDocument", "TcpPortRandomizationWin"),
    *("ThirdPartyStoragePartitioning", "Translate", "msEdgeUpdateLaunchServicesPreferredVersion"),
    "msForceBrowserSignIn",
)
"""Disabled by Playwright. Repeated, as Chromium reads only the last of several lists."""

LEAN_SWITCHES = ("--disable-features=" + ",".join((*_UNUSED_FEATURES, *_PLAYWRIGHT_FEATURES)), "--disable-gpu")
SWITCHES = (*LEAN_SWITCHES, *_GUARD_SWITCHES)

_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("google-chrome-beta", "microsoft-edge", "brave-browser"),
)
_APPLICATIONS = (
    "Chromium.app/Contents/MacOS/Chromium",
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
_PLAYWRIGHT_PATHS = (
    "chromium_headless_shell-*/chrom*/*headless?shell",
    "chromium-*/chrome-*/chrome",
    "chromium-*/chrome-*/*.app/Contents/MacOS/*",
)
NOT_FOUND = "no Chromium was found"
_PROGRAM_SECONDS = 20.0
_NEW_NAMESPACES = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x70000000) != 0)"
"""User, process and network namespaces, as Chromium's sandbox makes them: AppArmor may allow only the first."""


class ChromiumFound(Struct, frozen=True, kw_only=True):
    path: str
    source: str
    """settings, playwright or system."""


class ChromiumMissing(Struct, frozen=True, kw_only=True):
    reason: str
    hint: str


class SandboxCheck(Struct, frozen=True, kw_only=True):
    is_on: bool
    reason: str = ""
    """Why the sandbox is off; '' if it is on."""


def find(
    settings: BrowserSettings = BrowserSettings(), *, with_window: bool = False
) -> ChromiumFound | ChromiumMissing:
    """Returns the Chromium named in the settings, else Playwright's, else the system's. Starts nothing.

    `with_window`: skip headless builds.
    """
    if importlib.util.find_spec("playwright") is None:
        return ChromiumMissing(reason="Playwright is not installed", hint=extra_hint("browser"))
    if settings.executable:
        path = shutil.which(settings.executable)
        if path is None:
            hint = "correct browser.executable, or leave it empty to use the first browser that is found"
            return ChromiumMissing(reason=f"no such program: {settings.executable}", hint=hint)
        return ChromiumFound(path=path, source="settings")
    for source, paths in (("playwright", _playwright_paths()), ("system", _system_paths())):
        for path in paths:
            if not with_window or "headless" not in Path(path).name:
                return ChromiumFound(path=path, source=source)
    hint = "install Chromium (system package, or `playwright install chromium`), or set browser.executable to its path"
    return ChromiumMissing(reason=NOT_FOUND, hint=hint)


def search_places(settings: BrowserSettings = BrowserSettings()) -> list[str]:
    """Returns where `find` looks, for the operator."""
    if settings.executable:
        return [f"browser.executable: {settings.executable}"]
    applications = ["/Applications", "~/Applications"] if sys.platform == "darwin" else []
    return [*(f"Playwright's folder {folder}" for folder in _folders()), f"PATH: {', '.join(_NAMES)}", *applications]


def has_home() -> bool:
    """Whether the user has a home folder; many containers run as a user without one."""
    try:
        Path.home()
    except RuntimeError:
        return False
    return True


def sandbox(settings: BrowserSettings, path: str) -> SandboxCheck:
    """Whether Chromium's sandbox is used; with "auto", where the system allows it. Takes a moment."""
    if settings.sandbox == "on":
        return SandboxCheck(is_on=True)
    if settings.sandbox == "off":
        return SandboxCheck(is_on=False, reason="browser.sandbox is off")
    if os.geteuid() == 0:
        return SandboxCheck(is_on=False, reason="Chromium's sandbox does not work for root")
    if sys.platform != "linux" or _has_setuid_sandbox(path):
        return SandboxCheck(is_on=True)
    if not _can_make_namespaces():
        return SandboxCheck(is_on=False, reason="the system does not allow user namespaces")
    return SandboxCheck(is_on=True)


def _playwright_paths() -> Iterator[str]:
    """The newest first."""
    for pattern in _PLAYWRIGHT_PATHS:
        paths = [path for folder in _folders() for path in folder.glob(pattern) if os.access(path, os.X_OK)]
        yield from (str(path) for path in sorted(paths, key=_revision, reverse=True))


def _folders() -> Iterator[Path]:
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if named:
        yield Path(named)
        return
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    named = os.environ.get("XDG_CACHE_HOME", "")
    yield from (folder / "ms-playwright" for folder in ([Path(named)] if named else _at_home(cache)))


def _at_home(folder: str) -> list[Path]:
    return [Path.home() / folder] if has_home() else []


def _revision(path: Path) -> int:
    numbers = re.findall(r"(?:chromium|shell)-(\d+)", str(path))
    return int(numbers[-1]) if numbers else 0


def _system_paths() -> Iterator[str]:
    for name in _NAMES:
        if path := shutil.which(name):
            yield path
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), *_at_home("Applications")):
            yield from (str(folder / name) for name in _APPLICATIONS if os.access(folder / name, os.X_OK))


def _has_setuid_sandbox(path: str) -> bool:
    program = Path(path).resolve()
    for folder in (program.parent, Path("/usr/lib") / program.name):  # /usr/bin/chromium may be a script
        try:
            status = (folder / "chrome-sandbox").stat()
        except OSError:
            continue
        if status.st_uid == 0 and status.st_mode & stat.S_ISUID:
            return True
    return False


def _can_make_namespaces() -> bool:
    """Tries it in a separate process, because no file shows what a container forbids."""
    command = [sys.executable, "-I", "-S", "-c", _NEW_NAMESPACES]
    try:
        return subprocess.run(command, timeout=_PROGRAM_SECONDS, check=False).returncode == 0  # noqa: S603 - a constant
    except (OSError, subprocess.TimeoutExpired):
        return False
