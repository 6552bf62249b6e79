"""One loop for every duty: take a turn, wait as long as the turn said or until woken, take the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, LoopFailed

Step = Callable[[], Coroutine[Any, Any, float]]
"""Does one turn and answers the seconds until the next."""

LONGEST_TURN_SECONDS = 1_800.0

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_FAILURES = 10


class Loop:
    """Runs until it is cancelled, or its step has failed ten times in a row: then that error ends the worker.

    A store that cannot be written for now (a full disk, another program's lock) is waited for as long as it takes.
    """

    def __init__(self, name: str, step: Step, clock: Clock, emit: Emit, longest: float = LONGEST_TURN_SECONDS) -> None:
        """`longest`: a turn that has not ended after so many seconds will hardly end at all."""
        self.name = name
        self._longest = longest
        self._began: float | None = None
        """When the turn began that it is in; None while it rests."""
        self._step = step
        self._clock = clock
        self._emit = emit
        self._woken = asyncio.Event()
        self._failures = 0
        self._surprises = 0
        """Of the failures, those that do not pass by themselves."""

    @property
    def is_in_a_turn(self) -> bool:
        return self._began is not None

    @property
    def is_overdue(self) -> bool:
        return self._began is not None and self._clock.monotonic() - self._began > self._longest

    def wake(self) -> None:
        """The next turn comes at once, unless the last one failed: its pause is kept."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            await self._turn()

    async def _turn(self) -> None:
        """One step, and the pause after it."""
        self._began = self._clock.monotonic()
        try:
            delay = await self._step()
        except Exception as error:
            self._began = None
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the step failed while it was being cancelled
                raise asyncio.CancelledError from error
            pause = self._failed(error)
            if self._surprises >= _MOST_FAILURES:
                raise
        else:
            self._began = None
            self._failures = self._surprises = 0
            pause = 0.0
            if delay > 0:
                await self._clock.wait(self._woken, delay)
                return
        await self._clock.sleep(pause)  # if only for an instant: a step that never waits would hold up everybody

    def _failed(self, error: Exception) -> float:
        """Answers the pause."""
        self._failures += 1
        if not (isinstance(error, StoreError) and error.retry_helps):
            self._surprises += 1
        pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
        message = f"{type(error).__name__}: {error}"
        self._emit(LoopFailed(loop=self.name, error=message, in_a_row=self._failures, next_in_seconds=pause))
        return pause
