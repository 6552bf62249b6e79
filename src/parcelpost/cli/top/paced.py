"""A look that costs something, taken as seldom as keeps it cheap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from parcelpost.clock import Clock

T = TypeVar("T")

_SHARE = 0.01
"""Of the time that goes by, at most."""


class Paced(Generic[T]):
    def __init__(self, look: Callable[[], Awaitable[T]], at_least: float, clock: Clock) -> None:
        self._look = look
        self._at_least = at_least
        self._clock = clock
        self._found: T | None = None
        self._due = 0.0

    async def get(self) -> T:
        """What was found last, or, when that is due, what is found now."""
        began = self._clock.monotonic()
        if self._found is None or began >= self._due:
            self._found = await self._look()
            ended = self._clock.monotonic()
            self._due = ended + max(self._at_least, (ended - began) / _SHARE)
        return self._found
