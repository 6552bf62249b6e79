"""Loops: each runs one step after another; the Supervisor starts, wakes, drains and stops them together."""

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
    """Failures in a row of a loop or a background task, each reported, with a longer pause after each.

    Ten failures that waiting does not cure are final. A store that cannot be written for now (a full disk, another
    program's lock) is waited for as long as it takes.
    """

    def __init__(self, name: str, emit: Emit) -> None:
        self._name = name
        self._emit = emit
        self.reset()

    def reset(self) -> None:
        self._failures = 0
        self._surprises = 0
        """Failures that waiting does not cure."""

    @property
    def is_final(self) -> bool:
        return self._surprises >= _MOST_FAILURES

    def add(self, error: BaseException) -> float:
        """Returns the pause."""
        self._failures += 1
        self._surprises += not (isinstance(error, StoreError) and error.retry_helps)
        pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
        message = f"{type(error).__name__}: {error}"
        self._emit(LoopFailed(loop=self._name, error=message, in_a_row=self._failures, next_in_seconds=pause))
        return pause


class Loop:
    """Runs until it is cancelled, or its failures are final: then the error ends the worker."""

    def __init__(self, name: str, step: Step, clock: Clock, emit: Emit, longest: float = LONGEST_STEP_SECONDS) -> None:
        """`longest`: a step that has not ended after so many seconds is stuck."""
        self.name = name
        self._longest = longest
        self._began: float | None = None
        """When the current step began; None between steps."""
        self._step = step
        self._clock = clock
        self._failures = FailureCount(name, emit)
        self._woken = asyncio.Event()

    @property
    def is_overdue(self) -> bool:
        return self._began is not None and self._clock.monotonic() - self._began > self._longest

    def wake(self) -> None:
        """The next step comes at once, unless the last one failed: its pause is kept."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            await self._take_step()

    async def _take_step(self) -> None:
        """One step, and the pause after it."""
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
        await self._clock.sleep(pause)  # even for no time: a step that never waits would block the event loop


T = TypeVar("T")

_LAST_SYNC_SECONDS = 10.0
_GOODBYE_SECONDS = 3.0
_HURRIED_GOODBYE_SECONDS = 1.0

AFTER_DRAIN_SECONDS = _LAST_SYNC_SECONDS + _GOODBYE_SECONDS
"""What follows the drain takes no longer than this."""

Drain = Callable[[float], Awaitable[int]]
"""Waits that many seconds for what runs, releases the rest, and returns how many were released."""

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
        """`group`: a name under which several loops are woken together."""
        loop = self._loops[name] = Loop(name, step, self._clock, self._emit, longest)
        self._groups.setdefault(group or name, []).append(loop)

    def wake(self, *names: str) -> None:
        """Loops or groups; names that this worker does not have are ignored."""
        for name in names:
            for loop in self._groups.get(name, ()):
                loop.wake()

    def overdue(self) -> list[str]:
        """Loops whose step should have ended long ago."""
        return [name for name, loop in self._loops.items() if loop.is_overdue]

    async def run(
        self, drain: Drain, last_sync: Step | None, drain_seconds: float, goodbye: Goodbye | None = None
    ) -> None:
        """Until the control says leave. A loop that cannot go on drains the worker, which then raises its error.

        `last_sync` delivers what the upstream takes in a few seconds. `goodbye` comes last, when no loop runs.
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
        """At once when told to stop, before or meanwhile."""
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
        """A failure at the end is only reported."""
        if not ended.cancelled() and (error := ended.exception()):
            message = f"{type(error).__name__}: {error}"
            self._emit(LoopFailed(loop=name, error=message, in_a_row=1, next_in_seconds=0.0))

    async def _unless_stopped(self, work: Awaitable[T], seconds: float | None = None) -> asyncio.Future[T]:
        """Returns the work when it has ended, by itself or cancelled because the control said stop or time was up."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._control.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait({working, stopping})
        return working
