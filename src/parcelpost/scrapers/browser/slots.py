"""Browser slots: each runs one browser after another. Launching, health checks, the wait queue and orphan removal."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import BrowserOrphansRemoved, BrowserStarted, BrowsersUnavailable, Emit
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import chromium, processes
from parcelpost.scrapers.browser.base import BrowserOptions, BrowserStore
from parcelpost.scrapers.browser.browser import (
    BrowserCallFailed,
    Chromium,
    LaunchOptions,
    PlaywrightDriver,
    ensure_gone,
    is_driver,
    launch,
)
from parcelpost.scrapers.browser.chromium import ChromiumFound, ChromiumMissing, SandboxCheck
from parcelpost.scrapers.browser.processes import MarkedProcesses, Process
from parcelpost.scrapers.fetch.errors import BrowserUnavailable


class BrowserSlot:
    def __init__(self, ledger: BrowserStore, owner: str, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        now = clock.now()
        self._state = BrowserState(
            browser_id=0, status="restarting", last_health_check=now, created_at=now, launches=0, owner=owner
        )
        self.chromium: Chromium | None = None
        self.is_lent = False
        self.idle_since = 0.0
        self.started_at = 0.0
        self.checked_at = 0.0
        self.tasks = 0
        """Done by the browser that runs now."""
        self.was_of_use = False
        """A page was opened in the browser that runs now."""
        self.memory: int | None = None
        """Bytes, of the browser that runs now, as last measured."""
        self.retiring = ""
        """Why the browser is to end although it is well."""
        self.is_given_up = False
        """No other browser is started here."""
        self._is_forgotten = False

    @property
    def browser_id(self) -> int:
        return self._state.browser_id

    @property
    def launches(self) -> int:
        return self._state.launches

    @property
    def is_coming(self) -> bool:
        """A browser is being started here, or will be as soon as the last one is gone."""
        return not self.is_given_up and (self.chromium is None or self.chromium.over.done())

    @property
    def is_idle(self) -> bool:
        return self.chromium is not None and not self.is_lent and not self.chromium.over.done()

    async def announce(self, marker: str, executable: str, driver: PlaywrightDriver) -> None:
        """Before a browser is started, so that it is found if we are killed meanwhile. Raises a StoreError."""
        self._state = replace(
            self._state,
            status="restarting",
            current_task_id=None,
            launches=self._state.launches + 1,
            restarted_at=self._clock.now() if self._state.launches else None,
            memory_mb=None,
            pid=None,
            started="",
            profile="",
            boot=processes.current_boot(),
            marker=marker,
            executable=executable,
            driver_pid=driver.process.pid,
            driver_started=driver.process.started,
        )
        if self.browser_id:
            await self._ledger.put(self._state)
        else:
            self._state = replace(self._state, browser_id=await self._ledger.add(self._state))

    async def settle(self, chromium: Chromium) -> None:
        """It has started, and is well."""
        self.chromium = chromium
        self.is_lent = False
        self.tasks, self.memory, self.retiring, self.was_of_use = 0, None, "", False
        self.started_at = self.idle_since = self.checked_at = self._clock.monotonic()
        await self.note(
            status="idle",
            pid=chromium.process.pid,
            started=chromium.process.started,
            executable=chromium.executable,
            profile=chromium.profile,
            last_health_check=self._clock.now(),
        )

    async def lend(self, task_id: str) -> None:
        await self.note(status="busy", current_task_id=task_id)
        with suppress(StoreError):
            await self._ledger.assign(task_id, self.browser_id)

    async def unassign(self, task_id: str) -> None:
        with suppress(StoreError):
            await self._ledger.assign(task_id, None)

    async def take_back(self, *, was_good: bool) -> None:
        self.tasks += 1
        self.idle_since = self._clock.monotonic()
        completed = self._state.tasks_completed + was_good
        await self.note(status="idle", current_task_id=None, tasks_completed=completed)

    async def note(self, **changes: Any) -> None:
        """What the store does not take now, it gets with the next change: no browser ends for want of disk."""
        self._state = replace(self._state, **changes)
        if not self._is_forgotten:
            with suppress(StoreError):
                await self._ledger.put(self._state)

    async def forget(self) -> None:
        self._is_forgotten = True
        if self.browser_id:
            with suppress(StoreError):
                await self._ledger.remove(self.browser_id)


class WaitQueue:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[BrowserSlot]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def stand(self, patience: float, came: Callable[[], None]) -> BrowserSlot | None:
        """A place, taken for whoever stands here; None: patience ran out. Raises NoBrowser as others decide.

        `came` is called as soon as the line is one longer.
        """
        waiting: asyncio.Future[BrowserSlot] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        came()
        try:
            await asyncio.wait({waiting}, timeout=patience)
        except BaseException:
            if waiting.done() and waiting.exception() is None:
                self.serve(waiting.result())
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiting)
        return waiting.result() if waiting.done() else None

    def serve(self, place: BrowserSlot) -> None:
        """The place is free for whoever waits longest, or stays idle."""
        place.is_lent = False
        while self._waiting and place.is_idle:
            waiting = self._waiting.popleft()
            if not waiting.done():
                place.is_lent = True
                waiting.set_result(place)

    def disappoint(self, why: str, after_seconds: float) -> None:
        """Everybody is told that there is none, and when to come back."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(BrowserUnavailable(why, after_seconds))


async def remove_orphans(ledger: BrowserStore, clock: Clock, emit: Emit) -> None:
    """May raise a StoreError."""
    removed: dict[str, int] = {}
    for state in await ledger.orphans():
        killed = await _end_orphan(state, clock) if state.boot == processes.current_boot() else 0
        if killed is not None and await ledger.reap(state):
            removed[state.owner] = removed.get(state.owner, 0) + killed
    for owner, count in removed.items():
        emit(BrowserOrphansRemoved(owner=owner, processes=count))


async def delete_states(ledger: BrowserStore, token: str) -> None:
    """At a pool's end: what it wrote down of browsers that are gone, in whatever moment it was interrupted."""
    for state in await ledger.all():
        if state.marker.startswith(token) and not _browser_processes(state).left():
            await ledger.reap(state)


async def _end_orphan(state: BrowserState, clock: Clock) -> int | None:
    """How many processes there were; None: some are still there."""
    browser = _browser_processes(state)
    found = [*_driver_processes(state), *browser.left()]
    profile = state.profile or next(filter(None, (processes.profile_of(one.pid) for one in found)), "")
    is_gone = await ensure_gone(
        lambda: [*_driver_processes(state), *browser.left()], processes.profile_folders(profile), clock
    )
    return len(found) if is_gone else None


def _driver_processes(state: BrowserState) -> list[Process]:
    found = processes.find_process(state.driver_pid) if state.driver_pid else None
    if found is None or found.started != state.driver_started or not is_driver(found):
        return []
    return [found]


def _browser_processes(state: BrowserState) -> MarkedProcesses:
    """By its marker as long as the browser itself lives, whether or not its id was written down; and by its group."""
    found = MarkedProcesses(state.marker)
    if state.pid and state.started and state.executable:
        found.remember(state.pid, state.started, state.executable)
    return found


_LEAST_SECONDS = 0.5
_MOST_SECONDS = 60.0
_MISSING_SECONDS = 60.0


class Launcher:
    """One driver for all browsers; a new one when it has died."""

    def __init__(self, options: BrowserOptions, clock: Clock, emit: Emit) -> None:
        self.problem = ""
        """Why none can be started; '': it was not tried, or worked."""
        self._options = options
        self._clock = clock
        self._emit = emit
        self.token = secrets.token_hex(16)
        """The beginning of every marker."""
        self._count = 0
        self._driver: PlaywrightDriver | None = None
        self._one_driver = asyncio.Lock()
        self._found: ChromiumFound | None = None
        self._sandbox = SandboxCheck(is_on=True)
        self._failures = 0
        self._again_at = 0.0

    @property
    def again_in(self) -> float:
        """Seconds until the next try makes sense; 0: now."""
        return max(0.0, self._again_at - self._clock.monotonic())

    async def start(self, place: BrowserSlot) -> None:
        """Raises NotDone, or a StoreError where the browser cannot be announced."""
        began = self._clock.monotonic()
        found = await self._find()
        driver = await self._get_driver()
        self._count += 1
        marker = f"{self.token}-{self._count:08}"
        await place.announce(marker, found.path, driver)
        how = LaunchOptions(executable=found.path, marker=marker, sandbox=self._sandbox.is_on)
        await place.settle(await launch(driver, how, self._clock))
        self._tell(place, self._clock.monotonic() - began)

    def failed(self, reason: str, hint: str = "") -> None:
        """It was tried and did not work. With a hint, a person must see to it, and nothing is tried for a minute."""
        self._back_off(_MISSING_SECONDS if hint else 0.0)
        problem = f"{reason} ({hint})" if hint else reason
        if problem != self.problem:
            self._emit(BrowsersUnavailable(reason=reason, hint=hint, retry_in_seconds=self.again_in))
        self.problem = problem

    def died_young(self, reason: str) -> None:
        """A browser was dead before it was of any use. If several were, none is started for a while."""
        self._back_off(0.0)
        self.problem = self.problem or reason

    def _back_off(self, least: float) -> None:
        self._found = None  # it may have been removed, or replaced
        if not self.again_in:  # several that fail at once fail for one reason
            self._failures += 1
        longest = min(_MOST_SECONDS, _LEAST_SECONDS * 2 ** min(self._failures, 30))
        seconds = max(least, random.uniform(longest / 2, longest))  # noqa: S311 - jitter
        self._again_at = max(self._again_at, self._clock.monotonic() + seconds)

    def worked(self) -> None:
        """A browser was of use."""
        self.problem = ""
        self._failures = 0
        self._again_at = 0.0

    async def stop(self) -> None:
        """Leaves no process of any browser that was ever started from here."""
        ours = MarkedProcesses(self.token)
        try:
            if self._driver is not None:
                await self._driver.stop()
        finally:
            processes.kill(ours.left())
        await ensure_gone(ours.left, (), self._clock)

    async def _find(self) -> ChromiumFound:
        if self._found is None:
            found = chromium.find(self._options)
            if isinstance(found, ChromiumMissing):
                raise BrowserCallFailed(found.reason, found.hint)
            self._sandbox = await asyncio.to_thread(chromium.sandbox, self._options, found.path)
            self._found = found
        return self._found

    async def _get_driver(self) -> PlaywrightDriver:
        async with self._one_driver:
            if self._driver is None or not self._driver.is_running:
                if self._driver is not None:
                    await self._driver.stop()
                    self._driver = None
                self._driver = await PlaywrightDriver.start(self._clock)
            return self._driver

    def _tell(self, place: BrowserSlot, seconds: float) -> None:
        if place.chromium is not None:
            self._emit(
                BrowserStarted(
                    browser_id=place.browser_id,
                    pid=place.chromium.process.pid,
                    version=place.chromium.version,
                    launches=place.launches,
                    seconds=seconds,
                    no_sandbox=self._sandbox.reason,
                )
            )


_LONGEST_SECONDS = 2.0
_CHECK_EVERY_SECONDS = 10.0
_ORPHANS_EVERY_SECONDS = 60.0


class HealthChecks:
    def __init__(self, options: BrowserOptions, ledger: BrowserStore, clock: Clock, emit: Emit) -> None:
        self._options = options
        self._ledger = ledger
        self._clock = clock
        self._emit = emit
        self.memory_per_browser: int | None = None
        """Bytes, the mean of those that run, or ran last; None: nothing was measured yet."""
        self._orphans_at = clock.monotonic()
        self.seconds = min(_LONGEST_SECONDS, options.idle_seconds / 2, options.max_age_seconds / 2)
        """From one look to the next."""

    def why_retire(self, place: BrowserSlot) -> str:
        """'': it may go on."""
        if place.tasks >= self._options.tasks_per_browser:
            return f"it has done {place.tasks} tasks"
        if self._clock.monotonic() - place.started_at > self._options.max_age_seconds:
            return f"it is older than {self._options.max_age_seconds:g} s"
        if (place.memory or 0) > self._options.max_browser_bytes:
            return f"it has {(place.memory or 0) / 1024**2:.0f} MiB of memory"
        return ""

    def is_idle_for_long(self, place: BrowserSlot) -> bool:
        return self._clock.monotonic() - place.idle_since > self._options.idle_seconds

    async def look_after(self, places: Sequence[BrowserSlot]) -> bool:
        """Measures all, and asks those that are idle how they are. Whether one said that it is well."""
        for place in places:
            await self._measure(place)
        if found := [place.memory for place in places if place.memory is not None]:
            self.memory_per_browser = sum(found) // len(found)
        due = [place for place in places if place.is_idle and self._is_due(place)]
        answers = await asyncio.gather(*(self._check(place) for place in due))
        if self._clock.monotonic() - self._orphans_at > _ORPHANS_EVERY_SECONDS:
            self._orphans_at = self._clock.monotonic()
            with suppress(StoreError):
                await remove_orphans(self._ledger, self._clock, self._emit)
        return any(answers)

    def _is_due(self, place: BrowserSlot) -> bool:
        return self._clock.monotonic() - place.checked_at > _CHECK_EVERY_SECONDS

    async def _measure(self, place: BrowserSlot) -> None:
        chromium = place.chromium
        if chromium is None:
            return
        found = await asyncio.to_thread(chromium.memory)
        if place.chromium is chromium and not chromium.over.done():
            place.memory = found
            await place.note(memory_mb=found // 1024**2)

    async def _check(self, place: BrowserSlot) -> bool:
        chromium = place.chromium
        if chromium is None:
            return False
        place.checked_at = self._clock.monotonic()
        try:
            await chromium.answers()
        except BrowserCallFailed as error:
            chromium.end(str(error))
            return False
        await place.note(last_health_check=self._clock.now())
        return True
