"""One loop for every duty: take a turn, wait as long as the turn said or until woken, take the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed

Step = Callable[[], Awaitable[float]]
"""Does one turn and answers the seconds until the next."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_FAILURES = 10


class Loop:
    """Runs until it is cancelled, or its step has failed ten times in a row: then that error ends the worker.

    A store that cannot be written for now (a full disk, another program's lock) is waited for as long as it takes.
    """

    def __init__(self, name: str, step: Step, clock: Clock, emit: Emit) -> None:
        self.name = name
        self._step = step
        self._clock = clock
        self._emit = emit
        self._woken = asyncio.Event()
        self._failures = 0

    def wake(self) -> None:
        """The next turn comes at once."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            delay = await self._turn()
            if delay > 0:
                await self._clock.wait(self._woken, delay)

    async def _turn(self) -> float:
        try:
            delay = await self._step()
        except Exception as error:
            self._failures += 1
            passes = isinstance(error, StoreError) and error.retry_helps
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
            message = f"{type(error).__name__}: {error}"
            self._emit(LoopFailed(loop=self.name, error=message, in_a_row=self._failures, next_in_seconds=pause))
            if self._failures >= _MOST_FAILURES and not passes:
                raise
            return pause
        self._failures = 0
        return delay
