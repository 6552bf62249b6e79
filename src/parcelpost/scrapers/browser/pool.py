"""BrowserPool: leases pages in real browsers, one page per browser, with as many browsers as the machine allows."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import (
    BrowserDied,
    BrowserRetired,
    BrowserStarted,
    BrowsersUnavailable,
    Emit,
    LoopFailed,
)
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import chromium, processes
from parcelpost.scrapers.browser.browser import BrowserCallFailed, Chromium, LeasedPage, PlaywrightDriver, launch
from parcelpost.scrapers.browser.chromium import ChromiumMissing
from parcelpost.scrapers.browser.processes import BrowserStore
from parcelpost.scrapers.fetch.errors import BrowserCrashed, BrowserUnavailable, HostBusy, RetryLater
from parcelpost.settings.schema import BrowserSettings

_MAX_CRASHES = 5
_POLL_SECONDS = 0.5
_NOT_ALLOWED_SECONDS = 5.0
_MIN_BACKOFF_SECONDS = 0.25
_MAX_BACKOFF_SECONDS = 60.0
_HEALTH_SECONDS = 2.0
_CHECK_SECONDS = 10.0
_ORPHAN_SECONDS = 60.0


class BrowserSlot:
    """Runs one browser after another, and records their state in the store."""

    def __init__(self, store: BrowserStore, owner: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        now = clock.now()
        self.state = BrowserState(
            browser_id=0, status="restarting", last_health_check=now, created_at=now, launches=0, owner=owner
        )
        self.chromium: Chromium | None = None
        self.is_leased = False
        self.is_retiring = False
        """Whether a healthy browser is being stopped."""
        self.is_closing = False
        """Whether no other browser will be started in this slot."""
        self.idle_since = self.started_at = self.checked_at = 0.0
        self.tasks = 0
        """Number of tasks that the current browser was given."""
        self.memory = 0
        """Bytes of the current browser, as last measured; 0: not yet."""

    @property
    def is_starting(self) -> bool:
        """Whether a browser is starting here, or will start once the last one is gone."""
        return not self.is_closing and (self.chromium is None or self.chromium.ended.done())

    @property
    def is_idle(self) -> bool:
        return self.chromium is not None and not self.is_leased and not self.chromium.ended.done()

    async def announce(self, marker: str) -> None:
        """Records a browser before it starts, so that it is found if this process is killed. Raises a StoreError."""
        self.state = replace(
            self.state,
            status="restarting",
            current_task_id=None,
            launches=self.state.launches + 1,
            restarted_at=self._clock.now() if self.state.launches else None,
            memory_mb=None,
            pid=None,
            profile="",
            marker=marker,
        )
        if self.state.browser_id:
            await self._store.put(self.state)
        else:
            self.state = replace(self.state, browser_id=await self._store.add(self.state))

    async def begin(self, started: Chromium) -> None:
        self.chromium = started
        self.is_leased = self.is_retiring = False
        self.tasks = self.memory = 0
        self.started_at = self.idle_since = self.checked_at = self._clock.monotonic()
        await self.record(status="idle", pid=started.pid, profile=started.profile, last_health_check=self._clock.now())

    async def record(self, **changes: Any) -> None:
        """If the store is full or busy, the change is written with the next one."""
        self.state = replace(self.state, **changes)
        with suppress(StoreError):
            await self._store.put(self.state)

    async def assign(self, task_id: str, *, is_working: bool) -> None:
        with suppress(StoreError):
            await self._store.assign(task_id, self.state.browser_id if is_working else None)

    def retire(self, reason: str, *, for_good: bool = False) -> None:
        """Stops an idle browser. `for_good`: without starting another one in its place."""
        if self.chromium is not None:
            self.is_retiring, self.is_closing = True, for_good
            self.chromium.end(reason)


class Launcher:
    """Starts browsers on one Playwright driver, and backs off if they fail to start."""

    def __init__(self, settings: BrowserSettings, clock: Clock, emit: Emit) -> None:
        self.token = secrets.token_hex(16)
        """The markers of all its browsers begin with it."""
        self.problem = ""
        """Why no browser can be started; '' if the last start worked or there was none."""
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._driver: PlaywrightDriver | None = None
        self._driver_lock = asyncio.Lock()
        self._failures = 0
        self._retry_at = 0.0

    @property
    def retry_in(self) -> float:
        """Seconds until the next attempt; 0: now."""
        return max(0.0, self._retry_at - self._clock.monotonic())

    async def launch(self, slot: BrowserSlot) -> Chromium:
        """Raises BrowserCallFailed, or a StoreError if the browser cannot be announced."""
        began = self._clock.monotonic()
        installed = chromium.find(self._settings)
        if isinstance(installed, ChromiumMissing):
            raise BrowserCallFailed(installed.reason, installed.hint)
        sandbox = await asyncio.to_thread(chromium.sandbox, self._settings, installed.path)
        driver = await self._get_driver()
        marker = f"{self.token}-{secrets.token_hex(4)}"
        await slot.announce(marker)
        started = await launch(driver, installed.path, marker, sandbox=sandbox.is_on, clock=self._clock)
        await slot.begin(started)
        self._emit(
            BrowserStarted(
                browser_id=slot.state.browser_id,
                pid=started.pid,
                version=started.version,
                launches=slot.state.launches,
                seconds=self._clock.monotonic() - began,
                no_sandbox=sandbox.reason,
            )
        )
        return started

    def failed(self, reason: str, hint: str = "") -> None:
        """A hint means that the operator must act: the next attempt is then a minute away."""
        self._failures += 1
        backoff = min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2.0 ** min(self._failures, 30))
        self._retry_at = self._clock.monotonic() + (_MAX_BACKOFF_SECONDS if hint else backoff)
        problem = f"{reason} ({hint})" if hint else reason
        if problem != self.problem:
            self._emit(BrowsersUnavailable(reason=reason, hint=hint, retry_in_seconds=self.retry_in))
        self.problem = problem

    def worked(self) -> None:
        self.problem, self._failures, self._retry_at = "", 0, 0.0

    async def stop(self) -> None:
        """Kills every process of every browser it has started."""
        try:
            if self._driver is not None:
                await self._driver.stop()
        finally:
            for pid in processes.find_browsers(self.token):
                await processes.kill_and_wait(pid, self._clock)

    async def _get_driver(self) -> PlaywrightDriver:
        async with self._driver_lock:
            if self._driver is not None and not self._driver.is_running:
                await self._driver.stop()
                self._driver = None
            if self._driver is None:
                self._driver = await PlaywrightDriver.start()
            return self._driver


class PoolFigures(Struct, frozen=True, kw_only=True):
    browsers: int
    busy: int
    waiting: int
    """Callers that wait for a page."""
    pss_bytes: int
    """Memory of all browsers, as last measured."""
    pss_per_browser: int | None
    """None: nothing was measured yet."""


class BrowserPool:
    """Belongs to one event loop. Every browser has one page at a time, in a fresh context."""

    def __init__(self, settings: BrowserSettings, store: BrowserStore, owner: str, clock: Clock, emit: Emit) -> None:
        self._settings = settings
        self._store = store
        self._owner = owner
        self._clock = clock
        self._emit = emit
        self._launcher = Launcher(settings, clock, emit)
        self._allowed = settings.most
        self._slots: list[BrowserSlot] = []
        self._wait_queue: deque[asyncio.Future[BrowserSlot]] = deque()
        self._crash_counts: Counter[str] = Counter()
        """Task ID -> consecutive crashes. Entries of tasks that never return are not removed; they are small."""
        self._memory_per_browser: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._returns: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: BrowserSettings, store: BrowserStore, *, owner: str, clock: Clock, emit: Emit
    ) -> AsyncIterator[BrowserPool]:
        """Kills browsers left by crashed processes, and its own on exit. Starts none yet. May raise a StoreError."""
        await processes.remove_orphans(store, clock, emit)
        pool = cls(settings, store, owner, clock, emit)
        try:
            _spawn(pool._tasks, pool._check_health())
            yield pool
        finally:
            await pool._close()

    async def _close(self) -> None:
        self._allowed = 0
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, *self._returns, return_exceptions=True)
        finally:
            await self._launcher.stop()
        with suppress(StoreError):  # those too whose start was interrupted
            for state in await self._store.all():
                if state.marker.startswith(self._launcher.token):
                    await self._store.remove(state)

    # A page from its lease to its return

    @asynccontextmanager
    async def lease(
        self, task_id: str, *, timeout: float = 5.0, agent: str = "", **context_options: Any
    ) -> AsyncIterator[LeasedPage]:
        """A page in a fresh context, for one task. `agent` is added to Chromium's user agent.

        Raises HostBusy if all browsers are busy for longer than `timeout` seconds, BrowserUnavailable if none can be
        had, BrowserCrashed if it dies, and RetryLater if it has died five times in a row with this task.
        """
        if self._crash_counts[task_id] >= _MAX_CRASHES:  # an attempt that counts, or it would go on for ever
            del self._crash_counts[task_id]
            raise RetryLater(f"the browser crashed {_MAX_CRASHES} times in a row with this task")
        slot = await self._wait_for_slot(timeout)
        leased, page = slot.chromium, None
        if leased is None or leased.ended.done():
            raise BrowserCrashed("the browser crashed before it could be used")
        try:
            await slot.record(status="busy", current_task_id=task_id)
            await slot.assign(task_id, is_working=True)
            page = await self._open_page(slot, leased, agent, context_options)
            yield page
        finally:  # goes on to its end even if the caller is cancelled again
            await asyncio.shield(_spawn(self._returns, self._take_back(slot, leased, task_id, page)))

    async def _wait_for_slot(self, timeout: float) -> BrowserSlot:
        self._check_available(timeout)
        waiter: asyncio.Future[BrowserSlot] = asyncio.get_running_loop().create_future()
        self._wait_queue.append(waiter)
        self._serve()
        try:
            await asyncio.wait({waiter}, timeout=timeout)
        except BaseException:
            if waiter.done() and waiter.exception() is None:
                self._release(waiter.result())
            raise
        finally:
            with suppress(ValueError):
                self._wait_queue.remove(waiter)
        if waiter.done():
            return waiter.result()
        self._check_available(0.0)
        busy = sum(slot.is_leased for slot in self._slots)
        raise HostBusy(f"{busy} of {len(self._slots)} browsers are busy", max(_POLL_SECONDS, self.opens_in()))

    def _check_available(self, timeout: float) -> None:
        """Raises BrowserUnavailable if there will be no browser within that time."""
        if not self._settings.most:
            raise BrowserUnavailable("browser.most is 0", _NOT_ALLOWED_SECONDS, "set browser.most to 1 or more")
        if not self._allowed:
            raise BrowserUnavailable("there is not enough memory for a browser", _NOT_ALLOWED_SECONDS)
        if not self._slots and self._launcher.retry_in > timeout:
            raise BrowserUnavailable(self._launcher.problem, self._launcher.retry_in)

    async def _open_page(
        self, slot: BrowserSlot, leased: Chromium, agent: str, context_options: dict[str, Any]
    ) -> LeasedPage:
        try:
            context, page = await leased.new_page(agent, **context_options)
        except BrowserCallFailed as error:
            leased.end(str(error))
            raise BrowserCrashed(leased.ended.result()) from error
        self._launcher.worked()
        slot.tasks += 1
        return LeasedPage(leased, context, page)

    async def _take_back(self, slot: BrowserSlot, leased: Chromium, task_id: str, page: LeasedPage | None) -> None:
        await slot.assign(task_id, is_working=False)
        try:
            await leased.close_pages()
        except BrowserCallFailed as error:
            leased.end(str(error))
        has_crashed = page.has_crashed if page is not None else leased.ended.done()
        if has_crashed:
            self._crash_counts[task_id] += 1
        else:
            del self._crash_counts[task_id]
        if leased.ended.done():
            return  # `_run` sees to it
        completed = slot.state.tasks_completed + (page is not None and not has_crashed)
        await slot.record(status="idle", current_task_id=None, tasks_completed=completed)
        slot.idle_since = self._clock.monotonic()
        self._release(slot)

    def _release(self, slot: BrowserSlot) -> None:
        slot.is_leased = False
        self._retire_if_due(slot)
        self._serve()

    def _serve(self) -> None:
        """Gives idle browsers to those who have waited longest, and starts browsers for the others."""
        idle = sorted((slot for slot in self._slots if slot.is_idle), key=lambda slot: slot.idle_since)
        while self._wait_queue and idle:
            slot = idle.pop()  # the one last used: the others may become idle enough to be stopped
            slot.is_leased = True
            self._wait_queue.popleft().set_result(slot)
        if self._launcher.retry_in:
            return
        starting = sum(slot.is_starting for slot in self._slots)
        for _ in range(min(len(self._wait_queue) - starting, self._limit - len(self._slots))):
            slot = BrowserSlot(self._store, self._owner, self._clock)
            self._slots.append(slot)
            _spawn(self._tasks, self._run(slot))

    # How many browsers run, and for how long

    @property
    def _limit(self) -> int:
        return min(self._settings.most, self._allowed)

    @property
    def _excess(self) -> int:
        return sum(not slot.is_closing for slot in self._slots) - self._limit

    @property
    def _running(self) -> list[BrowserSlot]:
        return [slot for slot in self._slots if slot.chromium is not None]

    def allow(self, most: int) -> None:
        """Limits the number of browsers. Excess ones are stopped when they are idle."""
        self._allowed = max(0, most)
        self._stop_idle_browsers()
        self._serve()

    async def stop_largest(self) -> bool:
        """Kills the largest browser, even during a task, to free memory. Returns False if there is none."""
        largest = max(self._running, key=lambda slot: slot.memory, default=None)
        if largest is None or largest.chromium is None:
            return False
        largest.is_closing = True
        largest.chromium.end("the machine is out of memory")
        largest.chromium.kill()
        return True

    def opens_in(self, before: int = 0) -> float:
        """Returns 0 if a lease would succeed after `before` others, now or once a browser has started; otherwise the
        seconds until it makes sense to check again."""
        if not self._limit:
            return _NOT_ALLOWED_SECONDS
        retry_in = self._launcher.retry_in
        if retry_in and not self._slots:
            return retry_in
        startable = 0 if retry_in else self._limit - len(self._slots)
        free = sum(slot.is_idle or slot.is_starting for slot in self._slots) + startable
        return 0.0 if free > len(self._wait_queue) + before else _POLL_SECONDS

    @property
    def figures(self) -> PoolFigures:
        running = self._running
        return PoolFigures(
            browsers=len(running),
            busy=sum(slot.is_leased for slot in running),
            waiting=len(self._wait_queue),
            pss_bytes=sum(slot.memory for slot in running),
            pss_per_browser=self._memory_per_browser,
        )

    def _stop_idle_browsers(self) -> None:
        for slot in sorted(self._slots, key=lambda slot: slot.idle_since):
            self._retire_if_due(slot)
            if slot.is_idle and self._clock.monotonic() - slot.idle_since > self._settings.idle_seconds:
                slot.retire("it was idle", for_good=True)

    def _retire_if_due(self, slot: BrowserSlot) -> None:
        if not slot.is_idle:
            return
        if self._excess > 0:
            slot.retire("there is not enough memory for this many browsers", for_good=True)
        elif reason := why_retire(slot, self._settings, self._clock):
            slot.retire(reason)

    async def _run(self, slot: BrowserSlot) -> None:
        """Runs one browser after another in the slot while it is needed."""
        try:
            while True:
                started = await self._launcher.launch(slot)
                self._serve()
                await asyncio.wait({started.ended})
                await self._finish(slot, started)
                if slot.is_closing or self._excess > 0 or self._launcher.retry_in:
                    break
        except (BrowserCallFailed, StoreError, OSError) as error:
            self._fail(str(error), getattr(error, "hint", ""))
        finally:
            if slot.chromium is not None:
                await slot.chromium.close()
            self._slots.remove(slot)
        with suppress(StoreError):
            await self._store.remove(slot.state)
        self._serve()

    async def _finish(self, slot: BrowserSlot, ended: Chromium) -> None:
        reason, is_retired = ended.ended.result(), slot.is_retiring
        event = BrowserRetired if is_retired else BrowserDied
        self._emit(event(browser_id=slot.state.browser_id, reason=reason, tasks=slot.tasks))
        await slot.record(status="restarting" if is_retired else "crashed", current_task_id=None)
        await ended.close()
        slot.chromium = None
        if not (is_retired or slot.is_closing or slot.tasks):
            self._fail(reason)  # or it would be started again and again

    def _fail(self, reason: str, hint: str = "") -> None:
        self._launcher.failed(reason, hint)
        while self._wait_queue and not self._running:
            problem = BrowserUnavailable(self._launcher.problem, self._launcher.retry_in)
            self._wait_queue.popleft().set_exception(problem)

    # Health checks

    async def _check_health(self) -> None:
        seconds = min(_HEALTH_SECONDS, self._settings.idle_seconds / 2, self._settings.max_age_seconds / 2)
        failures, orphans_at = 0, self._clock.monotonic()
        while True:
            await self._clock.sleep(seconds)
            try:
                self._stop_idle_browsers()
                self._serve()
                await asyncio.gather(*(self._check(slot) for slot in self._slots))
                if sizes := [slot.memory for slot in self._running if slot.memory]:
                    self._memory_per_browser = sum(sizes) // len(sizes)
                if self._clock.monotonic() - orphans_at >= _ORPHAN_SECONDS:
                    orphans_at = self._clock.monotonic()
                    await processes.remove_orphans(self._store, self._clock, self._emit)
                failures = 0
            except Exception as error:  # noqa: BLE001 - reported, and done again
                failures += 1
                message = f"{type(error).__name__}: {error}"
                self._emit(LoopFailed(loop="browsers", error=message, in_a_row=failures, next_in_seconds=seconds))

    async def _check(self, slot: BrowserSlot) -> None:
        """Measures the slot's browser and, if it is idle, tests now and then whether it responds."""
        checked, now = slot.chromium, self._clock.monotonic()
        if checked is None:
            return
        size = await asyncio.to_thread(checked.memory)
        if slot.is_idle and now - slot.checked_at > _CHECK_SECONDS:
            slot.checked_at = now
            try:
                await checked.check()
            except BrowserCallFailed as error:
                checked.end(str(error))
            else:
                await slot.record(last_health_check=self._clock.now())
        if slot.chromium is checked and size:
            slot.memory = size
            await slot.record(memory_mb=size // 1024**2)


def why_retire(slot: BrowserSlot, settings: BrowserSettings, clock: Clock) -> str:
    """Returns which limit the slot's browser has reached, or ''."""
    if slot.tasks >= settings.tasks_per_browser:
        return f"it has done {slot.tasks} tasks"
    if clock.monotonic() - slot.started_at > settings.max_age_seconds:
        return f"it is older than {settings.max_age_seconds:g} s"
    if slot.memory > settings.max_browser_bytes:
        return f"it uses {slot.memory / 1024**2:.0f} MiB of memory"
    return ""


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
