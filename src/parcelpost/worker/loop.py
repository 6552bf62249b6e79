"""Loop runs one step after another; the Supervisor starts, wakes, drains and stops all loops of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed, WorkerDraining, WorkerStopped
from parcelpost.worker.control import Control

Step = Callable[[], Coroutine[Any, Any, float]]
"""Does one step and returns the seconds until the next."""

LONGEST_STEP_SECONDS = 1_800.0

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_FAILURES = 10


class FailureCount:
    """Counts consecutive failures of a loop or a background task. Each is reported, and followed by a longer pause.

    Ten failures that waiting cannot fix are final. If the store cannot be written for now (a full disk, another
    program's lock), there is no limit.
    """

    def __init__(self, name: str, emit: Emit) -> None:
        self._name = name
        self._emit = emit
        self.reset()

    def reset(self) -> None:
        self._failures = 0
        self._surprises = 0
        """How many of them waiting cannot fix."""

    @property
    def is_final(self) -> bool:
        return self._surprises >= _MOST_FAILURES

    def add(self, error: BaseException) -> float:
        """Returns the pause in seconds."""
        self._failures += 1
        self._surprises += not (isinstance(error, StoreError) and error.retry_helps)
        pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
        message = f"{type(error).__name__}: {error}"
        self._emit(LoopFailed(loop=self._name, error=message, in_a_row=self._failures, next_in_seconds=pause))
        return pause


class Loop:
    """Runs until it is cancelled or its failures are final. A final failure ends the worker."""

    def __init__(self, name: str, step: Step, clock: Clock, emit: Emit, longest: float = LONGEST_STEP_SECONDS) -> None:
        """A step that takes more than `longest` seconds is stuck."""
        self.name = name
        self._longest = longest
        self._began: float | None = None
        """Monotonic start of the current step; None between steps."""
        self._step = step
        self._clock = clock
        self._failures = FailureCount(name, emit)
        self._woken = asyncio.Event()

    @property
    def is_overdue(self) -> bool:
        return self._began is not None and self._clock.monotonic() - self._began > self._longest

    def wake(self) -> None:
        """Starts the next step at once, unless the last one failed: then the pause stays."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            await self._take_step()

    async def _take_step(self) -> None:
        """Runs one step and the pause after it."""
        self._began = self._clock.monotonic()
        try:
            delay = await self._step()
        except Exception as error:
            self._began = None
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the step failed while it was being cancelled
                raise asyncio.CancelledError from error
            pause = self._failures.add(error)
            if self._failures.is_final:
                raise
        else:
            self._began = None
            self._failures.reset()
            pause = 0.0
            if delay > 0:
                await self._clock.wait(self._woken, delay)
                return
        await self._clock.sleep(pause)  # even if it is 0: a step that never awaits would block the event loop


T = TypeVar("T")

_LAST_SYNC_SECONDS = 10.0
_GOODBYE_SECONDS = 3.0
_HURRIED_GOODBYE_SECONDS = 1.0

AFTER_DRAIN_SECONDS = _LAST_SYNC_SECONDS + _GOODBYE_SECONDS
"""Upper bound of the time between the end of the drain and the end of the process."""

Drain = Callable[[float], Awaitable[int]]
"""Waits up to that many seconds for running tasks, releases the others, and returns how many were released."""

Goodbye = Callable[[], Awaitable[None]]


class Supervisor:
    def __init__(self, control: Control, clock: Clock, emit: Emit) -> None:
        self._control = control
        self._clock = clock
        self._emit = emit
        self._loops: dict[str, Loop] = {}
        self._groups: dict[str, list[Loop]] = {}
        control.wake = self.wake

    def add(self, name: str, step: Step, longest: float = LONGEST_STEP_SECONDS, *, group: str = "") -> None:
        """Loops of one `group` are woken together."""
        loop = self._loops[name] = Loop(name, step, self._clock, self._emit, longest)
        self._groups.setdefault(group or name, []).append(loop)

    def wake(self, *names: str) -> None:
        """Wakes these loops or groups. Ignores names that this worker does not have."""
        for name in names:
            for loop in self._groups.get(name, ()):
                loop.wake()

    def overdue(self) -> list[str]:
        """Returns the names of loops whose step takes too long."""
        return [name for name, loop in self._loops.items() if loop.is_overdue]

    async def run(
        self, drain: Drain, last_sync: Step | None, drain_seconds: float, goodbye: Goodbye | None = None
    ) -> None:
        """Runs all loops until a drain is requested. If a loop fails for good, drains, then raises its error.

        `last_sync` delivers what the upstream accepts within a few seconds. `goodbye` runs last, after all loops.
        """
        tasks = {asyncio.create_task(loop.run(), name=name): name for name, loop in self._loops.items()}
        leaving = asyncio.create_task(self._control.leaving.wait())
        try:
            await asyncio.wait({leaving, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if not self._control.leaving.is_set():
                self._control.leave(f"the {next(name for task, name in tasks.items() if task.done())} loop failed")
            released = await self._drain(drain, drain_seconds)
            if last_sync is not None and not self._control.stopping.is_set():
                await self._sync_once_more(last_sync, [task for task, name in tasks.items() if name == "sync"])
        finally:
            leaving.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait({leaving, *tasks})
            errors = [error for task in tasks if not task.cancelled() and (error := task.exception())]
        if goodbye is not None:
            await self._say(goodbye)
        self._emit(WorkerStopped(reason=self._control.reason, released=released))
        for error in errors:
            raise error

    async def _drain(self, drain: Drain, seconds: float) -> int:
        """Drains without waiting if a stop was requested, before the drain or during it."""
        at_once = self._control.stopping.is_set()
        self._emit(WorkerDraining(reason=self._control.reason, seconds=0.0 if at_once else seconds))
        if not at_once:
            draining = await self._unless_stopped(drain(seconds))
            if not draining.cancelled():
                return draining.result()
        return await drain(0.0)

    async def _sync_once_more(self, step: Step, running: list[asyncio.Task[None]]) -> None:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        give_up_at = self._clock.monotonic() + _LAST_SYNC_SECONDS

        async def deliver() -> None:
            while await step() == 0 and self._clock.monotonic() < give_up_at:
                pass

        self._report("last sync", await self._unless_stopped(deliver(), _LAST_SYNC_SECONDS))

    async def _say(self, goodbye: Goodbye) -> None:
        saying = asyncio.ensure_future(goodbye())
        hurried = self._control.stopping.is_set()
        try:
            await asyncio.wait({saying}, timeout=_HURRIED_GOODBYE_SECONDS if hurried else _GOODBYE_SECONDS)
        finally:
            saying.cancel()
            await asyncio.wait({saying})
        self._report("goodbye", saying)

    def _report(self, name: str, ended: asyncio.Future[None]) -> None:
        """Reports a failure at the end, which has no other effect."""
        if not ended.cancelled() and (error := ended.exception()):
            message = f"{type(error).__name__}: {error}"
            self._emit(LoopFailed(loop=name, error=message, in_a_row=1, next_in_seconds=0.0))

    async def _unless_stopped(self, work: Awaitable[T], seconds: float | None = None) -> asyncio.Future[T]:
        """Returns the work once it has ended. Cancels it if a stop is requested or the time is up."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._control.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait({working, stopping})
        return working
