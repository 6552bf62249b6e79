"""The loops of one worker: started together, drained in order, stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parcelpost.clock import Clock
from parcelpost.events import Emit, LoopFailed, WorkerDraining, WorkerStopped
from parcelpost.worker.control import Control
from parcelpost.worker.loop import LONGEST_TURN_SECONDS, Loop, Step

T = TypeVar("T")

_LAST_SYNC_SECONDS = 10.0
_GOODBYE_SECONDS = 3.0
_HURRIED_GOODBYE_SECONDS = 1.0

LAST_WORDS_SECONDS = _LAST_SYNC_SECONDS + _GOODBYE_SECONDS
"""What comes after the drain takes no longer than this."""

Drain = Callable[[float], Awaitable[int]]
"""Waits that many seconds for what runs, gives back the rest, and answers how many that were."""

Goodbye = Callable[[], Awaitable[None]]


class Crew:
    def __init__(self, control: Control, clock: Clock, emit: Emit) -> None:
        self._control = control
        self._clock = clock
        self._emit = emit
        self._loops: dict[str, Loop] = {}

    def add(self, name: str, step: Step, longest: float = LONGEST_TURN_SECONDS) -> Loop:
        loop = Loop(name, step, self._clock, self._emit, longest)
        self._loops[name] = loop
        return loop

    def wake(self, *names: str) -> None:
        """Those that this worker has."""
        for name in names:
            if name in self._loops:
                self._loops[name].wake()

    def overdue(self) -> list[str]:
        """Loops whose turn should long have ended."""
        return [name for name, loop in self._loops.items() if loop.is_overdue]

    def is_in_a_turn(self, name: str) -> bool:
        return name in self._loops and self._loops[name].is_in_a_turn

    async def run(
        self, drain: Drain, last_sync: Step | None, drain_seconds: float, goodbye: Goodbye | None = None
    ) -> None:
        """Until the control says leave. A loop that cannot go on ends the worker with its error, drained all the same.

        `last_sync` delivers what is there, as far as the upstream takes it in a few seconds. `goodbye` comes last, when
        no loop runs any more, and has a few seconds too.
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
        """Released at once when told to stop, before or meanwhile."""
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

    def _report(self, what: str, ended: asyncio.Future[None]) -> None:
        """A failure in the last moments changes nothing any more."""
        if not ended.cancelled() and (error := ended.exception()):
            message = f"{type(error).__name__}: {error}"
            self._emit(LoopFailed(loop=what, error=message, in_a_row=1, next_in_seconds=0.0))

    async def _unless_stopped(self, work: Awaitable[T], seconds: float | None = None) -> asyncio.Future[T]:
        """The work, ended: by itself, or cancelled when the control said stop or the time was up."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._control.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait({working, stopping})
        return working
