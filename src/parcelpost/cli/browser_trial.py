"""A browser is found, started and used once, to see whether tasks could."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.browser_missing import missing_problems
from parcelpost.cli.browser_options import browser_options
from parcelpost.cli.browser_report import room_problems
from parcelpost.cli.browser_room import Room, room, running
from parcelpost.cli.browser_seen import SeenBrowser, seen
from parcelpost.cli.given import settled
from parcelpost.cli.progress import Meter
from parcelpost.cli.running import CLOCK
from parcelpost.cli.status_report import Problem
from parcelpost.errors import StoreError
from parcelpost.scrapers.browsers import chromium
from parcelpost.scrapers.browsers.bounded import NotDone, bounded
from parcelpost.scrapers.browsers.browser import Launch, launch
from parcelpost.scrapers.browsers.chromium import Found, Sandbox
from parcelpost.scrapers.browsers.driver import Driver

_PAGE = "data:text/html,<title>Parcelpost</title><script>document.title += ' ' + (6 * 7)</script>"
_TITLE = "Parcelpost 42"
_PAGE_SECONDS = 30.0
_CANNOT_START = (
    "'playwright install-deps chromium' installs the libraries it needs; where its sandbox is the reason, "
    "allow user namespaces for it, or set browser.sandbox to 'off'; or name another in browser.executable"
)


class Diagnosis(Struct, frozen=True, kw_only=True):
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
    room: Room


class _Tried(Struct, frozen=True, kw_only=True):
    seconds: float
    memory_bytes: int


async def diagnose(store: Path) -> Diagnosis:
    settings = settled()
    options = browser_options(settings)
    found = chromium.find(options)
    problems = missing_problems(found)
    sandbox, version, tried = Sandbox(is_on=False), "", None
    if isinstance(found, Found):
        async with Meter("starting a browser and loading a page", after=0.5):
            sandbox = await asyncio.to_thread(chromium.sandbox, options, found.path)
            version = await chromium.version(found.path)
            try:
                tried = await _tried(found, sandbox)
            except NotDone as error:
                what = f"{found.path} cannot be used: {error}"
                problems.append(Problem(what, error.hint or _CANNOT_START, "browser"))
    space = room(settings, running(await _alive(store), tried.memory_bytes if tried else None))
    problems += room_problems(space)
    return Diagnosis(
        well=not problems,
        problems=problems,
        executable=found.path if isinstance(found, Found) else "",
        source=found.source if isinstance(found, Found) else "",
        looked_in=chromium.places(options),
        version=version,
        sandbox=sandbox.is_on,
        no_sandbox=sandbox.reason,
        seconds=tried.seconds if tried else None,
        memory_bytes=tried.memory_bytes if tried else 0,
        room=space,
    )


async def _tried(found: Found, sandbox: Sandbox) -> _Tried:
    """As a worker would. Raises NotDone, and leaves nothing behind."""
    began = CLOCK.monotonic()
    driver = await Driver.start(CLOCK)
    try:
        how = Launch(executable=found.path, marker=f"doctor-{secrets.token_hex(8)}", sandbox=sandbox.is_on)
        browser = await launch(driver, how, CLOCK)
        try:
            _, page = await browser.fresh_page()
            await bounded(page.goto(_PAGE), _PAGE_SECONDS, "loading a page", browser.over)
            title = await bounded(page.title(), _PAGE_SECONDS, "reading a page", browser.over)
            if title != _TITLE:
                raise NotDone(f"a page has the title {title!a:.80}, not {_TITLE}")
            return _Tried(seconds=CLOCK.monotonic() - began, memory_bytes=browser.memory())
        finally:
            await browser.close(kindly=True)
    finally:
        await driver.stop()


async def _alive(store: Path) -> list[SeenBrowser]:
    """Browsers that run for the store already; none where there is no store to be looked at."""
    try:
        return [one for one in await seen(store) if one.owner_lives]
    except StoreError:
        return []
