"""How the browsers of a store's workers are, and what keeps tasks from having one."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from parcelpost.cli.browser_missing import missing_problems
from parcelpost.cli.browser_options import browser_options
from parcelpost.cli.browser_room import Room, room, running
from parcelpost.cli.browser_seen import SeenBrowser, seen
from parcelpost.cli.browser_waiting import browser_waits, wait_problems
from parcelpost.cli.given import settled
from parcelpost.cli.output import count, size
from parcelpost.cli.status_report import Problem
from parcelpost.scrapers.browsers import chromium
from parcelpost.scrapers.browsers.chromium import Found


class BrowserReport(Struct, frozen=True, kw_only=True):
    well: bool
    problems: list[Problem]
    chromium: str
    """The program that would be started; '': none was found."""
    room: Room
    browsers: list[SeenBrowser]


async def gather(store: Path) -> BrowserReport:
    """Only looks. Raises a StoreError for what cannot be looked at."""
    settings = settled()
    browsers = await seen(store)
    alive = [one for one in browsers if one.owner_lives]
    found = chromium.find(browser_options(settings))
    space = room(settings, running(alive))
    problems = [
        *missing_problems(found),
        *room_problems(space),
        *_left_problems(len(browsers) - len(alive)),
        *wait_problems(await browser_waits(store)),
    ]
    return BrowserReport(
        well=not problems,
        problems=problems,
        chromium=found.path if isinstance(found, Found) else "",
        room=space,
        browsers=browsers,
    )


def room_problems(space: Room) -> list[Problem]:
    if not space.most:
        what = "browser.most is 0, so no browser is ever started"
        return [Problem(what, "set browser.most to 1 or more", "browser")]
    if not space.safe:
        used = f"{size(space.memory_used_bytes)} of {size(space.memory_limit_bytes)}"
        what = f"no browser can be started: {used} memory are used"
        return [Problem(what, "free memory, or allow for more of it", "browser")]
    return []


def _left_problems(left: int) -> list[Problem]:
    if not left:
        return []
    what = f"{count(left, 'browser')} may have been left by a worker that died"
    return [Problem(what, "start a worker: it ends them", "browser", warning=True)]
