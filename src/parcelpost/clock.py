"""Clocks: the only source of time, and the only module that sleeps."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec.json import encode

from parcelpost.errors import InvalidInput

_LONGEST_WAIT = 86_400.0  # a longer timer overflows on some systems


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the wall clock time in UTC. It may be set back, so never order by it."""

    def monotonic(self) -> float:
        """Returns seconds that never decrease."""

    async def sleep(self, seconds: float) -> None: ...

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Waits for the event, at most this long. Returns whether it is set."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that arrives together with the event.
            async with asyncio.timeout(min(seconds, _LONGEST_WAIT)):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


class ManualClock:
    """A clock that moves only when it is advanced, or when somebody waits or sleeps."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Advances at once unless the event is set."""
        await asyncio.sleep(0)
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        self._monotonic += max(0.0, seconds)
        self._now += timedelta(seconds=seconds)


def iso(moment: datetime) -> str:
    """Returns text such as `2026-11-15T19:50:33.123Z`, which sorts by time. Raises InvalidInput without a time zone."""
    if moment.tzinfo is not UTC:
        if moment.tzinfo is None:
            raise InvalidInput(f"the time {moment.isoformat()} has no time zone")
        moment = moment.astimezone(UTC)
    text = encode(moment).decode()  # "2026-11-15T19:50:33.123456Z" in quotes; far faster than isoformat
    return f"{text[1:24]}Z" if moment.microsecond else f"{text[1:20]}.000Z"


def from_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)
