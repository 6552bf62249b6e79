"""Browser health: is Chromium installed, how many browsers fit on this machine, and does one start."""

from __future__ import annotations

import asyncio
import platform
import secrets
import sys
from collections.abc import Sequence

from msgspec import Struct

from parcelpost.cli.components import known_sites
from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.health.overview import WorkerBrowser, gather_store_overview, worker_browsers
from parcelpost.cli.output import count, size
from parcelpost.cli.progress import Meter
from parcelpost.cli.settings_options import StoreContext
from parcelpost.errors import InvalidSettings, StoreError
from parcelpost.health_checks import Finding, is_ok
from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.browser import BrowserCallFailed, PlaywrightDriver, bounded_call, launch
from parcelpost.scrapers.browser.chromium import ChromiumFound, ChromiumMissing, SandboxCheck
from parcelpost.scrapers.browser.pool import PoolFigures
from parcelpost.settings import Settings
from parcelpost.worker.machine import fullest, memories
from parcelpost.worker.resources import UNMEASURED_BROWSER_BYTES, safe_browsers

_INSTALL_COMMANDS = {
    "fedora": "'sudo dnf install chromium'",
    "rhel": "'sudo dnf install chromium'",
    "alpine": "'sudo apk add chromium'",
    "arch": "'sudo pacman -S chromium'",
}


def missing_findings(program: ChromiumFound | ChromiumMissing) -> list[Finding]:
    if isinstance(program, ChromiumFound):
        return []
    fix = program.hint if program.reason != chromium.NOT_FOUND else _install_command()
    return [Finding.of("browser.missing", f"tasks that need a browser cannot run: {program.reason}", fix)]


def _install_command() -> str:
    if sys.platform == "darwin":
        package = "'brew install --cask chromium'"
    else:
        package = next(filter(None, map(_INSTALL_COMMANDS.get, _linux_ids())), "'sudo apt-get install chromium'")
    return f"install it with {package} or 'playwright install chromium', or set browser.executable to its path"


def _linux_ids() -> list[str]:
    """The distribution's id and the ids of those it is based on."""
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return []
    return [about.get("ID", ""), *about.get("ID_LIKE", "").split()]


_MIB = 1024**2


class BrowserCapacity(Struct, frozen=True, kw_only=True):
    safe: int
    most: int
    """Limit from the settings."""
    bytes_per_browser: int
    measured: bool
    """Whether `bytes_per_browser` was measured; otherwise it is an estimate."""
    memory_used_bytes: int
    memory_limit_bytes: int
    """Limit of the machine or of its container, whichever is closer to full."""


def running_browsers(states: Sequence[WorkerBrowser], measured: int | None = None) -> PoolFigures:
    """`measured`: size of one browser in bytes, if it was just measured."""
    known = [state.memory_mb * _MIB for state in states if state.memory_mb]
    return PoolFigures(
        browsers=len(states),
        busy=sum(state.status == "busy" for state in states),
        waiting=0,
        pss_bytes=sum(known),
        pss_per_browser=measured or (sum(known) // len(known) if known else None),
    )


def browser_capacity(settings: Settings, now: PoolFigures) -> BrowserCapacity:
    bounds = memories()
    tightest = fullest(bounds)
    return BrowserCapacity(
        safe=safe_browsers(bounds, settings.resources, settings.browser.most, now),
        most=settings.browser.most,
        bytes_per_browser=now.pss_per_browser or UNMEASURED_BROWSER_BYTES,
        measured=now.pss_per_browser is not None,
        memory_used_bytes=tightest.used_bytes,
        memory_limit_bytes=tightest.limit_bytes,
    )


class BrowserReport(Struct, frozen=True, kw_only=True):
    ok: bool
    findings: list[Finding]
    chromium: str
    """The program that would be started; '': none was found."""
    room: BrowserCapacity
    browsers: list[WorkerBrowser]


async def gather_browsers(store: StoreContext) -> BrowserReport:
    """Read-only. Raises a StoreError if the store cannot be read."""
    settings = store.settings
    async with open_for_reading(store) as database:
        browsers = await worker_browsers(database)
    alive = [browser for browser in browsers if browser.owner_lives]
    program = chromium.find(settings.browser)
    capacity = browser_capacity(settings, running_browsers(alive))
    overview = await gather_store_overview(store)
    findings = [
        *missing_findings(program),
        *capacity_findings(capacity),
        *_leftover_findings(len(browsers) - len(alive)),
        *(finding for finding in overview.findings if finding.id.startswith("browser.")),
    ]
    return BrowserReport(
        ok=is_ok(findings),
        findings=findings,
        chromium=program.path if isinstance(program, ChromiumFound) else "",
        room=capacity,
        browsers=browsers,
    )


def capacity_findings(capacity: BrowserCapacity) -> list[Finding]:
    if not capacity.most:
        return [Finding.of("browser.disabled", "browser.most is 0: no browser is started", "set it to 1 or more")]
    if not capacity.safe:
        used = f"{size(capacity.memory_used_bytes)} of {size(capacity.memory_limit_bytes)}"
        message = f"no browser can be started: {used} of memory is in use"
        return [Finding.of("browser.no_memory", message, "free or add memory")]
    return []


def _leftover_findings(left: int) -> list[Finding]:
    if not left:
        return []
    message = f"a crashed worker may have left {count(left, 'browser')} behind"
    return [Finding.of("browser.left_over", message, "start a worker, which stops them")]


async def check_browser(case: CheckContext) -> list[CheckResult]:
    """Starts one only if `deep`. Tasks that wait for a browser are reported with the worker."""
    is_needed = _is_needed(case.settings)
    if case.deep and is_needed:
        trial = await diagnose_browser(case.store)
        return [CheckResult("browser", f"{trial.executable}: a page was loaded", trial.findings)]
    program = chromium.find(case.settings.browser)
    alive, findings = await _store_browsers(case.store)
    if is_needed:
        capacity = browser_capacity(case.settings, running_browsers(alive))
        findings = [*missing_findings(program), *capacity_findings(capacity), *findings]
    if isinstance(program, ChromiumFound):
        return [CheckResult("browser", f"{program.path}; run 'parcelpost browser doctor' to test it", findings)]
    return [CheckResult("browser", f"{program.reason}; no task has needed one yet", findings, skipped=True)]


def _is_needed(settings: Settings) -> bool:
    if settings.browser.executable:
        return True
    try:
        return any(county.profile for county in known_sites(settings).counties)
    except InvalidSettings:
        return False


_PAGE = "data:text/html,<title>Parcelpost</title><script>document.title += ' ' + (6 * 7)</script>"
_TITLE = "Parcelpost 42"
_PAGE_SECONDS = 30.0
_CANNOT_START = (
    "install its libraries with 'playwright install-deps chromium'; if its sandbox is the reason, allow user "
    "namespaces or set browser.sandbox to 'off'; or set browser.executable to another browser"
)


class BrowserDiagnosis(Struct, frozen=True, kw_only=True):
    ok: bool
    findings: list[Finding]
    executable: str
    """Path of Chromium; '' if none was found."""
    source: str
    looked_in: list[str]
    version: str
    sandbox: bool
    no_sandbox: str
    """Why the sandbox is off; '' if it is on."""
    seconds: float | None
    """Time from start to a loaded page; None if no page was loaded."""
    memory_bytes: int
    """Memory of the browser, counting what its processes share once."""
    room: BrowserCapacity


class _Trial(Struct, frozen=True, kw_only=True):
    version: str
    seconds: float
    memory_bytes: int


async def diagnose_browser(store: StoreContext) -> BrowserDiagnosis:
    settings = store.settings
    options = settings.browser
    program = chromium.find(options)
    findings = missing_findings(program)
    sandbox, tried = SandboxCheck(is_on=False), None
    if isinstance(program, ChromiumFound):
        async with Meter("starting a browser and loading a page", after=0.5):
            sandbox = await asyncio.to_thread(chromium.sandbox, options, program.path)
            try:
                tried = await _try_browser(program, sandbox)
            except BrowserCallFailed as error:
                message = f"{program.path} cannot be used: {error}"
                findings.append(Finding.of("browser.unusable", message, error.hint or _CANNOT_START))
    alive, leftovers = await _store_browsers(store)
    capacity = browser_capacity(settings, running_browsers(alive, tried.memory_bytes if tried else None))
    findings += [*capacity_findings(capacity), *leftovers]
    return BrowserDiagnosis(
        ok=is_ok(findings),
        findings=findings,
        executable=program.path if isinstance(program, ChromiumFound) else "",
        source=program.source if isinstance(program, ChromiumFound) else "",
        looked_in=chromium.search_places(options),
        version=tried.version if tried else "",
        sandbox=sandbox.is_on,
        no_sandbox=sandbox.reason,
        seconds=tried.seconds if tried else None,
        memory_bytes=tried.memory_bytes if tried else 0,
        room=capacity,
    )


async def _try_browser(program: ChromiumFound, sandbox: SandboxCheck) -> _Trial:
    """Starts a browser as a worker would, and leaves nothing behind. Raises BrowserCallFailed."""
    began = CLOCK.monotonic()
    driver = await PlaywrightDriver.start()
    try:
        marker = f"doctor-{secrets.token_hex(8)}"
        browser = await launch(driver, program.path, marker, sandbox=sandbox.is_on, clock=CLOCK)
        try:
            _, page = await browser.new_page()
            await bounded_call(page.goto(_PAGE), _PAGE_SECONDS, "loading a page")
            title = await bounded_call(page.title(), _PAGE_SECONDS, "reading a page")
            if title != _TITLE:
                raise BrowserCallFailed(f"a page has the title {title!a:.80}, not {_TITLE}")
            return _Trial(version=browser.version, seconds=CLOCK.monotonic() - began, memory_bytes=browser.memory())
        finally:
            await browser.close()
    finally:
        await driver.stop()


async def _store_browsers(store: StoreContext) -> tuple[list[WorkerBrowser], list[Finding]]:
    """Browsers that already run for the store, and findings about left-over ones; none if it cannot be read."""
    try:
        async with open_for_reading(store) as database:
            browsers = await worker_browsers(database)
    except (StoreError, OSError):  # reported by another check
        return [], []
    alive = [browser for browser in browsers if browser.owner_lives]
    return alive, _leftover_findings(len(browsers) - len(alive))
