"""Browser health: is Chromium installed, how many browsers fit on this machine, and does one start."""

from __future__ import annotations

import asyncio
import platform
import secrets
import sys
from collections.abc import Sequence

from msgspec import Struct

from parcelpost.cli.context import CLOCK
from parcelpost.cli.fetch_setup import browser_options
from parcelpost.cli.health.overview import WorkerBrowser, browser_wait_problems, browser_waits, browsers_of
from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.options import (
    StoreContext,
)
from parcelpost.cli.output import count, size
from parcelpost.cli.progress import Meter
from parcelpost.errors import StoreError
from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.browser import BrowserCallFailed, PlaywrightDriver, bounded_call, launch
from parcelpost.scrapers.browser.chromium import ChromiumFound, ChromiumMissing, SandboxCheck
from parcelpost.settings import Settings
from parcelpost.worker.resources import UNMEASURED_BROWSER_BYTES, fullest, memories, safe_browsers

_INSTALL_COMMANDS = {
    "fedora": "'sudo dnf install chromium'",
    "rhel": "'sudo dnf install chromium'",
    "alpine": "'sudo apk add chromium'",
    "arch": "'sudo pacman -S chromium'",
}


def missing_problems(found: ChromiumFound | ChromiumMissing) -> list[Problem]:
    if isinstance(found, ChromiumFound):
        return []
    remedy = found.hint if found.reason != chromium.NOT_FOUND else _install_command()
    return [Problem(f"tasks that need a browser cannot run: {found.reason}", remedy, "browser")]


def _install_command() -> str:
    """On this system."""
    if sys.platform == "darwin":
        package = "'brew install --cask chromium'"
    else:
        package = next(filter(None, map(_INSTALL_COMMANDS.get, _linux_ids())), "'sudo apt-get install chromium'")
    return f"{package}, or 'playwright install chromium', or name one that is there in browser.executable"


def _linux_ids() -> list[str]:
    """Which Linux this is, and which it is like."""
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return []
    return [about.get("ID", ""), *about.get("ID_LIKE", "").split()]


_MIB = 1024**2


class RunningBrowsers(Struct, frozen=True, kw_only=True):
    """Browsers that run on this machine for a store; `Figures` for who works out how many are safe."""

    browsers: int
    busy: int
    pss_bytes: int
    pss_per_browser: float | None


class BrowserCapacity(Struct, frozen=True, kw_only=True):
    safe: int
    most: int
    """What the settings allow."""
    bytes_per_browser: int
    measured: bool
    """Else that is what one is taken to need."""
    memory_used_bytes: int
    memory_limit_bytes: int
    """The machine's, or its container's, whichever is fuller."""


def running_browsers(states: Sequence[WorkerBrowser], measured: float | None = None) -> RunningBrowsers:
    """`measured`: bytes of one, where somebody has just looked."""
    known = [state.memory_mb * _MIB for state in states if state.memory_mb]
    return RunningBrowsers(
        browsers=len(states),
        busy=sum(state.status == "busy" for state in states),
        pss_bytes=sum(known),
        pss_per_browser=measured or (sum(known) / len(known) if known else None),
    )


def browser_capacity(settings: Settings, now: RunningBrowsers) -> BrowserCapacity:
    bounds = memories()
    tightest = fullest(bounds)
    return BrowserCapacity(
        safe=safe_browsers(bounds, settings.resources, settings.browser.most, now),
        most=settings.browser.most,
        bytes_per_browser=round(now.pss_per_browser or UNMEASURED_BROWSER_BYTES),
        measured=now.pss_per_browser is not None,
        memory_used_bytes=tightest.used_bytes,
        memory_limit_bytes=tightest.limit_bytes,
    )


class BrowserReport(Struct, frozen=True, kw_only=True):
    well: bool
    problems: list[Problem]
    chromium: str
    """The program that would be started; '': none was found."""
    room: BrowserCapacity
    browsers: list[WorkerBrowser]


async def gather_browsers(store: StoreContext) -> BrowserReport:
    """Only looks. Raises a StoreError for what cannot be looked at."""
    settings = store.settings
    browsers = await browsers_of(store)
    alive = [one for one in browsers if one.owner_lives]
    found = chromium.find(browser_options(settings))
    space = browser_capacity(settings, running_browsers(alive))
    problems = [
        *missing_problems(found),
        *capacity_problems(space),
        *_leftover_problems(len(browsers) - len(alive)),
        *browser_wait_problems(await browser_waits(store)),
    ]
    return BrowserReport(
        well=not problems,
        problems=problems,
        chromium=found.path if isinstance(found, ChromiumFound) else "",
        room=space,
        browsers=browsers,
    )


def capacity_problems(space: BrowserCapacity) -> list[Problem]:
    if not space.most:
        what = "browser.most is 0, so no browser is ever started"
        return [Problem(what, "set browser.most to 1 or more", "browser")]
    if not space.safe:
        used = f"{size(space.memory_used_bytes)} of {size(space.memory_limit_bytes)}"
        what = f"no browser can be started: {used} memory are used"
        return [Problem(what, "free memory, or allow for more of it", "browser")]
    return []


def _leftover_problems(left: int) -> list[Problem]:
    if not left:
        return []
    what = f"{count(left, 'browser')} may have been left by a worker that died"
    return [Problem(what, "start a worker: it ends them", "browser", warning=True)]


_PAGE = "data:text/html,<title>Parcelpost</title><script>document.title += ' ' + (6 * 7)</script>"
_TITLE = "Parcelpost 42"
_PAGE_SECONDS = 30.0
_CANNOT_START = (
    "'playwright install-deps chromium' installs the libraries it needs; where its sandbox is the reason, "
    "allow user namespaces for it, or set browser.sandbox to 'off'; or name another in browser.executable"
)


class BrowserDiagnosis(Struct, frozen=True, kw_only=True):
    well: bool
    problems: list[Problem]
    executable: str
    """'': there is none."""
    source: str
    looked_in: list[str]
    version: str
    sandbox: bool
    no_sandbox: str
    """Why it is off."""
    seconds: float | None
    """From the start until a page was there; None: there was none."""
    memory_bytes: int
    """Of that one browser, what its processes share counted once."""
    room: BrowserCapacity


class _Trial(Struct, frozen=True, kw_only=True):
    seconds: float
    memory_bytes: int


async def diagnose_browser(store: StoreContext) -> BrowserDiagnosis:
    settings = store.settings
    options = browser_options(settings)
    found = chromium.find(options)
    problems = missing_problems(found)
    sandbox, version, tried = SandboxCheck(is_on=False), "", None
    if isinstance(found, ChromiumFound):
        async with Meter("starting a browser and loading a page", after=0.5):
            sandbox = await asyncio.to_thread(chromium.sandbox, options, found.path)
            version = await chromium.version(found.path)
            try:
                tried = await _try_browser(found, sandbox)
            except BrowserCallFailed as error:
                what = f"{found.path} cannot be used: {error}"
                problems.append(Problem(what, error.hint or _CANNOT_START, "browser"))
    space = browser_capacity(
        settings, running_browsers(await _running_for(store), tried.memory_bytes if tried else None)
    )
    problems += capacity_problems(space)
    return BrowserDiagnosis(
        well=not problems,
        problems=problems,
        executable=found.path if isinstance(found, ChromiumFound) else "",
        source=found.source if isinstance(found, ChromiumFound) else "",
        looked_in=chromium.search_places(options),
        version=version,
        sandbox=sandbox.is_on,
        no_sandbox=sandbox.reason,
        seconds=tried.seconds if tried else None,
        memory_bytes=tried.memory_bytes if tried else 0,
        room=space,
    )


async def _try_browser(found: ChromiumFound, sandbox: SandboxCheck) -> _Trial:
    """As a worker would. Raises BrowserCallFailed, and leaves nothing behind."""
    began = CLOCK.monotonic()
    driver = await PlaywrightDriver.start(CLOCK)
    try:
        marker = f"doctor-{secrets.token_hex(8)}"
        browser = await launch(driver, found.path, marker, sandbox=sandbox.is_on, clock=CLOCK)
        try:
            _, page = await browser.new_page()
            await bounded_call(page.goto(_PAGE), _PAGE_SECONDS, "loading a page", browser.ended)
            title = await bounded_call(page.title(), _PAGE_SECONDS, "reading a page", browser.ended)
            if title != _TITLE:
                raise BrowserCallFailed(f"a page has the title {title!a:.80}, not {_TITLE}")
            return _Trial(seconds=CLOCK.monotonic() - began, memory_bytes=browser.memory())
        finally:
            await browser.close(kindly=True)
    finally:
        await driver.stop()


async def _running_for(store: StoreContext) -> list[WorkerBrowser]:
    """Browsers that run for the store already; none where there is no store to be looked at."""
    try:
        return [one for one in await browsers_of(store) if one.owner_lives]
    except StoreError:
        return []
