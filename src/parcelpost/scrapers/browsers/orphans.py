"""Browsers that a killed worker left behind: ended by what it wrote down, and nothing else is touched."""

from __future__ import annotations

from parcelpost.clock import Clock
from parcelpost.events import BrowserOrphansRemoved, Emit
from parcelpost.model import BrowserState
from parcelpost.scrapers.browsers import folders, processes
from parcelpost.scrapers.browsers.browser import make_sure
from parcelpost.scrapers.browsers.driver import is_driver
from parcelpost.scrapers.browsers.ledger import BrowserLedger
from parcelpost.scrapers.browsers.marked import Marked
from parcelpost.scrapers.browsers.processes import Process


async def remove(ledger: BrowserLedger, clock: Clock, emit: Emit) -> None:
    """May raise a StoreError."""
    removed: dict[str, int] = {}
    for state in await ledger.orphans():
        killed = await _end(state, clock) if state.boot == processes.boot() else 0
        if killed is not None and await ledger.reap(state):
            removed[state.owner] = removed.get(state.owner, 0) + killed
    for owner, count in removed.items():
        emit(BrowserOrphansRemoved(owner=owner, processes=count))


async def forget(ledger: BrowserLedger, token: str) -> None:
    """At a pool's end: what it wrote down of browsers that are gone, in whatever moment it was interrupted."""
    for state in await ledger.all():
        if state.marker.startswith(token) and not _browser(state).left():
            await ledger.reap(state)


async def _end(state: BrowserState, clock: Clock) -> int | None:
    """How many processes there were; None: some are still there."""
    browser = _browser(state)
    found = [*_driver(state), *browser.left()]
    profile = state.profile or next(filter(None, (folders.profile_of(one.pid) for one in found)), "")
    is_gone = await make_sure(lambda: [*_driver(state), *browser.left()], folders.of(profile), clock)
    return len(found) if is_gone else None


def _driver(state: BrowserState) -> list[Process]:
    found = processes.look(state.driver_pid) if state.driver_pid else None
    if found is None or found.started != state.driver_started or not is_driver(found):
        return []
    return [found]


def _browser(state: BrowserState) -> Marked:
    """By its marker as long as the browser itself lives, whether or not its id was written down; and by its group."""
    found = Marked(state.marker)
    if state.pid and state.started and state.executable:
        found.remember(state.pid, state.started, state.executable)
    return found
